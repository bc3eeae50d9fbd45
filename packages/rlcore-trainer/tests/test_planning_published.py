"""The simulator reproduces published tables. ``-s`` prints the table of docs/scale.md."""

from __future__ import annotations

from typing import Any

import pytest
from published_plans import (
    AREAL,
    NEMO_30B,
    NEMO_235B,
    NEMO_V3,
    QWEN_1B,
    QWEN_7B,
    VERL_7B,
    VERL_30B,
    VERL_TOOLS,
    Workload,
)
from rlcore_trainer.planning.costs import Model

VERL = {"shared_cards": 1.7}
"""On shared cards, updates take 1.7 times as long per card: fitted to all rows of verl together."""
FITTED_7B = {
    32: VERL | {"iteration_s": 0.0048, "training": 0.592},
    64: VERL | {"iteration_s": 0.0001, "training": 0.598},
    128: VERL | {"iteration_s": 0.0001, "training": 0.351},
}
"""From ``gen`` and ``update_actor`` of the synchronous run on so many cards."""
NEMO = {"transfer": 0.05, "transfer_s": 0.0}
FITTED_30B = NEMO | {"iteration_s": 0.0166, "training": 0.123}
FITTED_235B = NEMO | {"iteration_s": 0.0143, "training": 0.020}
FITTED_V3 = NEMO | {"iteration_s": 0.0689, "training": 0.027}
TOLERANCE = 0.2


def judged(name: str, simulated: float, published: float, *, tolerance: float = TOLERANCE) -> None:
    print(f"{name} | {published:g} | {simulated:.3g} | {simulated / published - 1:+.0%}")
    assert simulated == pytest.approx(published, rel=tolerance)


@pytest.mark.long
@pytest.mark.parametrize(
    ("cards", "ahead", "published"),
    [(32, 0.5, 294.77), (64, 0.5, 189.26), (128, 0, 231.34), (128, 0.1, 171.3), (128, 0.3, 146.11), (128, 0.5, 150.63)],
)
def test_verl_asynchronous_7b(cards: int, ahead: float, published: float) -> None:
    half = cards // 2
    simulated = VERL_7B.step_s(half, half, fitted=FITTED_7B[cards], ahead=ahead, pieces=4)
    judged(f"verl 7B, {cards} GPUs, staleness {ahead:g}", simulated, published)


@pytest.mark.long
def test_verl_asynchronous_30b_is_missed_by_less_than_a_quarter() -> None:
    fitted = VERL | {"iteration_s": 0.0313, "training": 0.305}
    simulated = VERL_30B.step_s(96, 32, fitted=fitted, ahead=0.5, pieces=4)
    judged("verl 30B-A3B, 96:32 GPUs", simulated, 282.75, tolerance=0.25)


@pytest.mark.long
def test_verl_with_tools() -> None:
    fitted = VERL | {"iteration_s": 0.0059, "training": 0.707}
    simulated = VERL_TOOLS.step_s(16, 16, fitted=fitted, ahead=1, pieces=4)
    judged("verl 7B with tools, 16:16 GPUs", simulated, 221.36)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "workload", "cards", "fitted", "schedule", "published"),
    [
        ("30B-A3B, 32", NEMO_30B, (32, 32), FITTED_30B, {}, 192),
        ("30B-A3B, 16:16, one off", NEMO_30B, (16, 16), FITTED_30B, {"ahead": 1}, 152),
        ("30B-A3B, 64:128, eight off", NEMO_30B, (64, 128), FITTED_30B, {"ahead": 8}, 34.5),
        ("235B-A22B, 128", NEMO_235B, (128, 128), FITTED_235B, {}, 395),
        ("235B-A22B, 256", NEMO_235B, (256, 256), FITTED_235B, {}, 312),
        ("235B-A22B, 128:128, one off", NEMO_235B, (128, 128), FITTED_235B, {"ahead": 1, "engine": 8}, 231),
        ("DeepSeek-V3, 256", NEMO_V3, (256, 256), FITTED_V3, {}, 134),
        ("DeepSeek-V3, 512", NEMO_V3, (512, 512), FITTED_V3, {}, 111),
        ("DeepSeek-V3, 256:256, one off", NEMO_V3, (256, 256), FITTED_V3, {"ahead": 1}, 64.1),
    ],
)
def test_nemo_rl(
    name: str,
    workload: Workload,
    cards: tuple[int, int],
    fitted: dict[str, float],
    schedule: dict[str, Any],
    published: float,
) -> None:
    judged(f"NeMo-RL {name} GPUs", workload.step_s(*cards, fitted=fitted, **schedule), published)


@pytest.mark.long
@pytest.mark.parametrize(("model", "cards", "published"), [(QWEN_1B, 128, 41.0 / 14.8), (QWEN_7B, 192, 57.7 / 25.4)])
def test_areal_speed_over_synchronous(model: Model, cards: int, published: float) -> None:
    workload = Workload(model=model, **AREAL)
    synchronous = workload.step_s(cards, cards, fitted={"update_s": 1.0})
    ahead = workload.step_s(cards * 3 // 4, cards // 4, fitted={"update_s": 1.0}, ahead=4)
    judged(f"AReaL on {cards} GPUs, times as fast", synchronous / ahead, published)
