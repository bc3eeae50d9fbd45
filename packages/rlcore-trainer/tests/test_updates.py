from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from rlcore_trainer.config import AlgorithmConfig, PolicyGradientConfig
from rlcore_trainer.losses import clip
from rlcore_trainer.packing import Sequence
from rlcore_trainer.strategies.single import SingleProcess, SingleProcessConfig
from rlcore_trainer.updates import PolicyUpdate


def rollout(count: int = 8) -> list[Sequence]:
    rng = random.Random(5)
    rows = []
    for _ in range(count):
        length = rng.randint(4, 16)
        mask = [t >= 2 and rng.random() < 0.6 for t in range(length)]
        mask[2] = True
        rows.append(
            Sequence(
                token_ids=[rng.randrange(32) for _ in range(length)],
                loss_mask=mask,
                logprobs=[-3.0] * length,
                advantage=rng.gauss(0, 1),
            )
        )
    return rows


class Recording(SingleProcess):
    """Keeps each gradient that the optimiser is given."""

    def __init__(self) -> None:
        super().__init__(SingleProcessConfig())
        self.gradients: list[list[torch.Tensor]] = []

    def step(self, learning_rate: float, max_gradient_norm: float) -> tuple[float, bool]:
        self.gradients.append([p.grad.clone() for p in self._live if p.grad is not None])
        return super().step(learning_rate, max_gradient_norm)


def update(
    model: Any,
    rows: list[Sequence],
    *,
    reference: Any = None,
    loss: Any = clip,
    temperature: float = 1.0,
    **tables: Any,
) -> tuple[Recording, Any]:
    strategy = Recording()
    trainer = PolicyGradientConfig(**{"learning_rate": 0.01, "max_gradient_norm": 1e9, **tables.get("trainer", {})})
    strategy.prepare(model, betas=trainer.betas, weight_decay=trainer.weight_decay)
    updater = PolicyUpdate(
        model,
        reference,
        strategy,
        loss,
        trainer,
        AlgorithmConfig(**tables.get("algorithm", {})),
        temperature=temperature,
    )
    return strategy, updater.run(rows, learning_rate=trainer.learning_rate, key=(0, 1))


def assert_equal(one: list[torch.Tensor], other: list[torch.Tensor], tolerance: float = 1e-6) -> None:
    for first, second in zip(one, other, strict=True):
        torch.testing.assert_close(first, second, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("aggregation", ["token-mean", "sequence-mean"])
def test_the_gradient_depends_neither_on_micro_batches_nor_on_order(
    qwen2: Callable[..., Any], aggregation: str
) -> None:
    gradients = []
    kl = {"coefficient": 0.1, "estimator": "k3"}
    for max_tokens, reverse in ((10_000, False), (1, False), (30, True)):
        model, reference = qwen2().double(), qwen2(seed=1).double()
        rows = rollout()[::-1] if reverse else rollout()
        strategy, _ = update(
            model,
            rows,
            reference=reference,
            trainer={"max_tokens_per_batch": max_tokens},
            algorithm={"aggregation": aggregation, "entropy": 0.01, "kl": kl},
        )
        gradients.append(strategy.gradients[0])
    assert_equal(gradients[0], gradients[1])
    assert_equal(gradients[0], gradients[2])


@pytest.mark.parametrize("aggregation", ["token-mean", "sequence-mean"])
def test_the_gradient_is_that_of_a_slow_loop(qwen2: Callable[..., Any], aggregation: str) -> None:
    model, reference, rows = qwen2().double(), qwen2(seed=1).double(), rollout()
    slow, entropy, coefficient = copy.deepcopy(model), 0.02, 0.3
    tables = {"aggregation": aggregation, "entropy": entropy, "kl": {"estimator": "k2", "coefficient": coefficient}}
    strategy, result = update(model, rows, reference=reference, algorithm=tables)
    loss = torch.zeros((), dtype=torch.float64)
    total = sum(row.trained for row in rows)
    for row in rows:
        ids = torch.tensor([row.token_ids])
        logprobs, known = (m(input_ids=ids).logits[0].double().log_softmax(-1) for m in (slow, reference))
        weight = 1 / total if aggregation == "token-mean" else 1 / len(rows) / row.trained
        for t, trained in enumerate(row.loss_mask):
            if trained:
                logprob, there = logprobs[t - 1, row.token_ids[t]], known[t - 1, row.token_ids[t]].detach()
                spread = -(logprobs[t - 1].exp() * logprobs[t - 1]).sum()
                term = -row.advantage * torch.exp(logprob - logprob.detach())
                loss = loss + weight * (term - entropy * spread + coefficient * 0.5 * (logprob - there) ** 2)
    assert_equal(strategy.gradients[0], list(torch.autograd.grad(loss, list(slow.parameters()))))
    assert result.metrics["loss/total"] == pytest.approx(loss.item())
    assert result.updates == 1


def test_temperature_trains_the_distribution_that_was_sampled_from(qwen2: Callable[..., Any]) -> None:
    model, rows = qwen2().double(), rollout(1)
    slow = copy.deepcopy(model)
    strategy, result = update(model, rows, temperature=0.5)
    row = rows[0]
    logprobs = (slow(input_ids=torch.tensor([row.token_ids])).logits[0].double() / 0.5).log_softmax(-1)
    chosen = [logprobs[t - 1, row.token_ids[t]] for t, trained in enumerate(row.loss_mask) if trained]
    loss = -row.advantage * torch.stack(chosen).mean()
    assert_equal(strategy.gradients[0], list(torch.autograd.grad(loss, list(slow.parameters()))))
    assert "logprob_gap/max" not in result.metrics


def test_on_policy_the_ratio_is_one(qwen2: Callable[..., Any]) -> None:
    ratios: list[torch.Tensor] = []

    def watch(logprobs: torch.Tensor, old: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        ratios.append((logprobs - old).detach().exp())
        return clip(logprobs, old, *arguments, **options)

    update(qwen2(), rollout(), loss=watch)
    assert torch.equal(ratios[0], torch.ones_like(ratios[0]))


def test_later_updates_are_measured_from_the_policy_before_the_first(qwen2: Callable[..., Any]) -> None:
    ratios: list[torch.Tensor] = []

    def watch(logprobs: torch.Tensor, old: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        ratios.append((logprobs - old).detach().exp())
        return clip(logprobs, old, *arguments, **options)

    _, result = update(qwen2(), rollout(), loss=watch, trainer={"epochs": 2, "updates_per_rollout": 2})
    assert result.updates == len(ratios) == 4
    torch.testing.assert_close(ratios[0], torch.ones_like(ratios[0]), rtol=1e-4, atol=1e-4)
    assert all(float((ratio - 1).abs().max()) > 1e-3 for ratio in ratios[1:])


def test_mini_batches_hold_every_trajectory_once_an_epoch(qwen2: Callable[..., Any]) -> None:
    seen: list[int] = []

    def watch(logprobs: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        seen.append(len(logprobs))
        return clip(logprobs, *arguments, **options)

    rows = rollout()
    update(qwen2(), rows, loss=watch, trainer={"updates_per_rollout": 3})
    assert len(seen) == 3
    assert sum(seen) == sum(row.trained for row in rows)


def test_the_gap_to_the_engine_is_reported(qwen2: Callable[..., Any]) -> None:
    model, row = qwen2(), rollout(1)[0]
    logits = model(input_ids=torch.tensor([row.token_ids])).logits[0].log_softmax(-1).detach()
    exact = [0.0, *(float(logits[t - 1, row.token_ids[t]]) for t in range(1, len(row.token_ids)))]
    good = Sequence(token_ids=row.token_ids, loss_mask=row.loss_mask, logprobs=exact, advantage=1.0)
    assert update(copy.deepcopy(model), [good])[1].metrics["logprob_gap/max"] < 1e-5
    bad = Sequence(token_ids=row.token_ids, loss_mask=row.loss_mask, logprobs=[x + 0.5 for x in exact], advantage=1.0)
    metrics = update(model, [bad])[1].metrics
    assert metrics["logprob_gap/max"] == pytest.approx(0.5, abs=1e-4)
    assert metrics["logprob_gap/mean"] == pytest.approx(0.5, abs=1e-4)


def test_a_gradient_that_is_not_finite_skips_the_update_and_is_counted(qwen2: Callable[..., Any]) -> None:
    model = qwen2()
    before = copy.deepcopy(model.state_dict())
    bad = Sequence(token_ids=[3, 4, 5], loss_mask=[False, False, True], advantage=float("inf"))
    _, result = update(model, [bad])
    assert (result.updates, result.skipped) == (0, 1)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_rollout_without_sampled_tokens_does_nothing(qwen2: Callable[..., Any]) -> None:
    _, result = update(qwen2(), [Sequence(token_ids=[1, 2], loss_mask=[False, False], advantage=1.0)])
    assert (result.updates, result.metrics) == (0, {})


def test_gradients_are_scaled_down_to_the_given_norm(qwen2: Callable[..., Any]) -> None:
    model = qwen2()
    strategy = SingleProcess(SingleProcessConfig())
    strategy.prepare(model, betas=(0.0, 0.0), weight_decay=0.0)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    norm, updated = strategy.step(0.0, 0.5)
    assert norm == pytest.approx(sum(p.numel() for p in model.parameters()) ** 0.5, rel=1e-4)
    assert updated


def test_only_matrices_decay(qwen2: Callable[..., Any]) -> None:
    model = qwen2()
    before = copy.deepcopy(model.state_dict())
    strategy = SingleProcess(SingleProcessConfig())
    strategy.prepare(model, betas=(0.9, 0.9), weight_decay=0.5)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    strategy.step(0.1, 1.0)
    for name, value in model.state_dict().items():
        factor = 0.95 if before[name].ndim >= 2 else 1.0
        torch.testing.assert_close(value, before[name] * factor)


def test_half_precision_weights_learn_from_updates_below_their_rounding() -> None:
    layer = torch.nn.Linear(4, 4, bias=False).bfloat16()
    torch.nn.init.ones_(layer.weight)
    strategy = SingleProcess(SingleProcessConfig())
    strategy.prepare(layer, betas=(0.9, 0.999), weight_decay=0.0)
    for _ in range(100):
        layer.weight.grad = torch.ones_like(layer.weight)
        strategy.step(1e-4, 1e9)
    torch.testing.assert_close(layer.weight.float(), torch.full((4, 4), 0.99), rtol=0, atol=0.004)


def test_trajectories_without_advantage_count_in_the_mean_but_cost_nothing(qwen2: Callable[..., Any]) -> None:
    rows = rollout()
    rows[1::2] = [replace(row, advantage=0.0) for row in rows[1::2]]
    fed: list[int] = []

    def watch(logprobs: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        fed.append(len(logprobs))
        return clip(logprobs, *arguments, **options)

    cheap, result = update(qwen2().double(), rows, loss=watch)
    whole, reference = update(qwen2().double(), rows, loss=watch, algorithm={"entropy": 1e-300})
    assert fed == [sum(row.trained for row in rows[::2]), sum(row.trained for row in rows)]
    assert_equal(cheap.gradients[0], whole.gradients[0])
    assert result.metrics["loss/policy"] == pytest.approx(reference.metrics["loss/policy"])
    assert 0 < result.metrics["entropy/mean"] <= 3.5


def test_a_mini_batch_without_any_advantage_is_no_update(qwen2: Callable[..., Any]) -> None:
    _, result = update(qwen2(), [replace(row, advantage=0.0) for row in rollout()])
    assert (result.updates, result.skipped) == (0, 0)
