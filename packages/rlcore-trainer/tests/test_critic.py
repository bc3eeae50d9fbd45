from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rlcore.errors import UserError
from rlcore_trainer.batching.packing import Minibatch, TrainingSequence, divide
from rlcore_trainer.config import PolicyGradientConfig
from rlcore_trainer.distributed.strategies.single import SingleProcess, SingleProcessConfig
from rlcore_trainer.learner.critic import HEAD_FILE, Critic, explained_variance
from rlcore_trainer.learner.critic_config import CriticConfig
from rlcore_trainer.policy.causal_lm import CausalLanguageModel
from safetensors.torch import save_file
from token_trajectories import sequence
from transformers import AutoModelForCausalLM

pytestmark = pytest.mark.numeric

Build = Callable[..., Any]
ROWS = [
    sequence(token_ids=[3, 4, 5, 6, 7], loss_mask=[False, False, True, False, True], prompt_length=2),
    sequence(token_ids=[3, 4, 8, 9], loss_mask=[False, False, True, True], prompt_length=2),
    sequence(token_ids=[10, 11, 12], loss_mask=[False, True, True], prompt_length=1),
]

(SHARE,) = divide(ROWS, 4096)


def critic(policy: Any, **options: Any) -> Critic:
    strategy = SingleProcess(SingleProcessConfig())
    config = CriticConfig(**{"clip": None, **options})
    return Critic(config, CausalLanguageModel(policy), strategy, PolicyGradientConfig())


def learn(made: Critic, old: Any, returns: Any, *, learning_rate: float) -> dict[str, float]:
    tokens = sum(row.trained for row in ROWS)
    return made.learn(Minibatch(share=SHARE, values=old, returns=returns), tokens=tokens, learning_rate=learning_rate)


def hidden_before_tokens(trunk: Any, row: TrainingSequence) -> torch.Tensor:
    hidden = trunk(input_ids=torch.tensor([row.token_ids.tolist()])).last_hidden_state[0]
    return hidden[[t - 1 for t, written in enumerate(row.loss_mask) if written]]


@pytest.mark.parametrize("kind", ["copy", "head"])
def test_token_value_is_that_of_the_previous_state(qwen2: Build, kind: str) -> None:
    policy = qwen2()
    made = critic(policy, model=kind)
    assert all(not values.any() for values in made.values(SHARE).values())
    torch.nn.init.normal_(made._head.weight)
    values = made.values(SHARE)
    for place, row in enumerate(ROWS):
        expected = hidden_before_tokens(policy.base_model, row) @ made._head.weight[0]
        torch.testing.assert_close(values[place], expected, rtol=1e-4, atol=1e-5)


def test_siblings_with_a_shared_prompt_have_the_same_first_value(qwen2: Build) -> None:
    made = critic(qwen2(), model="copy")
    torch.nn.init.normal_(made._head.weight)
    values = made.values(SHARE)
    torch.testing.assert_close(values[0][0], values[1][0])
    assert float((values[0][1] - values[1][1]).abs().detach()) > 1e-4


def test_critic_copy_learns_without_changing_the_policy(qwen2: Build) -> None:
    policy = qwen2()
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    made = critic(policy, model="copy", learning_rate=0.01)
    returns = {place: torch.arange(float(row.trained)) for place, row in enumerate(ROWS)}
    numbers = [learn(made, made.values(SHARE), returns, learning_rate=0.0) for _ in range(20)]
    flat = torch.cat([returns[i] for i in range(3)])
    assert numbers[0]["critic/loss"] == pytest.approx(float(0.5 * flat.square().mean()))  # all values are 0
    assert numbers[-1]["critic/loss"] < 0.1 * numbers[0]["critic/loss"]
    assert all(torch.equal(value, before[name]) for name, value in policy.state_dict().items())
    assert all(parameter.grad is None for parameter in policy.parameters())


def test_value_loss_gradient_equals_a_slow_loop(qwen2: Build) -> None:
    policy = qwen2().double()
    made = critic(policy, model="copy", clip=0.1)
    torch.nn.init.normal_(made._head.weight)
    old = {i: values + 0.2 * (-1) ** i for i, values in made.values(SHARE).items()}
    returns = {i: torch.linspace(-1, 1, row.trained, dtype=torch.float64) for i, row in enumerate(ROWS)}
    expected_loss = torch.zeros((), dtype=torch.float64)
    for place, row in enumerate(ROWS):
        values = hidden_before_tokens(made._trunk.module, row) @ made._head.weight[0] + made._head.bias
        near = torch.minimum(torch.maximum(values, old[place] - 0.1), old[place] + 0.1)
        worse = torch.maximum((values - returns[place]) ** 2, (near - returns[place]) ** 2)
        expected_loss = expected_loss + 0.5 * worse.sum() / 6
    expected = torch.autograd.grad(expected_loss, list(made._module.parameters()))
    seen: list[torch.Tensor] = []
    made._optimisation.step = lambda *_: (  # type: ignore[method-assign]
        seen.extend(p.grad.clone() for p in made._module.parameters() if p.grad is not None) or (0.0, True)
    )
    assert learn(made, old, returns, learning_rate=0.0)["critic/loss"] == pytest.approx(expected_loss.item())
    for one, other in zip(seen, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_values_beyond_the_clip_have_no_gradient(qwen2: Build) -> None:
    made = critic(qwen2(), model="head", clip=0.5)
    values_M = torch.tensor([1.0, 1.0, 0.2], requires_grad=True)
    loss, metrics = made.loss(values_M, torch.zeros(3), torch.tensor([2.0, -2.0, 2.0]), torch.full((3,), 1 / 3))
    loss.backward()
    # Past the clip towards the target: nothing more. Past it away from the target, or within: the plain gradient.
    torch.testing.assert_close(values_M.grad, torch.tensor([0.0, 3.0, -1.8]) / 3)
    assert float(metrics["critic/clip_fraction"]) == pytest.approx(1 / 3)


def test_folder_provides_trunk_and_head(qwen2: Build, model_folder: Path) -> None:
    policy = qwen2(seed=7)
    made = critic(policy, model=str(model_folder))
    assert not made.values(SHARE)[0].any()
    weight, bias = torch.randn(1, 32), torch.tensor([0.5])
    save_file({"weight": weight, "bias": bias}, model_folder / HEAD_FILE)
    made = critic(policy, model=str(model_folder))
    trunk = AutoModelForCausalLM.from_pretrained(model_folder).base_model
    expected = hidden_before_tokens(trunk, ROWS[0]) @ weight[0] + bias
    torch.testing.assert_close(made.values(SHARE)[0], expected, rtol=1e-4, atol=1e-5)


def test_head_of_another_width_is_rejected(qwen2: Build, model_folder: Path) -> None:
    save_file({"weight": torch.zeros(1, 8), "bias": torch.zeros(1)}, model_folder / HEAD_FILE)
    with pytest.raises(UserError, match=r"weight \[1, 32\]") as caught:
        critic(qwen2(), model=str(model_folder))
    assert caught.value.where == str(model_folder / HEAD_FILE)


def test_non_finite_head_is_rejected(qwen2: Build, model_folder: Path) -> None:
    save_file({"weight": torch.full((1, 32), torch.nan), "bias": torch.zeros(1)}, model_folder / HEAD_FILE)
    with pytest.raises(UserError, match="not finite"):
        critic(qwen2(), model=str(model_folder))


def test_model_with_a_smaller_vocabulary_is_rejected(qwen2: Build, model_folder: Path) -> None:
    policy = qwen2()
    policy.resize_token_embeddings(40)
    with pytest.raises(UserError, match="all 40") as caught:
        critic(policy, model=str(model_folder))
    assert caught.value.found is not None
    assert caught.value.found.startswith("32 ")
    assert "critic.model=FOLDER" in (caught.value.fix or "")


def test_critic_copy_is_reset_to_the_current_policy(qwen2: Build) -> None:
    policy = qwen2()
    made, head = critic(policy, model="copy"), critic(policy, model="head")
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(1.0)
    for one in (made, head):
        one.follow()
    followed = made._trunk.module.state_dict()
    assert all(torch.equal(value, followed[name]) for name, value in policy.base_model.state_dict().items())


@pytest.mark.parametrize(("saved", "asked"), [("copy", "head"), ("head", "copy")])
def test_state_of_another_kind_of_critic_is_rejected(qwen2: Build, saved: str, asked: str) -> None:
    policy = qwen2()
    state, other = critic(policy, model=saved).state(), critic(policy, model=asked)
    before = copy.deepcopy(other.state()["weights"])
    with pytest.raises(UserError, match=rf"critic\.model={asked}") as caught:
        other.restore(state)
    assert (caught.value.fix == "critic.model=head") == (saved == "head")
    assert all(torch.equal(value, before[name]) for name, value in other.state()["weights"].items())


def test_state_of_a_critic_with_other_layers_is_rejected(qwen2: Build) -> None:
    state = critic(qwen2(), model="copy").state()
    with pytest.raises(UserError) as caught:
        critic(qwen2(num_hidden_layers=1), model="copy").restore(state)
    assert caught.value.found == "a model with other layers"


def test_non_finite_gradient_leaves_the_critic_unchanged(qwen2: Build) -> None:
    made = critic(qwen2(), model="copy", learning_rate=0.01)
    before = copy.deepcopy(made.state()["weights"])
    returns = {place: torch.full((row.trained,), torch.nan) for place, row in enumerate(ROWS)}
    assert math.isnan(learn(made, made.values(SHARE), returns, learning_rate=0.01)["critic/gradient_norm"])
    assert all(torch.equal(value, before[name]) for name, value in made.state()["weights"].items())


@pytest.mark.parametrize("kind", ["copy", "head"])
def test_restored_critic_continues_identically(qwen2: Build, kind: str) -> None:
    policy = qwen2()
    one, other = critic(policy, model=kind, learning_rate=0.01), critic(policy, model=kind, learning_rate=0.01)
    returns = {place: torch.arange(float(row.trained)) for place, row in enumerate(ROWS)}

    def step(made: Critic) -> dict[str, float]:
        return learn(made, made.values(SHARE), returns, learning_rate=0.01)

    step(one)
    other.restore(copy.deepcopy(one.state()))
    assert step(one) == step(other)
    for name, value in one.state()["weights"].items():
        assert torch.equal(value, other.state()["weights"][name])


def test_half_precision_policy_has_a_float32_head(qwen2: Build) -> None:
    made = critic(qwen2().bfloat16(), model="head")
    assert made._head.weight.dtype == torch.float32
    assert made.values(SHARE)[0].dtype == torch.float32


def test_explained_variance_is_one_minus_the_residual_share() -> None:
    returns = torch.tensor([0.0, 1.0, 2.0, 3.0])
    assert explained_variance(returns.clone(), returns) == pytest.approx(1.0)
    assert explained_variance(returns + 5, returns) == pytest.approx(1.0)
    assert explained_variance(torch.zeros(4), returns) == pytest.approx(0.0)
    assert explained_variance(-returns, returns) == pytest.approx(-3.0)
    assert explained_variance(torch.zeros(3), torch.ones(3)) is None
    assert explained_variance(torch.zeros(0), torch.zeros(0)) is None
