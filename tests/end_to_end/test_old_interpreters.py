"""Environments in old versions of Python, with the libraries of their time. uv finds or downloads the interpreters."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import simulators
import talkers
from rlcore import Message, Task
from rlcore.plugins.registry import any_options
from rlcore.specs import EnvironmentSpec
from rlcore.transport import Interpreter, control_environment
from rlcore.transport.hosting import HostedEnvironments, interpreters

pytestmark = pytest.mark.long


def interpreter(folder: Path, version: str, *packages: str) -> Path:
    """A new virtual environment; skips the test where there is none of this version."""
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not installed")
    python = folder / "bin" / "python"
    installed = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))  # uv does not look there
    commands = [[uv, "venv", "-q", "--python", str([version, *installed][-1]), str(folder)]]
    commands += [[uv, "pip", "install", "-q", "--python", str(python), *packages]] if packages else []
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            pytest.skip(f"Python {version} with {packages} is not available: {done.stderr.strip()[-200:]}")
    return python


def test_python_310_with_old_numpy_gives_the_numbers_of_this_one(tmp_path: Path) -> None:
    python = interpreter(tmp_path / "old", "3.10", "numpy<2")
    file = simulators.__file__
    with Interpreter(python) as other:
        assert other.greeting["numpy"].startswith("1.")
        assert other.call(f"{file}:versions", timeout_s=60)["python"] == [3, 10]
    here, there = simulators.Arm(pictures=3), control_environment(python, f"{file}:Arm", {"pictures": 3})
    pairs = [(here.reset(seed=2)[0], there.reset(seed=2)[0])]
    pairs += [(here.step(np.ones(3, np.float32))[0], there.step(np.ones(3, np.float32))[0]) for _ in range(3)]
    assert all(np.array_equal(ours[name], theirs[name]) for ours, theirs in pairs for name in ours)
    there.close()


def test_python_38_without_libraries_plays_a_chat(tmp_path: Path) -> None:
    python = interpreter(tmp_path / "older", "3.8")
    id = f"{talkers.__file__}:Guess"
    spec = EnvironmentSpec(id=id, target=id)
    processes = HostedEnvironments(
        interpreters(spec, str(python)), spec=spec, options=any_options()(top=3), timeout_s=60
    )
    episode = processes.make()
    first = episode.reset(Task(id="t", messages=(), fields={"kind": "old"}), seed=0)
    assert (first.messages[0].text, first.images) == ("t of old: sibling 0 below 3", (talkers.PICTURE,))
    step = episode.step(Message(role="assistant", content="done"))
    assert step.terminated
    assert step.observation.messages[0].text.startswith("Python 3.8")
    episode.close()
    processes.close()
