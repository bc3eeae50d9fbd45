"""Equations of flow matching. Time t is from 0 (noise) to 1 (actions); tensors have any shapes that broadcast."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def sde_step(x: Tensor, velocity: Tensor, time: Tensor, *, steps: int, noise_level: float) -> tuple[Tensor, Tensor]:
    """Return the mean of the next point, and the logarithm of its standard deviation in the shape of ``time``.

    A step of length ``h`` from the point ``x`` with velocity ``v`` is

        x + (v + s^2 / 2 * (t v - x) / (1 - t)) h + s sqrt(h) noise,  s = noise_level * sqrt(1 - t),

    the equation with the marginals of the flow (Song et al., arXiv:2011.13456, equation 13; Flow-GRPO,
    arXiv:2505.05470; pi_RL, arXiv:2510.25889), because ``(t v - x) / (1 - t)`` is the score. The marginals are also
    those of the flow if only some of the coordinates have noise.

    Args:
        x: the point
        velocity: the velocity of the flow there
        time: t, below 1
        steps: the number of steps from 0 to 1
        noise_level: the scale of the noise
    """
    # The square of s and the denominator of the score cancel.
    drift = velocity + noise_level**2 / 2 * (time * velocity - x)
    log_std = math.log(noise_level) + 0.5 * torch.log((1 - time) / steps)
    return x + drift / steps, log_std


def straight_path(noise: Tensor, target: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
    """Return the point at a time on the straight line from noise to a target, and its velocity.

    See Lipman et al., arXiv:2210.02747, equation 23.
    """
    return (1 - time) * noise + time * target, target - noise
