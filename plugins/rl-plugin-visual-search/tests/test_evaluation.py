"""Evaluation: accuracy by type, avg@k, the use of tools, and the notes on turns."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from rl_plugin_visual_search.data.rows import Row
from rl_plugin_visual_search.data.tasks import as_task
from rl_plugin_visual_search.evaluation.notes import turn_notes
from rl_plugin_visual_search.evaluation.results import Results, answered, lines_of, metrics_of, results_of
from rl_plugin_visual_search.grammar import answer_turn, code_turn
from rl_plugin_visual_search.observations import ERROR
from rl_plugin_visual_search.prompts import Coordinates
from rl_plugin_visual_search.zoom import NAME
from rlcore.images import image_size
from rlcore.report import Cell, Mark, Picture, TurnNote
from rlcore.testing import make_trajectory
from rlcore.types import (
    Boundary,
    Failure,
    Group,
    ImagePart,
    Message,
    RewardResult,
    Stop,
    Task,
    TextPart,
    ToolCall,
    Trajectory,
    media_hash,
)
from solid_pictures import picture

SCENE, CROP = picture(), picture(color=(9, 8, 7))
LOOK = code_turn("Closer.", "plt.imshow(image_clue_0.crop((0, 0, 9, 9)))\nplt.show()")
SEEN = Message(
    role="user", content=(TextPart(text="<image_clue_1>"), ImagePart.of(CROP), TextPart(text="</image_clue_1>"))
)


def question(number: int, category: str = "direct_attributes") -> Task:
    row = Row(
        id=str(number),
        question=f"What is the color of glove {number}?",
        answer="A. red",
        options=("red", "blue"),
        images=(SCENE,),
        category=category,
        data_source="vstar",
    )
    return as_task(row)


def episode(
    task: Task, *turns: Message | str, reward: float | None = 1.0, sibling: int = 0, errors: int = 0, timeouts: int = 0
) -> Trajectory:
    calls = sum(isinstance(turn, str) and "<code>" in turn for turn in turns)
    metrics = {"tool_calls": float(calls), "tool_errors": float(errors), "tool_timeouts": float(timeouts)}
    metrics["tool_images"] = float(sum(isinstance(turn, Message) and bool(turn.images) for turn in turns))
    one = make_trajectory(
        *task.messages, *turns, task_id=task.id, sibling=sibling, images=(SCENE, CROP), metrics=metrics
    )
    rewards = {"visual-search": RewardResult(value=reward)} if reward is not None else {}
    return one.replace(reward=reward, rewards=rewards)


def looked(task: Task, answer: str = "A", **changes: float | None) -> Trajectory:
    return episode(task, LOOK, SEEN, answer_turn("", answer), **changes)  # type: ignore[arg-type]


def guessed(task: Task, answer: str = "A", **changes: float | None) -> Trajectory:
    return episode(task, answer_turn("", answer), **changes)  # type: ignore[arg-type]


def results(*groups: Group) -> Results:
    return results_of(list(answered(groups, success=1.0)))


def group(task: Task, *trajectories: Trajectory) -> Group:
    return Group(task=task, trajectories=trajectories)


def sampled(task: Task, rewards: Sequence[float | None]) -> Group:
    return group(task, *(guessed(task, reward=reward, sibling=number) for number, reward in enumerate(rewards)))


def test_types_are_reported_apart_with_their_intervals_and_mean() -> None:
    groups = [sampled(question(number), [float(number < 6)]) for number in range(8)]
    groups += [sampled(question(number, "relative_position"), [0.0]) for number in range(8, 10)]
    found = results(*groups)
    assert {name: (each.value, each.questions) for name, each in found.types.items()} == {
        "direct_attributes": (0.75, 8),
        "relative_position": (0.0, 2),
    }
    assert found.overall.value == 0.6
    assert found.mean == 0.375
    assert found.types["direct_attributes"].interval == pytest.approx((0.409, 0.929), abs=1e-3)
    lines = lines_of(found)
    assert "accuracy of 10 questions" in lines[0]
    assert any(line.split()[0] == "relative_position" and "0.000" in line for line in lines)
    assert metrics_of(found)["visual-search/relative_position/accuracy"] == 0.0


def test_samples_of_a_question_are_averaged_and_counted_once() -> None:
    groups = [sampled(question(0), [1.0, 1.0, 1.0, 0.0]), sampled(question(1), [0.0, None, 1.0, 0.0])]
    found = results(*groups, groups[0])
    assert found.overall.value == pytest.approx((3 / 4 + 1 / 3) / 2)
    assert found.overall.questions == 2
    assert (found.samples, found.not_scored) == (4, 1)
    assert lines_of(found)[0].startswith("visual search, avg@4 of 2 questions")
    single = results(*(sampled(question(number), [float(number % 2)]) for number in range(2)))
    assert found.overall.interval is not None
    assert single.overall.interval is not None
    assert found.overall.interval[1] - found.overall.interval[0] > 0.6  # four samples do not narrow it


def test_use_of_tools_is_counted() -> None:
    task = question(0)
    groups = [
        group(task, looked(task), looked(task, sibling=1, errors=1, reward=0.0), guessed(task, sibling=2, reward=0.0)),
        group(question(1), episode(question(1), LOOK, SEEN, LOOK, SEEN, LOOK, timeouts=1, reward=0.0)),
    ]
    found = results(*groups)
    tools = found.tools
    assert (tools.used, tools.calls, tools.pictures) == (3 / 4, 5 / 4, 1.0)
    assert tools.errors == 2 / 5
    assert (tools.right_with, tools.right_without) == (pytest.approx(1 / 3), 0.0)
    assert found.without_answer == 1
    assert metrics_of(found)["visual-search/tools/error_share"] == 2 / 5


def test_failed_episodes_are_in_no_accuracy() -> None:
    task = question(0)
    failure = Failure(boundary=Boundary.ENVIRONMENT, message="the sandbox died")
    failed = looked(task, reward=None, sibling=1).replace(failure=failure, stop=Stop.CANCELLED)
    found = results(group(task, looked(task), failed))
    assert (found.overall.value, found.not_scored) == (1.0, 1)
    nothing = results(group(task, failed))
    assert nothing.overall.value is None
    assert lines_of(nothing)
    assert "visual-search/accuracy" not in metrics_of(nothing)


def test_tasks_of_other_datasets_are_left_out() -> None:
    other = Task(id="t", messages=(), fields={"question": "?", "answer": "4"})
    assert list(answered([group(other, make_trajectory("4"))], success=1.0)) == []
    assert turn_notes(other, make_trajectory("4")) is None


def test_records_are_plain_data() -> None:
    found = list(answered([group(question(0), looked(question(0), "B", reward=0.0))], success=1.0))
    (record,) = (json.loads(json.dumps(each.as_json())) for each in found)
    assert (record["expected"], record["given"], record["right"]) == ("A. red", "B", False)
    assert (record["calls"], record["pictures"], record["turns"]) == (1, 1, 2)
    assert json.dumps(results_of(found).as_json())


def notes(task: Task, one: Trajectory) -> list[TurnNote]:
    found = turn_notes(task, one) or []
    assert None not in found
    return [note for note in found if note is not None]


def test_notes_show_the_cell_that_each_turn_ran() -> None:
    task = question(0)
    trace = "Traceback:\n  File cell 1\nNameError: x"
    broken = Message(
        role="user", content=f"<tool_response>\n<interpreter>\nText Result:\n7\n{ERROR} {trace}\n</interpreter>"
    )
    ran, failed, last = notes(task, episode(task, LOOK, SEEN, LOOK, broken, answer_turn("", "B"), reward=0.0))
    code = "plt.imshow(image_clue_0.crop((0, 0, 9, 9)))\nplt.show()"
    assert ran.cells == (Cell(code=code, pictures=(Picture(image=media_hash(CROP)),)),)
    assert ran.said == "Closer."
    assert ran.asked == "What is the color of glove 0?\nA. red\nB. blue"
    assert failed.cells == (Cell(code=code, output="7", error=trace),)
    assert failed.asked == "(no text)"
    assert last.asked == f"7\n{ERROR} {trace}"
    assert (ran.right, failed.right, last.right, last.said) == (None, None, False, None)
    assert last.lines == (("expected", "A. red"), ("given", "B"), ("visual-search", "0"))


@pytest.mark.parametrize(("coordinates", "scale"), [("pixels", 1), ("thousandths", 1000)])
def test_notes_mark_where_a_turn_zooms_in(coordinates: Coordinates, scale: int) -> None:
    width, height = image_size(SCENE)
    row = Row(id="1", question="?", answer="A", images=(SCENE,))
    task = as_task(row, tools="zoom", coordinates=coordinates)
    sides = (1000, 1000) if scale == 1000 else (width, height)
    box = [0, sides[1] / 4, sides[0] / 2, sides[1]]
    calls = [ToolCall(name=NAME, arguments={"bbox_2d": box, "label": "glove"})]
    calls += [
        ToolCall(name=NAME, arguments={"bbox_2d": box, "image": 5}),
        ToolCall(name=NAME, arguments={"bbox_2d": 1}),
    ]
    turn = Message(role="assistant", content="", tool_calls=tuple(calls))
    (note,) = notes(task, episode(task, turn))
    mark = Mark(kind="given", box=(0.0, 0.25, 0.5, 1.0), label="glove")
    assert [(picture.image, picture.marks) for picture in note.pictures] == [(media_hash(SCENE), (mark,))]


def test_notes_name_code_that_did_not_run_and_turns_without_action() -> None:
    task = question(0)
    idle, unused = notes(task, episode(task, "I think", SEEN, LOOK, reward=0.0))
    assert idle.lines[0][0] == "problem"
    assert unused.lines[0] == ("code", "not executed")
    assert ("given", "no answer") in unused.lines
