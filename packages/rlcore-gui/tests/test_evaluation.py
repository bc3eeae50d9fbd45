"""Evaluation: answers of groups, metrics of each kind of memory with intervals, and the notes on turns."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from gui_episodes import CLICK, HOME, TOY, TYPE, episode, said
from rlcore.report import TurnNote
from rlcore.testing import make_trajectory
from rlcore.types import Boundary, Failure, Group, Stop, Task, Trajectory
from rlcore_gui.evaluation import Results, answered, lines_of, metrics_of, results_of
from rlcore_gui.notes import turn_notes
from rlcore_gui.tasks import GuiTask, Memory, Shown, episode_task, step_task

EPISODE = episode(CLICK, TYPE, HOME)
OTHER = episode(HOME, HOME, name="e2", group="install")


def played(task: Task, *texts: str, sibling: int = 0, failure: Failure | None = None) -> Trajectory:
    prompts = (GuiTask.of(task).prompt(number, memory=None) for number in range(len(texts)))
    turns = [item for pair in zip(prompts, texts, strict=True) for item in pair]
    return make_trajectory(*turns, task_id=task.id, sibling=sibling, images=task.images, failure=failure)


def whole(shown: list[Shown], *texts: str) -> Group:
    task = episode_task(shown, instructions="", benchmark="toy")
    return Group(task=task, trajectories=(played(task, *texts),))


def single(shown: Shown, *texts: str, memory: Memory = "oracle") -> Group:
    task = step_task(shown, instructions="", benchmark="toy", memory=memory, history="h")
    trajectories = (played(task, text, sibling=number) for number, text in enumerate(texts))
    return Group(task=task, trajectories=tuple(trajectories))


def results(*groups: Group) -> list[Results]:
    return results_of(TOY, list(answered(TOY, groups)))


def test_steps_are_grouped_by_their_episode() -> None:
    (found,) = results(whole(EPISODE, said(CLICK), said(TYPE), said(HOME)), whole(OTHER, said(HOME), said(CLICK)))
    assert (found.memory, found.episodes, found.steps) == ("own", 2, 5)
    assert found.metrics["action"] == 4 / 5
    assert found.metrics["episode_success"] == 1 / 2
    assert found.metrics["install/action"] == 1 / 2


def test_oracle_memory_and_own_memory_are_reported_apart() -> None:
    groups = [
        whole(EPISODE, said(HOME), said(HOME), said(HOME)),
        *(single(each, said(each.step.action)) for each in EPISODE),
    ]
    found = {each.memory: each.metrics["action"] for each in results(*groups)}
    assert found == {"oracle": 1.0, "own": 1 / 3}
    assert metrics_of(TOY, results(*groups))["toy/own/action"] == 1 / 3
    text = "\n".join(line for each in results(*groups) for line in lines_of(TOY, each))
    assert "a teacher's summaries" in text
    assert "the agent's own summaries" in text


def test_answers_that_an_episode_did_not_reach_are_wrong() -> None:
    (found,) = results(whole(EPISODE, said(CLICK)))
    assert (found.steps, found.metrics["action"]) == (3, 1 / 3)
    assert found.unreadable == {"no action": 2}


def test_failed_episodes_are_counted_but_in_no_metric() -> None:
    good, bad = whole(EPISODE, said(CLICK), said(TYPE), said(HOME)), whole(OTHER, said(CLICK))
    failure = Failure(boundary=Boundary.ENGINE, message="it died")
    failed = bad.trajectories[0].replace(failure=failure, stop=Stop.CANCELLED)
    (found,) = results(good, replace(bad, trajectories=(failed,)))
    assert (found.metrics["action"], found.not_scored, found.steps) == (1.0, 2, 5)
    assert any("not scored: 2" in line for line in lines_of(TOY, found))


def test_nothing_scored_gives_no_metrics_and_no_division_by_zero() -> None:
    group = whole(EPISODE)
    failure = Failure(boundary=Boundary.ENGINE, message="it died")
    failed = group.trajectories[0].replace(failure=failure)
    (found,) = results(replace(group, trajectories=(failed,)))
    assert (found.metrics, found.intervals, found.not_scored) == ({}, {}, 3)
    assert lines_of(TOY, found)


def test_several_samples_of_a_task_are_averaged() -> None:
    (found,) = results(*(single(each, said(each.step.action), said(HOME)) for each in EPISODE))
    assert (found.samples, found.steps) == (2, 3)
    assert found.metrics["action"] == pytest.approx((1 + 1 / 3) / 2)
    assert found.metrics["episode_success"] == 0.5


def test_repeated_trajectories_count_once() -> None:
    group = single(EPISODE[0], said(CLICK))
    found = list(answered(TOY, [group, group]))
    assert len(found) == 1


def test_tasks_of_other_data_sets_are_left_out() -> None:
    other = Task(id="t", messages=(), fields={"benchmark": "another"})
    plain = Task(id="p", messages=(), fields={"answer": "4"})
    groups = [Group(task=task, trajectories=(make_trajectory("4"),)) for task in (other, plain)]
    assert list(answered(TOY, groups)) == []
    assert turn_notes(TOY, other, groups[0].trajectories[0]) is None


def test_intervals_have_episodes_as_trials() -> None:
    one = [episode(*[HOME] * 30, name="e")]
    many = [episode(HOME, name=f"e{number}") for number in range(30)]
    (narrow,), (wide,) = (results(*(whole(each, *[said(HOME)] * len(each)) for each in shown)) for shown in (many, one))
    assert narrow.metrics["action"] == wide.metrics["action"] == 1.0
    assert narrow.intervals["action"][0] == pytest.approx(0.886, abs=1e-3)
    assert wide.intervals["action"][0] == pytest.approx(0.207, abs=1e-3)
    assert wide.intervals["action"][1] == 1.0


def test_interval_of_a_mean_over_groups_is_that_of_its_smallest() -> None:
    large = [episode(HOME, name=f"l{number}", group="general") for number in range(100)]
    small = [episode(HOME, name=f"s{number}", group="install") for number in range(2)]
    groups = [whole(each, said(HOME)) for each in large + small]
    balanced = replace(TOY, balanced=("",))
    (plain,) = results(*groups)
    (found,) = results_of(balanced, list(answered(balanced, groups)))
    assert found.intervals["action"][0] < 0.75 < plain.intervals["action"][0]
    assert found.intervals["general/action"] == plain.intervals["general/action"]


def test_records_are_plain_data() -> None:
    found = list(answered(TOY, [whole(EPISODE, said(CLICK, "tapped"), "\ud800", "")]))
    first, second, _ = (json.loads(json.dumps(each.as_json())) for each in found)
    assert first["expected"] == first["given"] == {"action": "CLICK", "value": None, "position": [0.25, 0.5]}
    assert (first["summary"], first["scores"]["action"], first["row_id"]) == ("tapped", 1.0, "e1-0")
    assert (second["given"], second["unreadable"]) == (None, "no action")
    assert json.dumps(results_of(TOY, found)[0].as_json())


def notes(group: Group) -> list[TurnNote | None]:
    found = turn_notes(TOY, group.task, group.trajectories[0])
    assert found is not None
    return found


def test_notes_mark_the_recorded_and_the_given_tap() -> None:
    given = replace(CLICK, position=(0.75, 0.5))
    first, second, third = notes(whole(EPISODE, said(given), said(TYPE), "unreadable"))
    assert first is not None
    expected, tapped = first.marks
    assert (expected.kind, expected.point, tapped.kind, tapped.point) == ("expected", (0.25, 0.5), "given", (0.75, 0.5))
    assert expected.box == pytest.approx((0.15, 0.45, 0.35, 0.55))
    assert (first.right, first.lines[0]) == (False, ("expected", "CLICK at 0.250, 0.500"))
    assert second is not None
    assert (second.marks, second.right, second.lines[1]) == ((), True, ("given", 'TYPE "don\'t"'))
    assert third is not None
    assert third.lines[1] == ("given", "unreadable: no action")


def test_notes_shorten_prompts_to_the_task_and_the_memory() -> None:
    task = episode_task(EPISODE, instructions="Tap or type.", benchmark="toy")
    first, second, _ = notes(Group(task=task, trajectories=(played(task, said(CLICK), said(HOME), said(HOME)),)))
    assert first is not None
    assert first.asked == "Task: Open the settings\nHistory summary: none"
    assert second is not None
    assert second.lines[1] == ("given", "HOME")


def test_notes_tell_an_official_match_from_a_strict_one() -> None:
    loose = replace(TOY, score=lambda action, step: 0.0)
    group = whole(EPISODE, said(CLICK), said(TYPE), said(CLICK))
    found = turn_notes(loose, group.task, group.trajectories[0]) or []
    first, second, third = (note.lines[2:] for note in found if note is not None)
    assert first == second == (("match", "official, but not strict"),)
    assert third == ()
