"""AdamW with float32 copies of weights in half precision."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import torch
from rlcore.errors import UserError
from rlcore.models.freed_memory import return_freed_memory
from rlcore_models.sharded import put, whole
from torch import Tensor, nn

MOMENTS = ("exp_avg", "exp_avg_sq")
"""The names of the moments in the state of `torch.optim.AdamW`."""


class AdamW:
    """A `rlcore_trainer.distributed.strategy.Optimisation` of whole parameters in one process, or of divided ones.

    Half-precision weights get a float32 copy for the optimiser, because small updates would otherwise be lost to
    rounding. It has their gradient, too: the gradients of the micro-batches of an update almost cancel, and their sum
    in half precision would lose digits. Summed in bfloat16, 48 of them differed by 0.7 % from the sum in float32.
    """

    def __init__(self, model: nn.Module, *, betas: tuple[float, float], weight_decay: float) -> None:
        self._live = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._masters = [p if p.dtype in (torch.float32, torch.float64) else p.detach().float() for p in self._live]
        groups = [
            {"params": [p for p in self._masters if p.ndim >= 2], "weight_decay": weight_decay},
            {"params": [p for p in self._masters if p.ndim < 2], "weight_decay": 0.0},
        ]
        groups = [group for group in groups if group["params"]]
        self._optimiser = torch.optim.AdamW(groups, lr=0.0, betas=betas, fused=True)

    def backward(self, loss: Tensor) -> None:
        """Accumulate the gradient of a micro-batch's loss."""
        hooked: list[Any] = [(live, partial(_move_gradient, master)) for live, master in self._split()]
        handles = [live.register_post_accumulate_grad_hook(move) for live, move in hooked]
        try:
            loss.backward()  # type: ignore[no-untyped-call]
        finally:
            for handle in handles:
                handle.remove()

    def step(self, learning_rate: float, max_gradient_norm: float) -> tuple[float, bool]:
        """Clip the gradient, update the weights and clear the gradient; see `Optimisation.step`."""
        norm = float(whole(nn.utils.clip_grad_norm_(self._masters, max_gradient_norm)))
        updated = math.isfinite(norm)
        if updated:
            for group in self._optimiser.param_groups:
                group["lr"] = learning_rate
            self._optimiser.step()
            for live, master in self._split():
                live.data.copy_(master)
        for master in self._masters:
            master.grad = None
        return_freed_memory()
        return norm, updated

    def state(self) -> dict[str, Any]:
        """Return the data that `restore` needs: the moments of each parameter, and float32 copies if there are any.

        The moments of a parameter that never had a gradient are None.
        """
        states = [self._optimiser.state.get(master) for master in self._masters]
        moments = [{name: one[name] for name in ("step", *MOMENTS)} if one else None for one in states]
        return {"moments": moments, "masters": [master.detach() for _, master in self._split()]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a `state` of the same model. The settings of the optimiser stay those of this run.

        Raises:
            UserError: the state is of weights in another precision.
        """
        masters = list(self._split())
        if len(masters) != len(state["masters"]):
            raise UserError(
                "a resumed run cannot change the precision of its weights",
                found=f"{'reduced' if masters else 'float32'} precision; the checkpoint has the other",
                where="model.dtype",
                fix="set model.dtype to the precision that the run started with",
            )
        for master, moments in zip(self._masters, state["moments"], strict=True):
            if moments:
                own = self._optimiser.state[master] = {name: torch.zeros_like(master) for name in MOMENTS}
                for name in MOMENTS:
                    put(own[name], moments[name])
                own["step"] = moments["step"].to(master.device, copy=True)
        for (_, master), saved in zip(masters, state["masters"], strict=True):
            put(master, saved)

    def _split(self) -> Iterable[tuple[Tensor, Tensor]]:
        return ((live, master) for live, master in zip(self._live, self._masters, strict=True) if live is not master)


def _move_gradient(master: Tensor, live: Tensor) -> None:
    """Add the gradient of a micro-batch to that of the float32 copy."""
    assert live.grad is not None
    gradient = live.grad.float()
    live.grad = None  # during the backward pass, so that there are never all gradients in half precision
    master.grad = gradient if master.grad is None else master.grad.add_(gradient)
