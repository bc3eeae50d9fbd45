"""The index of stored rollouts, the groups of a step in progress, and the values of trained tokens."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pictured_groups import groups as pictured
from rlcore.api.runs import Run
from rlcore.cli.data.rows import conversation, ending, fields_of
from rlcore.errors import DataError, UserError
from rlcore.rollouts.conditions import Where
from rlcore.rollouts.evidence import read_tokens, write_tokens
from rlcore.rollouts.index import read_index, read_unfinished
from rlcore.rollouts.reading import Rollouts
from rlcore.rollouts.records import read_groups
from rlcore.rollouts.writing import Unfinished, write_record
from rlcore.runs.superseded import supersede
from rlcore.types import (
    Boundary,
    Failure,
    Group,
    Logprobs,
    Message,
    NumberArray,
    Segment,
    Task,
    Timing,
    ToolCall,
    Trajectory,
    Turn,
    to_json,
)

Call = Callable[..., Any]


def group(id: str, *rewards: float | None) -> Group:
    """A group of one-token answers."""
    task = Task(id=id, messages=(Message(role="user", content=f"{id}?"),))
    turn = Turn(kind="policy", start=1, end=3, messages=(Message(role="assistant", content=f"It is {id}."),))
    segment = Segment(token_ids=(1, 2, 3), loss_mask=(False, True, True), logprobs=(0.0, -0.5, -1.5), turns=(turn,))  # type: ignore[arg-type]
    trajectories = (
        Trajectory(task_id=id, sibling=i, segments=(segment,), reward=reward, times=(Timing("turn", "", 1.0, 0.5),))
        for i, reward in enumerate(rewards)
    )
    return Group(task=task, trajectories=tuple(trajectories))


GROUPS = [group("a", 0.0, 1.0), group("b", 0.0, 0.0), group("c", None, 1.0)]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """An empty run directory."""
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "config.toml").touch()
    return tmp_path


def record(run: Path, step: int = 7) -> Path:
    return run / "rollouts" / f"train-{step:06d}.jsonl.gz"


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0), (1,)])
def test_record_does_not_depend_on_the_order_in_which_groups_ended(run: Path, order: tuple[int, ...]) -> None:
    write_record(record(run), GROUPS)
    index = run / "evidence" / "train-000007.index.jsonl.gz"
    files = sorted((run / "evidence").iterdir())
    expected = record(run).read_bytes(), index.read_bytes()
    growing = Unfinished(run, "train", 7)
    for place in order:
        growing.add(GROUPS[place])
    assert [row["task"] for row, _ in read_unfinished(growing.path)] == [GROUPS[i].task.id for i in order for _ in "ab"]
    write_record(record(run), GROUPS, unfinished=growing)
    assert (record(run).read_bytes(), index.read_bytes()) == expected
    assert sorted((run / "evidence").iterdir()) == files  # the unfinished file is gone


def test_group_that_is_being_written_is_left_out(run: Path) -> None:
    growing = Unfinished(run, "train", 7)
    for one in GROUPS:
        growing.add(one)
    growing.close()
    whole = growing.path.read_bytes()
    growing.path.write_bytes(whole[:-7])
    assert [row["group"] for row, _ in read_unfinished(growing.path)] == [0, 0, 1, 1]
    growing.path.write_bytes(whole[:-7] + b"garbage")
    assert [row["group"] for row, _ in read_unfinished(growing.path)] == [0, 0, 1, 1]


def test_index_reads_each_group_by_its_offset(run: Path) -> None:
    notes = [
        {"fate": "kept", "trained_step": 7, "staleness": 0},
        {"fate": "dropped", "why": "equal"},
        {"fate": "carried"},
    ]
    write_record(record(run), GROUPS, notes=notes)
    rows = read_index(record(run))
    assert [(row["group"], row["sibling"], row["reward"]) for row in rows] == [
        *((0, 0, 0.0), (0, 1, 1.0), (1, 0, 0.0), (1, 1, 0.0), (2, 0, None), (2, 1, 1.0))
    ]
    assert [row.get("why") for row in rows] == [None, None, "equal", "equal", None, None]
    assert (rows[0]["spread"], rows[2]["spread"], rows[0]["tokens"], rows[0]["turns"]) == (0.5, 0.0, 2, 1)
    content = record(run).read_bytes()
    for row in rows:
        member = content[row["offset"] : row["offset"] + row["length"]]
        assert json.loads(gzip.decompress(member))["task"]["id"] == row["task"]
    # The groups before it are not read, so damage there does not matter.
    record(run).write_bytes(b"x" * rows[2]["offset"] + content[rows[2]["offset"] :])
    assert Rollouts(run).group(record(run), rows[2]) == GROUPS[1]


def test_table_of_trajectories_is_read_without_the_groups(run: Path) -> None:
    pandas = pytest.importorskip("pandas")
    failure = Failure(boundary=Boundary.TOOL, message="no tool " * 100)
    failed = dataclasses.replace(GROUPS[2].trajectories[0], failure=failure, reward=math.inf)
    groups = [*pictured(1), *GROUPS[:2], dataclasses.replace(GROUPS[2], trajectories=(failed,))]
    write_record(record(run, 6), GROUPS)
    brought = [row | {"step": 6} for row in read_index(record(run, 6))]
    write_record(record(run), groups, brought=[without_place(row) for row in brought])
    responses = run / "evidence" / "train-000007.responses.jsonl.gz"
    stored = responses.read_bytes()
    responses.unlink()  # as in a run of an earlier version
    expected = Run(run).trajectories().to_pandas()
    assert set(expected["images"]) == {0, 1}
    responses.write_bytes(stored)
    for path in (run / "rollouts").iterdir():
        path.write_bytes(b"x" * path.stat().st_size)
    pandas.testing.assert_frame_equal(Run(run).trajectories().to_pandas(), expected)


def without_place(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("offset", "length")}


def test_rollouts_of_earlier_versions_are_readable(run: Path) -> None:
    lines = "".join(f"{json.dumps(to_json(one))}\n" for one in GROUPS)
    record(run).write_bytes(gzip.compress(lines.encode()))
    assert list(read_groups(record(run))) == GROUPS
    found = list(Rollouts(run).select([record(run)]))
    assert [(one.row["task"], one.trajectory.reward) for one in found[::2]] == [("a", 0.0), ("b", 0.0), ("c", None)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("offset", -1),
        ("offset", "0"),
        ("length", None),
        ("reward", "high"),
        ("task", 3),
        ("metrics", []),
        ("step", None),
    ],
)
def test_damaged_index_is_named(run: Path, name: str, value: Any) -> None:
    write_record(record(run), GROUPS)
    index = run / "evidence" / "train-000007.index.jsonl.gz"
    rows = [{**row, name: value} for row in read_index(record(run))]
    index.write_bytes(gzip.compress("".join(f"{json.dumps(row)}\n" for row in rows).encode()))
    with pytest.raises(DataError, match=r"train-000007\.index"):
        read_index(record(run))


def test_index_of_other_rollouts_is_named_or_computed_again(run: Path) -> None:
    write_record(record(run), GROUPS)
    write_record(record(run, 8), GROUPS[1:])
    index = run / "evidence" / "train-000008.index.jsonl.gz"
    index.write_bytes((run / "evidence" / "train-000007.index.jsonl.gz").read_bytes())
    assert {row["task"] for row in read_index(record(run, 8))} == {"b", "c"}  # the sizes of the files differ
    rows = [{**row, "sibling": row["sibling"] + 2} for row in read_index(record(run))]
    index.with_name("train-000007.index.jsonl.gz").write_bytes(
        gzip.compress("".join(f"{json.dumps(row)}\n" for row in rows).encode())
    )
    with pytest.raises(DataError, match="other rollouts"):
        _ = next(Rollouts(run).select([record(run)])).trajectory


def test_log_probabilities_take_a_quarter_of_their_size() -> None:
    logprobs = Logprobs([struct.unpack("f", struct.pack("f", -i / 7))[0] for i in range(500)])
    assert Logprobs.unpacked(logprobs.packed()) == logprobs
    assert len(logprobs.packed()) < 0.3 * len(json.dumps(logprobs.tolist()))
    with pytest.raises(ValueError, match="base64"):
        Logprobs.unpacked("?")


def test_evidence_of_later_steps_is_moved_aside(run: Path) -> None:
    for step in (1, 2):
        write_record(record(run, step), GROUPS)
    columns = {name: NumberArray(dtype="int32", shape=(0,), data=b"") for name in ("step", "group")}
    write_tokens(run / "evidence" / "train-000002.tokens.safetensors", columns, {})
    moved = supersede(run, 1, number=1)
    assert moved.rollouts == 1
    assert {path.name.split(".")[0] for path in (run / "evidence").iterdir()} == {"train-000001"}
    assert len(list((moved.folder / "evidence").iterdir())) == 3


COLUMNS = {
    **{name: NumberArray(dtype="int32", shape=(1,), data=struct.pack("<i", 2)) for name in ("step", "group", "count")},
    **{name: NumberArray(dtype="int32", shape=(1,), data=struct.pack("<i", 0)) for name in ("sibling", "segment")},
    "logprob": NumberArray(dtype="float32", shape=(2,), data=struct.pack("<2f", -0.5, -1.25)),
    "entropy": NumberArray(dtype="float16", shape=(2,), data=struct.pack("<2e", 0.5, 2.0)),
}


def test_values_of_tokens_are_read_with_and_without_their_library(tmp_path: Path) -> None:
    path = tmp_path / "evidence" / "train-000002.tokens.safetensors"
    write_tokens(path, COLUMNS, {"version": 3})
    found = read_tokens(path)
    assert (found["logprob"], found["entropy"], found.note) == ([-0.5, -1.25], [0.5, 2.0], {"version": 3})
    place = {"step": 2, "group": 2, "sibling": 0, "segment": 0, "count": 2}
    assert list(found.sequences()) == [(place, slice(0, 2))]
    library = pytest.importorskip("safetensors.numpy")
    assert {name: column.tolist() for name, column in library.load_file(path).items()} == {
        name: found[name] for name in COLUMNS
    }


def damaged(content: bytes) -> list[bytes]:
    wrong = content.replace(b'"F16"', b'"F64"'), content.replace(b'"shape":[2]', b'"shape":[3]', 1)
    return [b"", content[:20], content[:-1], b"\xff" * 8 + content[8:], *wrong]


@pytest.mark.parametrize("number", range(6))
def test_damaged_values_are_named(tmp_path: Path, number: int) -> None:
    path = tmp_path / "train-000002.tokens.safetensors"
    write_tokens(path, COLUMNS, {})
    path.write_bytes(damaged(path.read_bytes())[number])
    with pytest.raises(DataError, match=r"train-000002\.tokens"):
        read_tokens(path)


ROW = {
    **{"step": 7, "reward": 0.0, "stop": "length", "failure": None, "tokens": 40, "task": "train:3"},
    **{
        "metrics": {"tool_errors": 2.0},
        "rewards": {"judge": None, "math-equal": 0.0},
        "sampling": {"temperature": 1.0},
    },
}


@pytest.mark.parametrize(
    ("condition", "met"),
    [
        ('reward == 0 and stop == "length"', True),
        ("reward == 0 and stop != 'length' or tokens > 100", False),
        ("not (tokens < 10)", True),
        ("10 < tokens <= 40", True),
        ('stop in ["length", "max_turns"]', True),
        ('"train" in task', True),
        ("failure is None and failure is null", True),
        ('"time" in failure', False),
        ("failure > 3", False),
        ("staleness > 0", False),
        ('rewards["judge"] is None', True),
        ('metrics["tool_errors"] >= 2', True),
        ("tool_errors >= 2 and temperature == 1", True),
        ("tokens > -1", True),
        ("tokens", True),
    ],
)
def test_condition_is_met(condition: str, met: bool) -> None:
    where = Where.parse(condition)
    where.check({"tool_errors"})
    assert where(ROW) is met


@pytest.mark.parametrize(
    "condition",
    [
        *("", "reward ==", "reward = 0", "reward + 1 > 0", "__import__('os')", "task.id", "reward == (lambda: 0)()"),
        *("[x for x in task]", "f'{task}'", "metrics[task]", "task['x']", "b'a' == task", "tokens ** 9", "(" * 500),
        *("1 if tokens else 0", "tokens := 3", " and ".join(["tokens"] * 300), "tokens > 1" + " " * 2000),
    ],
)
def test_other_expressions_are_refused(condition: str) -> None:
    with pytest.raises(UserError, match="--where"):
        Where.parse(condition)


def test_unknown_column_is_named_with_the_nearest() -> None:
    with pytest.raises(UserError, match="no column 'rewad'") as raised:
        Where.parse("rewad == 0").check(())
    assert raised.value.fix == "did you mean 'reward'?"


def test_showing_a_run_writes_nothing_into_it(rlcore: Call, toy: Any) -> None:
    Path("mine/rollouts").mkdir(parents=True)
    Path("mine/config.toml").touch()
    path = Path("mine/rollouts/evaluation-000003.jsonl.gz")
    write_record(path, pictured(2, siblings=2))
    before = sorted(Path("mine").rglob("*"))
    for arguments in ((), ("--worst",), ("--siblings",), ("--list",)):
        done = rlcore("data", "show", path, *arguments)
        assert done.status == 0, done.err
    assert sorted(Path("mine").rglob("*")) == before
    shown = rlcore("data", "show", "mine", "-n", "1").out
    (image,) = {str(one) for one in Path("mine/media").rglob("*") if one.is_file()} & {
        word.rstrip("]") for word in shown.split()
    }
    assert Path(image).read_bytes() in pictured(2, siblings=2)[0].task.images
    assert rlcore("data", "show", "mine", "--images", "out").status == 0
    assert list(Path("out").glob("*.png"))


def test_step_in_progress_is_shown(rlcore: Call, toy: Any) -> None:
    Path("mine/rollouts").mkdir(parents=True)
    Path("mine/config.toml").touch()
    write_record(Path("mine/rollouts/train-000001.jsonl.gz"), GROUPS[:1])
    growing = Unfinished(Path("mine"), "train", 2)
    growing.add(GROUPS[2])
    growing.close()
    shown = rlcore("data", "show", "mine").out
    assert "in progress: 1 group so far" in shown
    assert "task c\n" in shown
    assert "task a\n" in rlcore("data", "show", "mine", "--step", "1").out


def test_only_runs_can_be_searched(rlcore: Call, toy: Any) -> None:
    Path("rows.jsonl").write_text("{}\n", encoding="utf-8")
    done = rlcore("data", "show", "rows.jsonl", "--worst")
    assert (done.status, "only the stored rollouts of a run" in done.err) == (2, True)


def test_decisions_of_a_robot_are_readable() -> None:
    rows = 30
    arrays = {
        "observation/state": NumberArray(
            dtype="float32", shape=(rows, 2), data=struct.pack(f"={rows * 2}f", *range(60))
        ),
        "observation/camera": NumberArray(dtype="uint8", shape=(rows, 4, 4, 3), data=bytes(rows * 48)),
        "action/joints": NumberArray(dtype="float32", shape=(rows, 1), data=struct.pack(f"={rows}f", *range(rows))),
    }
    turns = tuple(Turn(kind="policy", start=i, end=i + 1, messages=(), reward=i / 4) for i in range(rows))
    segment = Segment(token_ids=[0] * rows, loss_mask=[True] * rows, logprobs=[0.0] * rows, turns=turns, arrays=arrays)  # type: ignore[arg-type]
    lines = list(conversation(Trajectory(task_id="t", sibling=0, segments=(segment,))))
    assert lines[1] == (
        "    decision 1: observation/state [2, 3]; observation/camera [4 x 4 x 3]; action/joints [1]; reward 0.25"
    )
    assert len(lines) == 25
    assert lines[12] == "    … 6 decisions …"


def test_calls_that_cannot_be_parsed_are_shown_as_written() -> None:
    turns = [
        Turn(kind="policy", start=start, end=start + 2, messages=(Message(role="assistant", tool_calls=(call,)),))
        for start, call in ((0, ToolCall(name="add", arguments={})), (2, ToolCall(name="add", error="no JSON")))
    ]
    segment = Segment(token_ids=[1, 2, 3, 4], loss_mask=[True] * 4, logprobs=[0.0] * 4, turns=tuple(turns))  # type: ignore[arg-type]
    one = Trajectory(task_id="t", sibling=0, segments=(segment,))
    lines = ["    assistant: → add({})", "    assistant: → add(no JSON)", "      as written: <add>\\n[3, 4]"]
    assert list(conversation(one, lambda: lambda ids: f"<add>\n{ids}")) == lines
    assert list(conversation(one)) == lines[:2]
    assert "4 tokens (4 sampled)" in ending(one)


@pytest.mark.parametrize(("text", "found"), [("ADD", True), ('"x": 12', True), ("13", False)])
def test_a_text_is_found_in_tool_calls(run: Path, rlcore: Call, toy: Any, text: str, found: bool) -> None:
    message = Message(role="assistant", tool_calls=(ToolCall(name="add", arguments={"x": 12}),))
    turn = Turn(kind="policy", start=0, end=1, messages=(message,))
    segment = Segment(token_ids=[1], loss_mask=[True], logprobs=[0.0], turns=(turn,))  # type: ignore[arg-type]
    one = Trajectory(task_id="t", sibling=0, segments=(segment,), reward=1.0)
    write_record(record(run), [Group(task=Task(id="t", messages=()), trajectories=(one,))])
    assert ("1 matching trajectory" in rlcore("data", "show", run, "--text", text).out) is found


def test_parts_of_a_long_field_are_shown_in_lines() -> None:
    step = {"name": "x" * 200, "action": {"position": [0.5, 0.25]}}
    task = Task(id="1", messages=(), fields={"answer": "7", "steps": [step], "many": list(range(100, 200))})
    answer, name, action, first, *_, more = map(str.strip, fields_of(task))
    assert (answer, action) == ("answer: 7", 'steps.0.action: {"position": [0.5, 0.25]}')
    assert name.startswith("steps.0.name: xxx")
    assert (first, more) == ("many.0: 100", "many: 76 more")
