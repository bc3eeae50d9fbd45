"""Advantages of single tokens against slow loops over the papers' formulas, in rows with and without holes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore_trainer.algorithms.advantages import scan
from rlcore_trainer.algorithms.advantages.gae import gae
from rlcore_trainer.algorithms.advantages.reinforce_plus_plus import reinforce_plus_plus
from rlcore_trainer.algorithms.advantages.reinforce_plus_plus_baseline import reinforce_plus_plus_baseline
from rlcore_trainer.algorithms.advantages.remax import remax
from rlcore_trainer.algorithms.advantages.scan import lambda_returns
from torch import Tensor

pytestmark = pytest.mark.numeric

Rows = list[list[float]]


@dataclass
class Rollout:
    """Random rewards, values and masks; the fields are the names that estimators ask for."""

    rewards_NT: Tensor
    values_NT: Tensor
    mask_NT: Tensor
    rewards_N: Tensor
    groups_N: Tensor
    baselines_N: Tensor


def rollout(seed: int, trajectories: int = 6, tokens: int = 9, holes: bool = True) -> Rollout:
    """Ragged rows; with holes also a row without a written token, and rewards on tokens that nobody wrote."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    lengths_N = torch.randint(0 if holes else 1, tokens + 1, (trajectories,), generator=random)
    mask_NT = torch.arange(tokens) < lengths_N[:, None]
    if holes:
        mask_NT &= torch.rand(mask_NT.shape, generator=random) < 0.6
        mask_NT[0] = False
    rewards_NT = normal(trajectories, tokens)
    return Rollout(
        rewards_NT=rewards_NT if holes else rewards_NT * mask_NT,
        values_NT=normal(trajectories, tokens),
        mask_NT=mask_NT,
        rewards_N=normal(trajectories),
        groups_N=torch.randint(0, 3, (trajectories,), generator=random) - 1,
        baselines_N=normal(trajectories),
    )


def without_holes(rewards: list[float], values: list[float], mask: list[bool]) -> tuple[list[float], list[float]]:
    """The written tokens of a row; a reward counts for the last written token so far, else for the first one."""
    places = [t for t, written in enumerate(mask) if written]
    kept = [0.0] * len(places)
    for t, reward in enumerate(rewards):
        if places:
            kept[max(0, sum(place <= t for place in places) - 1)] += reward
    return kept, [values[t] for t in places]


def slow(data: Rollout, advantages_of: Callable[[list[float], list[float], int], list[float]]) -> Rows:
    """Every row without its holes, through the formula, and back."""
    rows = []
    for n, mask in enumerate(data.mask_NT.tolist()):
        found = iter(advantages_of(*without_holes(data.rewards_NT[n].tolist(), data.values_NT[n].tolist(), mask), n))
        rows.append([next(found) if written else 0.0 for written in mask])
    return rows


def slow_gae(gamma: float, gae_lambda: float) -> Callable[[list[float], list[float], int], list[float]]:
    """Schulman et al. 2016, eq. 16, as a double sum."""

    def of(rewards: list[float], values: list[float], _: int) -> list[float]:
        following = [*values[1:], 0.0]
        deltas = [r + gamma * after - v for r, after, v in zip(rewards, following, values, strict=False)]
        return [
            sum((gamma * gae_lambda) ** (k - t) * deltas[k] for k in range(t, len(deltas))) for t in range(len(deltas))
        ]

    return of


def slow_whiten(rows: Rows, mask_NT: Tensor) -> Rows:
    """Over the written tokens of all rows."""
    written = [a for row, mask in zip(rows, mask_NT.tolist(), strict=True) for a, w in zip(row, mask, strict=True) if w]
    if len(set(written)) < 2:
        return [[0.0] * len(row) for row in rows]
    mean, scale = statistics.fmean(written), math.sqrt(statistics.variance(written) + 1e-8)
    return [
        [(a - mean) / scale if w else 0.0 for a, w in zip(row, mask, strict=True)]
        for row, mask in zip(rows, mask_NT.tolist(), strict=True)
    ]


def close(found_NT: Tensor, expected: Rows) -> bool:
    return torch.allclose(found_NT, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-9)


few = settings(max_examples=20, deadline=None)
some_rollout = {"seed": st.integers(0, 10**6), "holes": st.booleans()}


@few
@given(**some_rollout, whiten=st.booleans(), gamma=st.floats(0, 1), gae_lambda=st.floats(0, 1))
def test_gae_equals_a_slow_loop(seed: int, holes: bool, whiten: bool, gamma: float, gae_lambda: float) -> None:
    data = rollout(seed, holes=holes)
    found_NT, _ = gae(data.rewards_NT, data.values_NT, data.mask_NT, gamma=gamma, gae_lambda=gae_lambda, whiten=whiten)
    expected = slow(data, slow_gae(gamma, gae_lambda))
    assert close(found_NT, slow_whiten(expected, data.mask_NT) if whiten else expected)


@few
@given(**some_rollout, whiten=st.booleans(), gamma=st.floats(0, 1))
def test_reinforce_plus_plus_equals_a_slow_loop(seed: int, holes: bool, whiten: bool, gamma: float) -> None:
    data = rollout(seed, holes=holes)

    def returns(rewards: list[float], values: list[float], _: int) -> list[float]:
        return [sum(gamma ** (k - t) * rewards[k] for k in range(t, len(rewards))) for t in range(len(rewards))]

    found_NT, _ = reinforce_plus_plus(data.rewards_NT, data.mask_NT, gamma=gamma, whiten=whiten)
    expected = slow(data, returns)
    assert close(found_NT, slow_whiten(expected, data.mask_NT) if whiten else expected)


@few
@given(**some_rollout, whiten=st.booleans())
def test_reinforce_plus_plus_baseline_equals_a_slow_loop(seed: int, holes: bool, whiten: bool) -> None:
    data = rollout(seed, holes=holes)
    groups, scores = data.groups_N.tolist(), data.rewards_N.tolist()

    def centred(rewards: list[float], values: list[float], n: int) -> list[float]:
        members = [score for score, group in zip(scores, groups, strict=True) if group == groups[n]]
        return [scores[n] - (statistics.fmean(members) if len(members) > 1 else 0.0)] * len(rewards)

    found_NT, metrics = reinforce_plus_plus_baseline(data.rewards_N, data.groups_N, data.mask_NT, whiten=whiten)
    expected = slow(data, centred)
    assert close(found_NT, slow_whiten(expected, data.mask_NT) if whiten else expected)
    assert metrics["groups/equal"] == 0.0


@few
@given(**some_rollout)
def test_remax_equals_a_slow_loop(seed: int, holes: bool) -> None:
    data = rollout(seed, holes=holes)

    def lead(rewards: list[float], values: list[float], n: int) -> list[float]:
        return [sum(rewards[t:]) - float(data.baselines_N[n]) for t in range(len(rewards))]

    assert close(remax(data.rewards_NT, data.baselines_N, data.mask_NT)[0], slow(data, lead))


@few
@given(**some_rollout)
def test_critic_target_is_value_plus_unwhitened_advantage(seed: int, holes: bool) -> None:
    data = rollout(seed, holes=holes)
    arrays = (data.rewards_NT, data.values_NT, data.mask_NT)
    raw_NT, _ = gae(*arrays, gamma=0.9, gae_lambda=0.7, whiten=False)
    expected_NT = (raw_NT + data.values_NT).masked_fill(~data.mask_NT, 0.0)
    assert torch.allclose(lambda_returns(*arrays, gamma=0.9, gae_lambda=0.7), expected_NT, rtol=1e-12, atol=1e-12)


def test_gae_equals_a_hand_computation() -> None:
    rewards_NT = torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64)
    values_NT = torch.tensor([[0.5, 0.25, 9.0]], dtype=torch.float64)
    mask_NT = torch.tensor([[True, True, False]])
    found_NT, metrics = gae(rewards_NT, values_NT, mask_NT, gamma=0.5, gae_lambda=0.5, whiten=False)
    assert found_NT.tolist() == [[0.5 * 0.25 - 0.5 + 0.25 * 0.75, 0.75, 0.0]]
    assert metrics == {}


def test_full_row_has_no_value_after_its_end() -> None:
    cut = gae(torch.ones(1, 3), torch.full((1, 3), 0.5), torch.ones(1, 3, dtype=torch.bool), whiten=False)[0]
    padded = gae(
        torch.tensor([[1.0, 1.0, 1.0, 0.0]]),
        torch.tensor([[0.5, 0.5, 0.5, 7.0]]),
        torch.tensor([[True, True, True, False]]),
        whiten=False,
    )[0]
    assert cut.tolist() == [[2.5, 1.5, 0.5]]
    assert padded.tolist() == [[2.5, 1.5, 0.5, 0.0]]


ESTIMATORS: dict[str, Callable[[Rollout], Tensor]] = {
    "gae": lambda d: gae(d.rewards_NT, d.values_NT, d.mask_NT, gamma=0.9, gae_lambda=0.8)[0],
    "lambda-returns": lambda d: lambda_returns(d.rewards_NT, d.values_NT, d.mask_NT, gamma=0.9, gae_lambda=0.8),
    "reinforce-plus-plus": lambda d: reinforce_plus_plus(d.rewards_NT, d.mask_NT, gamma=0.9)[0],
    "reinforce-plus-plus-baseline": lambda d: reinforce_plus_plus_baseline(d.rewards_N, d.groups_N, d.mask_NT)[0],
    "remax": lambda d: remax(d.rewards_NT, d.baselines_N, d.mask_NT)[0],
}
each_estimator = pytest.mark.parametrize("name", ESTIMATORS)
WHITENED = ("gae", "reinforce-plus-plus", "reinforce-plus-plus-baseline")


@each_estimator
@few
@given(seed=st.integers(0, 10**6))
def test_unwritten_tokens_do_not_change_advantages(name: str, seed: int) -> None:
    data = rollout(seed, holes=False)
    random = torch.Generator().manual_seed(seed + 1)
    trajectories, tokens = data.mask_NT.shape
    # A wider row takes the old columns in order at random places of its own, the more in front the later they are.
    places_NT = torch.rand(trajectories, 2 * tokens, generator=random).argsort(1)[:, :tokens].sort(1).values

    def spread(narrow_NT: Tensor, elsewhere: float) -> Tensor:
        wide_NT = torch.full((trajectories, 2 * tokens), elsewhere).to(narrow_NT.dtype)
        return wide_NT.scatter(1, places_NT, narrow_NT)

    wide = Rollout(
        spread(data.rewards_NT, 0.0),
        spread(data.values_NT, 5.0),
        spread(data.mask_NT, False),
        data.rewards_N,
        data.groups_N,
        data.baselines_N,
    )
    found_NT = ESTIMATORS[name](wide)
    assert torch.allclose(found_NT.gather(1, places_NT), ESTIMATORS[name](data), rtol=1e-9, atol=1e-9)
    assert not found_NT[~wide.mask_NT].any()


@each_estimator
@few
@given(seed=st.integers(0, 10**6))
def test_advantages_follow_the_order_of_trajectories(name: str, seed: int) -> None:
    data = rollout(seed)
    order_N = torch.randperm(len(data.mask_NT), generator=torch.Generator().manual_seed(seed))
    shuffled = Rollout(*(array[order_N] for array in vars(data).values()))
    assert torch.allclose(ESTIMATORS[name](shuffled), ESTIMATORS[name](data)[order_N], rtol=1e-9, atol=1e-9)


@each_estimator
@pytest.mark.parametrize("chunk", [1, 20])
def test_chunk_size_does_not_change_advantages(name: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = rollout(3, trajectories=11)
    whole_NT = ESTIMATORS[name](data)
    monkeypatch.setattr(scan, "CHUNK", chunk)
    assert torch.allclose(ESTIMATORS[name](data), whole_NT, rtol=1e-12, atol=1e-12)


@each_estimator
def test_rollout_without_written_tokens_is_accepted(name: str) -> None:
    data = rollout(0)
    assert ESTIMATORS[name](Rollout(*(array[:0] for array in vars(data).values()))).shape == (0, 9)
    data.mask_NT[:] = False
    assert not ESTIMATORS[name](data).any()
    narrow = Rollout(*(array[:, :0] if array.dim() == 2 else array for array in vars(data).values()))
    assert ESTIMATORS[name](narrow).shape == (6, 0)


@pytest.mark.parametrize("name", WHITENED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reward", [0.0, 0.1, 3.0])
def test_equal_rewards_are_whitened_to_exactly_zero(name: str, dtype: torch.dtype, reward: float) -> None:
    mask_NT = torch.arange(300) < torch.tensor([[300], [7], [1]])
    scores = torch.full((3,), reward, dtype=dtype)
    rewards_NT = torch.zeros(3, 300, dtype=dtype)
    rewards_NT[torch.arange(3), mask_NT.sum(1) - 1] = scores
    alone_N = torch.arange(3)
    data = Rollout(rewards_NT, torch.zeros_like(rewards_NT), mask_NT, scores, alone_N, scores)
    found = {
        "gae": gae(data.rewards_NT, data.values_NT, mask_NT),
        "reinforce-plus-plus": reinforce_plus_plus(data.rewards_NT, mask_NT),
        "reinforce-plus-plus-baseline": reinforce_plus_plus_baseline(scores, alone_N, mask_NT),
    }
    assert not found[name][0].any()
    assert found[name][1]["advantages/mean"] == pytest.approx(reward, rel=1e-6)


@pytest.mark.parametrize("name", WHITENED)
def test_single_written_token_is_whitened_to_zero(name: str) -> None:
    data = rollout(1, trajectories=1, tokens=4, holes=False)
    data.mask_NT[:] = torch.tensor([False, True, False, False])
    assert ESTIMATORS[name](data).tolist() == [[0.0] * 4]


@pytest.mark.parametrize("name", WHITENED)
@pytest.mark.parametrize("scale", [1e-4, 1e6])
def test_whitened_advantages_have_mean_zero_and_variance_one(name: str, scale: float) -> None:
    data = rollout(5, trajectories=20)
    for array in (data.rewards_NT, data.values_NT, data.rewards_N):
        array *= scale
    written = ESTIMATORS[name](data)[data.mask_NT]
    assert float(written.mean()) == pytest.approx(0.0, abs=1e-12)
    # The 1e-8 under the root shows where the spread itself is small.
    assert float(written.var()) == pytest.approx(1.0, abs=3e-8 / min(1.0, scale**2))


def test_whitening_metrics_describe_the_advantages_before_it() -> None:
    data = rollout(6)
    raw = reinforce_plus_plus(data.rewards_NT, data.mask_NT, whiten=False)[0][data.mask_NT]
    _, metrics = reinforce_plus_plus(data.rewards_NT, data.mask_NT)
    assert metrics == {
        "advantages/mean": pytest.approx(float(raw.mean())),
        "advantages/std": pytest.approx(float(raw.std())),
    }


def test_large_mean_does_not_hide_the_variance() -> None:
    rewards_NT = 1e6 + torch.rand(1000, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found_NT, metrics = reinforce_plus_plus(rewards_NT, torch.ones(1000, 1, dtype=torch.bool))
    assert metrics["advantages/std"] == pytest.approx(float(rewards_NT.std()), rel=1e-9)
    assert float(found_NT.std()) == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("name", ["gae", "reinforce-plus-plus", "remax", "lambda-returns"])
@pytest.mark.parametrize("broken", [math.nan, math.inf])
@pytest.mark.parametrize("holes", [True, False])
def test_non_finite_reward_is_rejected(name: str, broken: float, holes: bool) -> None:
    data = rollout(2, holes=holes)
    last = data.mask_NT.nonzero()[-1]
    data.rewards_NT[tuple(last)] = broken
    with pytest.raises(ValueError, match="finite"):
        ESTIMATORS[name](data)


@pytest.mark.parametrize("factor", [0.0, 0.3, 0.95, 0.9999, 1.0])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 2048])
def test_blocks_equal_the_recursion(factor: float, dtype: torch.dtype, tolerance: float, tokens: int) -> None:
    numbers_NT = torch.randn(3, tokens, generator=torch.Generator().manual_seed(tokens), dtype=torch.float64)
    numbers_NT = numbers_NT.to(dtype).double()
    expected_NT, running_N = torch.empty_like(numbers_NT), torch.zeros(3, dtype=torch.float64)
    for t in reversed(range(tokens)):
        running_N = numbers_NT[:, t] + factor * running_N
        expected_NT[:, t] = running_N
    mine_NT = numbers_NT.to(dtype)
    found_NT = scan.discounted_sums_(mine_NT, scan.Powers.of(factor, mine_NT))
    assert found_NT.dtype == dtype
    assert float((found_NT - expected_NT).abs().max()) <= tolerance * float(expected_NT.abs().max())


@few
@given(seed=st.integers(0, 10**6))
def test_input_arrays_are_not_modified(seed: int) -> None:
    data, before = rollout(seed, holes=False), rollout(seed, holes=False)
    for estimator in ESTIMATORS.values():
        estimator(data)
    assert all(torch.equal(here, there) for here, there in zip(vars(data).values(), vars(before).values(), strict=True))


@pytest.mark.parametrize("dtypes", [(torch.float64, torch.float32), (torch.bfloat16, torch.float32)])
def test_result_has_the_wider_dtype(dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    data = rollout(4, holes=False)
    found_NT, _ = gae(data.rewards_NT.to(dtypes[0]), data.values_NT.to(dtypes[1]), data.mask_NT)
    assert found_NT.dtype == torch.promote_types(*dtypes)
