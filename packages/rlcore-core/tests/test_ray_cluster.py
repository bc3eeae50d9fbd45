"""The connection to a Ray cluster, without a cluster."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rlcore.runs import ray_cluster


def test_token_is_created_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by two runs that start at the same time."""
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    ray_cluster.create_token()
    file = tmp_path / ".ray" / "auth_token"
    token = file.read_text("utf-8")
    assert len(token) == 64
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with ThreadPoolExecutor(8) as threads:
        file.unlink()
        list(threads.map(lambda _: ray_cluster.create_token(), range(8)))
    assert file.read_text("utf-8") != token
    monkeypatch.setattr(ray_cluster, "_has_token", lambda: False)  # as seen before the other run creates it
    token = file.read_text("utf-8")
    ray_cluster.create_token()
    assert file.read_text("utf-8") == token
    assert list(file.parent.iterdir()) == [file]
