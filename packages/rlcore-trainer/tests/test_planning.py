"""The simulator of ``rlcore plan``: conservation, limits with closed forms, and bad input."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rlcore.errors import UserError
from rlcore_trainer.planning.cli import plan
from rlcore_trainer.planning.cluster import CARDS, EfficiencyTable
from rlcore_trainer.planning.costs import Decoding, Learning, Model
from rlcore_trainer.planning.measured import _fitted
from rlcore_trainer.planning.simulation import Setting, simulate
from rlcore_trainer.planning.trajectories import Distribution, Trajectories

MODEL = Model(parameters=7.6e9, active=7.6e9, layers=28, width=3584, key_width=512)
EFFICIENCY = EfficiencyTable(pause_s=0, update_s=0)
CLUSTER = 'nodes = 8\ncard = "H100"\nnetwork_gb_s = 400\n'
NEEDS_TOOLS = pytest.mark.skipif(find_spec("rl_plugin_gsm8k_tools") is None, reason="rl-plugin-gsm8k-tools is missing")
RUN = ["-p", "gsm8k-tools", "-r", "qwen2.5-3b"]


def setting(*, spread: float = 0.0, learners: int = 8, engines: int = 8, **changes: Any) -> Setting:
    known: dict[str, Any] = {
        "trajectories": Trajectories(tokens=Distribution.log_normal(1000, spread, 8000), prompt=0),
        "decoding": Decoding(model=MODEL, card=CARDS["H100"], efficiency=EFFICIENCY, cards=1, slots=16),
        "engines": engines,
        "learning": Learning(model=MODEL, card=CARDS["H100"], efficiency=EFFICIENCY, cards=learners, passes=4),
        "transfer_s": 2.0,
        "groups": 16,
        "group_size": 8,
    }
    return Setting(**known | changes)


def sampling_s(one: Setting) -> float:
    """The time of 1000 iterations of 16 sequences, whose caches grow."""
    first, growth = one.decoding.iteration(16, 0)
    return 1000 * first + growth * 1000**2 / 2


def test_without_variance_a_synchronous_step_is_the_sum_of_its_phases() -> None:
    one = setting()
    found = simulate(one, steps=3)
    update_s = one.learning.seconds(128_000, 128 * 1000**2, 128, 1000)
    assert found.waiting_s == pytest.approx(sampling_s(one), rel=1e-6)
    assert found.step_s == pytest.approx(sampling_s(one) + update_s + 2, rel=1e-6)
    assert found.samplers_busy == pytest.approx(sampling_s(one) / found.step_s, rel=1e-6)
    assert found.tokens == pytest.approx(128_000)
    assert found.ages == {0: 1.0}


@pytest.mark.parametrize("learners", [1, 64])
def test_without_variance_an_asynchronous_step_is_its_longer_phase(learners: int) -> None:
    one = setting(ahead=1, learners=learners)
    update_s = one.learning.seconds(128_000, 128 * 1000**2, 128, 1000)
    found = simulate(one, steps=6)
    assert found.step_s == pytest.approx(max(sampling_s(one), update_s + 2), rel=0.02)
    assert set(found.ages) <= {0, 1}


def test_every_group_is_trained_waiting_unfinished_or_dropped() -> None:
    found = simulate(setting(spread=1.0, ahead=2, max_age=1), steps=5)
    assert found.lost
    assert found.dropped
    assert found.trained == 16 * (5 + 4)  # four steps fill the pipeline
    assert found.submitted == found.trained + found.waiting + found.unfinished + found.lost
    assert found.submitted - found.lost <= found.trained + 3 * 16
    assert max(found.ages) <= 1


def test_more_or_faster_hardware_is_never_slower() -> None:
    steps = [simulate(setting(spread=0.8, engines=engines, ahead=1), steps=6).step_s for engines in (2, 4, 8)]
    assert steps == sorted(steps, reverse=True)
    slow = setting(spread=0.8)
    fast = replace(slow, decoding=replace(slow.decoding, card=CARDS["B200"]))
    assert simulate(fast, steps=3).step_s < simulate(slow, steps=3).step_s


def test_a_seed_gives_the_same_plan() -> None:
    one = setting(spread=1.0, ahead=1)
    assert simulate(one, steps=3, seed=7) == simulate(one, steps=3, seed=7)
    assert simulate(one, steps=3, seed=7) != simulate(one, steps=3, seed=8)


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_part_of_a_large_cluster_stands_for_all_of_it(ahead: int) -> None:
    large = setting(spread=0.8, ahead=ahead, engines=32, learners=32, groups=64)
    part, whole = (simulate(large, steps=4, most_turns=most) for most in (256, 2**20))
    assert (part.simulated, whole.simulated) == (0.5, 1)
    assert part.step_s == pytest.approx(whole.step_s, rel=0.1)
    assert part.tokens == pytest.approx(whole.tokens, rel=0.1)


def test_tools_and_turns_take_their_time() -> None:
    waits = Trajectories(tokens=Distribution((300.0,)), prompt=0, turns=3, observation=0, tool_s=Distribution((5.0,)))
    found, without = (
        simulate(setting(trajectories=one), steps=2) for one in (waits, replace(waits, tool_s=Distribution((0.0,))))
    )
    assert found.tool_s == 15
    assert found.waiting_s - without.waiting_s == pytest.approx(15)


def test_a_distribution_has_its_mean_below_its_limit() -> None:
    lengths = Distribution.log_normal(1000, 1.0, 2000)
    sample = [lengths.quantile((i + 0.5) / 4000) for i in range(4000)]
    assert max(sample) == 2000
    assert sum(sample) / 4000 == pytest.approx(1000, rel=0.01)


def test_a_fit_finds_both_parameters() -> None:
    rows = [(a, b, 0.25 * a + 3 * b) for a, b in ((1.0, 2.0), (4.0, 1.0), (2.0, 5.0))]
    assert _fitted(rows) == pytest.approx((0.25, 3))
    assert _fitted([(1.0, 2.0, 6.0), (2.0, 4.0, 12.0)])[1] in {0.0, 3.0}  # one of them explains all


def failure(tmp_path: Path, text: str, *arguments: str) -> UserError:
    path = tmp_path / "cluster.toml"
    path.write_text(text, encoding="utf-8")
    error = CliRunner().invoke(plan, [str(path), *RUN, *arguments]).exception
    assert isinstance(error, UserError)
    return error


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        (CLUSTER.replace("H100", "H10"), (), "did you mean 'H100'?"),
        (CLUSTER.replace("nodes", "node"), (), "did you mean nodes ?"),
        (CLUSTER, ("--gpus", "65"), "8 nodes with 8 cards: 64"),
        pytest.param(
            *(CLUSTER.replace("8", "1"), ("model=org/A-70B",), "the learner does not fit on the cluster"),
            marks=pytest.mark.slow,  # estimating memory imports the hub's client
        ),
        pytest.param(*(CLUSTER, ("--calibrate", "."), ". is not a run directory"), marks=NEEDS_TOOLS),
    ],
)
def test_bad_input_is_explained(tmp_path: Path, text: str, arguments: tuple[str, ...], said: str) -> None:
    assert said in str(failure(tmp_path, text, *arguments))


@NEEDS_TOOLS
def test_a_plan_says_what_limits_it(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(CLUSTER, encoding="utf-8")
    arguments = [str(path), *RUN, "--gpus", "64", "--json", "trainer.tasks_per_step=2", "schedule.ahead=1"]
    done = CliRunner().invoke(plan, arguments, catch_exceptions=False)
    synchronous, ahead = json.loads(done.stdout)["plans"]
    assert synchronous["samplers"] == synchronous["learners"] == 64
    assert ahead["samplers"] + ahead["learners"] == 64
    assert synchronous["limit"].startswith("A step has 16 trajectories for 64 engines")
