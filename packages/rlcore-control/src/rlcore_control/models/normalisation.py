"""Normalisation of states and actions, with statistics that are saved with the policy.

Axes: N examples, S values of the state, A values of an action; "..." any.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from rlcore.errors import DataError
from torch import Tensor, nn

from rlcore_control.models.spaces import Spaces

SMALLEST_SPREAD = 0.1
"""States and actions are divided by at least this, in the environment's units (10 cm, 0.1 rad). What demonstrations
hold constant varies by the noise of the simulator. Divided by that, any deviation from them would be a large input, and
an action could not differ from theirs."""
LARGEST = 10.0
"""Normalised states are cut here, so that one unseen value does not dominate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Statistics of demonstrations, in the environment's units, float32."""

    state_mean_S: Tensor
    state_std_S: Tensor
    action_low_A: Tensor
    """Smallest value of each dimension of an action."""
    action_high_A: Tensor
    """Largest value of each dimension of an action."""

    def state_scale(self) -> Tensor:
        """Return the numbers [S] by which states are divided."""
        return self.state_std_S.clamp(min=SMALLEST_SPREAD)

    def action_scale(self, low_A: Tensor, high_A: Tensor) -> tuple[Tensor, Tensor]:
        """Return the middle and half the width [A] of the range of actions, for an environment with these limits."""
        half_A = (self.action_high_A - self.action_low_A) / 2
        return (self.action_low_A + self.action_high_A) / 2, half_A.maximum(
            ((high_A - low_A) / 2).clamp(max=SMALLEST_SPREAD)
        )


def measure(episodes: Iterable[tuple[Tensor, Tensor]]) -> Statistics:
    """Compute statistics in one pass.

    Args:
        episodes: states [N, S] (S may be 0) and actions [N, A] of each demonstration

    Raises:
        DataError: there are no demonstrations, their sizes differ, or a value is not finite.
    """
    count = 0
    for number, (state_NS, action_NA) in enumerate(episodes):
        _check(number, state_NS, action_NA)
        state_NS, action_NA = state_NS.double(), action_NA.double()
        if count == 0:
            mean_S = torch.zeros(state_NS.shape[1], dtype=torch.float64)
            squares_S, sizes = torch.zeros_like(mean_S), (state_NS.shape[1], action_NA.shape[1])
            low_A, high_A = action_NA.amin(0), action_NA.amax(0)
        if (state_NS.shape[1], action_NA.shape[1]) != sizes:
            found = f"{state_NS.shape[1]} and {action_NA.shape[1]} in demonstration {number}"
            raise DataError(
                f"all demonstrations need {sizes[0]} values of the state and {sizes[1]} actions", found=found
            )
        # Chan, Golub and LeVeque 1979, equation 2.1: pairs of means are merged without losing precision.
        more = len(state_NS)
        difference_S = state_NS.mean(0) - mean_S
        squares_S += (state_NS - state_NS.mean(0)).square().sum(0) + difference_S.square() * count * more / (
            count + more
        )
        mean_S += difference_S * more / (count + more)
        count += more
        low_A, high_A = torch.minimum(low_A, action_NA.amin(0)), torch.maximum(high_A, action_NA.amax(0))
    if count == 0:
        raise DataError("statistics of normalisation need demonstrations", found="none")
    std_S = (squares_S / count).sqrt()
    return Statistics(
        state_mean_S=mean_S.float(), state_std_S=std_S.float(), action_low_A=low_A.float(), action_high_A=high_A.float()
    )


def _check(number: int, state_NS: Tensor, action_NA: Tensor) -> None:
    where = f"demonstration {number}"
    if state_NS.ndim != 2 or action_NA.ndim != 2 or len(state_NS) != len(action_NA) or len(action_NA) == 0:
        found = f"states {list(state_NS.shape)}, actions {list(action_NA.shape)}"
        raise DataError("a demonstration needs states [N, S] and actions [N, A]", found=found, where=where)
    for name, values in (("state", state_NS), ("action", action_NA)):
        if not torch.isfinite(values).all():
            raise DataError(f"the {name}s of a demonstration must be finite", found="NaN or infinity", where=where)


class Normalisation(nn.Module):
    """Maps states to mean 0 and standard deviation 1, and actions to and from the range -1 to 1.

    The statistics are buffers: they are saved, loaded and copied with the weights. Until `use` is called, states are
    unchanged and actions are scaled by the limits of the environment.
    """

    state_mean_S: Tensor
    state_std_S: Tensor
    action_low_A: Tensor
    action_high_A: Tensor
    low_A: Tensor
    high_A: Tensor

    def __init__(self, spaces: Spaces) -> None:
        super().__init__()
        low_A, high_A = torch.tensor(spaces.low_A), torch.tensor(spaces.high_A)
        self.register_buffer("state_mean_S", torch.zeros(spaces.state))
        self.register_buffer("state_std_S", torch.ones(spaces.state))
        self.register_buffer("action_low_A", low_A.clone())
        self.register_buffer("action_high_A", high_A.clone())
        self.register_buffer("low_A", low_A, persistent=False)
        self.register_buffer("high_A", high_A, persistent=False)

    def use(self, statistics: Statistics) -> None:
        """Take over statistics of demonstrations. What is nearly constant in them is not amplified.

        Raises:
            DataError: the sizes are not those of the policy.
        """
        found = (len(statistics.state_mean_S), len(statistics.action_low_A))
        if found != (len(self.state_mean_S), len(self.low_A)):
            raise DataError(
                "demonstrations must have the sizes of the policy",
                found=f"{found[0]} values of the state, {found[1]} of an action",
                where=f"a policy with {len(self.state_mean_S)} and {len(self.low_A)}",
                fix="record the demonstrations in the environment of the run",
            )
        self.state_mean_S.copy_(statistics.state_mean_S)
        self.state_std_S.copy_(statistics.state_scale())
        middle_A, half_A = statistics.action_scale(self.low_A.cpu(), self.high_A.cpu())
        self.action_low_A.copy_(middle_A - half_A)
        self.action_high_A.copy_(middle_A + half_A)

    def state(self, state_BS: Tensor) -> Tensor:
        """Return normalised states."""
        return ((state_BS - self.state_mean_S) / self.state_std_S).clamp(-LARGEST, LARGEST)

    def action(self, action_A: Tensor) -> Tensor:
        """Return normalised actions [..., A]."""
        return 2 * (action_A - self.action_low_A) / (self.action_high_A - self.action_low_A) - 1

    def action_in_units(self, normalised_A: Tensor) -> Tensor:
        """Return actions [..., A] in the environment's units, cut at its limits."""
        action_A = self.action_low_A + (normalised_A + 1) / 2 * (self.action_high_A - self.action_low_A)
        return torch.minimum(torch.maximum(action_A, self.low_A), self.high_A)
