"""The command in this process, also where packages are missing whose versions a dry run reads and does not import."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from rlcore.cli import main

VERSIONS = {"vllm": "0.32.0", "wandb": "0.26.0", "tensorboard": "2.20.0"}


Call = Callable[..., int]


def run_here(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Run ``rlcore WORDS``, and return its exit status."""
    monkeypatch.setattr("sys.argv", ["rlcore", *words])
    return main()


@pytest.fixture
def rlcore(monkeypatch: pytest.MonkeyPatch) -> Call:
    """`run_here` without its first argument."""
    return partial(run_here, monkeypatch)


def write_metadata(site: Path, *names: str) -> None:
    """Write metadata of packages into a folder for ``sys.path``."""
    for name in names:
        information = site / f"{name}-{VERSIONS[name]}.dist-info"
        information.mkdir(parents=True, exist_ok=True)
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {VERSIONS[name]}\n")


def pretend_packages(monkeypatch: pytest.MonkeyPatch, folder: Path, *names: str) -> None:
    """Let packages seem to be installed. The folder becomes the current one, and there is no hub."""
    write_metadata(folder / "site", *names)
    monkeypatch.syspath_prepend(str(folder / "site"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(folder)
