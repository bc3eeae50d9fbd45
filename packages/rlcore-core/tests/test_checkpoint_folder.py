"""Damage to a checkpoint is found and named, and another checkpoint is suggested."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlcore.errors import UserError
from rlcore.runs.checkpoint_folder import FORMAT, MANIFEST, check_checkpoint, write_manifest

FILES = {
    "model/model.safetensors": b"\x00\x01weights" * 50,
    "model/config.json": b"{}",
    "state.safetensors": b"PK\x03\x04" * 9,
}
NAMES = [*FILES, MANIFEST]


def checkpoint(folder: Path, step: int) -> Path:
    path = folder / f"{step:06d}"
    for name, content in FILES.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content + str(step).encode())
    write_manifest(path, step)
    return path


def error_of(path: Path) -> UserError:
    with pytest.raises(UserError) as caught:
        check_checkpoint(path)
    assert caught.value.where == str(path)
    return caught.value


@st.composite
def damages(draw: st.DrawFn) -> tuple[list[str], Callable[[Path], None]]:
    """The names of the damaged files, and a function that damages them in a folder."""
    name, place = draw(st.sampled_from(NAMES)), draw(st.integers(0, 2**20))
    other, bit = draw(st.sampled_from([known for known in NAMES if known != name])), draw(st.integers(0, 7))

    def flip(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[place % len(content)] ^= 1 << bit
        (folder / name).write_bytes(content)

    def shorten(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: place % len(content)])

    def lengthen(folder: Path) -> None:
        (folder / name).write_bytes((folder / name).read_bytes() + b"\x00" * (1 + bit))

    def remove(folder: Path) -> None:
        (folder / name).unlink()

    def swap(folder: Path) -> None:
        one, two = (folder / name).read_bytes(), (folder / other).read_bytes()
        (folder / name).write_bytes(two)
        (folder / other).write_bytes(one)

    damage = draw(st.sampled_from([flip, shorten, lengthen, remove, swap]))
    return ([name, other] if damage is swap else [name]), damage


@pytest.mark.parametrize("name", NAMES)
def test_pipe_in_a_checkpoint_is_named_without_reading_it(name: str, tmp_path: Path) -> None:
    path = checkpoint(tmp_path, 2)
    (path / name).unlink()
    os.mkfifo(path / name)
    found = str(error_of(path).found)
    assert name in found
    assert "regular file" in found


@pytest.mark.slow
@given(damages())
def test_any_damage_is_named_and_an_earlier_checkpoint_is_suggested(
    damaged: tuple[list[str], Callable[[Path], None]],
) -> None:
    names, damage = damaged
    with TemporaryDirectory() as folder:
        earlier, newest = (checkpoint(Path(folder), step) for step in (1, 2))
        check_checkpoint(newest)
        damage(newest)
        error = error_of(newest)
        if MANIFEST in names:
            assert MANIFEST in str(error.found)
        else:
            assert all(name in str(error.found) for name in names)
        assert error.fix == f"rlcore run --resume {earlier}"
        damage(earlier)
        assert "no earlier checkpoint" in str(error_of(newest).fix)


def edited(folder: Path, **values: Any) -> None:
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    (folder / MANIFEST).write_text(json.dumps({**manifest, **values}), encoding="utf-8")


@pytest.mark.parametrize("number", [FORMAT + 1, 0, None, "two"])
def test_unknown_format_is_named(tmp_path: Path, number: Any) -> None:
    path = checkpoint(tmp_path, 7)
    edited(path, format=number)
    error = error_of(path)
    assert "format" in error.message
    assert repr(number) in str(error.found)


def test_format_without_checksums_is_rejected_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "000007").mkdir()
    old = {"format": 1, "progress": {"step": 7}, "files": {"state.safetensors": 3}}
    (tmp_path / "000007/trainer.json").write_text(json.dumps(old), encoding="utf-8")
    assert "no checksums" in str(error_of(tmp_path / "000007").found)


@pytest.mark.parametrize("files", [[], {"a": 1}, {"a": {}}, {"a": {"bytes": "x", "sha256": 1}}, None])
def test_malformed_manifest_is_damage(tmp_path: Path, files: Any) -> None:
    path = checkpoint(tmp_path, 7)
    edited(path, files=files)
    assert MANIFEST in str(error_of(path).found)


def test_checkpoint_of_another_step_is_rejected(tmp_path: Path) -> None:
    path = shutil.copytree(checkpoint(tmp_path, 7), tmp_path / "000009")
    assert "step 7" in str(error_of(path).found)
    assert error_of(path).fix == f"rlcore run --resume {tmp_path / '000007'}"


def test_copy_outside_of_a_run_can_be_checked(tmp_path: Path) -> None:
    check_checkpoint(shutil.copytree(checkpoint(tmp_path, 7), tmp_path / "backup"))
