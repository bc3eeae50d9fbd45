"""Alerts and samples at the services that show them: a webhook, W&B without a network, and trackio in a folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pictured_groups
import pytest
from rlcore.session.session import RunSession
from rlcore.trackers import webhook

RULES = """
from rlcore.errors import DataError
def late(evidence): return f"step {evidence.step} \\x1b of token=hush-hush" if evidence.step >= 2 else None
def early(evidence): return "early"
"""
PATH = "/hooks/hush-hush-path"


class Hook(ThreadingHTTPServer):
    """A server that keeps what is posted, and answers with a status or not at all."""

    daemon_threads = True
    status, hang = 200, Event()

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.hang.set()
        self.posted: list[dict[str, Any]] = []
        self.url = f"http://127.0.0.1:{self.server_port}{PATH}"


class Answer(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        assert self.path == PATH
        self.server.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.server.hang.wait(30)
        self.send_response(self.server.status)
        self.send_header("Location", self.server.url)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.send_error(200)

    def log_message(self, *arguments: object) -> None: ...


@pytest.fixture
def hook(toy: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    """A server, and rules for runs of the toy plugin."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    Path("rules.py").write_text(RULES, encoding="utf-8")
    with Hook() as server:
        serving = Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield server
        server.hang.set()
        server.shutdown()
        serving.join()


def arguments(url: str, *more: str) -> tuple[str, ...]:
    rules = "diagnosis=[rules.py:late,rules.py:early]"
    return ("run", "-p", "toy", "name=a", "trackers.use=[jsonl,webhook]", f"trackers.webhook.url={url}", rules, *more)


def test_webhook_gets_each_finding_once_also_of_a_resumed_run(rlcore: Any, hook: Hook) -> None:
    done = rlcore(*arguments(hook.url, "trainer.steps=2"))
    assert done.status == 0, done.err
    first, second = sorted(hook.posted, key=lambda body: body["step"])
    assert first == {"run": "a", "step": 1, "rule": "rules.py:early", "text": "early", "key": "", "fix": ""}
    assert (second["step"], second["text"]) == (2, "step 2 \\x1b of token=hush-hush")
    stored = [file for file in Path("runs/a").rglob("*") if file.is_file() and b"hush-hush-path" in file.read_bytes()]
    assert stored == []
    assert "hush-hush-path" not in done.out + done.err
    assert "trackers.webhook.url" in rlcore("run", "--resume", "runs/a", "trainer.steps=4").err  # it is asked for again
    done = rlcore("run", "--resume", "runs/a", "trainer.steps=4", f"trackers.webhook.url={hook.url}")
    assert done.status == 0, done.err
    assert len(hook.posted) == 2


def test_webhook_gets_the_error_of_a_failed_run(rlcore: Any, hook: Hook) -> None:
    assert rlcore(*arguments(hook.url, "trainer.fail=bug")).status != 0
    (posted,) = hook.posted
    assert (posted["rule"], posted["text"]) == ("failed", "the run failed: ZeroDivisionError: a bug")


@pytest.mark.parametrize(
    "url", ["hush-hush-path", "ftp://h/hush-hush-path", "https:///x", "http://h:x/", "http://a:b@h/", "http://h/ä", "7"]
)
def test_webhook_that_is_no_url_is_refused_by_its_key(url: str, rlcore: Any, hook: Hook) -> None:
    done = rlcore(*arguments(url))
    assert done.status == 2
    assert "trackers.webhook.url" in done.err
    assert "hush" not in done.err
    assert not Path("runs").exists()


@pytest.mark.parametrize("flaw", ["500", "302", "closed", "hangs", "slow"])
def test_webhook_that_fails_is_reported_once_and_harms_nothing(
    flaw: str, rlcore: Any, hook: Hook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hook.status = int(flaw) if flaw.isdecimal() else 200
    monkeypatch.setattr(webhook, "TIMEOUT_S", 0.3 if flaw == "hangs" else 20)
    monkeypatch.setattr(webhook, "LAST_S", 0.3 if flaw == "slow" else 20)
    if flaw in {"hangs", "slow"}:
        hook.hang.clear()
    url = "http://127.0.0.1:9/hush-hush-path" if flaw == "closed" else hook.url
    started = time.monotonic()
    done = rlcore(*arguments(url, "trainer.steps=3"))
    assert time.monotonic() - started < 5
    assert done.status == 0, done.err
    assert caplog.text.count("did not reach trackers.webhook.url") == 1, caplog.text
    assert "hush" not in caplog.text
    assert len(Path("runs/a/metrics.jsonl").read_text(encoding="utf-8").splitlines()) == 3


@pytest.mark.parametrize("method", ["log_samples", "alert"])
def test_tracker_that_fails_in_an_optional_method_keeps_its_metrics(
    method: str, toy: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    logged: list[int] = []
    calls: list[str] = []

    class Broken:
        def log(self, step: int, metrics: Any) -> None:
            logged.append(step)

        def log_samples(self, *arguments: Any) -> None:
            self._called("log_samples")

        def alert(self, *arguments: Any) -> None:
            self._called("alert")

        def _called(self, name: str) -> None:
            calls.append(name)
            if name == method:
                raise SystemExit(3)

        def close(self) -> None: ...

    values = {"model": {"path": "builtin:tiny"}, "environment": {"id": "toy"}, "reward": [{"id": "length"}]}
    run = RunSession.create(values)
    run.trackers.append(("broken", Broken()))
    for step in (1, 2):
        run.record(step, "train", [])
        run.log(step, {})
    run.finished(ValueError("over"))
    assert logged == [1, 2]
    assert calls == (["log_samples", "alert"] if method == "log_samples" else ["log_samples", "log_samples", "alert"])
    assert capsys.readouterr().out.count(f"tracker 'broken' failed in {method}") == 1


SERVICE = """
import sys
from pathlib import Path
sys.path.insert(0, str(Path(sys.argv[2]).parent))
from pictured_groups import groups
from rlcore.diagnosis.diagnosing import Diagnosis
from rlcore.plugins.loading import load_attribute
from rlcore.trackers.options import {options}

tracker = load_attribute(sys.argv[1])({options}(samples=3), Path("run"))
tracker.log_samples(9, "train", groups(1))
tracker.log_samples(10, "train", groups(4, siblings=2))
tracker.log_samples(10, "evaluation", groups(2))
tracker.log(10, {{"loss": 0.5}})
warned = Diagnosis(status="warn", text="all are 0", key="reward", fix="look at it", rule="rewards-zero", step=9)
tracker.alert(warned, False)
tracker.alert(Diagnosis(status="fail", text="the run failed", rule="failed", step=10), False)
tracker.close()
"""


def served(name: str, folder: Path, **variables: str) -> Callable[[str], str]:
    """Send samples and alerts with a tracker; returns a function that runs code in the same surroundings."""
    (folder / "run").mkdir()
    (folder / "run" / "config.toml").touch()
    environment = {**os.environ, "TRACKIO_DIR": str(folder / "trackio"), "WANDB_SILENT": "true", **variables}

    def run(code: str) -> str:
        target = f"rlcore.trackers.{name}:{name.capitalize()}Tracker"
        command = [sys.executable, "-c", code, target, pictured_groups.__file__]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    assert run(SERVICE.format(options=f"{name.capitalize()}Options")) == ""
    return run


def test_wandb_stores_samples_and_alerts(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed: pip install 'rlcore-core[wandb]'")
    served("wandb", tmp_path, WANDB_MODE="offline", WANDB_DATA_DIR=str(tmp_path / "data"))
    files = [file for file in (tmp_path / "run" / "wandb").rglob("*") if file.is_file()]
    tables = {
        file.parent.name + file.name[:7]: json.loads(file.read_text()) for file in files if file.suffix == ".json"
    }
    sizes = sorted(len(table["data"]) for table in tables.values() if "data" in table)
    assert sizes == [2, 3]
    for table in tables.values():
        assert {"prompt", "answer", "reward/visual-answer", "tokens", "images"} <= set(table["columns"])
        assert all(row[-1] == "Image" for row in table["data"])
    staged = [file.read_bytes()[:4] for file in (tmp_path / "data").rglob("*") if file.is_file()]
    assert staged.count(b"\x89PNG") == 5
    (sent,) = [file.read_bytes() for file in files if file.suffix == ".wandb"]
    for text in (
        b"rewards-zero",
        b"step 9: all are 0\nchange reward: look at it",
        b"WARN",
        b"the run failed",
        b"ERROR",
    ):
        assert text in sent


def test_trackio_stores_samples_and_alerts(tmp_path: Path) -> None:
    pytest.importorskip("trackio", reason="trackio is not installed: pip install 'rlcore-core[trackio]'")
    run = served("trackio", tmp_path)
    read = """
import json
from trackio.sqlite_storage import SQLiteStorage
(run,) = SQLiteStorage.get_runs("rlcore")
print(json.dumps([SQLiteStorage.get_logs("rlcore", run), SQLiteStorage.get_alerts("rlcore", run)]))
"""
    (row,), alerts = json.loads(run(read))
    assert (row["step"], row["loss"]) == (10, 0.5)
    assert [len(row[f"samples/{purpose}"]["_value"]) for purpose in ("train", "evaluation")] == [3, 2]
    best = row["samples/train"]["_value"][0]
    assert (best["reward"], best["stop"], best["images"]["_type"]) == (1.0, "done", "trackio.image")
    assert {(alert["title"], alert["level"], alert["step"]) for alert in alerts} == {
        ("rewards-zero", "warn", 9),
        ("failed", "error", 10),
    }
