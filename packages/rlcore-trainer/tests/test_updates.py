from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from rlcore.errors import UserError
from rlcore.plugins.registry import Registry
from rlcore.types import Group, Stop, Trajectory
from rlcore_trainer.algorithms import (
    AdvantageInputs,
    AdvantageOutput,
    AdvantageTraits,
    Loss,
    LossInputs,
    LossOutput,
    LossTraits,
)
from rlcore_trainer.algorithms.config import AlgorithmConfig
from rlcore_trainer.algorithms.configured import configured
from rlcore_trainer.algorithms.losses.clip import clip
from rlcore_trainer.config import PolicyGradientConfig
from rlcore_trainer.controller.updates import PolicyUpdate
from rlcore_trainer.distributed.adamw import AdamW
from rlcore_trainer.distributed.ranks import Ranks
from rlcore_trainer.distributed.strategies.single import SingleProcess, SingleProcessConfig
from rlcore_trainer.learner.critic import Critic
from rlcore_trainer.learner.critic_config import CriticConfig
from rlcore_trainer.learner.learner import Learner, offer_reinforcement
from rlcore_trainer.learner.objective import Objective
from rlcore_trainer.learner.policy_learner import PolicyLearner
from rlcore_trainer.learner.trained_policy import TrainedPolicy
from rlcore_trainer.policy.causal_lm import CausalLanguageModel
from rlcore_trainer.policy.references import FrozenReference
from token_trajectories import group, only_segment, segment, with_logprobs
from token_trajectories import trajectory as token_trajectory

Build = Callable[..., Any]
MAX_RESPONSE = 20
REGISTRY = Registry()
PLAIN_RETURN = {"id": "reinforce-plus-plus", "whiten": False}
PLAIN_GAE = {"id": "gae", "whiten": False}


def component(kind: str, id: str, **keys: Any) -> Any:
    """An advantage or a loss, made of its own table."""
    model = REGISTRY.config_model(kind, id)
    return configured(id, REGISTRY.load(kind, id), model and model(**keys))


@pytest.fixture
def qwen2(qwen2: Build) -> Build:
    """One layer: what is tested here does not depend on how many there are."""
    return lambda seed=0: qwen2(seed, num_hidden_layers=1)


def trajectory(
    token_ids: Sequence[int], mask: Sequence[bool], reward: float | None, *, logprobs: Sequence[float] | None = None
) -> Trajectory:
    return token_trajectory(segment(token_ids, mask, logprobs=logprobs), reward=reward)


def tokens_of(one: Trajectory) -> list[int]:
    return only_segment(one).token_ids.tolist()


def mask_of(one: Trajectory) -> list[bool]:
    return only_segment(one).loss_mask.tolist()


def rollout(groups: int = 3, size: int = 3, seed: int = 5) -> list[Group]:
    """Groups whose members share a prompt, with tokens in between that the policy did not write."""
    rng = random.Random(seed)
    made = []
    for _ in range(groups):
        prompt = [rng.randrange(32) for _ in range(rng.randint(2, 4))]
        members = []
        for _ in range(size):
            length = rng.randint(1, 9)
            mask = [False] * len(prompt) + [t == 0 or rng.random() < 0.6 for t in range(length)]
            tokens = prompt + [rng.randrange(32) for _ in range(length)]
            members.append(trajectory(tokens, mask, rng.gauss(0, 1)))
        made.append(group(*members))
    return made


def sampled_with(logprob: float) -> list[Group]:
    """The rollout of an engine that gave each token this log-probability."""

    def sampled(one: Trajectory) -> Trajectory:
        return trajectory(tokens_of(one), mask_of(one), one.reward, logprobs=[logprob] * len(tokens_of(one)))

    return [group(*map(sampled, each.trajectories)) for each in rollout()]


def members(groups: Sequence[Group]) -> list[Trajectory]:
    return [one for each in groups for one in each.trajectories]


def centred(groups: Sequence[Group]) -> list[float]:
    """What `grpo` without the standard deviation gives."""
    found = []
    for each in groups:
        rewards = [float(reward or 0.0) for reward in each.rewards_G]
        found += [reward - sum(rewards) / len(rewards) for reward in rewards]
    return found


class Recording(SingleProcess):
    """Keeps the model before each update and the gradient that the optimiser is given."""

    def __init__(self, config: SingleProcessConfig | None = None) -> None:
        super().__init__(config or SingleProcessConfig())
        self.gradients: list[list[torch.Tensor]] = []
        self.weights: list[dict[str, torch.Tensor]] = []
        self.model: Any = None
        self.learner: PolicyLearner

    def optimise(self, model: Any, **settings: Any) -> AdamW:
        if self.model is not None:  # of the critic
            return AdamW(model, **settings)
        self.model = model
        return RecordingAdamW(model, self, **settings)

    @property
    def models(self) -> list[Any]:
        """The model before each update."""
        made = [copy.deepcopy(self.model) for _ in self.weights]
        for model, weights in zip(made, self.weights, strict=True):
            model.load_state_dict(weights)
        return made


class RecordingAdamW(AdamW):
    def __init__(self, model: Any, recording: Recording, **settings: Any) -> None:
        super().__init__(model, **settings)
        self._recording = recording

    def step(self, learning_rate: float, max_gradient_norm: float) -> tuple[float, bool]:
        recording = self._recording
        recording.gradients.append([p.grad.clone() for p in self._live if p.grad is not None])
        recording.weights.append({name: value.clone() for name, value in recording.model.state_dict().items()})
        return super().step(learning_rate, max_gradient_norm)


def updater(
    model: Any,
    *,
    reference: Any = None,
    critic: Mapping[str, Any] | None = None,
    advantage: Any = None,
    loss: Any = None,
    temperature: float = 1.0,
    **tables: Any,
) -> tuple[Recording, PolicyUpdate]:
    strategy = Recording()
    trainer = PolicyGradientConfig(**{"learning_rate": 0.01, "max_gradient_norm": 1e9, **tables.get("trainer", {})})
    trained = TrainedPolicy(CausalLanguageModel(model), strategy, trainer)
    without_std = {"id": "grpo", "normalise_by_std": False}
    none = {"mode": "none"}
    algorithm = AlgorithmConfig(
        **{"advantage": without_std, "rollout_importance_sampling": none, **tables.get("algorithm", {})}
    )
    advantage = advantage or component("advantage", algorithm.advantage.id, **algorithm.advantage.own)
    loss = loss or component("loss", algorithm.loss.id, **algorithm.loss.own)
    settings = None if critic is None else CriticConfig(**critic)
    strategy.learner = PolicyLearner(
        trained,
        None if reference is None else FrozenReference(CausalLanguageModel(reference)),
        None if settings is None else Critic(settings, trained.policy, strategy, trainer),
        Objective(loss, algorithm, comparable=temperature == 1.0),
        trainer,
        temperature=temperature,
    )
    ranks = Ranks(strategy.processes)
    offer_reinforcement(ranks, strategy.learner)
    made = PolicyUpdate(
        Learner(ranks, trainer.max_tokens_per_batch),
        advantage,
        loss,
        trainer,
        algorithm,
        has_reference=reference is not None,
        critic=settings,
        max_response_tokens=MAX_RESPONSE,
    )
    return strategy, made


def update(
    model: Any,
    groups: Sequence[Group],
    *,
    baselines: Mapping[int, float] | None = None,
    critic_only: bool = False,
    key: Sequence[object] = (0, 1),
    **options: Any,
) -> tuple[Recording, Any]:
    strategy, made = updater(model, **options)
    return strategy, made.run(groups, learning_rate=0.01, key=key, baselines=baselines, critic_only=critic_only)


def assert_equal(one: list[torch.Tensor], other: Sequence[torch.Tensor]) -> None:
    for first, second in zip(one, other, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-5)


def written_logprobs(model: Any, one: Trajectory, temperature: float = 1.0) -> torch.Tensor:
    """Log-probabilities of the written tokens, by the model's own logits, [T, V] at each and [T] at the token."""
    logits = model(input_ids=torch.tensor([tokens_of(one)])).logits[0].double() / temperature
    places = [t for t, written in enumerate(mask_of(one)) if written]
    return logits.log_softmax(-1)[[t - 1 for t in places]], [tokens_of(one)[t] for t in places]


# The gradient


def slow_surrogate(name: str, log_ratio: torch.Tensor, logprob: torch.Tensor, advantage: float) -> torch.Tensor:
    """The papers' formulas for the tokens of one sequence."""
    if name in ("gspo", "gspo-token"):
        ratio = log_ratio.mean().exp().expand(len(log_ratio))
        if name == "gspo-token":
            ratio = ratio.detach() * logprob.exp() / logprob.exp().detach()
        clipped = ratio.clamp(1 - 3e-4, 1 + 4e-4)
    elif name == "clip":
        ratio = log_ratio.exp()
        clipped = ratio.clamp(0.9, 1.3)
    elif name == "cispo":
        return -log_ratio.exp().clamp(0.0, 5.0).detach() * advantage * logprob
    else:
        steepness = 1.0 if advantage > 0 else 1.05
        return -4 / steepness / (1 + torch.exp(-steepness * (log_ratio.exp() - 1))) * advantage
    return -torch.minimum(ratio * advantage, clipped * advantage)


def slow_divergence(name: str, difference: torch.Tensor) -> torch.Tensor:
    if name == "k1":
        return difference
    if name == "abs":
        return difference.abs()
    return 0.5 * difference**2 if name == "mse" else (-difference).exp() + difference - 1


def slow_weight(aggregation: str, trained: list[int], place: int) -> float:
    if aggregation == "token-mean":
        return 1 / sum(trained)
    per_token = {"seq-mean-token-mean": 1 / trained[place], "seq-mean-token-sum": 1.0}
    return per_token.get(aggregation, 1 / MAX_RESPONSE) / len(trained)


AGGREGATIONS = ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"]
PLAIN = "token-mean"
CASES = [
    *(("clip", aggregation, "k3", False) for aggregation in AGGREGATIONS),
    *(("clip", PLAIN, estimator, False) for estimator in ("k1", "abs", "mse")),
    *(("clip", PLAIN, estimator, True) for estimator in ("k1", "k3")),
    *((loss, PLAIN, "mse", False) for loss in ("gspo", "gspo-token", "cispo", "sapo")),
    ("gspo", "seq-mean-token-mean", "mse", False),
]


@pytest.mark.parametrize(("name", "aggregation", "estimator", "weighted"), CASES)
def test_off_policy_gradient_equals_a_slow_loop(
    qwen2: Build, name: str, aggregation: str, estimator: str, weighted: bool
) -> None:
    model, reference, groups = qwen2().double(), qwen2(seed=1).double(), rollout(2)
    entropy, coefficient = 0.02, 0.3
    kl = {"estimator": estimator, "coefficient": coefficient, "importance_weighted": weighted}
    loss = {"id": name, **({"clip_low": 0.1, "clip_high": 0.3} if name == "clip" else {})}
    algorithm = {"loss": loss, "aggregation": aggregation, "entropy": entropy, "kl": kl}
    strategy, result = update(model, groups, reference=reference, algorithm=algorithm, trainer={"epochs": 2})
    assert result.updates == 2
    before, after = strategy.models
    everyone, advantages = members(groups), centred(groups)
    trained = [sum(mask_of(one)) for one in everyone]
    total = torch.zeros((), dtype=torch.float64)
    for place, (one, advantage) in enumerate(zip(everyone, advantages, strict=True)):
        (now, tokens), (old, _), (there, _) = (written_logprobs(m, one) for m in (after, before, reference))
        logprob, old, there = (x[range(len(tokens)), tokens] for x in (now, old.detach(), there.detach()))
        terms = slow_surrogate(name, logprob - old, logprob, advantage) + entropy * (now.exp() * now).sum(-1)
        divergence = slow_divergence(estimator, logprob - there)
        terms = terms + coefficient * divergence * ((logprob - old).exp() if weighted else 1.0)
        total = total + slow_weight(aggregation, trained, place) * terms.sum()
    assert_equal(strategy.gradients[1], torch.autograd.grad(total, list(after.parameters())))


@pytest.mark.parametrize("name", ["clip", "gspo"])
@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("epochs", [1, 2])
def test_rollout_importance_weights_multiply_the_policy_loss(qwen2: Build, name: str, level: str, epochs: int) -> None:
    model, reference, groups = qwen2().double(), qwen2(seed=1).double(), rollout(2)
    start, low, high = copy.deepcopy(model), 0.7, 1.4
    rng = random.Random(3)
    for place, each in enumerate(groups):
        near = []
        for one in each.trajectories:
            now, tokens = written_logprobs(start, one)
            logprobs = iter(
                (now[range(len(tokens)), tokens] + torch.tensor([rng.gauss(0, 0.3) for _ in tokens])).tolist()
            )
            near.append(with_logprobs(one, logprobs))
        groups[place] = group(*near)
    weights = {"mode": "mask", "level": level, "low": low, "high": high}
    kl = {"coefficient": 0.3, "estimator": "mse"}
    algorithm = {"loss": name, "rollout_importance_sampling": weights, "kl": kl}
    strategy, result = update(model, groups, reference=reference, algorithm=algorithm, trainer={"epochs": epochs})
    everyone = members(groups)
    total, kept = torch.zeros((), dtype=torch.float64), 0
    trained = [sum(mask_of(one)) for one in everyone]
    for place, (one, advantage) in enumerate(zip(everyone, centred(groups), strict=True)):
        (now, tokens), (there, _) = written_logprobs(start, one), written_logprobs(reference, one)
        logprob, there = now[range(len(tokens)), tokens], there[range(len(tokens)), tokens].detach()
        gap = logprob.detach() - torch.tensor(
            [x for x, w in zip(only_segment(one).logprobs, mask_of(one), strict=True) if w]
        )
        gap = gap.sum().expand(len(tokens)) if level == "sequence" else gap
        factor = gap.exp().where((gap.exp() <= high) & (gap.exp() >= low), 0.0)
        kept += int((factor > 0).sum())
        log_ratio = logprob - logprob.detach()
        terms = factor * slow_surrogate(name, log_ratio, logprob, advantage) + 0.15 * (logprob - there) ** 2
        weight = slow_weight("token-mean" if name == "clip" else "seq-mean-token-mean", trained, place)
        total = total + weight * terms.sum()
    assert 0 < kept < sum(trained)
    assert_equal(strategy.gradients[0], torch.autograd.grad(total, list(start.parameters())))
    assert 0 < result.metrics["rollout_is/low"] + result.metrics["rollout_is/high"] < 1


@pytest.mark.parametrize("name", ["clip", "gspo"])
def test_gradient_is_independent_of_micro_batches_and_order(qwen2: Build, name: str) -> None:
    gradients = []
    truncate = {"mode": "truncate"}
    kl = {"coefficient": 0.1}
    algorithm = {"loss": name, "entropy": 0.01, "kl": kl, "rollout_importance_sampling": truncate}
    for max_tokens, reverse in ((10_000, False), (1, False), (30, True)):
        model, reference = qwen2().double(), qwen2(seed=1).double()
        groups = (
            [Group(task=g.task, trajectories=g.trajectories[::-1]) for g in rollout()[::-1]] if reverse else rollout()
        )
        strategy, _ = update(
            model,
            groups,
            reference=reference,
            trainer={"max_tokens_per_batch": max_tokens},
            algorithm=algorithm,
        )
        gradients.append(strategy.gradients[0])
    assert_equal(gradients[0], gradients[1])
    assert_equal(gradients[0], gradients[2])


def segmented_rollout() -> list[Group]:
    """Trajectories with one to three segments, each of which repeats a part of the one before it."""
    rng = random.Random(11)
    made = []
    for _ in range(2):
        prompt = [rng.randrange(32) for _ in range(3)]
        siblings = []
        for count in (1, 2, 3):
            tokens, segments = list(prompt), []
            for _ in range(count):
                mask = [False] * len(tokens) + [True] * 2 + [False, True]
                tokens = [*tokens, *(rng.randrange(32) for _ in range(4))]
                segments.append(segment(tokens, mask))
                tokens = [*tokens[: rng.randint(2, len(tokens))], rng.randrange(32)]
            siblings.append(token_trajectory(*segments, reward=rng.gauss(0, 1)))
        made.append(group(*siblings))
    return made


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("target", ["loss", "reward"])
def test_segments_share_advantage_and_weight_of_their_trajectory(qwen2: Build, aggregation: str, target: str) -> None:
    model, reference, groups = qwen2().double(), qwen2(seed=1).double(), segmented_rollout()
    kl = {"estimator": "mse", "coefficient": 0.3, "target": target}
    algorithm = {"aggregation": aggregation, "kl": kl}
    strategy, result = update(model, groups, reference=reference, algorithm=algorithm)
    (start,) = strategy.models
    everyone = members(groups)
    trained = [one.sampled_tokens for one in everyone]
    found, penalties = [], []
    for one in everyone:
        parts = [(written_logprobs(start, part), written_logprobs(reference, part)) for part in apart(one)]
        now = torch.cat([own[range(len(tokens)), tokens] for (own, tokens), _ in parts])
        there = torch.cat([own[range(len(tokens)), tokens] for _, (own, tokens) in parts]).detach()
        found.append((now, 0.5 * (now - there) ** 2))
        penalties.append(float(0.3 * found[-1][1].detach().sum()) if target == "reward" else 0.0)
    lowered = [
        group(*(one.replace(reward=one.reward - penalties[place + 3 * number]) for place, one in enumerate(each)))
        for number, each in enumerate(one.trajectories for one in groups)
    ]
    total = torch.zeros((), dtype=torch.float64)
    for place, ((logprob, divergence), advantage) in enumerate(zip(found, centred(lowered), strict=True)):
        terms = slow_surrogate("clip", logprob - logprob.detach(), logprob, advantage)
        if target == "loss":
            terms = terms + 0.3 * divergence
        total = total + slow_weight(aggregation, trained, place) * terms.sum()
    assert_equal(strategy.gradients[0], torch.autograd.grad(total, list(start.parameters())))
    assert result.metrics["tokens/trained"] == sum(trained)


def apart(one: Trajectory) -> list[Trajectory]:
    """A trajectory for each segment."""
    return [one.replace(segments=(part,)) for part in one.segments]


@pytest.mark.parametrize("kind", ["copy", "head"])
def test_mini_batch_contains_whole_trajectories(qwen2: Build, kind: str) -> None:
    """Six trajectories in six updates, however many segments each has; the critic sees every written token."""
    strategy, result = update(
        qwen2(),
        segmented_rollout(),
        critic={"model": kind},
        algorithm={"advantage": "gae", "turn_rewards": "add"},
        trainer={"updates_per_rollout": 6},
    )
    assert result.updates == 6
    assert len(strategy.gradients) == 6
    assert result.metrics["tokens/trained"] == sum(one.sampled_tokens for one in members(segmented_rollout()))


def test_only_sampled_tokens_receive_gradient(qwen2: Build) -> None:
    """The loss as a function of the logits has a gradient at the positions before written tokens and nowhere else."""
    model = qwen2().double()
    one = trajectory([3, 4, 5, 6, 7, 8, 9], [False, False, True, False, False, True, False], 1.0)
    strategy, _ = update(model, [group(one)], algorithm={"entropy": 0.1})
    start = strategy.models[0]
    logits = start(input_ids=torch.tensor([tokens_of(one)])).logits[0]
    logprobs = logits.log_softmax(-1)
    terms = [
        -torch.exp(logprobs[t - 1, tokens_of(one)[t]] - logprobs[t - 1, tokens_of(one)[t]].detach())
        + 0.1 * (logprobs[t - 1].exp() * logprobs[t - 1]).sum()
        for t in (2, 5)
    ]
    by_logits = torch.autograd.grad(sum(terms) / 2, logits, retain_graph=True)[0]
    assert by_logits.abs().sum(-1).nonzero()[:, 0].tolist() == [1, 4]
    assert_equal(strategy.gradients[0], torch.autograd.grad(logits, list(start.parameters()), by_logits))


def test_temperature_trains_the_sampled_distribution(qwen2: Build) -> None:
    model, groups = qwen2().double(), rollout(1, 1)
    slow, one = copy.deepcopy(model), members(groups)[0]
    strategy, result = update(model, groups, temperature=0.5)
    now, tokens = written_logprobs(slow, one, temperature=0.5)
    total = -(one.reward or 0.0) * now[range(len(tokens)), tokens].mean()
    assert_equal(strategy.gradients[0], torch.autograd.grad(total, list(slow.parameters())))
    assert "logprob_gap/max" not in result.metrics  # the engine's numbers are those of temperature 1


# Which updates there are


def watching(seen: list[Any], what: Callable[..., Any]) -> Loss:
    """The clipped loss, which notes what it is given."""
    loss = clip.configured(clip.Config())

    def watched(inputs: LossInputs) -> LossOutput:
        seen.append(what(inputs.logprobs_M.detach(), inputs.old_logprobs_M, inputs.advantages_M, inputs.weights_M))
        return loss(inputs)

    return watched


def test_single_update_is_strictly_on_policy(qwen2: Build) -> None:
    ratios: list[torch.Tensor] = []
    update(qwen2(), rollout(), loss=watching(ratios, lambda new, old, *_: (new - old).exp()))
    assert all(torch.equal(ratio, torch.ones_like(ratio)) for ratio in ratios)


def test_later_updates_use_log_probabilities_before_the_first(qwen2: Build) -> None:
    ratios: list[torch.Tensor] = []
    watch = watching(ratios, lambda new, old, *_: (new - old).exp())
    _, result = update(qwen2(), rollout(), loss=watch, trainer={"epochs": 2, "updates_per_rollout": 2})
    assert result.updates == len(ratios) == 4
    torch.testing.assert_close(ratios[0], torch.ones_like(ratios[0]), rtol=1e-4, atol=1e-4)
    assert all(float((ratio - 1).abs().max()) > 1e-3 for ratio in ratios[1:])


@pytest.mark.parametrize(("updates", "whole"), [(2, True), (3, True), (5, False)])
def test_mini_batches_contain_every_trajectory_once_per_epoch(qwen2: Build, updates: int, whole: bool) -> None:
    seen: list[list[float]] = []
    groups = [
        group(*(one.replace(reward=float(place) + 0.1 * i) for i, one in enumerate(each.trajectories)))
        for place, each in enumerate(rollout())
    ]
    rewards = torch.tensor([one.reward for one in members(groups)], dtype=torch.float64)

    def by_reward(inputs: AdvantageInputs) -> AdvantageOutput:
        return AdvantageOutput(advantages=inputs.rewards_N + 1.0)

    watch = watching(seen, lambda new, old, advantages, weights: (advantages - 1).unique().tolist())
    update(qwen2(), groups, advantage=by_reward, loss=watch, trainer={"updates_per_rollout": updates})
    assert len(seen) == updates
    assert sorted(value for part in seen for value in part) == pytest.approx(sorted(rewards.tolist()), abs=1e-6)
    if whole:  # siblings stay together, as they share a prompt
        assert all(len([x for x in part if int(x + 0.01) == g]) in (0, 3) for part in seen for g in range(3))


def test_order_of_mini_batches_depends_on_the_key(qwen2: Build) -> None:
    seen: dict[int, list[Any]] = {}
    for run, key in enumerate([(0, 1), (0, 1), (0, 2)]):
        watch = watching(seen.setdefault(run, []), lambda new, old, advantages, weights: advantages.tolist())
        update(qwen2(), rollout(6), loss=watch, key=key, trainer={"updates_per_rollout": 3})
    assert seen[0] == seen[1] != seen[2]


def test_non_finite_gradient_leaves_the_weights_unchanged(qwen2: Build) -> None:
    def broken(inputs: LossInputs) -> LossOutput:
        return LossOutput(loss=inputs.logprobs_M.sum() * float("inf"))

    model = qwen2()
    before = copy.deepcopy(model.state_dict())
    _, result = update(model, rollout(1), loss=broken)
    assert result.updates == 0
    assert math.isnan(result.metrics["gradient_norm"])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_rollout_without_sampled_tokens_has_no_update(qwen2: Build) -> None:
    empty = group(trajectory([1, 2], [False, False], 1.0), trajectory([1, 3], [False, False], 0.0))
    _, result = update(qwen2(), [empty])
    assert (result.updates, result.metrics["tokens/trained"]) == (0, 0)


def test_trajectory_without_written_tokens_counts_in_its_group(qwen2: Build) -> None:
    seen: list[Any] = []
    written = trajectory([1, 2, 3], [False, False, True], 1.0)
    _, result = update(
        qwen2(),
        [group(written, trajectory([1, 2], [False, False], 0.0))],
        loss=watching(seen, lambda *x: x[2].tolist()),
    )
    assert (seen, result.updates) == ([[0.5]], 1)


def test_equal_rewards_give_no_update(qwen2: Build) -> None:
    groups = [group(*(one.replace(reward=0.5) for one in each.trajectories)) for each in rollout()]
    strategy, result = update(qwen2(), groups)
    assert (result.updates, strategy.gradients) == (0, [])
    assert result.metrics["groups/equal"] == 1.0
    assert result.metrics["tokens/trained"] == 0


def test_zero_advantage_trajectories_count_in_the_mean_but_are_not_fed(qwen2: Build) -> None:
    groups = rollout()
    groups[1] = group(*(one.replace(reward=0.5) for one in groups[1].trajectories))
    fed: list[int] = []
    watch = watching(fed, lambda new, *_: len(new))
    cheap, result = update(qwen2().double(), groups, loss=watch)
    whole, reference = update(qwen2().double(), groups, loss=watch, algorithm={"entropy": 1e-300})
    assert fed == [sum(sum(mask_of(one)) for one in members(some)) for some in (groups[::2], groups)]
    assert_equal(cheap.gradients[0], whole.gradients[0])
    assert result.metrics["loss/policy"] == pytest.approx(reference.metrics["loss/policy"])
    assert 0 < result.metrics["entropy/mean"] <= 3.5


def test_unscored_trajectories_are_not_in_the_loss(qwen2: Build) -> None:
    groups, clean = rollout(), rollout()
    for place, bad in ((0, float("nan")), (1, None)):
        kept = groups[place].trajectories
        groups[place] = group(kept[0], kept[1].replace(reward=bad), kept[2])
        clean[place] = group(kept[0], kept[2])
    one, result = update(qwen2().double(), groups)
    other, _ = update(qwen2().double(), clean)
    assert_equal(one.gradients[0], other.gradients[0])
    assert result.updates == 1


@pytest.mark.parametrize("normalise", [True, False])
def test_group_of_one_is_compared_with_zero(qwen2: Build, normalise: bool) -> None:
    seen: list[Any] = []
    groups = rollout(1, 1)
    update(
        qwen2(),
        groups,
        loss=watching(seen, lambda *x: x[2].tolist()),
        algorithm={"advantage": {"id": "grpo", "normalise_by_std": normalise}},
    )
    assert seen[0] == pytest.approx([members(groups)[0].reward] * len(seen[0]), rel=1e-5)


# Truncated trajectories


def test_truncated_trajectories_count_only_in_the_statistics(qwen2: Build) -> None:
    groups = rollout()
    first = groups[0].trajectories
    groups[0] = group(first[0], first[1].replace(stop=Stop.LENGTH), first[2])
    fed: list[list[float]] = []
    watch = watching(fed, lambda *x: sorted(set(x[2].tolist())))
    model = qwen2().double()
    _, result = update(model, groups, loss=watch, algorithm={"overlong": {"mask_truncated": True}})
    advantages = centred(groups)
    assert fed[0] == pytest.approx(sorted(advantages[:1] + advantages[2:]))
    assert result.metrics["truncated/masked"] == 1
    assert result.metrics["tokens/trained"] == sum(sum(mask_of(t)) for t in members(groups)) - sum(mask_of(first[1]))
    fed.clear()
    _, result = update(model, groups, loss=watch)
    assert len(fed[0]) == 9
    assert "truncated/masked" not in result.metrics


# The reference


class Counting:
    """Counts the forward passes of a model."""

    def __init__(self, model: Any) -> None:
        self.calls = 0
        model.base_model.register_forward_hook(self._count)

    def _count(self, *_: Any) -> None:
        self.calls += 1


def test_reference_is_run_only_if_a_term_needs_it(qwen2: Build) -> None:
    for coefficient, calls in ((0.0, 0), (0.1, 1)):
        reference = qwen2(seed=1)
        counting = Counting(reference)
        _, result = update(qwen2(), rollout(), reference=reference, algorithm={"kl": {"coefficient": coefficient}})
        assert counting.calls == calls
        assert ("kl/mean" in result.metrics) == bool(calls)
        assert (result.kl is not None) == bool(calls)


def test_extra_forward_pass_only_for_old_log_probabilities(qwen2: Build) -> None:
    for trainer, calls in (({}, 1), ({"updates_per_rollout": 2}, 3), ({"epochs": 2}, 3)):
        model = qwen2()
        counting = Counting(model)
        update(model, rollout(), trainer=trainer)
        assert counting.calls == calls


def test_kl_term_in_the_reward_is_subtracted_from_each_token(qwen2: Build) -> None:
    model, reference, groups, coefficient = qwen2().double(), qwen2(seed=1).double(), rollout(), 0.2
    seen: dict[str, torch.Tensor] = {}

    plain = component("advantage", **PLAIN_RETURN)

    def watch(inputs: AdvantageInputs) -> Any:
        seen.update(whole=inputs.rewards_N, token=inputs.rewards_NT, mask=inputs.mask_NT)
        return plain(inputs)

    kl = {"coefficient": coefficient, "target": "reward", "estimator": "k1"}
    strategy, result = update(model, groups, reference=reference, advantage=watch, algorithm={"kl": kl})
    start, divergences = strategy.models[0], []
    expected_loss = torch.zeros((), dtype=torch.float64)
    for n, one in enumerate(members(groups)):
        (now, tokens), (there, _) = written_logprobs(start, one), written_logprobs(reference, one)
        logprob = now[range(len(tokens)), tokens]
        divergence = (logprob - there[range(len(tokens)), tokens]).detach()
        divergences += divergence.tolist()
        rewards = -coefficient * divergence
        rewards[-1] += one.reward or 0.0
        torch.testing.assert_close(seen["token"][n, : len(tokens)], rewards)
        assert not seen["token"][n, len(tokens) :].any()
        assert seen["mask"][n].tolist() == [t < len(tokens) for t in range(seen["mask"].shape[1])]
        assert float(seen["whole"][n]) == pytest.approx((one.reward or 0.0) - coefficient * float(divergence.sum()))
        expected_loss = expected_loss - (rewards.flip(0).cumsum(0).flip(0) * (logprob - logprob.detach()).exp()).sum()
    assert result.metrics["kl/mean"] == result.kl == pytest.approx(sum(divergences) / len(divergences))
    expected = torch.autograd.grad(expected_loss / len(divergences), list(start.parameters()))
    assert_equal(strategy.gradients[0], expected)


def test_adaptive_coefficient_follows_the_divergence_and_is_restored(qwen2: Build) -> None:
    kl = {"coefficient": 0.1, "controller": "adaptive", "target_kl": 1e-6, "horizon": 90}
    options = {"reference": qwen2(seed=1), "algorithm": {"kl": kl}}
    _, made = updater(qwen2(), **options)
    first = made.run(rollout(), learning_rate=0.01, key=(0, 1))
    assert first.metrics["kl/coefficient"] == 0.1
    second = made.run(rollout(), learning_rate=0.01, key=(0, 2))
    assert second.metrics["kl/coefficient"] == pytest.approx(0.1 * (1 + 0.2 * 9 / 90))  # far above its target
    _, other = updater(qwen2(), **options)
    other.restore(made.state())
    third = other.run(rollout(), learning_rate=0.01, key=(0, 3))
    assert third.metrics["kl/coefficient"] == pytest.approx(0.1 * (1 + 0.2 * 9 / 90) ** 2)


# Advantages of tokens, baselines, values


def test_token_advantages_are_assigned_to_their_tokens(qwen2: Build) -> None:
    groups, seen = rollout(), []
    marks = {n: [10.0 * n + t for t in range(sum(mask_of(one)))] for n, one in enumerate(members(groups))}

    def numbered(inputs: AdvantageInputs) -> AdvantageOutput:
        places = (torch.arange(size, dtype=torch.float64) for size in inputs.mask_NT.shape)
        n, t = torch.meshgrid(*places, indexing="ij")
        return AdvantageOutput(advantages=torch.where(inputs.mask_NT, 10.0 * n + t + 1, 0.0))

    strategy, result = update(
        qwen2().double(), groups, advantage=numbered, loss=watching(seen, lambda *x: (x[2] - 1).tolist())
    )
    assert sorted(value for part in seen for value in part) == sorted(x for row in marks.values() for x in row)
    start = strategy.models[0]
    total = torch.zeros((), dtype=torch.float64)
    for n, one in enumerate(members(groups)):
        now, tokens = written_logprobs(start, one)
        total = total - ((torch.tensor(marks[n]) + 1) * now[range(len(tokens)), tokens]).sum()
    count = sum(map(len, marks.values()))
    assert_equal(strategy.gradients[0], torch.autograd.grad(total / count, list(start.parameters())))
    assert result.metrics["advantage/mean"] == pytest.approx(sum(x + 1 for row in marks.values() for x in row) / count)


def test_remax_subtracts_the_greedy_score_and_omits_groups_without_one(qwen2: Build) -> None:
    groups, seen = rollout(), []
    watch = watching(seen, lambda *x: sorted(set(x[2].tolist())))
    _, made = updater(qwen2().double(), algorithm={"advantage": "remax"}, loss=watch)
    assert made.reads_baselines
    result = made.run(groups, learning_rate=0.01, key=(0, 1), baselines={(0, ""): 0.25, (2, ""): -1.0})
    expected = [
        (one.reward or 0.0) - {0: 0.25, 2: -1.0}[place] for place in (0, 2) for one in groups[place].trajectories
    ]
    assert seen[0] == pytest.approx(sorted(expected))
    assert result.metrics["baselines/missing"] == 3


def test_single_trajectory_is_used_if_groups_are_not_compared(qwen2: Build) -> None:
    kept = rollout(1)[0].trajectories
    lonely = [group(kept[0], kept[1].replace(reward=None), kept[2].replace(reward=None))]
    assert update(qwen2(), lonely)[1].updates == 0
    assert update(qwen2(), lonely, algorithm={"advantage": PLAIN_RETURN})[1].updates == 1


def test_advantage_that_reads_values_needs_a_critic(qwen2: Build) -> None:
    with pytest.raises(UserError, match="values of a critic"):
        updater(qwen2(), algorithm={"advantage": "gae"})


@pytest.mark.parametrize("kind", ["copy", "head"])
def test_critic_learns_the_value_of_a_prompt(qwen2: Build, kind: str) -> None:
    """Two prompts, one always good and one always bad: after some steps values tell them apart."""
    pairs = [(4, 1.0), (5, 0.0)]
    groups = [
        group(*(trajectory([3, prompt, 6 + i, 7], [False, False, True, True], reward) for i in range(2)))
        for prompt, reward in pairs
    ]
    critic = {"model": kind, "learning_rate": 0.02, "clip": None, "coefficient": 1.0}
    _, made = updater(qwen2(), critic=critic, algorithm={"advantage": {**PLAIN_GAE, "gae_lambda": 0.95}})
    explained = []
    for step in range(15):
        result = made.run(groups, learning_rate=0.02 if kind == "head" else 1e-9, key=(0, step))
        explained.append(result.metrics["critic/explained_variance"])
    assert explained[0] == pytest.approx(0.0)  # all values are 0 at first
    assert explained[-1] > 0.9
    assert result.metrics["critic/mean"] == pytest.approx(0.5, abs=0.15)


def test_value_head_trains_the_policy_layers_by_the_coefficient(qwen2: Build) -> None:
    groups, gradients = rollout(), []
    for coefficient in (0.0, 0.5):
        model = qwen2().double()
        strategy, made = updater(
            model,
            critic={"model": "head", "coefficient": coefficient, "clip": None},
            algorithm={"advantage": PLAIN_GAE},
        )
        torch.nn.init.ones_(strategy.learner.critic._head.weight)  # a head of zeros passes no gradient on
        made.run(groups, learning_rate=0.01, key=(0, 1))
        gradients.append(strategy.gradients[0])
    start = strategy.models[0]
    total, count = torch.zeros((), dtype=torch.float64), sum(sum(mask_of(one)) for one in members(groups))
    for one in members(groups):
        hidden = start.base_model(input_ids=torch.tensor([tokens_of(one)])).last_hidden_state[0]
        values = hidden[[t - 1 for t, written in enumerate(mask_of(one)) if written]].sum(-1)
        returns = one.reward or 0.0  # with gamma and lambda 1
        total = total + 0.5 * (values - returns).square().sum() / count
    added = torch.autograd.grad(0.5 * total, list(start.parameters()), allow_unused=True, materialize_grads=True)
    assert_equal(gradients[1], [one + other for one, other in zip(gradients[0], added, strict=True)])


@pytest.mark.parametrize("kind", ["copy", "head"])
def test_policy_is_unchanged_during_critic_warm_up(qwen2: Build, kind: str) -> None:
    model = qwen2()
    before = copy.deepcopy(model.state_dict())
    _, made = updater(model, critic={"model": kind, "learning_rate": 0.01}, algorithm={"advantage": "gae"})
    results = [made.run(rollout(), learning_rate=0.01, key=(0, step), critic_only=True) for step in range(3)]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert [result.updates for result in results] == [0, 0, 0]
    assert results[2].metrics["critic/loss"] < results[0].metrics["critic/loss"]
    assert "loss/policy" not in results[0].metrics


@pytest.mark.parametrize("kind", ["copy", "head"])
def test_restored_updates_continue_identically(qwen2: Build, kind: str, tmp_path: Any) -> None:
    options: dict[str, Any] = {
        "critic": {"model": kind, "learning_rate": 0.01},
        "reference": qwen2(seed=1),
        "algorithm": {"advantage": "gae", "kl": {"coefficient": 0.1, "controller": "adaptive", "target": "reward"}},
        "trainer": {"updates_per_rollout": 2},
    }
    one_strategy, one = updater(model := qwen2(), **options)
    for step in range(2):
        one.run(rollout(seed=step), learning_rate=0.01, key=(0, step))
    learner = one_strategy.learner
    torch.save(learner.trained.state() | {"critic": learner.critic.state()} | one.state(), tmp_path / "state.pt")
    saved = copy.deepcopy(model)
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    other_strategy, other = updater(saved, **options)
    other_strategy.learner.trained.restore(state)
    other_strategy.learner.critic.restore(state["critic"])
    other.restore(state)
    results = [made.run(rollout(seed=2), learning_rate=0.01, key=(0, 2)) for made in (one, other)]
    assert results[0] == results[1]
    assert all(torch.equal(value, saved.state_dict()[name]) for name, value in model.state_dict().items())
    states = [made.learner.critic.state()["weights"] for made in (one_strategy, other_strategy)]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


# Numbers


def test_gap_to_the_engine_is_reported(qwen2: Build) -> None:
    model = qwen2()
    tokens, mask = [3, 4, 5, 6, 7], [False, False, True, True, True]
    exact_TV = model(input_ids=torch.tensor([tokens])).logits[0].log_softmax(-1).detach()
    exact = [0.0, *(float(exact_TV[t - 1, tokens[t]]) for t in range(1, len(tokens)))]
    metrics = update(copy.deepcopy(model), [group(trajectory(tokens, mask, 1.0, logprobs=exact))])[1].metrics
    assert metrics["logprob_gap/max"] < 1e-5
    far = [x + 0.5 for x in exact]
    metrics = update(model, [group(trajectory(tokens, mask, 1.0, logprobs=far))])[1].metrics
    assert metrics["logprob_gap/max"] == pytest.approx(0.5, abs=1e-4)
    assert metrics["logprob_gap/mean"] == pytest.approx(0.5, abs=1e-4)


def sampled_elsewhere(model: Any, groups: Sequence[Group], shift: float) -> list[Group]:
    """The rollout with log-probabilities of an engine: the policy's, less a number around ``shift``."""
    rng, made = random.Random(3), []
    for each in groups:
        near = []
        for one in each.trajectories:
            now, tokens = written_logprobs(model, one)
            found = iter([x - rng.gauss(shift, 0.5) for x in now[range(len(tokens)), tokens].tolist()])
            near.append(with_logprobs(one, found))
        made.append(group(*near))
    return made


@pytest.mark.parametrize("mode", ["truncate", "mask"])
def test_metrics_are_independent_of_micro_batches(qwen2: Build, mode: str) -> None:
    groups = sampled_elsewhere(qwen2().double(), rollout(2), 0.1)
    weights = {"mode": mode, "level": "sequence", "high": 1.5}
    algorithm = {"rollout_importance_sampling": weights, "loss": {"clip_low": 0.0, "clip_high": 0.0}}
    whole, cut = (
        update(qwen2().double(), groups, algorithm=algorithm, trainer={"max_tokens_per_batch": tokens, "epochs": 2})[
            1
        ].metrics
        for tokens in (10_000, 1)
    )
    assert whole == pytest.approx(cut)
    assert 0.1 < whole["rollout_is/effective"] < 0.99
    assert "rollout_is/square" not in whole


@pytest.mark.parametrize("name", ["clip", "gspo", "cispo", "sapo"])
def test_shares_of_weighted_tokens_are_at_most_one(qwen2: Build, name: str) -> None:
    """Factors of about 3: a share over the weights without them would be about 3 too."""
    groups = sampled_elsewhere(qwen2().double(), rollout(2), 1.1)
    loss = component("loss", name, **({} if name == "sapo" else {"clip_low": 0.1, "clip_high": 0.1}))

    def moved(inputs: LossInputs) -> Any:
        # Every good token has become likelier and every bad one less likely, by more than the clip range.
        return loss(replace(inputs, old_logprobs_M=inputs.old_logprobs_M - 0.5 * inputs.advantages_M.sign()))

    moved.traits = LossTraits(token_wise=False)  # type: ignore[attr-defined]
    algorithm = {"rollout_importance_sampling": {"mode": "truncate", "high": 5.0}}
    metrics = update(qwen2().double(), groups, loss=moved, algorithm=algorithm)[1].metrics
    assert metrics["rollout_is/factor"] > 2
    assert abs(metrics["kl/old"]) < 0.5
    if name == "sapo":
        assert 0.5 < metrics["sapo/gate"] < 1
    else:
        assert metrics["clip/fraction"] == pytest.approx(1.0, rel=1e-6)


def test_batch_without_kept_tokens_has_shares_of_zero(qwen2: Build) -> None:
    groups = sampled_elsewhere(qwen2().double(), rollout(2), 10.0)
    metrics = update(qwen2().double(), groups, algorithm={"rollout_importance_sampling": {"mode": "mask"}})[1].metrics
    assert metrics["rollout_is/high"] == pytest.approx(1.0)
    assert metrics["rollout_is/effective"] == metrics["clip/fraction"] == metrics["kl/old"] == 0


def test_error_in_an_algorithm_names_it(qwen2: Build) -> None:
    def detached(inputs: LossInputs) -> LossOutput:
        return LossOutput(loss=(inputs.weights_M * inputs.logprobs_M).sum().detach())

    def detached_whole(inputs: LossInputs) -> LossOutput:
        return detached(inputs)

    detached_whole.traits = LossTraits(token_wise=False)  # type: ignore[attr-defined]

    def infinite(inputs: AdvantageInputs) -> AdvantageOutput:
        return AdvantageOutput(advantages=torch.full_like(inputs.rewards_N, float("inf")))

    for loss in (detached, detached_whole):
        with pytest.raises(UserError, match=f"the loss {loss.__name__} must return a loss through which a gradient"):
            update(qwen2(), rollout(1), loss=loss)
    with pytest.raises(UserError, match="the advantage infinite must return finite advantages"):
        update(qwen2(), rollout(1), advantage=infinite)


def test_loss_metrics_can_be_plain_numbers(qwen2: Build) -> None:
    def mine(inputs: LossInputs) -> LossOutput:
        metrics = {"mine/share": float(inputs.weights_M.sum()), "mine/max": 3.0}
        return LossOutput(loss=-(inputs.weights_M * inputs.logprobs_M).sum(), metrics=metrics)

    metrics = update(qwen2(), rollout(1), loss=mine)[1].metrics
    assert metrics["mine/share"] == pytest.approx(1.0)
    assert metrics["mine/max"] == 3


def test_fused_and_generic_passes_agree(qwen2: Build) -> None:
    fused_clip = clip.configured(clip.Config())

    class Generic:
        traits = LossTraits(token_wise=False)

        def __call__(self, inputs: LossInputs) -> LossOutput:
            return fused_clip(inputs)

    weights = {"mode": "truncate"}
    algorithm = {"entropy": 0.1, "kl": {"coefficient": 0.1}, "rollout_importance_sampling": weights}
    found = []
    for loss in (fused_clip, Generic()):
        options = {"reference": qwen2(seed=1).double(), "algorithm": algorithm, "trainer": {"epochs": 2}}
        found.append(update(qwen2().double(), rollout(), loss=loss, **options))
    (fused, one), (generic, other) = found
    for first, second in zip(fused.gradients, generic.gradients, strict=True):
        assert_equal(first, second)
    assert one.metrics == pytest.approx(other.metrics)


def test_advantage_receives_the_turn_of_each_token(qwen2: Build) -> None:
    seen: list[AdvantageInputs] = []

    def watch(inputs: AdvantageInputs) -> AdvantageOutput:
        seen.append(inputs)
        return AdvantageOutput(advantages=inputs.rewards_N)

    update(qwen2(), rollout(), advantage=watch)
    (inputs,) = seen
    assert torch.equal(inputs.turns_NT >= 0, inputs.mask_NT)
    assert (inputs.turns_NT[~inputs.mask_NT] == -1).all()
    assert inputs.values_NT is inputs.baselines_N is None


def test_advantage_receives_the_norms_of_gradients(qwen2: Build) -> None:
    seen: list[AdvantageInputs] = []

    class Watch:
        traits = AdvantageTraits(reads_gradients=True)

        def __call__(self, inputs: AdvantageInputs) -> AdvantageOutput:
            seen.append(inputs)
            return AdvantageOutput(advantages=inputs.rewards_N)

    model, groups = qwen2(), rollout(2)
    recording, _ = update(model, groups, advantage=Watch(), temperature=0.7)
    (inputs,), (before, *_) = seen, recording.models
    assert inputs.gradient_norms_NT is not None
    for row_T, mask_T, one in zip(inputs.gradient_norms_NT, inputs.mask_NT, members(groups), strict=True):
        logprobs_TV, tokens = written_logprobs(before, one, 0.7)
        scores_TV = torch.eye(logprobs_TV.shape[1])[tokens] - logprobs_TV.exp()  # the gradient of log π by the logits
        torch.testing.assert_close(row_T[mask_T], scores_TV.square().sum(1).detach(), rtol=1e-4, atol=1e-5)
        assert not row_T[~mask_T].any()


@pytest.mark.parametrize("loss", ["clip", "kl-cov"])
def test_losses_that_train_zero_advantages_see_every_token(qwen2: Build, loss: str) -> None:
    seen = 0
    function = component("loss", loss)

    class Counting:
        traits = function.traits

        def __call__(self, inputs: LossInputs) -> LossOutput:
            nonlocal seen
            seen += len(inputs.logprobs_M)
            return function(inputs)

    groups = rollout()
    groups[0] = group(*(one.replace(reward=1.0) for one in groups[0].trajectories))
    update(qwen2(), groups, loss=Counting())
    expected = members(groups) if loss == "kl-cov" else members(groups[1:])
    assert seen == sum(one.sampled_tokens for one in expected)


def test_bad_sequences_are_left_out_when_the_policy_has_moved_away(qwen2: Build) -> None:
    """With an engine that gave all tokens a probability near 1, every token has fallen."""
    certain = sampled_with(-1e-3)
    kept, plain = update(qwen2(), certain, algorithm={"off_policy_threshold": 100.0})
    only_good, result = update(qwen2(), certain, algorithm={"off_policy_threshold": 0.1})
    assert plain.metrics["off_policy/masked"] == 0.0
    tokens = [(one.sampled_tokens, a < 0) for one, a in zip(members(certain), centred(certain), strict=True)]
    share = sum(count for count, bad in tokens if bad) / sum(count for count, _ in tokens)
    assert result.metrics["off_policy/masked"] == pytest.approx(share)
    advantages = torch.tensor(centred(certain)).clamp(min=0.0)
    wanted, _ = update(qwen2(), certain, advantage=lambda inputs: AdvantageOutput(advantages=advantages))
    for found, expected in zip(only_good.gradients, wanted.gradients, strict=True):
        assert_equal(found, expected)
    assert any((a - b).abs().max() > 1e-3 for a, b in zip(kept.gradients[0], only_good.gradients[0], strict=True))


def test_vespo_weighs_trajectories_by_the_gap_to_the_engine(qwen2: Build) -> None:
    """A loss that weighs the rollout itself gets plain token weights, and the factors beside them."""
    seen: list[LossInputs] = []
    function = component("loss", "vespo")

    class Watch:
        traits = function.traits

        def __call__(self, inputs: LossInputs) -> LossOutput:
            seen.append(inputs)
            return function(inputs)

    likely = sampled_with(-3.4)
    _, result = update(qwen2(), likely, loss=Watch(), algorithm={"rollout_importance_sampling": {"mode": "truncate"}})
    factors_M, weights_M = (torch.cat([getattr(one, name) for one in seen]) for name in ("factors_M", "weights_M"))
    tokens = sum(one.sampled_tokens for one in members(likely))
    torch.testing.assert_close(weights_M, torch.full_like(weights_M, 1 / tokens))
    assert result.metrics["rollout_is/factor"] == pytest.approx(float(factors_M.mean()), rel=1e-5)
    assert 0 < result.metrics["vespo/weight"] < 1


@pytest.mark.parametrize("given", [True, False])
def test_critic_learns_the_returns_of_the_advantage(qwen2: Build, given: bool) -> None:
    def mine(inputs: AdvantageInputs) -> AdvantageOutput:
        returns_NT = torch.full_like(inputs.rewards_NT, 3.0) if given else None
        return AdvantageOutput(advantages=inputs.rewards_N, returns_NT=returns_NT)

    _, made = updater(qwen2(), critic={"model": "copy", "learning_rate": 0.02, "clip": None}, advantage=mine)
    for step in range(15):
        result = made.run(rollout(1), learning_rate=1e-9, key=(0, step))
    wanted = 3.0 if given else sum((t.reward or 0.0) * t.sampled_tokens for t in members(rollout(1)))
    tokens = 1 if given else sum(t.sampled_tokens for t in members(rollout(1)))
    assert result.metrics["critic/mean"] == pytest.approx(wanted / tokens, abs=0.5)


# The optimiser


def test_gradients_are_clipped_to_the_maximum_norm(qwen2: Build) -> None:
    model = qwen2()
    optimisation = AdamW(model, betas=(0.0, 0.0), weight_decay=0.0)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    norm, updated = optimisation.step(0.0, 0.5)
    assert norm == pytest.approx(sum(p.numel() for p in model.parameters()) ** 0.5, rel=1e-4)
    assert updated


def test_only_matrices_have_weight_decay(qwen2: Build) -> None:
    model = qwen2()
    before = copy.deepcopy(model.state_dict())
    optimisation = AdamW(model, betas=(0.9, 0.9), weight_decay=0.5)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimisation.step(0.1, 1.0)
    for name, value in model.state_dict().items():
        factor = 0.95 if before[name].ndim >= 2 else 1.0
        torch.testing.assert_close(value, before[name] * factor)


def test_half_precision_weights_accumulate_small_updates() -> None:
    layer = torch.nn.Linear(4, 4, bias=False).bfloat16()
    torch.nn.init.ones_(layer.weight)
    optimisation = AdamW(layer, betas=(0.9, 0.999), weight_decay=0.0)
    for _ in range(100):
        optimisation.backward(layer.weight.sum())
        optimisation.step(1e-4, 1e9)
    torch.testing.assert_close(layer.weight.float(), torch.full((4, 4), 0.99), rtol=0, atol=0.004)


def test_half_precision_gradients_are_summed_in_float32() -> None:
    """The gradients of micro-batches almost cancel, and 100 and 0.25 have no sum in bfloat16."""
    layer = torch.nn.Linear(4, 4, bias=False).bfloat16()
    optimisation = AdamW(layer, betas=(0.9, 0.999), weight_decay=0.0)
    for gradient in (100.0, 0.25, -100.0):
        optimisation.backward(gradient * layer.weight.sum())
    assert optimisation.step(0.0, 1e9) == (pytest.approx(1.0), True)


@pytest.mark.parametrize("trainer", [{}, {"updates_per_rollout": 2, "epochs": 2}, {"max_tokens_per_batch": 16}])
def test_values_of_tokens_are_those_of_the_policy_and_change_no_bit(qwen2: Build, trainer: dict[str, Any]) -> None:
    groups = rollout()
    kl = {"kl": {"coefficient": 0.1}}
    models = [qwen2() for _ in range(3)]
    found = [
        update(model, groups, reference=qwen2(7), algorithm=kl, trainer={**trainer, "token_evidence": share})
        for model, share in zip(models, (1.0, 0.0, 0.5), strict=True)
    ]
    weights = [list(model.state_dict().values()) for model in models]
    for with_values, without in zip(weights[0], weights[1], strict=True):
        assert torch.equal(with_values, without)
    (recording, result), (_, none), (_, half) = found
    assert none.tokens is None
    tokens = result.tokens
    assert set(half.tokens.sequences) < set(tokens.sequences)
    assert [(g, s) for g, s, _, _ in tokens.sequences] == [(g, s) for g in range(3) for s in range(3)]
    assert sum(count for *_, count in tokens.sequences) == len(tokens.columns["logprob"])
    start, advantages = 0, centred(groups)
    for number, (one, (_, _, _, count)) in enumerate(zip(members(groups), tokens.sequences, strict=True)):
        part, start = slice(start, start + count), start + count
        of_all, at = written_logprobs(recording.models[0], one)
        rows = range(len(at))
        torch.testing.assert_close(tokens.columns["logprob"][part].double(), of_all[rows, at], rtol=1e-4, atol=1e-4)
        entropy = -(of_all.exp() * of_all).sum(-1)
        assert float(tokens.columns["advantage"][part][0]) == pytest.approx(advantages[number], rel=1e-3, abs=1e-3)
        if not trainer.get("epochs"):
            torch.testing.assert_close(tokens.columns["entropy"][part].double(), entropy, rtol=2e-3, atol=2e-3)
    assert ("log_ratio" in tokens.columns) == bool(trainer.get("epochs"))
    if "log_ratio" in tokens.columns:
        assert float(tokens.columns["log_ratio"].abs().max()) > 1e-3
    assert sum(column.element_size() for column in tokens.columns.values()) <= 12
