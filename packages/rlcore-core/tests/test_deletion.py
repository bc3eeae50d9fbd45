from __future__ import annotations

import inspect
import os
import sys
from functools import partial
from pathlib import Path

import pytest
from rlcore.episodes.deletion import delete_folder


def test_deletes_deep_and_closed_folders_and_follows_no_links(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folder, kept = tmp_path / "folder", tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    folder.mkdir()
    (folder / "link").symlink_to(kept)
    (folder / "closed").mkdir()
    (folder / "closed" / "file").touch()
    (folder / "closed").chmod(0)
    place = os.open(folder, os.O_RDONLY)
    limit = len(inspect.stack()) + 100
    for _ in range(2 * limit):
        os.mkdir("deep", dir_fd=place)
        inside = os.open("deep", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inside
    os.close(place)
    request.addfinalizer(partial(sys.setrecursionlimit, sys.getrecursionlimit()))
    sys.setrecursionlimit(limit)
    delete_folder(folder)
    assert not folder.exists()
    assert (kept / "file").exists()
    assert kept.stat().st_mode & 0o777
    delete_folder(folder)
