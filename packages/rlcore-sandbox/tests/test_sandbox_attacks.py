"""Hostile code in each local sandbox, as root and as an ordinary user, and at a service. `sandbox_attacks` has it."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from typing import Any

import pytest
from rlcore_sandbox import support
from sandbox_attacked import command
from sandbox_attacks import ATTACKS, BACKENDS, LOCAL, Attack

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the local sandboxes require Linux")
SECONDS = 500
"""For all attacks of a backend on a busy machine."""


@functools.cache
def outcomes(backend: str, ordinary_user: bool) -> dict[str, dict[str, Any]]:
    done = subprocess.run(
        command(backend, ordinary_user=ordinary_user), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return {outcome["title"]: outcome for outcome in json.loads(done.stdout)}


def marked(backend: str) -> Any:
    """A backend with the tier of its tests. The two slowest are in the long one."""
    return pytest.param(backend, marks=pytest.mark.long if backend in ("http", "namespaces") else pytest.mark.slow)


def check(backend: str, attack: Attack, *, ordinary_user: bool) -> None:
    if backend == "http":
        reason = "" if shutil.which("bwrap") else "the containers of the service need bubblewrap"
    else:
        reason = getattr(support, backend)().reason
    if reason:
        pytest.skip(f"{backend}: {reason}")
    outcome = outcomes(backend, ordinary_user)[attack.title]
    assert not outcome["flaws"], outcome
    assert outcome["observed"] == attack.outcome(backend), outcome


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.title)
@pytest.mark.parametrize("backend", [*map(marked, BACKENDS)])
def test_an_attack_reaches_nothing_beyond_its_cell(backend: str, attack: Attack) -> None:
    check(backend, attack, ordinary_user=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="the other test runs as an ordinary user already")
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.title)
@pytest.mark.parametrize("backend", [*map(marked, LOCAL)])
def test_an_attack_of_an_ordinary_user_reaches_nothing(backend: str, attack: Attack) -> None:
    check(backend, attack, ordinary_user=True)
