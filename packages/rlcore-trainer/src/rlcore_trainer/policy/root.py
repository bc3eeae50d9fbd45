"""The module in whose forward pass every weight of a micro-batch is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from rlcore_trainer.batching.packing import MicroBatch

Model = TypeVar("Model", bound=nn.Module)


class RootModule(nn.Module, Generic[Model]):
    """A model, and the value head of a critic that reads its features.

    FSDP2 and ZeRO-3 gather the weights of a module before its forward pass, and free them after it. A loss that is
    fused with the output layer, a value head and a method of a model read weights without a call of the layer, so all
    of them are computed in the forward pass of this module, which a strategy may wrap.

    Attributes:
        model: the model
        value_head: a linear layer from features to one value; None without a critic
    """

    model: Model
    value_head: nn.Linear | None

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        self.register_module("value_head", None)

    def forward(self, compute: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Return the result of a function that may read all weights."""
        return compute(*arguments, **options)

    def values_of(self, features_MD: Tensor) -> Tensor | None:
        """Return the values of the head, ``values_M``; None without a head. Call it in the forward pass."""
        if self.value_head is None:
            return None
        values_M1: Tensor = self.value_head(features_MD.to(self.value_head.weight.dtype))
        return values_M1[
            :, 0
        ].clone()  # FSDP2 puts its hook on the output, which a change of a view in place would drop

    def values(self, features: Callable[[MicroBatch], Tensor], batch: MicroBatch, *, trains_model: bool) -> Tensor:
        """Return the values of the head for a micro-batch, ``values_M``.

        Args:
            features: computes the input of the head, ``features_MD``
            batch: the micro-batch
            trains_model: whether gradients flow to the model; if not, only to the head
        """

        def compute() -> Tensor | None:
            with torch.set_grad_enabled(trains_model and torch.is_grad_enabled()):
                features_MD = features(batch)
            return self.values_of(features_MD)

        values_M: Tensor = self(compute)
        return values_M
