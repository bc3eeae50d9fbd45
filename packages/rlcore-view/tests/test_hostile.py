"""Values of other types and sizes than a run writes: they cost only what they belong to."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from rlcore.errors import DataError, RlcoreError
from rlcore.rollouts.records import BlobStore
from rlcore_view import report, scan
from rlcore_view.library import Library
from rlcore_view.report import report_text
from rlcore_view.routes import answer

Damage = Callable[[Path], object]
INDEX = Path("evidence/train-000003.index.jsonl.gz")
TIMES = Path("evidence/train-000001.times.jsonl.gz")


def rewrite(path: Path, **changes: Any) -> None:
    """Change columns of all rows of a compressed file; None removes a column."""
    lines = gzip.decompress(path.read_bytes()).splitlines()
    rows = [{name: value for name, value in (json.loads(one) | changes).items() if value != "gone"} for one in lines]
    path.write_bytes(gzip.compress("".join(f"{json.dumps(row)}\n" for row in rows).encode()))


def column(**changes: Any) -> Damage:
    return lambda run: rewrite(run / INDEX, **changes)


def text(name: str, content: str) -> Damage:
    return lambda run: (run / name).write_text(content, encoding="utf-8")


DAMAGES: dict[str, Damage] = {
    "environment without time": text("environment.json", "{}"),
    "overrides that are no list": text("asked.toml", "overrides = 3"),
    "huge integers as metrics": text(
        "metrics.jsonl", f'{{"step": 1, "reward/mean": {10**307}}}\n{{"step": 2, "reward/mean": 1.5}}\n'
    ),
    "a link to nothing": lambda run: (run / "evidence" / ".train-000009.unfinished").symlink_to("nowhere"),
    "no reward": column(reward="gone"),
    "a reward that is a text": column(reward="high"),
    "a huge reward": column(reward=10**400),
    "a place that is no integer": column(offset=0.0),
    "a step that is a text": column(trained_step="x"),
    "deep metrics": column(metrics={"a": [[]]}),
    "times of a list": lambda run: rewrite(run / TIMES, sibling=[]),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_values_cost_only_what_they_belong_to(run: Path, damage: Damage) -> None:
    other = run.with_name("other")
    shutil.copytree(run, other)
    damage(run)
    library = Library([run.parent])
    lines = {line["id"]: line for line in answer(library, "runs", {})["runs"]}
    assert lines["other"]["state"] == "stopped"
    for path in ("", "/metrics", "/findings", "/find", "/train/1", "/train/1/0", "/train/3", "/train/3/0"):
        with suppress(RlcoreError):
            json.dumps(answer(library, f"runs/first{path}", {}), allow_nan=False)
    contents, page = report_text([run, other])
    assert contents.trajectories > 5  # those of the other run are 5
    assert "gsm8k-tools/default" in page


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_folders_of_other_users_are_left_out(run: Path) -> None:
    (run.parent / "private").mkdir(mode=0)
    assert [line["id"] for line in answer(Library([run.parent]), "runs", {})["runs"]] == ["first"]


def test_sizes_are_bounded(run: Path, ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask("runs/first/train/1/0")["trajectories"][0]["times"]
    monkeypatch.setattr("rlcore.rollouts.index.LARGEST_INDEX", 40)  # the rows are known by now
    assert ask("runs/first/train/1/0")["trajectories"][0]["times"] == []
    monkeypatch.undo()
    monkeypatch.setattr(scan, "LONGEST_GROUP", 10)
    assert ask("runs/first/find", text="quicksilver")["total"] == 0
    monkeypatch.setattr("rlcore.rollouts.records.LARGEST_BLOB", 10)
    picture = next(path.name for path in (run / "media").glob("??/*"))
    with pytest.raises(DataError):
        BlobStore(run / "media").get(picture)
    monkeypatch.setattr(report, "MOST_CHARACTERS", 0)
    assert (whole := report_text([run])[0]).dropped
    assert whole.trajectories == 1


def test_secrets_are_masked_in_all_that_is_shown(run: Path, ask: Any) -> None:
    secret = "sk-0123456789abcdef"
    (run / "asked.toml").write_text(f'overrides = ["reward.judge.api_key={secret}"]\n', encoding="utf-8")
    (run / "environment.json").write_text(json.dumps({"argv": ["rlcore", "--api-key", secret]}), encoding="utf-8")
    (run / "output.log").write_text(f"error: https://me:{secret}@example.org failed\n", encoding="utf-8")
    assert secret not in json.dumps([ask("runs"), ask("runs/first"), ask("runs/first/findings")])
