"""The densities of the action heads, against closed forms, integrals and finite differences."""

from __future__ import annotations

import math
from typing import Literal

import pytest
import torch
from rlcore_control.models.config import FlowConfig, GaussianConfig, TokensConfig
from rlcore_control.models.heads.flow import FlowHead
from rlcore_control.models.heads.gaussian import GaussianHead
from rlcore_control.models.heads.head import Head
from rlcore_control.models.heads.tokens import TokensHead
from torch import Tensor

WIDTH, CHUNK, ACTIONS = 4, 2, 3


def flow(noise: Literal["sde", "learned"], steps: int = 5, seed: int = 0) -> FlowHead:
    torch.manual_seed(seed)
    return FlowHead(WIDTH, CHUNK, ACTIONS, FlowConfig(steps=steps, noise=noise))


def drawn(head: Head, batch: int, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    draw = {"normal": torch.randn, "uniform": torch.rand}
    return {name: draw[kind](batch, *shape, generator=generator) for name, (shape, kind) in head.noise_shapes().items()}


class GaussianData(FlowHead):
    """The exact velocity of a flow to actions with mean 0.4 and standard deviation 0.2."""

    mean, std = 0.4, 0.2

    def velocity_at(self, features_BD: Tensor, x_BN: Tensor, time_B: Tensor) -> Tensor:
        """E[x1 - x0 | x] of x = (1 - t) x0 + t x1, which is linear in x."""
        t = time_B[:, None]
        variance = (1 - t).square() + (t * self.std).square()
        return self.mean + (t * self.std**2 - (1 - t)) / variance * (x_BN - t * self.mean)


@pytest.mark.numeric
def test_the_density_of_a_clamped_gaussian_is_that_before_the_limits() -> None:
    head = GaussianHead(WIDTH, CHUNK, ACTIONS, GaussianConfig(initial_std=0.3))
    features_BD = torch.randn(5, WIDTH)
    choice, logprob_B = head.sample(features_BD, drawn(head, 5))
    normal = torch.distributions.Normal(head.mode(features_BD), 0.3)
    torch.testing.assert_close(logprob_B, normal.log_prob(choice["sample"]).sum((1, 2)))
    torch.testing.assert_close(head.log_prob(features_BD, choice)[1], normal.entropy().sum((1, 2)))


def test_the_density_of_squashed_actions_has_the_integral_one() -> None:
    head = GaussianHead(WIDTH, 1, 1, GaussianConfig(initial_std=0.8, bounds="tanh"))
    before = torch.linspace(-8, 8, 20_001, dtype=torch.float64)
    features_BD = torch.randn(1, WIDTH).expand(len(before), -1)
    logprob_B, _ = head.log_prob(features_BD, {"sample": before[:, None, None].float()})
    action_B = head.action({"sample": before[:, None, None]})[:, 0, 0]
    assert float(torch.trapezoid(logprob_B.double().exp(), action_B).detach()) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.numeric
def test_tokens_are_sampled_as_often_as_their_probability_says() -> None:
    head = TokensHead(WIDTH, 1, 1, TokensConfig(bins=5))
    torch.nn.init.normal_(head.logits.weight, std=1.0)
    features_BD = torch.randn(1, WIDTH).expand(20_000, -1)
    choice, logprob_B = head.sample(features_BD, drawn(head, 20_000))
    counts_K = torch.bincount(choice["tokens"].flatten(), minlength=5) / 20_000
    every = {"tokens": torch.arange(5)[:, None, None]}
    expected_K = head.log_prob(features_BD[:5], every)[0].exp()
    torch.testing.assert_close(expected_K.sum(), torch.tensor(1.0))
    torch.testing.assert_close(counts_K, expected_K.detach(), atol=0.015, rtol=0)
    torch.testing.assert_close(head.log_prob(features_BD, choice)[0], logprob_B)
    torch.testing.assert_close(head.action(every).flatten(), torch.tensor([-0.8, -0.4, 0.0, 0.4, 0.8]))


def test_noise_that_rounds_to_one_gives_the_last_token() -> None:
    head = TokensHead(WIDTH, CHUNK, ACTIONS, TokensConfig(bins=5))
    choice, _ = head.sample(torch.randn(2, WIDTH), {"action": torch.ones(2, CHUNK, ACTIONS)})
    assert bool((choice["tokens"] == 4).all())


@pytest.mark.numeric
@pytest.mark.parametrize("noise", ["sde", "learned"])
def test_the_chain_of_a_flow_has_the_density_of_its_noise(noise: Literal["sde", "learned"]) -> None:
    head = flow(noise)
    features_BD = torch.randn(4, WIDTH)
    given = drawn(head, 4)
    logprob_B = head.sample(features_BD, given)[1]
    # The chain is a map of the noise with a triangular Jacobian: each step multiplies its noise by its deviation.
    standard_B = torch.distributions.Normal(0.0, 1.0).log_prob(given["chain"]).flatten(1).sum(1)
    jacobian = torch.autograd.functional.jacobian(
        lambda one: head.sample(features_BD[:1], {"chain": one})[0]["chain"], given["chain"][:1]
    )
    size = given["chain"][0].numel()
    _, volume = torch.linalg.slogdet(jacobian.reshape(size, size))
    torch.testing.assert_close(logprob_B[0], standard_B[0] - volume, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("noise", ["sde", "learned"])
def test_gradients_of_a_flow_equal_finite_differences(noise: Literal["sde", "learned"]) -> None:
    head = flow(noise).double()
    features_BD = torch.randn(3, WIDTH, dtype=torch.float64)
    given = {name: value.double() for name, value in drawn(head, 3).items()}
    choice = {name: value.detach() for name, value in head.sample(features_BD, given)[0].items()}
    head.log_prob(features_BD, choice)[0].sum().backward()
    generator = torch.Generator().manual_seed(3)
    direction = {name: torch.randn(one.shape, generator=generator).double() for name, one in head.named_parameters()}
    expected = sum(
        float((one.grad * direction[name]).sum()) for name, one in head.named_parameters() if one.grad is not None
    )
    values = []
    with torch.no_grad():
        for step in (1e-6, -2e-6):
            for name, one in head.named_parameters():
                one += step * direction[name]
            values.append(float(head.log_prob(features_BD, choice)[0].sum()))
    assert (values[0] - values[1]) / 2e-6 == pytest.approx(expected, rel=1e-5)
    assert abs(expected) > 1.0


def test_the_noise_of_a_flow_keeps_the_distribution_of_actions() -> None:
    head = GaussianData(WIDTH, 1, 1, FlowConfig(steps=100, noise_level=1.0))
    features_BD = torch.zeros(20_000, WIDTH)
    choice, logprob_B = head.sample(features_BD, drawn(head, 20_000))
    actions_B = head.action(choice).flatten()
    assert float(actions_B.mean()) == pytest.approx(0.4, abs=0.02)
    assert float(actions_B.std()) == pytest.approx(0.2, abs=0.02)
    # Without the correction of the drift, the noise of the steps would add to the spread of the actions.
    _, entropy_B = head.log_prob(features_BD, choice)
    steps_B = logprob_B - torch.distributions.Normal(0.0, 1.0).log_prob(choice["chain"][:, 0, 0, 0])
    assert float(-steps_B.mean()) == pytest.approx(float(entropy_B.mean()), rel=0.01)
    halfway_B = choice["chain"][:, 50].flatten()
    assert float(halfway_B.std()) == pytest.approx(math.hypot(0.5, 0.1), abs=0.02)


def test_a_flow_learns_both_of_two_ways() -> None:
    torch.manual_seed(0)
    head = FlowHead(32, 1, 1, FlowConfig(steps=8, noise_level=0.3))
    optimiser = torch.optim.Adam(head.parameters(), lr=1e-2)
    features_BD = torch.zeros(256, 32)
    action_BHA = torch.tensor([-0.7, 0.7]).repeat(128)[:, None, None]
    generator = torch.Generator().manual_seed(1)
    for _ in range(300):
        noise = {"start": torch.randn(256, 1, 1, generator=generator), "time": torch.rand(256, 1, generator=generator)}
        optimiser.zero_grad()
        head.cloning_loss(features_BD, action_BHA, noise).mean().backward()
        optimiser.step()
    actions_B = head.action(head.sample(features_BD, drawn(head, 256))[0]).flatten()
    assert float(((actions_B.abs() - 0.7).abs() < 0.25).float().mean()) > 0.7
    assert 0.3 < float((actions_B > 0).float().mean()) < 0.7
