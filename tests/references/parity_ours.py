"""Our side of the parity table: the results of ``rlcore_trainer`` and their differences from the peer.

Peers take padded ``[B, T]`` tensors, and so do our advantages. Our losses take only the trained tokens, flat (``_M``),
with the weights of `token_weights`, so each line also tests that mapping.
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from parity_cases import of_case
from parity_lines import Line
from rlcore_trainer.algorithms.advantages.scan import lambda_returns
from rlcore_trainer.algorithms.losses.aggregation import token_weights
from rlcore_trainer.algorithms.losses.divergence import kl as kl_divergence
from rlcore_trainer.algorithms.losses.divergence import next_coefficient
from rlcore_trainer.algorithms.losses.off_policy_mask import off_policy_mask
from rlcore_trainer.algorithms.losses.rollout_importance_sampling import rollout_importance_sampling
from rlcore_trainer.algorithms.losses.values import value_loss
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

GOLDEN = Path(__file__).parent / "golden"
INPUTS = GOLDEN / "inputs.safetensors"
DIVERGENCES = GOLDEN / "divergences.json"


class Difference(NamedTuple):
    """Largest absolute differences of a line. ``gradient`` is None for a function without gradient."""

    value: float
    gradient: float | None

    @property
    def largest(self) -> float:
        """The larger of both."""
        return max(self.value, self.gradient or 0.0)


def _algorithm(part: str, name: str) -> Callable[..., Any]:
    """The pure function of an algorithm's own file."""
    function: Callable[..., Any] = getattr(importlib.import_module(f"rlcore_trainer.algorithms.{part}.{name}"), name)
    return function


def _advantage(line: Line, case: Mapping[str, Tensor]) -> dict[str, Tensor]:
    settings, mask_NT = dict(line.ours), case["mask"]
    data = {
        "rewards_N": case["rewards"],
        "groups_N": case[settings.pop("groups", "equal-groups")],
        "lengths_N": case["mask"].sum(dim=1),
        "baselines_N": case["baselines"],
        "rewards_NT": case["token-rewards"],
        "mask_NT": case["mask"],
        "values_NT": case["values"],
        "reward_values_NR": case["several-rewards"],
        "reward_weights_NR": torch.tensor(settings.pop("weights", (1.0, 1.0)), dtype=torch.float64).expand(
            len(mask_NT), 2
        ),
        "gradient_norms_NT": 1 - 2 * case["old-logprobs"].exp() + case["square-sums"],
    }
    function = _algorithm("advantages", line.function)
    wanted = inspect.signature(function).parameters
    found, _ = function(**{name: data[name] for name in data if name in wanted}, **settings)
    outputs = {"value": (found if found.dim() == 2 else found[:, None]) * case["mask"]}
    if line.function == "gae":
        returns_NT = lambda_returns(case["token-rewards"], case["values"], case["mask"], **settings)
        outputs["returns"] = returns_NT * case["mask"]
    return outputs


def _weights(case: Mapping[str, Tensor], aggregation: str, *, count_empty: bool = False) -> Tensor:
    """The weight of each token ``[B, T]``. The fixed length of the peers is that of the padded tensor."""
    mask_BT = case["mask"]
    weights_B = token_weights(
        mask_BT.sum(dim=1).tolist(), aggregation, max_response_tokens=mask_BT.shape[1], count_empty=count_empty
    )
    return torch.tensor(weights_B, dtype=torch.float64)[:, None] * mask_BT


def _loss(line: Line, case: Mapping[str, Tensor]) -> dict[str, Tensor]:
    settings = dict(line.ours)
    weights_BT = _weights(case, settings.pop("aggregation"), count_empty=settings.pop("count_empty", False))
    advantages_BT, mask_BT = case[settings.pop("advantages")], case["mask"]
    if advantages_BT.dim() == 1:
        advantages_BT = advantages_BT[:, None].expand(mask_BT.shape)
    kl, correction = settings.pop("kl", None), settings.pop("correction", None)
    threshold = settings.pop("off_policy_threshold", None)
    logprobs_BT = case["logprobs"].clone().requires_grad_()
    function = _algorithm("losses", line.function)
    wanted = inspect.signature(function).parameters
    total = torch.zeros((), dtype=torch.float64)
    torch.manual_seed(0)  # clip-cov selects tokens at random
    for rows in torch.arange(len(mask_BT)).chunk(settings.pop("micro_batches", 1)):
        trained = mask_BT[rows]
        logprobs_M, weights_M = logprobs_BT[rows][trained], weights_BT[rows][trained]
        old_logprobs_M = case["old-logprobs"][rows][trained]
        sequence_M = torch.arange(len(rows))[:, None].expand(trained.shape)[trained]
        if correction is not None:
            mode, level, low, high = correction
            engine_M = case["engine-logprobs"][rows][trained]
            bounds = {"low": 0.0 if low is None else low, "high": high}
            factors_M, _ = rollout_importance_sampling(
                old_logprobs_M, engine_M, sequence_M, mode=mode, level=level, **bounds
            )
        else:
            factors_M = torch.ones_like(weights_M)
        advantages_M = advantages_BT[rows][trained]
        given_M = weights_M if "factors_M" in wanted else weights_M * factors_M
        if threshold is not None:
            engine_M = case["engine-logprobs"][rows][trained]
            given_M = given_M * off_policy_mask(logprobs_M, engine_M, advantages_M, sequence_M, threshold=threshold)
        known = {"sequence_M": sequence_M, "factors_M": factors_M}
        data = {name: known[name] for name in known if name in wanted}
        loss, _ = function(logprobs_M, old_logprobs_M, advantages_M, given_M, **data, **settings)
        total = total + loss
        if kl is not None:
            coefficient, weighted, clamp = kl
            reference_M = case["reference-logprobs"][rows][trained]
            old_M = old_logprobs_M if weighted else None
            kl_M = kl_divergence(logprobs_M, reference_M, "k3", clamp=clamp, old_logprobs_M=old_M)
            total = total + coefficient * (weights_M * kl_M).sum()
    total.backward()
    return {"value": total.detach(), "gradient": _gradient(logprobs_BT)}


def _kl(line: Line, case: Mapping[str, Tensor]) -> dict[str, Tensor]:
    mask_BT, logprobs_BT = case["mask"], case["logprobs"].clone().requires_grad_()
    kl_M = kl_divergence(logprobs_BT[mask_BT], case["reference-logprobs"][mask_BT], line.function, **line.ours)
    kl_M.sum().backward()
    return {"value": _padded(kl_M.detach(), mask_BT), "gradient": _gradient(logprobs_BT)}


def _correction(line: Line, case: Mapping[str, Tensor]) -> dict[str, Tensor]:
    mask_BT = case["mask"]
    sequence_M = torch.arange(len(mask_BT))[:, None].expand(mask_BT.shape)[mask_BT]
    factors_M, _ = rollout_importance_sampling(
        case["old-logprobs"][mask_BT], case["engine-logprobs"][mask_BT], sequence_M, mode=line.function, **line.ours
    )
    return {"value": _padded(factors_M, mask_BT)}


def _value_loss(line: Line, case: Mapping[str, Tensor]) -> dict[str, Tensor]:
    mask_BT, values_BT = case["mask"], case["new-values"].clone().requires_grad_()
    weights_M = _weights(case, line.ours["aggregation"])[mask_BT]
    loss, _ = value_loss(
        values_BT[mask_BT], case["values"][mask_BT], case["returns"][mask_BT], weights_M, clip=line.ours["clip"]
    )
    loss.backward()
    return {"value": loss.detach(), "gradient": _gradient(values_BT)}


def _controller(line: Line, case: Mapping[str, Tensor]) -> dict[str, Tensor]:
    settings = dict(line.ours)
    coefficient, measured, values = settings.pop("coefficient"), settings.pop("measured"), []
    for divergence in measured:
        coefficient = next_coefficient(coefficient, divergence, **settings)
        values.append(coefficient)
    return {"value": torch.tensor(values, dtype=torch.float64)}


def _gradient(leaf: Tensor) -> Tensor:
    assert leaf.grad is not None
    return leaf.grad


def _padded(values_M: Tensor, mask_BT: Tensor) -> Tensor:
    return torch.zeros(mask_BT.shape, dtype=values_M.dtype).masked_scatter(mask_BT, values_M)


KINDS = {
    "advantage": _advantage,
    "loss": _loss,
    "kl": _kl,
    "correction": _correction,
    "value-loss": _value_loss,
    "controller": _controller,
}


def difference(line: Line, inputs: dict[str, Tensor], peer_outputs: dict[str, Tensor]) -> Difference:
    """The difference between our result and the result of the peer.

    Args:
        line: a line of the table
        inputs: tensors of all cases
        peer_outputs: output of the peer's script
    """
    ours = KINDS[line.kind](line, of_case(inputs, line.case))
    theirs = {key: peer_outputs[f"{line.name}/{key}"] for key in ours}
    for key, tensor in ours.items():
        assert tensor.shape == theirs[key].shape, (
            f"{line.name}: {key} is {tensor.shape}, the peer's {theirs[key].shape}"
        )
        assert tensor.isfinite().all(), f"{line.name}: {key} is not finite"
    differences = {key: float((ours[key] - theirs[key]).abs().max()) for key in ours}
    gradient = differences.pop("gradient", None)
    return Difference(max(differences.values()), gradient)


def golden_outputs(peer: str) -> dict[str, Tensor]:
    """The stored outputs of one peer."""
    return load_file(GOLDEN / f"{peer}.safetensors")


def versions(peer: str, folder: Path = GOLDEN) -> dict[str, str]:
    """Versions of the distributions that wrote the outputs of the peer."""
    with safe_open(folder / f"{peer}.safetensors", framework="pt") as file:
        return dict(sorted((file.metadata() or {}).items()))


def golden_divergences() -> dict[str, Difference]:
    """The recorded differences of the lines that must differ."""
    stored = json.loads(DIVERGENCES.read_text(encoding="utf-8"))
    return {name: Difference(**entry) for name, entry in stored.items()}
