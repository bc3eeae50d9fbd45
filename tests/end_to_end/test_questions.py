"""The questions of a user whose run went wrong: one command answers each from the evidence on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
import rlcore
from preloaded import rlcore_command
from rlcore.api.runs import Run
from rlcore.rollouts.evidence import ratio
from rlcore.types import Group
from troubled_run import troubled_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return rlcore.load_run(troubled_run(tmp_path_factory.mktemp("questions")))


@dataclass(frozen=True)
class Stored:
    """What is stored, read as a whole and without the index."""

    groups: dict[int, list[Group]]

    @classmethod
    def of(cls, run: Run) -> Stored:
        return cls({step: list(run.trajectories("train", step=step).groups()) for step in (1, 2, 3)})

    def all(self) -> list[tuple[int, int, Group]]:
        return [(step, place, one) for step, groups in self.groups.items() for place, one in enumerate(groups)]


Facts = Callable[[Run, Stored, str], Sequence[bool]]
ALL = ("--purpose", "train", "--step", "all", "-n", "1000")


def lines_of(shown: str) -> list[list[str]]:
    """The cells of a table, without its head."""
    return [line.split() for line in shown.splitlines() if line[:1].isdigit() and " of " not in line[:8]]


def places(shown: str) -> list[tuple[int, ...]]:
    return [tuple(map(int, cells[:3])) for cells in lines_of(shown)]


def where(stored: Stored, met: Callable[[Group, int], bool]) -> list[tuple[int, ...]]:
    return [
        (step, place, one.sibling)
        for step, place, group in stored.all()
        for one in group.trajectories
        if met(group, one.sibling)
    ]


def worst(run: Run, stored: Stored, shown: str) -> Sequence[bool]:
    rewards = [one.reward for group in stored.groups[2] for one in group.trajectories if one.reward is not None]
    found = [float(cells[3]) for cells in lines_of(shown)]
    return len(found) == 3 and found == sorted(rewards)[:3], "train:" in shown


def cut(run: Run, stored: Stored, shown: str) -> Sequence[bool]:
    expected = where(stored, lambda group, i: group.trajectories[i].stop == "length")
    return bool(expected), places(shown) == expected


def said(run: Run, stored: Stored, shown: str) -> Sequence[bool]:
    one = stored.groups[2][0]
    return f"characters of {one.task.id}." in shown, "reward rewards.py:Parity" in shown


def dropped(run: Run, stored: Stored, shown: str) -> Sequence[bool]:
    rows = [row for row in run.index("train") if row.get("fate") == "dropped"]
    groups = {(row["step"], row["group"]) for row in rows}
    return {row["why"] for row in rows} == {"equal"}, shown.count("group dropped: equal") == len(groups) > 0


def highest_ratio(run: Run, stored: Stored, shown: str) -> Sequence[bool]:
    largest = max(map(ratio, run.tokens(2)["log_ratio"]))
    return largest > 1, f"{largest:.4g}  step" in shown


def tool_time(run: Run, stored: Stored, shown: str) -> Sequence[bool]:
    times = [row["seconds"] for step in (1, 2, 3) for row in run.times(step) if row["kind"] == "tool"]
    cells = next((line.split() for line in shown.splitlines() if line.startswith("tool calculator")), ["0"] * 5)
    return int(cells[2]) == len(times) > 0, cells[4] == f"{max(times, default=0):.4f}"


def unreadable(run: Run, stored: Stored, shown: str) -> Sequence[bool]:
    expected = where(stored, lambda group, i: bool(group.trajectories[i].metrics.get("tool_errors")))
    return f"{len(expected):,} matching" in shown, "Error:" in shown


def not_scored(run: Run, stored: Stored, shown: str) -> Sequence[bool]:
    expected = where(stored, lambda group, i: group.trajectories[i].reward is None)
    return places(shown) == expected != [], shown.count("the judge is overloaded") == len(expected)


def equal(run: Run, stored: Stored, shown: str) -> Sequence[bool]:
    expected = where(stored, lambda group, i: len({reward for reward in group.rewards_G if reward is not None}) == 1)
    return bool(expected), sorted(places(shown)) == expected


def siblings(run: Run, stored: Stored, shown: str) -> Sequence[bool]:
    group = stored.groups[2][0]
    return all(f"sibling {i}: " in shown for i in range(4)), group.task.messages[-1].text in shown


def history(run: Run, stored: Stored, shown: str) -> Sequence[bool]:
    task = stored.groups[1][0].task.id
    expected = where(stored, lambda group, i: group.task.id == task)
    return set(places(shown)) == set(expected), shown.count(task) >= 4


def longest(run: Run, stored: Stored, shown: str) -> Sequence[bool]:
    most = max(one.sampled_tokens for _, _, group in stored.all() for one in group.trajectories)
    expected = where(stored, lambda group, i: group.trajectories[i].sampled_tokens >= most)
    return places(shown)[:1] == expected[:1], f" {most} " in shown


def sampled_with(run: Run, stored: Stored, shown: str) -> Sequence[bool]:
    sampling = stored.groups[2][0].trajectories[0].sampling
    assert sampling is not None
    return f"temperature 1.0, top_p 1.0, top_k 0, max_new_tokens 28, seed {sampling.seed}" in shown, (
        "sampled by policy version " in shown
    )


def stale(run: Run, stored: Stored, shown: str) -> Sequence[bool]:
    rows = [row for row in run.index("train") if row.get("staleness", 0) > 0]
    kept = {(row["step"], row["group"]) for row in run.index("train") if row.get("fate") == "carried"}
    return bool(rows) and {(row["step"], row["group"]) for row in rows} <= kept, len(lines_of(shown)) == len(rows)


def words(run: Run, stored: Stored, shown: str) -> Sequence[bool]:
    expected = where(
        stored, lambda group, i: any("error" in one.text.casefold() for one in group.trajectories[i].messages)
    )
    return bool(expected), places(shown) == expected


QUESTIONS: list[tuple[str, tuple[str, ...], Facts]] = [
    ("Which task has the worst reward at step 2?", ("--step", "2", "--worst", "--list"), worst),
    ("Which trajectories were cut at the token limit?", (*ALL, "--where", 'stop == "length"', "--list"), cut),
    ("What did the judge say?", ("--step", "2", "--group", "0", "-n", "4"), said),
    ("Why was a group dropped?", (*ALL, "--where", 'fate == "dropped" and sibling == 0'), dropped),
    ("Which token had the highest ratio?", ("--step", "2", "--tokens", "ratio"), highest_ratio),
    ("How long did the tool take?", (*ALL, "--times"), tool_time),
    ("Which tool calls failed, and how?", (*ALL, "--where", "tool_errors > 0"), unreadable),
    ("Which answers were not scored, and why?", (*ALL, "--where", "reward is None", "--list"), not_scored),
    ("Which groups have nothing to learn from?", (*ALL, "--where", "spread == 0", "--list"), equal),
    ("How do the answers to one task differ?", ("--step", "2", "--group", "0", "--siblings"), siblings),
    ("How did one task do over the run?", (*ALL, "--list", "--task"), history),
    ("Which answers are the longest?", (*ALL, "--list", "--where"), longest),
    ("With which temperature, seed and weights was it sampled?", ("--step", "2", "--group", "0"), sampled_with),
    ("Which groups were sampled with old weights?", (*ALL, "--where", "staleness > 0", "--list"), stale),
    ("Where does this message occur?", (*ALL, "--text", "error", "--list"), words),
]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_questions_are_answered_by_one_command(run: Run) -> None:
    stored = Stored.of(run)
    most = max(one.sampled_tokens for _, _, group in stored.all() for one in group.trajectories)
    rest = {history: (stored.groups[1][0].task.id,), longest: (f"tokens >= {most}",)}
    points = {}
    for question, arguments, facts in QUESTIONS:
        done = rlcore_command(("data", "show", str(run.path), *arguments, *rest.get(facts, ())), run.path.parent)
        assert done.returncode == 0, f"{question} {done.stderr}"
        points[question] = sum(facts(run, stored, done.stdout))
    assert len(points) == 15
    assert sum(points.values()) >= 27, {question: found for question, found in points.items() if found < 2}


@pytest.mark.long
@pytest.mark.timeout(600)
def test_values_of_tokens_belong_to_the_trajectories(run: Run) -> None:
    for step in (1, 2, 3):
        tokens = run.tokens(step)
        assert tokens.names == ["logprob", "advantage", "entropy", "log_ratio", "reference_logprob"]
        assert {len(tokens[name]) for name in tokens.names} == {len(tokens["logprob"])}
        groups = {(row["step"], row["group"]): run.group(row) for row in run.index("train")}
        kept = {(row["step"], row["group"]) for row in run.index("train") if row.get("trained_step") == step}
        seen = set()
        for place, part in tokens.sequences():
            group = groups[place["step"], place["group"]]
            trajectory = group.trajectories[place["sibling"]]
            segment = trajectory.segments[place["segment"]]
            seen.add((place["step"], place["group"]))
            engine = [p for p, mask in zip(segment.logprobs, segment.loss_mask, strict=True) if mask]
            learner = tokens["logprob"][part]
            assert len(engine) == len(learner)
            if place["step"] == step:  # the same weights
                assert max(abs(a - b) for a, b in zip(engine, learner, strict=True)) < 1e-3
            assert trajectory.reward is not None
            mean = sum(reward for reward in group.rewards_G if reward is not None) / len(
                [reward for reward in group.rewards_G if reward is not None]
            )
            assert all(value * (trajectory.reward - mean) > 0 for value in tokens["advantage"][part])
        assert seen == kept
        assert all(before <= after for before, after in pairwise([0, *(part.stop for _, part in tokens.sequences())]))
