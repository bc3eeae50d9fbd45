"""The trackers of services with the real libraries: W&B without a network, and trackio with its local storage."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from killed_runs import FIRST, NAME, RESUME
from rlcore.diagnosis.diagnosing import diagnose
from rlcore.trackers.samples import AFTER, BEFORE

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

KILLED = """
import os, signal
from pathlib import Path
from rlcore import hookimpl

class Killed:
    @hookimpl
    def rlcore_rollouts_scored(self, step):
        if step == 2 and not Path("killed").exists():
            Path("killed").touch()
            import time
            time.sleep(1)  # trackio stores what it received every half second
            os.kill(os.getpid(), signal.SIGKILL)
"""
BLOCK, FULL, LAST = 32768, 1, 4
SECRET = "hush-hush-secret"
TRACKED = (
    *FIRST,
    *("trackers.use=[console,jsonl,wandb,trackio]", "trackers.wandb.mode=offline", "trackers.wandb.samples=3"),
    *("observers=[killed.py:Killed]", "warmup.steps=2", "trainer.steps=3", "checkpoint.every=0"),
    *("environment.id=delayed.py:Delayed", f"environment.api_key={SECRET}"),
)
ENVIRONMENT = """
from pydantic import SecretStr
from delayed_environment import Delayed as Base

class Delayed(Base):
    class Config(Base.Config):
        api_key: SecretStr
"""


def command(arguments: tuple[str, ...], folder: Path) -> subprocess.CompletedProcess[str]:
    here = str(Path(__file__).parents[1] / "repo")
    environment = {**os.environ, "TRACKIO_DIR": str(folder / "trackio"), "PYTHONPATH": here, "WANDB_SILENT": "true"}
    return subprocess.run(
        [sys.executable, "-m", "rlcore", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed in its second step, and resumed from the start."""
    folder = tmp_path_factory.mktemp("tracked")
    (folder / "killed.py").write_text(KILLED, encoding="utf-8")
    (folder / "delayed.py").write_text(ENVIRONMENT, encoding="utf-8")
    killed = command(TRACKED, folder)
    assert killed.returncode == -9, killed.stderr[-3000:]
    resumed = command((*RESUME, "--json", f"environment.api_key={SECRET}"), folder)
    assert resumed.returncode == 0, resumed.stderr[-3000:]
    assert json.loads(resumed.stdout)["finished"] is True  # the libraries print to stderr
    lines = (folder / "runs" / NAME / "superseded").rglob("metrics.jsonl")
    assert {json.loads(line)["step"] for file in lines for line in file.read_text().splitlines()} >= {0, 1}
    return folder


def wandb_records(run: Path) -> Iterator[Any]:
    """The records of the file that ``wandb sync`` uploads: 7 bytes, then blocks in the log format of LevelDB."""
    from wandb.proto import wandb_internal_pb2

    (file,) = run.glob("wandb/offline-run-*/*.wandb")
    content, at, data = file.read_bytes(), 7, b""
    while at + 7 <= len(content):
        if BLOCK - at % BLOCK < 7:  # the end of a block has no room for a header
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        data += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (FULL, LAST):
            record, data = wandb_internal_pb2.Record.FromString(data), b""
            yield record


def values(items: Any) -> dict[str, Any]:
    return {".".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items}


def test_wandb_gets_each_step_once_with_configuration_and_samples(tracked: Path) -> None:
    run = tracked / "runs" / NAME
    records = list(wandb_records(run))
    started = [record.run for record in records if record.HasField("run")]
    assert len({each.run_id for each in started}) == 1
    assert started[0].run_id != NAME
    assert {each.display_name for each in started} == {NAME}
    config = values(started[0].config.update)
    assert config["rollout"]["group_size"] == 4
    assert config["environment"]["api_key"] == "**********"
    rows = [values(record.history.item) for record in records if record.HasField("history")]
    assert Counter(row["_step"] for row in rows if "loss/total" in row) == {1: 1, 2: 1, 3: 1}
    assert sorted(row["_step"] for row in rows if any(key.startswith("samples/evaluation") for key in row)) == [0, 2, 3]
    tables = [json.loads(file.read_text()) for file in run.glob("wandb/offline-run-*/files/media/table/**/*.json")]
    assert len(tables) == 3
    assert all({*BEFORE, *AFTER} <= {*table["columns"]} and len(table["data"]) == 3 for table in tables)
    assert tables[0]["data"][0][BEFORE.index("conversation")].startswith("assistant: ")


def test_wandb_gets_the_findings_of_the_diagnosis_as_alerts(tracked: Path) -> None:
    run = tracked / "runs" / NAME
    alerts = [record.alert for record in wandb_records(run) if record.HasField("alert")]
    assert {each.title for each in alerts} == {one.rule for one in diagnose(run).found}
    assert all(each.level == "WARN" and each.text.startswith("step ") for each in alerts)
    assert alerts


def test_nothing_that_wandb_stores_contains_a_secret(tracked: Path) -> None:
    files = [path for path in (tracked / "runs" / NAME / "wandb").rglob("*") if path.is_file()]
    assert len(files) > 2
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


def test_trackio_gets_each_step_once_with_configuration_and_samples(tracked: Path) -> None:
    read = """
import json
from trackio.sqlite_storage import SQLiteStorage
(run,) = SQLiteStorage.get_runs("rlcore")
print(json.dumps([run, SQLiteStorage.get_run_config("rlcore", run), SQLiteStorage.get_logs("rlcore", run)]))
"""
    environment = {**os.environ, "TRACKIO_DIR": str(tracked / "trackio")}
    done = subprocess.run([sys.executable, "-c", read], env=environment, capture_output=True, text=True, check=True)
    run, config, rows = json.loads(done.stdout)
    assert run.startswith(f"{NAME}-")
    assert config["rollout"]["group_size"] == 4
    assert config["environment"]["api_key"] == "**********"
    assert Counter(row["step"] for row in rows if "loss/total" in row) == {1: 1, 2: 1, 3: 1}
    samples = {row["step"]: row["samples/evaluation"] for row in rows if "samples/evaluation" in row}
    assert sorted(samples) == [0, 2, 3]
    assert len(samples[3]["_value"]) == 8
    assert {*BEFORE, *AFTER} <= set(samples[3]["_value"][0])
