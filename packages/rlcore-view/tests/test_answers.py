"""The answers about a run, as the page asks for them."""

from __future__ import annotations

import fcntl
import gzip
import io
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from rlcore.diagnosis.diagnosing import diagnose
from rlcore.errors import DataError, RlcoreError, UserError
from rlcore.rollouts.evidence import write_times
from rlcore.rollouts.index import evidence_file
from rlcore.rollouts.records import BlobStore, read_groups
from rlcore.rollouts.writing import Unfinished, write_record
from rlcore.types import Message, Timing, ToolCall
from rlcore_view.errors import NotFoundError
from rlcore_view.library import Library
from rlcore_view.routes import answer, media

Ask = Callable[..., Any]


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file with its size and time."""
    return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in sorted(folder.rglob("*"))}


def test_seeds_keep_all_digits_in_a_browser(ask: Ask) -> None:
    seeds = [row["sampling"]["seed"] for row in ask("runs/first/train/1")["rows"]]
    assert seeds[:2] == [str(2**60), str(2**60 + 1)]


def test_run_has_its_configuration_with_origins_and_its_files(ask: Ask) -> None:
    found = ask("runs/first")
    assert found["config"]["trainer.steps"] == "9"
    assert found["origins"]["trainer.steps"] == "command line: trainer.steps=9"
    assert found["origins"]["model.path"] == "recipe gsm8k-tools/default:5"
    assert "secret-of-the-service" not in json.dumps(found)
    assert found["command"] == "rlcore run -r gsm8k-tools/default trainer.steps=9"
    assert found["surroundings"] == {
        **{"time": "2026-11-29T22:06:35+00:00", "python": "3.11", "versions.rlcore": "0.1.0", "argv": "'a b'"}
    }
    assert [(file["purpose"], file["step"], file["unfinished"]) for file in found["files"]] == [
        ("evaluation", 0, False),
        *((("train", step, step == 4)) for step in (1, 2, 3, 4)),
    ]
    assert (found["checkpoints"], found["decodes"], found["step"], found["steps"]) == ([2], True, 2, 9)
    (line,) = ask("runs")["runs"]
    assert (line["model"], line["environment"], line["spark"]) == ("builtin:tiny-qwen2", "gsm8k-tools", [0.1, 0.2])
    assert line["last"] == {"reward/mean": 0.2}


def test_peak_of_the_memory_is_shown_when_the_output_has_it(run: Path, ask: Ask) -> None:
    log = run / "output.log"
    log.write_text("memory    about 2 GiB of 8 GiB\n" + "progress\n" * 20_000, encoding="utf-8")
    assert ask("runs/first")["surroundings"]["memory"] == "about 2 GiB of 8 GiB"
    with log.open("a", encoding="utf-8") as file:
        file.write("memory    peak 1.9 GiB, estimated 2 GiB\n")
    assert ask("runs/first")["surroundings"]["memory"] == "peak 1.9 GiB, estimated 2 GiB"


def test_metrics_are_read_from_where_the_last_answer_ended(run: Path, ask: Ask) -> None:
    path = run / "metrics.jsonl"
    found = ask("runs/first/metrics")
    assert [(row["step"], row["odd"]) for row in found["rows"]] == [(1, None), (2, None)]
    assert found["next"] == path.stat().st_size == ask("runs/first/state")["metrics"]
    with path.open("a", encoding="utf-8") as file:
        file.write('{"step": 3, "reward/mean": 0.3}\n{"step": 4, "rew')
    later = ask("runs/first/metrics", after=str(found["next"]))
    assert [row["step"] for row in later["rows"]] == [3]
    assert (ask("runs/first/state")["step"], ask("runs")["runs"][0]["spark"]) == (3, [0.1, 0.2, 0.3])
    path.write_text('{"step": 1, "reward/mean": 0.9}\n', encoding="utf-8")  # resumed from an earlier step
    again = ask("runs/first/metrics", after=str(later["next"]))
    assert ([row["step"] for row in again["rows"]], again["next"]) == ([1], path.stat().st_size)
    assert (ask("runs/first/state")["step"], ask("runs")["runs"][0]["spark"]) == (1, [0.9])


def test_state_is_running_while_a_process_has_the_lock(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore_view.run.LOCK_S", 0.0)
    shown = Library([run]).run("first")
    assert shown.state()["state"] == "stopped"  # at step 2 of 9
    (run / "output.log").write_text("ended     early after step 2: accuracy has not improved\n", encoding="utf-8")
    assert shown.state()["state"] == "ended"
    assert not (run / ".lock").exists()
    with (run / ".lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert shown.state()["state"] == "running"
    (run / "output.log").write_text("failed: out of memory\n    found  17 GiB\n", encoding="utf-8")
    assert (shown.line()["state"], shown.line()["problem"]) == ("failed", "out of memory found  17 GiB")
    assert shown.findings()[0]["rule"] == "failed"
    with (run / ".lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # which the question has released


def test_run_that_has_not_ended_a_step_has_the_last_line_of_its_output(run: Path, ask: Ask) -> None:
    (run / "metrics.jsonl").unlink()
    (run / "output.log").write_text("warm-up    1/450\nprogress  warm-up  54 of 450 steps\n\n", encoding="utf-8")
    with (run / ".lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        activities = [found["activity"] for found in (ask("runs/first/state"), ask("runs/first"), *ask("runs")["runs"])]
    assert activities == ["warm-up 54 of 450 steps"] * 3


def test_findings_of_a_run_that_goes_on_are_those_of_diagnose(run: Path) -> None:
    shown, path = Library([run]).run("first"), run / "metrics.jsonl"
    before = path.read_bytes()
    found = []
    for step in range(3, 8):
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "reward/mean": 0, "groups/equal": 1}) + "\n")
        found.append([one["rule"] for one in shown.findings()])
        assert found[-1] == [one.rule for one in diagnose(run).found]
    assert found[0] != found[-1]
    assert "rewards-zero" in found[-1]
    path.write_bytes(before)  # as a resumed run does
    assert [one["rule"] for one in shown.findings()] == [one.rule for one in diagnose(run).found]


def test_rows_of_a_step_include_what_it_trained_of_earlier_steps(ask: Ask) -> None:
    found = ask("runs/first/train/2")
    assert not found["unfinished"]
    assert [(row["step"], row["group"], row["sibling"], row["fate"], row["trained_step"]) for row in found["rows"]] == [
        *((2, 0, 0, "kept", 2), (1, 2, 0, "kept", 2), (1, 2, 1, "kept", 2))
    ]
    assert "offset" not in found["rows"][0]
    assert ask("runs/first/train/1")["rows"][0]["metrics"]["odd"] is None


def test_group_has_what_the_page_shows(ask: Ask) -> None:
    found = ask("runs/first/train/1/0")
    assert (found["task"], found["previous"], found["next"]) == ("a", None, 1)
    assert ask("runs/first/train/1/1")["previous_sibling"] == 1
    assert found["fields"]["answer"] == "42"
    assert found["fields"]["x"].endswith("5,000 further characters are not shown")
    assert "<script>alert(1)</script>\u202e\x1b[31m" in found["prompt"][0]["parts"][0]["text"]
    one = found["trajectories"][1]
    python, calculator = one["segments"][0]["turns"][1]["messages"][0]["calls"]
    assert (python["code"], python["arguments"]) == ("print(6 * 7)", "")
    assert json.loads(calculator["arguments"]) == {"expression": "6*7", "digits": 2}
    assert one["rewards"][0]["text"] == "The judge said: fine."
    assert [(time["kind"], time["start"]) for time in one["times"]] == [("queue", 0.0), ("turn", 0.5)]
    carried = ask("runs/first/train/1/2")["trajectories"][0]["row"]
    assert (carried["fate"], carried["trained_step"], carried["staleness"]) == ("carried", 2, 1)


def test_unreadable_call_has_what_the_policy_wrote(run: Path, ask: Ask) -> None:
    group = _group(run, 2)
    (segment,) = group.trajectories[0].segments
    prompt, answer = segment.turns
    calls = (ToolCall(name="python", error="no JSON"), ToolCall(name="", error="no JSON"))
    answer = replace(answer, messages=(Message(role="assistant", content="the answer", tool_calls=calls),))
    one = replace(group.trajectories[0], segments=(replace(segment, turns=(prompt, answer)),))
    write_record(run / "rollouts" / "train-000008.jsonl.gz", [replace(group, trajectories=(one,))])
    (turn,) = ask("runs/first/train/8/0")["trajectories"][0]["segments"][0]["turns"][1:]
    assert [call["arguments"] for call in turn["messages"][0]["calls"]] == ["is 42 0 你好", ""]


def test_extremes_of_a_step_are_places_of_tokens_and_tools(run: Path, ask: Ask) -> None:
    found = ask("runs/first/train/2/extremes")  # which trained a group of step 1
    places = [[one[name] for name in ("column", "step", "group", "sibling", "segment")] for one in found["tokens"]]
    assert places == [["ratio", 1, 2, 1, 0], ["logprob", 1, 2, 1, 0]]
    for one in found["tokens"]:
        (segment,) = ask("runs/first/train/1/2/1/tokens")["segments"]
        assert segment["columns"][one["column"]][one["token"]] == pytest.approx(one["value"])
    group = _group(run, 1)
    times = [Timing(kind="tool", name="python", start=0.0, seconds=seconds) for seconds in (1.0, 3.0)]
    slow = replace(group, trajectories=(group.trajectories[0], replace(group.trajectories[1], times=tuple(times))))
    write_times(evidence_file(run / "rollouts" / "train-000001.jsonl.gz", "times.jsonl.gz"), [slow])
    tools = {"count": 2, "mean": 2.0, "name": "python", "seconds": 3.0, "group": 0, "sibling": 1}
    assert ask("runs/first/train/1/extremes")["tools"] == tools
    assert ask("runs/first/evaluation/0/extremes") == {"tokens": [], "tools": None}
    assert ask("runs/first/train/4/extremes")["tokens"] == []


def test_step_in_progress_grows(run: Path, ask: Ask) -> None:
    before = ask("runs/first/state")["files"]
    growing = Unfinished(run, "train", 4)
    growing.add(group := _group(run, 1))
    assert [row["sibling"] for row in ask("runs/first/train/4")["rows"]] == [0, 1]
    growing.add(group)
    growing.add(_group(run, 2))
    growing.close()
    with growing.path.open("ab") as file:
        file.write(b"\x1f\x8b half a group")
    found = ask("runs/first/train/4")
    assert (found["unfinished"], [row["group"] for row in found["rows"]]) == (True, [0, 0, 1, 1, 2])
    assert [ask(f"runs/first/train/4/{group}")["task"] for group in range(3)] == ["a", "a", "d"]
    assert ask("runs/first/state")["files"] != before


def test_finished_file_counts_more_than_what_a_killed_process_left(run: Path, ask: Ask) -> None:
    shutil.copy(run / "evidence" / ".train-000004.unfinished", run / "evidence" / ".train-000002.unfinished")
    assert {"purpose": "train", "step": 2, "unfinished": False} in ask("runs/first")["files"]
    assert ask("runs/first/train/2/0")["task"] == "d"


def test_changed_files_are_read_again(run: Path, ask: Ask) -> None:
    assert ask("runs/first/train/2/0")["task"] == "d"
    write_record(run / "rollouts" / "train-000002.jsonl.gz", [_group(run, 1)])
    assert ask("runs/first/train/2/0")["task"] == "a"
    assert len(ask("runs/first/train/2")["rows"]) == 2


def _group(run: Path, step: int) -> Any:
    return next(read_groups(run / "rollouts" / f"train-{step:06d}.jsonl.gz"))


def test_images_and_films_are_pictures(run: Path, ask: Ask) -> None:
    library = Library([run])
    (image,) = [part["image"] for part in ask("runs/first/evaluation/0/0")["prompt"][1]["parts"] if "image" in part]
    data, kind = media(library, f"first/{image}")
    assert (kind, Image.open(io.BytesIO(data)).size) == ("image/png", (112, 112))
    state, camera, planes = ask("runs/first/train/3/0")["trajectories"][0]["segments"][0]["series"]
    assert (state["shape"], state["values"]) == ([3], [[0.5, 1.0, 2.0], [3.0, 4.0, None]])
    assert len(camera["frames"]) == len(planes["frames"]) == 2
    shown = [Image.open(io.BytesIO(media(library, f"first/{one['frames'][1]}")[0])) for one in (camera, planes)]
    assert [(one.size, one.getpixel((0, 0))) for one in shown] == [((6, 4), (72, 73, 74)), ((6, 4), (72, 96, 120))]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"not an image", "readable"), (b"", "readable"), ("wide", "8,000"), ("tiff", "format"), ("cut", "readable")],
)
def test_pictures_that_are_not_shown(run: Path, content: bytes | str, message: str) -> None:
    if isinstance(content, str):
        written = io.BytesIO()
        size = (8001, 1) if content == "wide" else (4, 4)
        Image.new("RGB", size).save(written, format="TIFF" if content == "tiff" else "PNG")
        content = written.getvalue()[: 46 if content == "cut" else None]
    with pytest.raises(DataError, match=message):
        media(Library([run]), f"first/{BlobStore(run / 'media').put(content)}")


@pytest.mark.parametrize(
    "path",
    [
        *("runs/other", "runs/first/train/9", "runs/first/train/1/7", "runs/first/train/1/0/5/tokens", "nothing"),
        *("runs/first/test/1", "runs/first/train/-1", "runs/first/train/1e3", "runs/..", "runs/%2e%2e/state", "runs/"),
    ],
)
def test_what_is_not_there_is_not_found(ask: Ask, path: str) -> None:
    with pytest.raises(NotFoundError):
        ask(path)


@pytest.mark.parametrize("path", ["first/../config.toml", "first/..%2Fconfig.toml", "first/" + "a" * 64, "first/%00"])
def test_media_are_only_images_by_their_hash(run: Path, path: str) -> None:
    with pytest.raises((DataError, NotFoundError)):
        media(Library([run]), path)


def test_damaged_runs_do_not_prevent_others(run: Path) -> None:
    folder = run.parent
    for name in ("no-config", "bad-toml", "pipe", "empty-model", "strange-files"):
        shutil.copytree(run, folder / name)
    (folder / "no-config" / "config.toml").unlink()
    (folder / "bad-toml" / "config.toml").write_text("model = [", encoding="utf-8")
    (folder / "pipe" / "metrics.jsonl").unlink()
    os.mkfifo(folder / "pipe" / "metrics.jsonl")
    (folder / "empty-model" / "config.toml").write_text('model = 3\nenvironment = "x"\n', encoding="utf-8")
    (folder / "strange-files" / "rollouts" / "notes.jsonl").write_text("?", encoding="utf-8")
    (folder / "strange-files" / "environment.json").write_text("[1]", encoding="utf-8")
    (folder / "no-run").mkdir()
    library = Library([folder])
    lines = {line["id"]: line for line in answer(library, "runs", {})["runs"]}
    states = {name: line["state"] for name, line in lines.items()}
    damaged = dict.fromkeys(("no-config", "bad-toml", "pipe"), "damaged")
    assert states == {"first": "stopped", "empty-model": "ended", "strange-files": "stopped", **damaged}
    assert all(lines[name]["problem"] for name in damaged)
    assert answer(library, "runs/strange-files", {})["files"] == answer(library, "runs/first", {})["files"]


def test_list_of_many_runs_is_shown_before_all_are_read(run: Path) -> None:
    shutil.copytree(run, run.with_name("second"))
    library = Library([run.parent], reading_s=0)
    assert [line["state"] for line in library.lines()] == ["unread", "unread"]
    library.run("first").line()
    assert [(line["state"], line["step"]) for line in library.lines()] == [("stopped", 2), ("unread", 0)]
    library.run("second").line()
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 3}\n')
    assert [(line["state"], line["step"]) for line in library.lines()] == [("stopped", 3), ("stopped", 2)]


def test_damaged_files_cost_only_their_answers(run: Path, ask: Ask) -> None:
    path = run / "rollouts" / "train-000001.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-20])
    (run / "evidence" / "train-000002.index.jsonl.gz").write_bytes(gzip.compress(b'{"step": 2}\n'))
    (run / "evidence" / "train-000001.times.jsonl.gz").write_bytes(b"?")
    for place in ("train/1", "train/1/2", "train/2", "find"):
        with pytest.raises(DataError):
            ask(f"runs/first/{place}")
    assert ask("runs/first/train/3/0")["task"] == "reach"
    assert ask("runs/first/state")["step"] == 2


def test_run_of_an_earlier_version_has_no_index(run: Path, ask: Ask) -> None:
    shutil.rmtree(run / "evidence")
    assert [(row["group"], row["reward"]) for row in ask("runs/first/train/1")["rows"]][:3] == [(0, 0), (0, 1), (1, 0)]
    assert ask("runs/first/train/1/2")["task"] == "c"
    assert ask("runs/first/train/1/0/1/tokens")["missing"]
    assert ask("runs/first/find", text="quicksilver")["total"] == 2


def test_run_that_is_removed_is_not_found(run: Path, ask: Ask) -> None:
    assert ask("runs/first/train/1/0")["task"] == "a"
    shutil.rmtree(run)
    with pytest.raises(NotFoundError):
        ask("runs/first/state")
    assert ask("runs")["runs"] == []


def test_folders_of_the_same_name_have_different_ids(run: Path) -> None:
    other = run.parents[1] / "other" / "first"
    shutil.copytree(run, other)
    library = Library([run, other.parent, run / "checkpoints" / "000002"])
    assert [(shown.id, shown.path) for shown in library.runs()] == [("first", run), ("first~2", other)]
    new = shutil.copytree(run, other.with_name("another"))
    assert [shown.id for shown in library.runs()] == ["first", "another", "first~2"]
    assert library.run("another").path == Path(new)


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_paths_without_runs_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="is not a run directory"):
        Library([tmp_path / name])


def test_nothing_is_written_into_the_run(run: Path, ask: Ask) -> None:
    before = tree(run)
    for path in ("", "/state", "/metrics", "/findings", "/train/1", "/train/1/0", "/train/1/0/1/tokens", "/train/4/0"):
        ask(f"runs/first{path}")
    ask("runs/first/find", text="answer", where="reward == 1")
    for name in ("config.toml", "../config.toml"):
        with pytest.raises(RlcoreError):
            media(Library([run]), f"first/{name}")
    assert tree(run) == before
