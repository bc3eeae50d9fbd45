"""Writes the results of every evaluation, in runs whose ``observers`` name the plugin.

They are the accuracy by type with intervals, and how tools were used. The accuracy of k samples (avg@k) is the mean
over questions of the share of right samples. Samples of one question are not independent, so intervals count questions
as trials, and are on the safe side for k > 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rlcore.console.wording import counted
from rlcore.episodes.evaluation import distinct, wilson
from rlcore.report import write_results
from rlcore.types import Group, Task, Trajectory

from rl_plugin_visual_search.grammar import parse

OTHER = "other"
"""The type of a question without one."""
OVERALL, MEAN = "overall", "mean of types"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An episode about one question."""

    task_id: str
    sample: int
    """Index of the episode among those of the same question."""
    category: str
    data_source: str
    question: str
    expected: str
    given: str | None
    """The last boxed answer; None without one."""
    reward: float | None
    """None if the episode is not scored."""
    right: bool | None
    """Whether the reward reaches ``evaluation.success``; None if the episode is not scored."""
    turns: int
    calls: int
    """Executed blocks of code, or calls of the zoom tool."""
    errors: int
    """Calls that failed or ran into the time limit."""
    pictures: int
    """Pictures that tools have shown."""
    stop: str

    def as_json(self) -> dict[str, Any]:
        """Return the record of the results file."""
        return asdict(self)


def is_question(task: Task) -> bool:
    """Whether a task is of this plugin's dataset."""
    return "question" in task.fields and "coordinates" in task.fields


def answered(groups: Sequence[Group], *, success: float) -> Iterator[Answered]:
    """Yield the episodes of the groups about questions, in order. An episode that is repeated counts once.

    Args:
        groups: scored groups, of which those of other datasets are left out
        success: minimum reward of a right answer
    """
    for task, one in distinct(groups):
        if is_question(task):
            yield _of(task, one, success)


def _of(task: Task, one: Trajectory, success: float) -> Answered:
    fields, counts = task.fields, one.metrics
    return Answered(
        task_id=task.key,
        sample=one.sibling,
        category=str(fields.get("category") or fields.get("data_source") or OTHER),
        data_source=str(fields.get("data_source") or ""),
        question=str(fields["question"]),
        expected=str(fields.get("answer", "")),
        given=parse(one.final_response).answer,
        reward=one.reward,
        right=None if one.reward is None else one.reward >= success,
        turns=sum(turn.kind == "policy" for turn in one.turns),
        calls=int(counts.get("tool_calls", 0)),
        errors=int(counts.get("tool_errors", 0) + counts.get("tool_timeouts", 0)),
        pictures=int(counts.get("tool_images", 0)),
        stop=str(one.stop),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """The accuracy of some questions."""

    questions: int
    """Number of questions with a scored episode."""
    value: float | None
    """None if nothing is scored."""
    interval: tuple[float, float] | None
    """95 % Wilson interval, with questions as trials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """How the episodes used their tools. Shares are 0 if there is nothing to divide."""

    episodes: int
    used: float
    """Share of the episodes with a call."""
    calls: float
    """Calls per episode."""
    errors: float
    """Share of the calls that failed or ran into the time limit."""
    pictures: float
    """Pictures shown by tools, per episode."""
    right_with: float | None
    """Share of right episodes among those with a call; None without any."""
    right_without: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The results of an evaluation."""

    samples: int
    """Largest number of episodes of a question."""
    types: Mapping[str, Accuracy]
    """By type of question, in alphabetical order."""
    overall: Accuracy
    mean: float | None
    """Unweighted mean of the types; None if nothing is scored."""
    tools: ToolUse
    not_scored: int
    """Episodes without a score, which are in no accuracy."""
    without_answer: int
    """Scored episodes that ended without a boxed answer."""

    def as_json(self) -> dict[str, Any]:
        """Return the results as plain data, without the single episodes."""
        return asdict(self)


def results_of(found: Sequence[Answered]) -> Results:
    """Summarise the episodes of an evaluation."""
    names = sorted({one.category for one in found})
    types = {name: _accuracy([one for one in found if one.category == name]) for name in names}
    scored = [each.value for each in types.values() if each.value is not None]
    return Results(
        samples=max((one.sample + 1 for one in found), default=0),
        types=types,
        overall=_accuracy(found),
        mean=_mean(scored),
        tools=_tools(found),
        not_scored=sum(one.right is None for one in found),
        without_answer=sum(one.right is not None and one.given is None for one in found),
    )


def _accuracy(found: Sequence[Answered]) -> Accuracy:
    by_question: dict[str, list[bool]] = {}
    for one in found:
        if one.right is not None:
            by_question.setdefault(one.task_id, []).append(one.right)
    value = _mean([sum(rights) / len(rights) for rights in by_question.values()])
    interval = None if value is None else wilson(value, len(by_question))
    return Accuracy(questions=len(by_question), value=value, interval=interval)


def _tools(found: Sequence[Answered]) -> ToolUse:
    calls = sum(one.calls for one in found)
    using = [one for one in found if one.calls]
    return ToolUse(
        episodes=len(found),
        used=len(using) / max(1, len(found)),
        calls=calls / max(1, len(found)),
        errors=sum(one.errors for one in found) / max(1, calls),
        pictures=sum(one.pictures for one in found) / max(1, len(found)),
        right_with=_mean([float(one.right) for one in using if one.right is not None]),
        right_without=_mean([float(one.right) for one in found if not one.calls and one.right is not None]),
    )


def metrics_of(found: Results) -> dict[str, float]:
    """Return the metrics: ``visual-search/accuracy``, ``visual-search/TYPE/accuracy``, ``visual-search/tools/…``."""
    metrics = {"accuracy": found.overall.value, "mean_of_types": found.mean}
    metrics |= {f"{name}/accuracy": each.value for name, each in found.types.items()}
    tools = found.tools
    metrics |= {"tools/used": tools.used, "tools/calls": tools.calls, "tools/error_share": tools.errors}
    metrics |= {"tools/pictures": tools.pictures}
    metrics |= {"tools/accuracy_with": tools.right_with, "tools/accuracy_without": tools.right_without}
    return {f"visual-search/{name}": value for name, value in metrics.items() if value is not None}


def table_of(found: Results) -> list[tuple[str, str]]:
    """Return the rows of the table: name and value."""
    rows = [(name, _shown(each)) for name, each in found.types.items()] if len(found.types) > 1 else []
    rows.append((OVERALL, _shown(found.overall)))
    if len(rows) > 1 and found.mean is not None:
        rows.append((MEAN, f"{found.mean:.3f}"))
    tools = found.tools
    rows += [
        ("tool use", f"{tools.used:.1%} of {counted(tools.episodes, 'episode')}, {tools.calls:.2f} calls per episode"),
        ("calls", f"{tools.errors:.1%} failed, {tools.pictures:.2f} pictures per episode"),
    ]
    if tools.right_with is not None and tools.right_without is not None:
        rows.append(("right", f"{tools.right_with:.3f} with a call, {tools.right_without:.3f} without"))
    if found.without_answer:
        rows.append(("no answer", counted(found.without_answer, "episode")))
    if found.not_scored:
        rows.append(("not scored", counted(found.not_scored, "episode")))
    return rows


def title_of(found: Results) -> str:
    """Return the line above the table, such as ``visual search, avg@8 of 191 questions``."""
    measure = "accuracy" if found.samples < 2 else f"avg@{found.samples}"
    return f"visual search, {measure} of {counted(found.overall.questions, 'question')}, 95 % intervals"


def lines_of(found: Results) -> list[str]:
    """Return the table as lines."""
    rows = table_of(found)
    width = max(len(name) for name, _ in rows)
    return [title_of(found), *(f"  {name:<{width}}  {value}" for name, value in rows)]


def _shown(each: Accuracy) -> str:
    if each.value is None or each.interval is None:
        return "not scored"
    low, high = each.interval
    return f"{each.value:.3f}   ({low:.3f} to {high:.3f}, {counted(each.questions, 'question')})"


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def evaluated(run: Any, step: int, groups: Sequence[Group]) -> Mapping[str, float]:
    """Write the results of an evaluation (see `write_results`), print them, and return the metrics.

    Args:
        run: a `rlcore.session.session.RunSession`
        step: of the training
        groups: the scored groups

    Returns:
        The metrics as ``visual-search/…``; empty if no task is a question about pictures.
    """
    evaluation = run.config.evaluation
    found = list(answered(groups, success=evaluation.success))
    if not found:
        return {}
    results = results_of(found)
    run.say(*lines_of(results))
    content = {
        "seed": run.config.seed,
        "option_seed": getattr(run.resolved.options.get("data"), "option_seed", None),
        "samples": evaluation.samples,
        "intervals": "95 % Wilson intervals, with questions as independent trials",
        **results.as_json(),
        "episodes": [each.as_json() for each in found],
    }
    write_results(run, "visual-search", step, groups, content)
    return metrics_of(results)


__all__ = [
    "Accuracy",
    "Results",
    "ToolUse",
    "answered",
    "evaluated",
    "is_question",
    "lines_of",
    "metrics_of",
    "results_of",
]
