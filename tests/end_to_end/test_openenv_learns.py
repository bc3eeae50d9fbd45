"""The default recipe of openenv learns on a server of OpenEnv's own package, and not from rewards by chance."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from finished_runs import evaluations, succeeded
from openenv_servers import openenv_servers
from preloaded import rlcore_command

pytestmark = [pytest.mark.proof, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with openenv_servers() as url:
        yield url


def trained(url: str, seed: int, folder: Path) -> Path:
    overrides = (f"environment.url={url}", f"seed={seed}", "name=run")
    succeeded(rlcore_command(["run", "-p", "openenv", *overrides], folder, timeout_s=1200))
    return folder / "runs" / "run"


@pytest.mark.parametrize("seed", [0, 1])
def test_recipe_learns_which_door_to_open(servers: str, seed: int, tmp_path: Path) -> None:
    first, *_, last = evaluations(trained(f"{servers}/doors", seed, tmp_path), "reward").values()
    assert first < 0.3
    assert last > 0.6


@pytest.mark.parametrize("seed", [0, 1])
def test_rewards_by_chance_teach_nothing(servers: str, seed: int, tmp_path: Path) -> None:
    run = trained(f"{servers}/luck", seed, tmp_path)
    words = ["eval", str(run), f"environment.url={servers}/doors", "--json"]
    done = succeeded(rlcore_command(words, tmp_path, timeout_s=300))
    assert json.loads(done.stdout.splitlines()[-1])["reward"] < 0.3
