"""A teacher labels recorded steps through a real local server that fails in every way."""

from __future__ import annotations

import base64
import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httpx2", reason="the extra label is not installed")

from chat_server import KEY, Endpoint, Reply, failing, reply
from PIL import Image
from rlcore.errors import DataError, EngineError, UserError
from rlcore.redaction import forget
from rlcore_gui.actions import Action, ActionKind, ActionTable
from rlcore_gui.labels import LabelTable, StepLabels
from rlcore_gui.labels.file import Record, opened
from rlcore_gui.labels.labelling import label
from rlcore_gui.labels.prompt import sections
from rlcore_gui.labels.teacher import MOST_FAILED
from rlcore_gui.steps import GuiStep

TABLE = ActionTable((ActionKind(name="CLICK", takes_position=True, meaning="Tap."),))
Episodes = list[tuple[GuiStep, ...]]


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    server = Endpoint()
    server.answer = teach
    yield server
    server.close()
    forget()


def recorded(folder: Path, episodes: int, steps: int) -> Episodes:
    """Episodes whose n-th step taps at 0.n."""
    image = folder / "screen.png"
    Image.new("RGB", (40, 80), "blue").save(image)
    return [
        tuple(
            GuiStep(
                row_id=f"{episode}-{step}",
                episode_id=f"e{episode}",
                step_index=step,
                group="g",
                task=f"Task {episode}",
                image=image,
                image_size=(40, 80),
                action=Action(name="CLICK", position=(step / 10, 0.5)),
            )
            for step in range(steps)
        )
        for episode in range(episodes)
    ]


def facts(body: Mapping[str, Any]) -> dict[str, str]:
    """The lines of a question."""
    text = body["messages"][1]["content"][1]["text"]
    return dict(line.split(": ", 1) for line in text.split("\n") if ": " in line)


def teach(body: Mapping[str, Any]) -> Reply:
    """A teacher whose summary counts the steps."""
    known = facts(body)
    before = known["Summary of the earlier steps"]
    count = int(before.rpartition(" ")[2]) + 1 if before[-1].isdigit() else 1
    labels = StepLabels(progress="Some.", reasoning="It's next.", summary=f"Steps of {known['Task']}: {count}")
    return reply(sections(labels))


def run(endpoint: Endpoint, episodes: Episodes, out: Path, **options: Any) -> Mapping[str, Any]:
    values = {"model": "m", "base_url": [endpoint.url], "out": str(out), "max_retries": 0, **options}
    return label(LabelTable(**values), lambda: episodes, TABLE, screen="a phone")


def rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


def test_summaries_follow_each_other_within_an_episode(endpoint: Endpoint, tmp_path: Path) -> None:
    found = run(endpoint, recorded(tmp_path, 3, 4), tmp_path / "new" / "labels.jsonl", max_side=40)
    written = rows(tmp_path / "new" / "labels.jsonl")
    assert {(row["annotation_id"], row["step_id"]) for row in written} == {
        (f"e{episode}", step) for episode in range(3) for step in range(4)
    }
    for row in written:
        assert list(row["pseudo_labels"]) == ["progress_estimation", "decision_reasoning", "history_summary"]
        task = f"Task {row['annotation_id'][1:]}"
        assert row["pseudo_labels"]["history_summary"] == f"Steps of {task}: {row['step_id'] + 1}"
        assert row["model"] == "m"
    assert (found["labelled"], found["requests"], found["prompt tokens"]) == (12, 12, 84)
    url = endpoint.bodies[0]["messages"][1]["content"][0]["image_url"]["url"]
    picture = Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))
    assert (picture.format, picture.size) == ("JPEG", (20, 40))


def test_finished_steps_are_never_asked_again(endpoint: Endpoint, tmp_path: Path) -> None:
    episodes, out = recorded(tmp_path, 2, 3), tmp_path / "labels.jsonl"
    assert run(endpoint, episodes, out, limit=4, concurrency=1)["left"] == 2
    before = out.read_bytes()
    found = run(endpoint, episodes, out)
    assert (found["labelled before"], found["labelled"], len(endpoint.bodies)) == (4, 2, 6)
    assert out.read_bytes().startswith(before)
    assert run(endpoint, episodes, out)["requests"] == 0
    assert facts(endpoint.bodies[4])["Summary of the earlier steps"] == "Steps of Task 1: 1"


def test_half_written_last_line_is_repaired(endpoint: Endpoint, tmp_path: Path) -> None:
    episodes, out = recorded(tmp_path, 1, 3), tmp_path / "labels.jsonl"
    run(endpoint, episodes, out)
    whole = out.read_bytes()
    lines = whole.splitlines(keepends=True)
    for cut in (1, len(lines[2]) // 2, len(lines[2]) - 1):
        out.write_bytes(b"".join(lines[:2]) + lines[2][:cut])
        endpoint.bodies.clear()
        run(endpoint, episodes, out)
        assert out.read_bytes() == whole
        assert len(endpoint.bodies) == (0 if cut == len(lines[2]) - 1 else 1)


def test_file_with_a_byte_order_mark_is_continued(endpoint: Endpoint, tmp_path: Path) -> None:
    episodes, out = recorded(tmp_path, 1, 2), tmp_path / "labels.jsonl"
    run(endpoint, episodes, out, limit=1)
    marked = out.read_text(encoding="utf-8")
    for text in (marked, marked.rstrip("\n")):
        out.write_text(text, encoding="utf-8-sig")
        assert run(endpoint, episodes, out)["labelled before"] == 1
        found = out.read_text(encoding="utf-8-sig").splitlines()
        assert [json.loads(line)["step_id"] for line in found] == [0, 1]


def test_invalid_answer_is_asked_again_with_the_reason(endpoint: Endpoint, tmp_path: Path) -> None:
    def once(body: dict[str, Any]) -> Reply:
        return reply("I think so.") if "not accepted" not in json.dumps(body) else teach(body)

    endpoint.answer = once
    found = run(endpoint, recorded(tmp_path, 1, 2), tmp_path / "labels.jsonl")
    assert (found["labelled"], found["requests"]) == (2, 4)


def test_step_without_valid_answer_is_null_and_kept(endpoint: Endpoint, tmp_path: Path) -> None:
    episodes, out = recorded(tmp_path, 1, 3), tmp_path / "labels.jsonl"

    def refusing(body: dict[str, Any]) -> Reply:
        return reply("No.") if "[0.100" in facts(body)["Action of this step"] else teach(body)

    endpoint.answer = refusing
    found = run(endpoint, episodes, out, attempts=2)
    assert (found["labelled"], found["failed: invalid sections"], found["requests"]) == (2, 1, 4)
    assert [row["pseudo_labels"] is None for row in rows(out)] == [False, True, False]
    last = facts(endpoint.bodies[-1])
    assert last["Summary of the earlier steps"] == "Steps of Task 0: 1"
    assert "[0.100" in last["Actions after the summary"]
    assert run(endpoint, episodes, out)["requests"] == 0
    endpoint.answer = teach
    assert run(endpoint, episodes, out, retry_failed=True)["labelled"] == 1
    assert sorted(row["step_id"] for row in rows(out)) == [0, 1, 2]
    assert all(row["pseudo_labels"] for row in rows(out))


PROGRESS, REASONING, SUMMARY = sections(StepLabels(progress="Begun.", reasoning="Next.", summary="Done.")).split("\n")
WHOLE = "\n".join((PROGRESS, REASONING, SUMMARY))
MALFORMED = {
    "empty": "",
    "white space": " \n\t",
    "no sections": "I cannot see the screen.",
    "no progress": f"{REASONING}\n{SUMMARY}",
    "no reasoning": f"{PROGRESS}\n{SUMMARY}",
    "no summary": f"{PROGRESS}\n{REASONING}",
    "empty section": WHOLE.replace("Done.", " \n "),
    "repeated section": f"{WHOLE}\n{SUMMARY}",
    "all sections twice": f"{WHOLE}\n{WHOLE}",
    "another order": "\n".join((SUMMARY, REASONING, PROGRESS)),
    "open section": WHOLE.removesuffix("</History Summary>"),
    "nested sections": f"<Progress Estimation>{REASONING}</Progress Estimation>\n{SUMMARY}",
    "translated tags": WHOLE.replace("Progress Estimation", "进度估计"),
    "other case": WHOLE.replace("History Summary", "history summary"),
    "other brackets": WHOLE.replace("<", "[").replace(">", "]"),
    "escaped tags": WHOLE.replace("<", "&lt;").replace(">", "&gt;"),
    "in a code block": f"```xml\n{WHOLE}\n```",
    "as JSON": json.dumps(StepLabels(progress="a", reasoning="b", summary="c").as_json()),
    "with an action": f"{WHOLE}\n<action>{{}}</action>",
    "tags of the agent inside": WHOLE.replace("Done.", "Done. <Think>"),
    "huge section": WHOLE.replace("Done.", "Done. " * 1000),
    "huge answer": "<Progress Estimation>" * 100_000,
    "control characters": WHOLE.replace("Done.", "Done\x00\x1b[2J."),
    "binary": bytes(range(256)).decode("latin-1") * 40,
}


def test_malformed_answers_are_counted_and_never_stored(endpoint: Endpoint, tmp_path: Path) -> None:
    episodes, out = recorded(tmp_path, len(MALFORMED), 2), tmp_path / "labels.jsonl"
    answers = list(MALFORMED.values())

    def attacking(body: Mapping[str, Any]) -> Reply:
        known = facts(body)
        good = "[0.000" not in known["Action of this step"]
        return teach(body) if good else reply(answers[int(known["Task"].removeprefix("Task "))])

    endpoint.answer = attacking
    found = run(endpoint, episodes, out, attempts=2)
    assert (found["labelled"], found["failed: invalid sections"]) == (len(answers), len(answers))
    assert found["requests"] == 3 * len(answers)
    first = {row["annotation_id"]: row for row in rows(out) if row["step_id"] == 0}
    assert {names: first[f"e{n}"]["pseudo_labels"] for n, names in enumerate(MALFORMED)} == dict.fromkeys(MALFORMED)
    assert {row["failure"] for row in first.values()} == {"invalid sections"}
    assert out.stat().st_size < 1000 * 2 * len(answers)
    text = out.read_text(encoding="utf-8")
    assert "\x00" not in text
    assert all(line.isprintable() for line in text.splitlines())


@pytest.mark.parametrize(
    "content", [None, 7, {"text": "a"}, [], ["a"], [{"type": "image_url", "image_url": {"url": "x"}}], True]
)
def test_answers_without_text_are_counted_and_never_stored(endpoint: Endpoint, tmp_path: Path, content: Any) -> None:
    episodes, out = recorded(tmp_path, 1, 2), tmp_path / "labels.jsonl"
    endpoint.answer = lambda body: teach(body) if "[0.000" in facts(body)["Action of this step"] else reply(content)
    found = run(endpoint, episodes, out, attempts=1)
    assert found["labelled"] == sum(count for name, count in found.items() if name.startswith("failed: ")) == 1
    assert [row["pseudo_labels"] is None for row in rows(out)] == [False, True]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (failing(429, Retry_After="0"), "rate limit"),
        (failing(500), "server error"),
        (Reply(body=b'{"choices": ['), "unreadable answer"),
        (Reply(body=reply().body, drops=True), "connection"),
        pytest.param(Reply(body=b"", after_s=600), "time-out", marks=pytest.mark.slow),
    ],
)
def test_step_without_a_response_is_null_until_the_next_run(
    endpoint: Endpoint, tmp_path: Path, answer: Reply, kind: str
) -> None:
    episodes, out = recorded(tmp_path, 1, 2), tmp_path / "labels.jsonl"
    endpoint.answer = lambda body: teach(body) if "[0.000" in facts(body)["Action of this step"] else answer
    found = run(endpoint, episodes, out, timeout_s=3 if answer.after_s else 60)
    assert (found["labelled"], found[f"failed: {kind}"]) == (1, 1)
    assert rows(out)[1]["pseudo_labels"] is None
    endpoint.answer = teach
    assert run(endpoint, episodes, out)["labelled"] == 1
    assert [row["step_id"] for row in rows(out)] == [0, 1]


def test_rejected_key_ends_at_once_and_loses_nothing(
    endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    endpoint.answer = lambda body: teach(body) if len(endpoint.bodies) < 3 else failing(401, f"bad key {KEY}")
    out = tmp_path / "labels.jsonl"
    with pytest.raises(UserError, match="rejected the key") as caught:
        run(endpoint, recorded(tmp_path, 2, 4), out, concurrency=1, max_retries=5)
    assert caught.value.exit_status == 2
    assert (len(rows(out)), len(endpoint.bodies)) == (2, 3)
    assert "2 steps are labelled" in capsys.readouterr().err
    assert KEY not in f"{caught.value}{out.read_text(encoding='utf-8')}"


def test_endpoint_that_stops_answering_ends_the_command(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.answer = lambda body: teach(body) if len(endpoint.bodies) < 3 else failing(500)
    with pytest.raises(EngineError, match=f"last {MOST_FAILED} steps"):
        run(endpoint, recorded(tmp_path, 10, 4), tmp_path / "labels.jsonl", concurrency=1)
    assert len(endpoint.bodies) == 2 + MOST_FAILED


def test_teacher_that_labels_nothing_is_an_error(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.answer = lambda body: reply("No.")
    with pytest.raises(EngineError, match=r"none of 2 steps: 2 times invalid sections"):
        run(endpoint, recorded(tmp_path, 1, 2), tmp_path / "labels.jsonl", attempts=1)


def test_missing_screenshots_are_counted_and_stay_in_the_history(endpoint: Endpoint, tmp_path: Path) -> None:
    ((first, second, third),) = recorded(tmp_path, 1, 3)
    episode = (replace(first, image=None), replace(second, image=tmp_path / "missing.png"), third)
    found = run(endpoint, [episode], tmp_path / "labels.jsonl")
    assert (found["labelled"], found["failed: no image"], found["requests"]) == (1, 2, 1)
    assert "[0.000" in facts(endpoint.bodies[0])["Actions after the summary"]


def test_repeated_steps_and_lines_are_labelled_once(endpoint: Endpoint, tmp_path: Path) -> None:
    episodes, out = recorded(tmp_path, 1, 2), tmp_path / "labels.jsonl"
    found = run(endpoint, episodes * 2, out)
    assert (found["labelled"], found["repeated steps of the source"]) == (2, 2)
    lines = out.read_text(encoding="utf-8").splitlines(keepends=True)
    null = '{"annotation_id": "e0", "step_id": "0", "pseudo_labels": null}\n'
    out.write_text(null + "".join(lines) + null, encoding="utf-8")
    assert run(endpoint, episodes, out)["repeated lines removed"] == 2
    assert sorted(out.read_text(encoding="utf-8").splitlines(keepends=True)) == sorted(lines)


def test_dry_run_shows_a_request_and_sends_nothing(
    endpoint: Endpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "labels.jsonl"
    found = run(endpoint, recorded(tmp_path, 2, 3), out, dry_run=True, limit=5, requests_per_minute=10)
    assert (found["requests"], found["images"], found["minutes at least"]) == (5, 5, 0.5)
    shown = capsys.readouterr().err
    assert "Task: Task 0" in shown
    assert "40 x 80 pixels" in shown
    assert endpoint.bodies == []
    assert not out.exists()


def test_bad_line_is_named_and_the_file_stays(endpoint: Endpoint, tmp_path: Path) -> None:
    out = tmp_path / "labels.jsonl"
    for line in ('{"step_id": 1}', "[]", "{", '{"annotation_id": "a", "step_id": -1, "pseudo_labels": null}'):
        out.write_text(f"{line}\n", encoding="utf-8")
        with pytest.raises(DataError, match=r"labels.jsonl:1"):
            run(endpoint, recorded(tmp_path, 1, 1), out)
        assert out.read_text(encoding="utf-8") == f"{line}\n"


def test_file_has_one_writer_at_a_time(endpoint: Endpoint, tmp_path: Path) -> None:
    out = tmp_path / "labels.jsonl"
    with opened(out, again=frozenset()), pytest.raises(UserError, match="another process"):
        run(endpoint, recorded(tmp_path, 1, 1), out)


def test_full_disk_leaves_only_whole_lines(tmp_path: Path) -> None:
    out = tmp_path / "labels.jsonl"
    labels = StepLabels(progress="a", reasoning="b", summary="c" * 100)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with opened(out, again=frozenset()) as file:
        file.append(Record(key=("e", 0), labels=labels))
        before = out.read_bytes()
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 50, hard))
        try:
            with pytest.raises(UserError, match="cannot be used"):
                file.append(Record(key=("e", 1), labels=labels))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert out.read_bytes() == before
        assert ("e", 1) not in file


SCRIPT = """
import pickle, sys
from pathlib import Path
import click
from rlcore.cli import exit_status
from rlcore.cli.interrupts import interrupts_handled
from rlcore_gui.actions import ActionKind, ActionTable
from rlcore_gui.labels import LabelTable
from rlcore_gui.labels.labelling import label
TABLE = ActionTable((ActionKind(name="CLICK", takes_position=True, meaning="Tap."),))
episodes = pickle.loads(Path(sys.argv[3]).read_bytes())
config = LabelTable(model="m", base_url=[sys.argv[1]], out=sys.argv[2], concurrency=2)
sys.argv[1:] = []
command = click.command(lambda: print(label(config, lambda: episodes, TABLE, screen="a phone")["labelled"]))
with interrupts_handled():
    sys.exit(exit_status(command, "label"))
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_stopped_command_continues_without_a_loss(endpoint: Endpoint, tmp_path: Path, number: int, status: int) -> None:
    import pickle

    episodes, out, source = recorded(tmp_path, 4, 5), tmp_path / "labels.jsonl", tmp_path / "episodes"
    source.write_bytes(pickle.dumps(episodes))
    endpoint.answer = lambda body: teach(body) if len(endpoint.bodies) <= 8 else Reply(body=b"", after_s=600)
    command = [sys.executable, "-c", SCRIPT, endpoint.url, str(out), str(source)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        while len(endpoint.bodies) < 10 and process.poll() is None:
            time.sleep(0.02)
        os.kill(process.pid, number)
        _, said = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == status, said
    if number == signal.SIGINT:
        assert "8 steps are labelled" in said
        assert "12 steps left: the same command continues" in said
    finished = {(row["annotation_id"], row["step_id"]) for row in rows(out)}
    assert len(finished) == 8
    endpoint.answer = teach
    endpoint.bodies.clear()
    assert run(endpoint, episodes, out)["labelled"] == 12
    assert (len(endpoint.bodies), len(rows(out))) == (12, 20)
    for row in rows(out):
        assert row["pseudo_labels"]["history_summary"].endswith(f": {row['step_id'] + 1}")
