"""Writes the results of every evaluation, in runs whose ``observers`` name the plugin: metrics with intervals.

They are separate for each kind of memory. A memory that a teacher wrote knows the recorded actions, so its scores are
higher than those of an agent that has only its own summaries. They are never mixed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rlcore.console.wording import counted
from rlcore.episodes.evaluation import distinct, wilson
from rlcore.report import write_results
from rlcore.types import Group

from rlcore_gui.answers import ParsedAnswer, parse
from rlcore_gui.benchmark import Benchmark, Metrics, StepScores, mean_of_parts
from rlcore_gui.rewards import answers
from rlcore_gui.steps import GuiStep
from rlcore_gui.tasks import MEMORIES, GuiTask, Memory

MEMORY_TEXTS: Mapping[Memory, str] = {
    "none": "without memory",
    "actions": "with the recorded actions as memory",
    "oracle": "with a teacher's summaries as memory, which know the recorded actions",
    "own": "with the agent's own summaries as memory",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A step, and an answer to it."""

    step: GuiStep
    memory: Memory
    task_id: str
    sample: int
    """Index of the trajectory among those of the same task."""
    text: str
    """What the model wrote; empty if the episode ended before this step."""
    answer: ParsedAnswer
    scores: StepScores | None
    """None if the episode failed, so that there is nothing to judge."""

    def as_json(self) -> dict[str, Any]:
        """Return the record of the results file."""
        return {
            "row_id": self.step.row_id,
            "episode_id": self.step.episode_id,
            "step_index": self.step.step_index,
            "group": self.step.group,
            "task": self.step.task,
            "memory": self.memory,
            "sample": self.sample,
            "expected": self.step.action.as_json(),
            "given": self.answer.action and self.answer.action.as_json(),
            "unreadable": self.answer.unreadable,
            "summary": self.answer.summary,
            "scores": None if self.scores is None else dict(self.scores.values),
            "text": self.text,
        }


def answered(benchmark: Benchmark, groups: Sequence[Group]) -> Iterator[Answered]:
    """Yield the answers to all steps of the groups that are tasks of this benchmark, in order.

    A step that an episode did not reach has an empty answer. A trajectory that is repeated counts once.
    """
    for task, one in distinct(groups):
        if task.fields.get("benchmark") != benchmark.name:
            continue
        known = GuiTask.of(task)
        texts = answers(one, len(known.steps))
        parsed = [parse(text, benchmark.table) for text in texts]
        scores: Sequence[StepScores | None] = [None] * len(texts)
        if one.scorable:
            scores = benchmark.measure(parsed, known.steps)
        for step, text, answer, score in zip(known.steps, texts, parsed, scores, strict=True):
            yield Answered(
                step=step,
                memory=known.memory,
                task_id=task.key,
                sample=one.sibling,
                text=text,
                answer=answer,
                scores=score,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The results with one kind of memory."""

    memory: Memory
    steps: int
    """Number of different steps."""
    episodes: int
    samples: int
    """Number of trajectories of a task. Metrics are means over the evaluations of each sample."""
    not_scored: int
    """Number of answers in failed episodes, which are in no metric."""
    unreadable: Mapping[str, int]
    """Number of answers without a readable action, by reason."""
    metrics: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    """95 % Wilson intervals of the metrics, with episodes as independent trials."""

    def as_json(self) -> dict[str, Any]:
        """Return the part of the results file, without the single steps."""
        plain = {name: value for name, value in asdict(self).items() if name not in ("memory", "intervals")}
        metrics = {
            name: {"value": value, "interval": list(self.intervals[name])} for name, value in self.metrics.items()
        }
        return {**plain, "metrics": metrics}


def results_of(benchmark: Benchmark, found: Sequence[Answered]) -> list[Results]:
    """Summarise the answers of an evaluation, for each kind of memory that occurs."""
    by_memory = {memory: [each for each in found if each.memory == memory] for memory in MEMORIES}
    return [_results(benchmark, memory, part) for memory, part in by_memory.items() if part]


def _results(benchmark: Benchmark, memory: Memory, found: Sequence[Answered]) -> Results:
    samples: dict[int, list[StepScores]] = {}
    for each in found:
        if each.scores is not None:
            samples.setdefault(each.sample, []).append(each.scores)
    metrics = mean_of_parts(benchmark.summarize(scores) for scores in samples.values())
    trials = _Trials(benchmark, [scores for part in samples.values() for scores in part])
    reasons = Counter(str(each.answer.unreadable) for each in found if each.scores and each.answer.unreadable)
    return Results(
        memory=memory,
        steps=len({each.step.row_id for each in found}),
        episodes=len({each.step.episode_id for each in found}),
        samples=len({each.sample for each in found}),
        not_scored=sum(each.scores is None for each in found),
        unreadable=dict(reasons.most_common()),
        metrics=metrics,
        intervals={name: wilson(value, trials.of(name)) for name, value in metrics.items()},
    )


class _Trials:
    """The number of independent trials of each metric: the episodes that have its measure."""

    def __init__(self, benchmark: Benchmark, scores: Sequence[StepScores]) -> None:
        self._balanced = benchmark.balanced
        self._episodes: dict[tuple[str, str], set[str]] = {}
        """By group and measure, and of the whole group by an empty name."""
        for each in scores:
            for name in ("", *each.values):
                self._episodes.setdefault((each.group, name), set()).add(each.episode_id)
        self._groups = sorted({group for group, _ in self._episodes})

    def of(self, metric: str) -> int:
        """At least 1. The mean of D groups has D² / Σ 1/n trials, where n are those of each group."""
        prefix, _, name = metric.rpartition("/")
        measure = name if any((group, name) in self._episodes for group in self._groups) else ""
        first = prefix.partition("/")[0]
        groups = [first] if first in self._groups else self._groups
        counts = [len(self._episodes[group, measure]) for group in groups if (group, measure) in self._episodes]
        if prefix in self._balanced and counts:
            return max(1, round(len(counts) ** 2 / sum(1 / count for count in counts)))
        return max(1, sum(counts))


def metrics_of(benchmark: Benchmark, found: Sequence[Results]) -> Metrics:
    """The metrics under the names ``BENCHMARK/MEMORY/METRIC``."""
    return {f"{benchmark.name}/{each.memory}/{name}": value for each in found for name, value in each.metrics.items()}


def lines_of(benchmark: Benchmark, found: Results) -> list[str]:
    """Return lines that describe the results."""
    rows = [name for name in benchmark.shown if name in found.metrics]
    width = max(map(len, rows), default=0)
    lines = [f"{benchmark.name}, {MEMORY_TEXTS[found.memory]}: {_size(found)}"]
    for name in rows:
        low, high = found.intervals[name]
        lines.append(f"  {name:<{width}}  {found.metrics[name]:.3f}   (95 % interval {low:.3f} to {high:.3f})")
    if found.unreadable:
        lines.append("  unreadable: " + ", ".join(f"{reason} {count}" for reason, count in found.unreadable.items()))
    if found.not_scored:
        lines.append(f"  not scored: {counted(found.not_scored, 'answer')} in failed episodes")
    return lines


def _size(found: Results) -> str:
    return f"{counted(found.steps, 'step')} of {counted(found.episodes, 'episode')}"


def evaluated(benchmark: Benchmark, run: Any, step: int, groups: Sequence[Group]) -> Mapping[str, float]:
    """Write the results of an evaluation (see `write_results`), print them, and return the metrics.

    Args:
        benchmark: the data set; tasks of others are left out
        run: a `rlcore.session.session.RunSession`
        step: of the training
        groups: the scored groups

    Returns:
        The metrics as ``BENCHMARK/MEMORY/METRIC``; empty if no task is of this benchmark.
    """
    found = list(answered(benchmark, groups))
    if not found:
        return {}
    results = results_of(benchmark, found)
    run.say(*(line for each in results for line in lines_of(benchmark, each)))
    content = {
        "benchmark": benchmark.name,
        "intervals": "95 % Wilson intervals, with episodes as independent trials",
        "memory": {each.memory: each.as_json() for each in results},
        "steps": [each.as_json() for each in found],
    }
    write_results(run, benchmark.name, step, groups, content)
    return metrics_of(benchmark, results)


__all__ = ["Answered", "Results", "answered", "evaluated", "lines_of", "metrics_of", "results_of"]
