"""Text from outside: shown without control over the terminal, one record on one line, and written so it reads back."""

from __future__ import annotations

import json
import logging
import tomllib
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from rlcore.config.origins import parse_toml
from rlcore.config.write import toml_text, toml_value
from rlcore.console.escaping import printable
from rlcore.console.terminal import json_text, log_to_terminal, overwrite, say
from rlcore.errors import UserError
from rlcore.plain_json import plain
from rlcore.rollouts.records import read_groups, write_groups
from rlcore.runs.directory import config_layer, read_metrics
from rlcore.runs.output import Output
from rlcore.trackers.jsonl import JsonlTracker
from rlcore.types import Boundary, Failure, Group, Message, Segment, Task, Trajectory, Turn

Call = Callable[..., Any]

ANY = st.text(st.characters(exclude_categories=()), max_size=40)
"""Any text: control characters, separators, bidirectional controls and lone surrogates too."""
UNICODE = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
TREES = st.dictionaries(
    UNICODE,
    st.recursive(
        UNICODE | st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.floats(allow_nan=False),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(UNICODE, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)
"""Tables of a configuration."""
HOSTILE = "\x1b[2J\x1b]0;t\x07\r\n\u202eabc\u2066\u2028\x9b31m\x00\x7f\ud800\u200b\U000e0041[red]"
IN_PROCESS = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])


def is_safe(text: str) -> bool:
    """Whether a text has only characters that a terminal shows, and ends of lines."""
    unsafe = {"Cc", "Cs", "Zl", "Zp", "Cf"}
    return all(c in "\n\u200c\u200d" or unicodedata.category(c) not in unsafe for c in text)


@given(ANY)
@example(HOSTILE)
def test_printable_text_is_safe_and_stays_what_it_is(text: str) -> None:
    shown = printable(text)
    assert is_safe(shown)
    assert "\n" not in shown
    assert printable(shown) == shown


@pytest.mark.parametrize("text", ["plain", "日本語　です", "é à ü", "👩‍👩‍👧 ok", "می‌خواهم", "a\u00a0b", "€ → ✓"])
def test_ordinary_text_is_shown_as_it_is(text: str) -> None:
    assert printable(text) == text


@given(st.lists(ANY, max_size=4))
def test_a_line_stays_one_line(lines: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        written: list[str] = []
        patch.setattr("sys.stderr", _Stream(written))
        say(*lines, err=True)
    text = "".join(written)
    assert text.count("\n") == len(lines)
    assert is_safe(text)


class _Stream:
    encoding = "utf-8"

    def __init__(self, written: list[str]) -> None:
        self.written = written

    def write(self, text: str) -> int:
        self.written.append(text)
        return len(text)

    def flush(self) -> None: ...


def test_terminal_with_a_small_character_set_gets_escapes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "out").open("w", encoding="ascii") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        say("→ é")
    assert (tmp_path / "out").read_text(encoding="ascii") == "\\u2192 \\xe9\n"


def test_progress_text_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    overwrite("10 %\x1b[2J")
    overwrite()
    assert capsys.readouterr().err == "10 %\\x1b[2J\r\x1b[K"


@given(ANY, ANY, ANY)
@example("first\nerror: forged", HOSTILE, "one\ntwo")
def test_parts_of_an_error_cannot_forge_a_line(message: str, found: str, fix: str) -> None:
    lines = str(UserError(message, found=found, fix=fix)).split("\n")
    assert is_safe("\n".join(lines))
    assert lines[0] == printable(message)
    assert [line for line in lines[1:] if not line.startswith("  ")] == []
    rows = [line for line in lines[1:] if line[2] != " "]
    assert [row.split()[0] for row in rows] == [name for name, part in (("found", found), ("fix", fix)) if part]


@given(ANY)
@example(HOSTILE)
def test_log_record_is_one_line(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        written: list[str] = []
        patch.setattr("sys.stderr", _Stream(written))
        log_to_terminal()
        assert logging.lastResort is not None
        record = logging.LogRecord("rlcore.plugins", logging.ERROR, "file", 1, "plugin %s failed", (text,), None)
        logging.lastResort.handle(record)
    assert "".join(written) == f"plugin {printable(text)} failed\n"


def test_log_record_with_a_traceback_is_indented(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_terminal()
    try:
        raise ValueError("a\nstep     1  reward 1.0")
    except ValueError as error:
        record = logging.LogRecord("x", logging.ERROR, "f", 1, "failed", (), (ValueError, error, error.__traceback__))
    assert logging.lastResort is not None
    logging.lastResort.handle(record)
    first, *others = capsys.readouterr().err.splitlines()
    assert first == "failed"
    assert "    step     1  reward 1.0" in others
    assert all(line.startswith("    ") for line in others)


@given(st.lists(ANY, max_size=3))
def test_log_of_a_run_has_one_line_for_each_record(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    output = Output()
    output.log = tmp_path_factory.mktemp("log") / "output.log"
    output.note(*lines)
    text = output.log.read_bytes().decode("utf-8")
    assert text.split("\n") == [*map(printable, lines), ""]


@given(TREES)
@example({"a": {"b\n[c]": HOSTILE.replace("\ud800", "")}, "# x": ["  # y", "\x7f\x85\u2028"]})
def test_toml_reads_back_and_is_safe_to_show(tree: dict[str, Any]) -> None:
    text = toml_text(tree, lambda path: f"command line: {'.'.join(path)}=\x1b[2J\n= 1")
    assert is_safe(text)
    assert tomllib.loads(text) == tree
    assert parse_toml(text, "again")[0] == tree


@given(st.dictionaries(ANY, ANY, max_size=3))
@example({"a": "\ud800", "\udcff": "b"})
def test_toml_with_a_lone_surrogate_can_be_read(tree: dict[str, str]) -> None:
    expected = {_without_surrogates(key): _without_surrogates(value) for key, value in tree.items()}
    assume(len(expected) == len(tree))
    text = toml_text(tree)
    assert tomllib.loads(text.encode("utf-8").decode("utf-8")) == expected


def _without_surrogates(text: str) -> str:
    return "".join(f"\\u{ord(c):04x}" if unicodedata.category(c) == "Cs" else c for c in text)


@given(TREES, ANY)
@example({}, HOSTILE)
def test_json_reads_back_and_is_safe_to_show(tree: dict[str, Any], text: str) -> None:
    value = {"tree": tree, "text": text}
    shown = json_text(value, indent=2)
    assert is_safe(shown)
    assert json.loads(shown) == plain(value)


@given(names=st.dictionaries(ANY.filter(lambda name: name not in {"step", "time"}), st.floats(), max_size=4))
def test_metrics_read_back_under_any_name(tmp_path_factory: pytest.TempPathFactory, names: Mapping[str, float]) -> None:
    folder = tmp_path_factory.mktemp("metrics")
    tracker = JsonlTracker(None, folder)
    tracker.log(1, names)
    tracker.log(2, {})
    rows = read_metrics(folder / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2]
    assert set(rows[0]) - {"step", "time"} == {json.loads(json.dumps(name)) for name in names}


@given(text=ANY)
@example(text=HOSTILE)
def test_stored_groups_read_back_with_any_text(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("groups") / "train-000001.jsonl.gz"
    message = Message(role="user", content=text)
    turn = Turn(kind="observation", start=0, end=0, messages=(message,))
    group = Group(
        task=Task(id=text, messages=(message,), fields={text: [text, {"inner": text}]}),
        trajectories=(
            Trajectory(
                task_id=text,
                sibling=0,
                segments=(Segment(turns=(turn,)),),
                failure=Failure(boundary=Boundary.TOOL, message=text),
                metrics={text: 1.0},
            ),
        ),
    )
    write_groups(path, [group])
    assert list(read_groups(path)) == [group]


@pytest.mark.slow
@IN_PROCESS
@given(text=ANY)
@example(text=HOSTILE)
@example(text="\x1b[2J")
def test_run_with_any_summary_resumes_or_is_refused(rlcore: Call, text: str) -> None:
    Path("mine.toml").write_text("", encoding="utf-8")
    started = rlcore("run", "-p", "toy", f"summary={toml_value(text)}")
    if started.status == 2:
        assert "summary" in started.err
        assert is_safe(started.err)
        return
    assert started.status == 0, started.err
    run = max(Path("runs").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    assert config_layer(run).tree["summary"] == tomllib.loads(f"summary = {toml_value(text)}")["summary"]
    resumed = rlcore("run", "--resume", run, "trainer.steps=4")
    assert resumed.status == 0, resumed.err
    shown = started.out + resumed.out + (run / "output.log").read_text(encoding="utf-8")
    assert is_safe(shown)
    assert f"recipe    toy/default (toy-rl 0.3): {printable(text)}".rstrip(" :") in shown.replace(": \n", "\n")


@IN_PROCESS
@given(text=ANY)
@example(text=HOSTILE)
def test_data_show_is_safe_for_any_row(rlcore: Call, text: str) -> None:
    row = {
        text: text,
        "messages": [{"role": text, "content": text, "tool_calls": [{"name": text, "arguments": {text: text}}]}, text],
    }
    Path("rows.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    done = rlcore("data", "show", "rows.jsonl")
    assert done.status == 0, done.err
    assert is_safe(done.out)
    assert done.out.splitlines()[0] == "row 1"
    assert all(line.startswith("  ") for line in done.out.splitlines()[1:])


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "-p", HOSTILE.replace("\x00", "")],
        ["run", "-p", "toy", "-r", "a\nb.toml"],
        ["run", "-p", "toy", "x\ny=\x1b[2J"],
        ["run", "-p", "toy", "seed=\x1b[2J\nerror: forged"],
        ["run", "-p", "toy", "trainer.id=\x1b[2J"],
        ["run", "--resume", "a\nb\x1b"],
        ["eval", "a\nb\x1b"],
        ["data", "show", "a\nb\x1b"],
        ["config", "diff", "a\nb\x1b", "c"],
        ["plugins", "show", "a\nb\x1b"],
        ["a\nb\x1b"],
        ["run", "--a\nb\x1b"],
    ],
)
def test_hostile_arguments_are_shown_escaped(rlcore: Call, arguments: list[str]) -> None:
    done = rlcore(*arguments)
    assert done.status == 2
    assert is_safe(done.out + done.err)
    assert "\nb" not in done.err
    assert "\nerror: forged" not in done.err
