"""Call an advantage estimator or a policy loss and check its output; an invalid output raises `UserError`.

Axes: ``N`` the trajectories, ``T`` their written tokens, padded on the right.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, TypeVar

import torch
from rlcore.episodes.calls import place_of
from rlcore.errors import RlcoreError, UserError
from torch import Tensor

from rlcore_trainer.algorithms.interface import (
    Advantage,
    AdvantageInputs,
    AdvantageOutput,
    Loss,
    LossInputs,
    LossOutput,
)

Output = TypeVar("Output")
FIXES = {
    "advantage": "return AdvantageOutput(advantages=…) with a number for each trajectory [N] or for each token [N, T]",
    "loss": "return LossOutput(loss=(weights_M * something_M).sum())",
}
"""Suggested fix for an invalid output, by kind."""


def advantages_of(advantage: Advantage, inputs: AdvantageInputs) -> AdvantageOutput:
    """Compute the advantages of a rollout and check them.

    Returns:
        Detached tensors, and metrics as numbers.

    Raises:
        UserError: the estimator raised an exception that is not an `RlcoreError`, or its output is invalid.
    """
    what = _What("advantage", advantage, _critic_fix(inputs))
    output = what.output(inputs, AdvantageOutput)
    mask_NT, advantages = inputs.mask_NT, what.numbers(output.advantages, "advantages")
    shapes = (mask_NT.shape[:1], mask_NT.shape)
    if advantages.shape not in shapes:
        raise what.wrong(f"advantages {list(shapes[0])} or {list(shapes[1])} for this rollout", _shown(advantages))
    what.finite(advantages if advantages.ndim == 2 else advantages[:, None].expand(mask_NT.shape), mask_NT)
    returns_NT = output.returns_NT
    if returns_NT is not None:
        if what.numbers(returns_NT, "returns_NT").shape != mask_NT.shape:
            raise what.wrong(f"returns_NT {list(mask_NT.shape)} for this rollout", _shown(returns_NT))
        what.finite(returns_NT, mask_NT, "returns")
        returns_NT = returns_NT.detach()
    metrics = {key: float(value) for key, value in what.metrics(output.metrics).items()}
    return AdvantageOutput(advantages=advantages.detach(), returns_NT=returns_NT, metrics=metrics)


def loss_of(loss: Loss, inputs: LossInputs) -> tuple[Tensor, dict[str, Tensor]]:
    """Compute the loss of a micro-batch and check it.

    Returns:
        The loss, and its metrics as detached scalar tensors.

    Raises:
        UserError: the loss raised an exception that is not an `RlcoreError`, or its output is invalid.
    """
    what = _What("loss", loss)
    output = what.output(inputs, LossOutput)
    found = what.numbers(output.loss, "a loss")
    if found.ndim:
        raise what.wrong("a loss that is the sum over its tokens, without axes", _shown(found))
    if torch.is_grad_enabled() and inputs.logprobs_M.requires_grad and not found.requires_grad:
        fix = "compute it from logprobs_M, without detach(), item() or no_grad()"
        raise what.wrong("a loss through which a gradient reaches logprobs_M", "a tensor without gradient", fix)
    metrics = what.metrics(output.metrics)
    return found, {
        key: torch.as_tensor(value, dtype=found.dtype, device=found.device).detach() for key, value in metrics.items()
    }


class _What:
    """A called algorithm and its name in error messages."""

    def __init__(self, kind: str, function: Callable[..., Any], fix: str | None = None) -> None:
        self.kind, self.function, self.fix = kind, function, fix
        self.own: Any = getattr(function, "__wrapped__", function)
        self.name = getattr(self.own, "__name__", type(self.own).__name__)

    def output(self, inputs: object, wanted: type[Output]) -> Output:
        """Call the function and return its output, checked for its type."""
        try:
            output = self.function(inputs)
        except (RlcoreError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            fix = self.fix or f"correct it, or choose another algorithm.{self.kind}"
            where = _raised_at(error, self.own)
            raise UserError(f"the {self.kind} {self.name} raised {text}", where=where, fix=fix) from error
        if not isinstance(output, wanted):
            raise self.wrong(wanted.__name__, _shown(output))
        return output

    def numbers(self, value: object, name: str) -> Tensor:
        """Return ``value`` if it is a floating-point tensor."""
        if not isinstance(value, Tensor) or not value.is_floating_point():
            raise self.wrong(f"{name} as a tensor of floating-point numbers", _shown(value))
        return value

    def finite(self, values_NT: Tensor, mask_NT: Tensor, name: str = "advantages") -> None:
        """Check that values on written tokens are finite. Values on padding are ignored."""
        written = values_NT[mask_NT.to(values_NT.device)]
        if not written.isfinite().all():
            found = f"nan or infinite for {int((~written.isfinite()).sum())} of {written.numel()} written tokens"
            fix = self.fix or "look for a division by zero, or the logarithm of zero"
            raise self.wrong(f"finite {name}", found, fix)

    def metrics(self, metrics: object) -> Mapping[str, Any]:
        """Return ``metrics`` if it maps names to scalars."""
        if not isinstance(metrics, Mapping):
            raise self.wrong("a dictionary of metrics", _shown(metrics))
        for key, value in metrics.items():
            number = isinstance(value, Real) or (isinstance(value, Tensor) and not value.ndim)
            if not isinstance(key, str) or not number:
                found = f"{key}: {_shown(value)}"
                raise self.wrong("one number for each metric", found, "reduce it: float(values.mean())")
        return metrics

    def wrong(self, wanted: str, found: str, fix: str | None = None) -> UserError:
        return UserError(
            f"the {self.kind} {self.name} must return {wanted}",
            found=found,
            where=place_of(self.own),
            fix=fix or FIXES[self.kind],
        )


def _critic_fix(inputs: AdvantageInputs) -> str | None:
    """Return a suggested fix if the critic's values are not finite, so the advantages cannot be valid."""
    if inputs.values_NT is None or bool(inputs.values_NT[inputs.mask_NT].isfinite().all()):
        return None
    return "the critic's values are not finite: lower critic.learning_rate, or start from another critic.model"


def _raised_at(error: Exception, function: object) -> str | None:
    """Return the file and line in the function's file where the exception was raised."""
    place = place_of(function)
    file = place.rpartition(":")[0] if place else None
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{file}:{lines[-1]}" if lines else place


def _shown(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)} of {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, tuple | list | dict):
        return f"a {type(value).__name__} of {len(value)}"
    return "None" if value is None else f"{value!r:.40} ({type(value).__name__})"
