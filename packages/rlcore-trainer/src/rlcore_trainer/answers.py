"""What an advantage and a loss must answer; every other answer is a mistake that is told in a sentence.

Axes: ``N`` the trajectories, ``T`` their written tokens, padded on the right.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

import torch
from rlcore.calls import place_of
from rlcore.errors import RlcoreError, UserError
from torch import Tensor

RESULTS = {
    "advantage": "return advantages_N, {} with a number for each trajectory, or advantages_NT with one for each token",
    "loss": "return (weights_M * something_M).sum(), {}",
}
"""What mends a wrong answer."""


def ask(
    kind: str, function: Callable[..., Any], arguments: Mapping[str, Any], data: Mapping[str, Any]
) -> tuple[Tensor, dict[str, Any]]:
    """The answer of an advantage or a loss (``kind``), checked.

    Args:
        kind: ``advantage`` or ``loss``
        function: called with ``arguments`` by name
        arguments: what it takes
        data: what it might have taken: with ``mask_NT`` for an advantage, with ``logprobs_M`` for a loss

    Returns:
        Advantages, detached, and their metrics as numbers; or the loss and its metrics as 0-d tensors, detached.

    Raises:
        UserError: it raised anything but an error of this project, or its answer is none that can be trained on.
    """
    name = getattr(function, "__name__", type(function).__name__)
    try:
        answer = function(**arguments)
    except (RlcoreError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        mend = _of_critic(arguments, data) or f"correct the function, or choose another algorithm.{kind}"
        raise UserError(f"the {kind} {name} raised {text}", where=_raised_at(error, function), mend=mend) from error

    def wrong(wanted: str, found: str, mend: str = RESULTS[kind]) -> UserError:
        return UserError(f"the {kind} {name} must return {wanted}", found=found, where=place_of(function), mend=mend)

    if not isinstance(answer, tuple) or len(answer) != 2:
        raise wrong("two things: a tensor and a dictionary of metrics", _shown(answer))
    result, metrics = answer
    if not isinstance(result, Tensor) or not result.is_floating_point():
        raise wrong("a tensor of floating-point numbers first", _shown(result))
    if not isinstance(metrics, Mapping):
        raise wrong("a dictionary of metrics second", _shown(metrics))
    for key, value in metrics.items():
        if not isinstance(key, str) or not (isinstance(value, Real) or (isinstance(value, Tensor) and not value.ndim)):
            raise wrong("one number for each metric", f"{key}: {_shown(value)}", "reduce it: float(values.mean())")
    if kind == "loss":
        if result.ndim:
            raise wrong("the sum over its tokens, a tensor without axes", _shown(result))
        if torch.is_grad_enabled() and data["logprobs_M"].requires_grad and not result.requires_grad:
            mend = "compute it from logprobs_M, without detach(), item() or no_grad()"
            raise wrong("a loss through which a gradient reaches logprobs_M", "a tensor without gradient", mend)
        return result, {
            key: torch.as_tensor(value, dtype=result.dtype, device=result.device).detach()
            for key, value in metrics.items()
        }
    mask_NT = data["mask_NT"]
    shapes = (mask_NT.shape[:1], mask_NT.shape)
    if result.shape not in shapes:
        raise wrong(f"a tensor {list(shapes[0])} or {list(shapes[1])} for this rollout", _shown(result))
    of_tokens_NT = result if result.ndim == 2 else result[:, None].expand(mask_NT.shape)
    written = of_tokens_NT[mask_NT.to(result.device)]
    if not written.isfinite().all():
        found = f"nan or infinite for {int((~written.isfinite()).sum())} of {written.numel()} written tokens"
        mend = _of_critic(arguments, data) or "look for a division by zero, or the logarithm of zero"
        raise wrong("finite advantages", found, mend)
    return result.detach(), {key: float(value) for key, value in metrics.items()}


def _of_critic(arguments: Mapping[str, Any], data: Mapping[str, Any]) -> str | None:
    """What mends an advantage that cannot be right, as it was given values that are not finite."""
    if "values_NT" not in arguments or bool(arguments["values_NT"][data["mask_NT"]].isfinite().all()):
        return None
    return "the critic's values are not finite: lower critic.learning_rate, or start from another critic.model"


def _raised_at(error: Exception, function: Callable[..., Any]) -> str | None:
    """The line of the function's own file where an exception came from."""
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
