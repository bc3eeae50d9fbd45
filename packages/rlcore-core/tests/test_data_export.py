"""Stored trajectories in the formats of other programs, which read them in these tests where they are installed."""

from __future__ import annotations

import builtins
import json
import math
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("datasets")  # rlcore-core does not need the programs that open its files
pytest.importorskip("pandas")
pytest.importorskip("polars")

import datasets
import pandas
import polars
from pictured_groups import groups as pictured
from rlcore.export import FORMATS, Selection, jsonl, recordings
from rlcore.report import Mark, Notes, TurnNote
from rlcore.rollouts.index import INDEX, evidence_file, read_index, write_lines
from rlcore.rollouts.records import read_group
from rlcore.rollouts.writing import Unfinished, write_record
from rlcore.testing import make_trajectory
from rlcore.types import (
    Boundary,
    Failure,
    Group,
    Message,
    NumberArray,
    RewardResult,
    Segment,
    Task,
    ToolCall,
    ToolSchema,
    Trajectory,
    Turn,
)

Call = Callable[..., Any]
NAMES = {"jsonl": "it-trajectories.jsonl", "parquet": "it-trajectories.parquet", "inspect": "it-inspect"}
NAMES["rrd"] = "it-trajectories.rrd"
ADDER = ToolSchema(name="add", description="Adds.", parameters={"type": "object", "properties": {}})


def with_tools() -> Group:
    """A judged answer after two calls whose ids are equal, and an episode that failed."""
    asked = Message(role="user", content="1 + 2 + 3?")
    said: list[Message | str] = [asked]
    for a, b in ((1, 2), (3, 3)):
        call = ToolCall(name="add", arguments={"a": a, "b": b}, id="call_0")
        said += [Message(role="assistant", content="", tool_calls=(call,))]
        said += [Message(role="tool", name="add", tool_call_id="call_0", content=str(a + b))]
    right = make_trajectory(*said, "It is 6.", task_id="sum", tools=[ADDER], metrics={"tool_calls": 2.0})
    judged = {"judge": RewardResult(value=0.75, text="Right, but brief.")}
    broken = make_trajectory(
        asked, "", task_id="sum", sibling=1, failure=Failure(boundary=Boundary.TOOL, message="no answer")
    )
    unscored = {"judge": RewardResult(value=None, error="no score")}
    return Group(
        task=Task(id="sum", messages=(asked,), fields={"answer": 6, "level": {"name": "easy"}}),
        trajectories=(right.replace(reward=0.75, rewards=judged), broken.replace(rewards=unscored)),
    )


def of_control() -> Group:
    """An episode of two decisions that was cut short, with camera pictures."""
    arrays = {
        "observation/state": NumberArray.of(memoryview(bytes(range(6))).cast("B", (3, 2))),
        "observation/images/top": NumberArray(dtype="uint8", shape=(3, 8, 8, 3), data=bytes(3 * 8 * 8 * 3)),
        "action": NumberArray.of(memoryview(bytes(3)).cast("B", (3, 1))),
    }
    turns = tuple(Turn(kind="policy", start=i, end=i + 1, messages=(), reward=0.5 * i) for i in range(2))
    mask = (True, True, False)
    segment = Segment(token_ids=(0,) * 3, loss_mask=mask, logprobs=(0.0,) * 3, turns=turns, arrays=arrays)  # type: ignore[arg-type]
    one = Trajectory(task_id="pole", sibling=0, segments=(segment,), reward=0.5)
    return Group(task=Task(id="pole", messages=(), fields={"seed": 3}), trajectories=(one,))


HOSTILE = "../<script>alert(1)</script>\x00\x1b[2J\u202e\ud800"


def hostile() -> Group:
    """Names and texts that must not harm a reader."""
    asked = Message(role="user", content=HOSTILE)
    call = ToolCall(name=HOSTILE, arguments={HOSTILE: [HOSTILE, math.inf]}, id=HOSTILE)
    one = make_trajectory(
        asked, Message(role="assistant", content=HOSTILE, tool_calls=(call,)), HOSTILE, task_id=HOSTILE
    ).replace(
        reward=math.inf,
        rewards={HOSTILE: RewardResult(value=1.0, text=HOSTILE)},
        metrics={HOSTILE: math.nan, "a//b/": 1e308},
    )
    return Group(task=Task(id=HOSTILE, messages=(asked,), fields={HOSTILE: HOSTILE}), trajectories=(one,))


@pytest.fixture
def run(toy: Any) -> Path:
    """A run directory without rollouts."""
    path: Path = toy.work / "runs" / "it"
    (path / "rollouts").mkdir(parents=True)
    (path / "config.toml").write_text('[model]\npath = "builtin:tiny"\n')
    return path


def record(run: Path, *groups: Group, purpose: str = "train", step: int = 7) -> None:
    write_record(run / "rollouts" / f"{purpose}-{step:06d}.jsonl.gz", groups)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def sample(path: Path, name: str) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        found: dict[str, Any] = json.loads(archive.read(name))
    return found


def chunks(path: Path) -> dict[str, dict[str, list[Any]]]:
    """The columns of each entity of a recording, in the order of their rows."""
    from rerun.chunk import RrdReader

    found: dict[str, dict[str, list[Any]]] = {}
    for chunk in RrdReader(path).stream():
        entity = found.setdefault(chunk.entity_path, {})
        for name, values in chunk.to_record_batch().to_pydict().items():
            entity.setdefault(name, []).extend(values)
    return found


def test_rows_have_columns_of_the_index_and_messages_with_tool_calls(rlcore: Call, run: Path) -> None:
    record(run, with_tools())
    result = rlcore("data", "export", run)
    assert (result.status, result.out) == (0, "wrote 2 trajectories to it-trajectories.jsonl\n")
    right, broken = lines(Path(NAMES["jsonl"]))
    assert (right["purpose"], right["step"], right["task"], right["reward"], right["mean"]) == (
        "train",
        7,
        "sum",
        0.75,
        0.75,
    )
    assert (right["reward/judge"], right["judge/judge"], right["metrics/tool_calls"]) == (
        0.75,
        "Right, but brief.",
        2.0,
    )
    assert (right["expected"], right["fields"]["level"]) == ("6", {"name": "easy"})
    assert (right["prompt"], right["response"], right["tools"]) == ("1 + 2 + 3?", "It is 6.", [ADDER.as_json()])
    calls = [call for message in right["messages"] for call in message.get("tool_calls", ())]
    answers = [message["tool_call_id"] for message in right["messages"] if message["role"] == "tool"]
    assert [call["id"] for call in calls] == answers == ["call_0", "call_1"]
    assert json.loads(calls[1]["function"]["arguments"]) == {"a": 3, "b": 3}
    assert (broken["reward"], broken["error/judge"], broken["failure"]) == (None, "no score", "tool: no answer")
    assert not any("token_ids" in name for name in right)


def test_parquet_opens_in_pandas_polars_and_datasets(rlcore: Call, run: Path, tmp_path: Path) -> None:
    record(run, with_tools(), *pictured(2))
    record(run, of_control(), purpose="evaluation", step=8)
    assert rlcore("data", "export", run, "--format", "parquet").status == 0
    frame = pandas.read_parquet(NAMES["parquet"])
    assert frame["step"].tolist() == [7, 7, 7, 7, 8]
    assert frame["reward"].dtype == float
    assert math.isnan(frame["reward"][1])
    assert json.loads(frame["messages"][0])[1]["tool_calls"][0]["function"]["name"] == "add"
    table = polars.read_parquet(NAMES["parquet"])
    assert table["purpose"].to_list() == frame["purpose"].tolist()
    assert table.schema["reward/judge"] == polars.Float64
    data = datasets.Dataset.from_parquet(NAMES["parquet"], cache_dir=str(tmp_path / "cache"))
    assert data[0]["response"] == "It is 6."


def test_media_are_files_beside_the_rows(rlcore: Call, run: Path) -> None:
    pictures = pictured(3)
    record(run, *pictures)
    assert rlcore("data", "export", run, "--media").status == 0
    folder = Path("it-jsonl")
    rows = lines(folder / jsonl.ROWS)
    urls = [
        part["image_url"]["url"]
        for row in rows
        for message in row["messages"]
        for part in (message["content"] if isinstance(message["content"], list) else ())
        if part["type"] == "image_url"
    ]
    expected = {data for group in pictures for one in group.trajectories for data in one.images.values()}
    assert {(folder / url).read_bytes() for url in urls} == expected
    assert rlcore("data", "export", run, "--out", "hashes.jsonl").status == 0
    images = sorted({sha256 for group in pictures for one in group.trajectories for sha256 in one.images})
    text = Path("hashes.jsonl").read_text("utf-8")
    assert [f'"url": "{sha256}"' in text for sha256 in images] == [True] * len(images)


def test_damaged_images_are_counted_and_left_out(rlcore: Call, run: Path) -> None:
    record(run, *pictured(1))
    (image,) = (path for path in (run / "media").rglob("*") if path.is_file())
    image.write_bytes(b"<svg onload=alert(1)>")
    for form, *options in (("jsonl", "--media"), ("inspect",), ("rrd",)):
        result = rlcore("data", "export", run, "--format", form, *options)
        assert (result.status, result.out.endswith("; 1 image missing or damaged\n")) == (0, True)
    assert list(Path("it-jsonl/media").iterdir()) == []
    assert "missing or damaged" in json.dumps(
        sample(Path("it-inspect/train-000007.eval"), "samples/scenes/0_epoch_1.json")
    )


def test_inspect_has_a_log_for_each_step_with_scores_and_images(rlcore: Call, run: Path) -> None:
    record(run, with_tools(), with_tools(), purpose="evaluation", step=8)
    record(run, *pictured(1))
    assert rlcore("data", "export", run, "--format", "inspect").status == 0
    folder = Path(NAMES["inspect"])
    assert sorted(path.name for path in folder.iterdir()) == ["evaluation-000008.eval", "train-000007.eval"]
    log = folder / "evaluation-000008.eval"
    with zipfile.ZipFile(log) as archive:
        names = [name for name in archive.namelist() if name.startswith("samples/")]
    assert names == [f"samples/sum_epoch_{epoch}.json" for epoch in (1, 2, 3, 4)]  # a task that occurs twice
    right, broken = sample(log, names[0]), sample(log, names[1])
    assert (right["target"], right["scores"]["total"]["value"]) == ("6", 0.75)
    assert right["scores"]["judge"] == {"value": 0.75, "explanation": "Right, but brief."}
    assert math.isnan(broken["scores"]["judge"]["value"])
    assert (broken["scores"]["judge"]["explanation"], broken["error"]["message"]) == ("no score", "tool: no answer")
    assert right["metadata"]["purpose"] == "evaluation"
    header = sample(log, "header.json")
    assert (header["status"], header["eval"]["model"]) == ("success", "builtin:tiny")
    assert header["results"]["scores"][0]["metrics"]["mean"]["value"] == 0.75
    picture = sample(folder / "train-000007.eval", "samples/scenes/0_epoch_1.json")
    assert [uri[:22] for uri in picture["attachments"].values()] == ["data:image/png;base64,"]


def test_recording_has_turns_with_marked_images(rlcore: Call, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marks = (Mark(kind="expected", box=(0.0, 0.5, 0.5, 1.0)), Mark(kind="given", point=(0.5, 0.25), label="tap"))
    noted = Notes([TurnNote(marks=marks)])
    monkeypatch.setattr(recordings, "notes_of_plugins", lambda registry: lambda task, trajectory, step: noted)
    record(run, *pictured(1), with_tools())
    assert rlcore("data", "export", run, "--format", "rrd").status == 0
    found = chunks(Path(NAMES["rrd"]))
    image, said = found["/train/7/0/0/images/0"], found["/train/7/1/0/messages"]
    assert (image["turn"], image["EncodedImage:media_type"]) == ([0], [["image/png"]])
    assert found["/train/7/0/0/images/0/given/points"]["Points2D:positions"] == [[[56.0, 28.0]]]
    assert found["/train/7/0/0/images/0/expected/boxes"]["Boxes2D:centers"] == [[[28.0, 84.0]]]
    assert said["turn"] == [0, 0, 1, 1, 2, 2]
    assert said["TextLog:text"][1] == ['add({"a": 1, "b": 2})']
    assert found["/train/7/1/0/rewards/total"]["Scalars:scalars"] == [[0.75]]
    assert "/train/7/1/1/rewards/total" not in found
    assert found["/train/7/1/1/judge/judge"]["TextDocument:text"] == [["no score"]]


def test_recording_of_control_has_states_actions_and_pictures(rlcore: Call, run: Path) -> None:
    record(run, of_control())
    assert rlcore("data", "export", run, "--format", "rrd").status == 0
    found = chunks(Path(NAMES["rrd"]))
    state, action = found["/train/7/0/0/observation/state"], found["/train/7/0/0/action"]
    assert (state["decision"], state["Scalars:scalars"]) == ([0, 1, 2], [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    assert action["decision"] == [0, 1]  # the last one was not decided
    assert found["/train/7/0/0/observation/images/top"]["decision"] == [0, 1, 2]
    assert found["/train/7/0/0/turn_reward"]["Scalars:scalars"] == [[0.0], [0.5]]


@pytest.mark.parametrize("form", FORMATS)
def test_hostile_texts_are_data(rlcore: Call, run: Path, form: str) -> None:
    record(run, hostile())
    result = rlcore("data", "export", run, "--format", form)
    assert result.status == 0, result.err
    path, text = Path(NAMES[form]), HOSTILE.replace("\ud800", "\ufffd")
    if form == "jsonl":
        (row,) = lines(path)
        assert (row["task"], row["response"], row["reward"], row["fields"]) == (text, text, None, {text: text})
        polars.read_ndjson(path)  # a strict reader
    elif form == "parquet":
        assert pandas.read_parquet(path)["task"].tolist() == [text]
    elif form == "inspect":
        with zipfile.ZipFile(path / "train-000007.eval") as archive:
            (name,) = (name for name in archive.namelist() if name.startswith("samples/"))
            assert name.isprintable()
            assert json.loads(archive.read(name))["messages"][1]["content"] == text
    else:
        command = [Path(sys.executable).with_name("rerun"), "rrd", "verify", path]
        assert subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0
        assert [text] in chunks(path)["/train/7/0/0/messages"]["TextLog:text"]


@pytest.mark.parametrize("form", FORMATS)
def test_group_of_an_earlier_step_is_in_both_steps(rlcore: Call, run: Path, form: str) -> None:
    record(run, with_tools())
    path = run / "rollouts" / "train-000008.jsonl.gz"  # it does not exist, because step 8 has no other group
    rows = read_index(run / "rollouts" / "train-000007.jsonl.gz")
    brought = [{name: value for name, value in row.items() if name not in ("offset", "length")} for row in rows]
    write_lines(evidence_file(path, INDEX), [{**row, "fate": "kept", "trained_step": 8} for row in brought])
    result = rlcore("data", "export", run, "--format", form)
    assert result.out == f"wrote 4 trajectories to {NAMES[form]}\n", result.err
    if form == "jsonl":
        assert [(row["step"], row["trained_step"]) for row in lines(Path(NAMES[form]))[::2]] == [(7, None), (7, 8)]
    elif form == "rrd":
        assert {"/train/7/0/0/about", "/train/8/7-0/0/about"} <= set(chunks(Path(NAMES[form])))


@pytest.mark.parametrize("form", FORMATS)
def test_steps_in_progress_are_exported(rlcore: Call, run: Path, form: str) -> None:
    growing = Unfinished(run, "evaluation", 9)
    growing.add(with_tools())
    growing.close()
    result = rlcore("data", "export", run, "--format", form)
    assert result.out == f"wrote 2 trajectories to {NAMES[form]}\n", result.err
    if form == "inspect":
        assert sample(Path("it-inspect/evaluation-000009.eval"), "header.json")["status"] == "started"


def test_purpose_step_and_condition_select(rlcore: Call, run: Path) -> None:
    for step in (7, 8):
        record(run, with_tools(), step=step)
        record(run, of_control(), purpose="evaluation", step=step)
    assert rlcore("data", "export", run, "--purpose", "train", "--step", 8, "--where", "judge > 0.5").status == 0
    assert [(row["step"], row["sibling"]) for row in lines(Path(NAMES["jsonl"]))] == [(8, 0)]
    file = run / "rollouts" / "evaluation-000007.jsonl.gz"
    result = rlcore("data", "export", file)
    assert result.out == "wrote 1 trajectory to evaluation-000007-trajectories.jsonl\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--where", "reward ="), "--where is no condition"),
        (("--where", "rewart > 0"), "there is no column 'rewart'"),
        (("--where", "reward > 2"), "no trajectory is selected"),
        (("--step", "99"), "has no such rollouts"),
        (("--out", "there"), "there already exists"),
        (("--out", "none/rows.jsonl"), "the folder none does not exist"),
        (("--out", "runs/it/rows.jsonl"), "inside the run directory"),
        (("--media", "--format", "parquet"), "--media belongs to --format jsonl"),
    ],
)
def test_wrong_requests_are_refused_and_write_nothing(
    rlcore: Call, run: Path, options: tuple[str, ...], said: str
) -> None:
    record(run, with_tools())
    Path("there").write_text("kept", "utf-8")
    before = sorted(Path().rglob("*"))
    result = rlcore("data", "export", run, *options)
    assert (result.status, said in result.err) == (2, True), result.err
    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_interruption_leaves_nothing(
    rlcore: Call, run: Path, monkeypatch: pytest.MonkeyPatch, form: str, error: Any
) -> None:
    record(run, with_tools(), of_control())
    before = sorted(Path().rglob("*"))

    def stop(self: Any) -> None:
        raise error

    monkeypatch.setattr("rlcore.runs.progress.Meter.advance", stop)
    result = rlcore("data", "export", run, "--format", form)
    assert result.status == (130 if error is KeyboardInterrupt else 2)
    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize(("form", "library"), [("parquet", "pyarrow"), ("rrd", "rerun")])
def test_missing_library_is_named(
    rlcore: Call, run: Path, monkeypatch: pytest.MonkeyPatch, form: str, library: str
) -> None:
    record(run, with_tools())
    load = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == library:
            raise ImportError(name)
        return load(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    result = rlcore("data", "export", run, "--format", form)
    assert (result.status, "pip install" in result.err) == (2, True), result.err


def test_groups_are_read_one_at_a_time(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(3):
        record(run, *[with_tools()] * 4, step=step)
    reads = list[int]()

    def counted(path: Path, offset: int, **how: Any) -> Group:
        reads.append(offset)
        return read_group(path, offset, **how)

    monkeypatch.setattr("rlcore.rollouts.reading.read_group", counted)
    selected = iter(Selection(run))
    assert (next(selected).trajectory.sibling, next(selected).trajectory.sibling, len(reads)) == (0, 1, 1)
    assert (sum(1 for _ in selected), len(reads)) == (3 * 4 * 2 - 2, 3 * 4)
