"""The shared-memory weight transfer in vLLM's worker, built on vLLM's own registry of transfers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)

from rlcore_rollout.engines.vllm.shared_memory import Place, views


@dataclass
class SegmentInfo(WeightTransferInitInfo):
    """The file to map."""

    path: str
    places: list[Place]
    size: int


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):
    """Empty: the values are in the segment."""


class SharedMemoryTransfer(WeightTransferEngine[SegmentInfo, UpdateInfo]):
    """Loads a segment's tensors as if they came from a checkpoint.

    vLLM's layer-wise reload repeats the steps of a first load, so fused, sharded and packed weights are handled
    correctly.
    """

    init_info_cls = SegmentInfo
    update_info_cls = UpdateInfo

    def init_transfer_engine(self, init_info: SegmentInfo) -> None:
        """Map the segment."""
        self._tensors = views(Path(init_info.path), init_info.places, init_info.size)

    def start_weight_update(self) -> None:
        """Convert the layers back to the layout used for loading a checkpoint."""
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: UpdateInfo) -> None:
        """Load every tensor."""
        self.model.load_weights((name, tensor.to(self.device)) for name, tensor in self._tensors.items())

    def finish_weight_update(self) -> None:
        """Convert the layers to the layout used for computation."""
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        finalize_layerwise_reload(self.model, self.model_config)
        if self.device.type == "cpu":
            _repack_tied_head(self.model)

    def shutdown(self) -> None:
        """Release the segment."""
        self._tensors = {}


def _repack_tied_head(model: Any) -> None:
    """Repack a tied output layer. On a CPU its packed copy is made at load and not updated by the reload."""
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

    for module in model.modules():
        if "lm_head" in module._modules and hasattr(module.lm_head, "cpu_linear"):
            head = module.lm_head
            if isinstance(head.weight, torch.Tensor) and head.weight.numel():
                dispatch_cpu_unquantized_gemm(head, remove_weight=False)
