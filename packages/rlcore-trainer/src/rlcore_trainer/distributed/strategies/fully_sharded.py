"""Fully sharded training (FSDP2): each process holds a part of weights, gradients and optimiser state.

Each block of the model is gathered before it computes, and freed after it (Zhao et al. 2023, arXiv 2304.11277). As with
``ddp``, gradients are summed, so an update does not depend on the number of processes up to rounding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set

import torch
from rlcore_models.sharded import is_sharded
from rlcore_models.vision_encoder import OF_TOWER
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from rlcore_trainer.distributed.adamw import AdamW
from rlcore_trainer.distributed.config import FullyShardedConfig
from rlcore_trainer.distributed.strategies.data_parallel import DataParallel


class FullySharded(DataParallel):
    """Several processes, each with its own device and a part of the weights."""

    config: FullyShardedConfig

    def __init__(self, config: FullyShardedConfig) -> None:
        super().__init__(config)
        self.shards = self._joined is not None
        self._mesh: DeviceMesh | None = None

    def shard(self, root: nn.Module) -> None:
        """Divide the parameters of a module, whose forward pass gathers them.

        A vision tower is gathered with the other weights outside of the layers, always: for a micro-batch without
        images, a process would gather none of its blocks, and the others would wait.
        """
        if not self.shards:
            return
        device = next(root.parameters()).device
        tower = {one for name, one in root.named_parameters() if re.fullmatch(OF_TOWER, name)}
        if self._mesh is None:
            count = self.processes.rank.world_size
            part = self.config.shard_size or count
            sizes = {"part": count} if part == count else {"copy": count // part, "part": part}
            self._mesh = init_device_mesh(device.type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        precision = MixedPrecisionPolicy(reduce_dtype=torch.float32)  # a sum in half precision would lose digits
        for module in (*blocks(root, tower), root):
            again = module is not root and self.config.reshard_after_forward
            fully_shard(module, mesh=self._mesh, mp_policy=precision, reshard_after_forward=again)
            assert isinstance(module, FSDPModule)
            # Sums, as losses are normalised over the whole batch. Gloo has no sum with a factor.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
            module.set_reduce_scatter_unused_params(True)  # another process may have images in its micro-batch
        root.register_forward_hook(_free_without_backward)

    def optimise(self, model: nn.Module, *, betas: tuple[float, float], weight_decay: float) -> AdamW:
        """Create the optimiser of all trainable parameters of ``model``, whole or divided by `shard`."""
        if is_sharded(model):
            return AdamW(model, betas=betas, weight_decay=weight_decay)
        return super().optimise(model, betas=betas, weight_decay=weight_decay)


def _free_without_backward(root: nn.Module, *_: object) -> None:
    """Free the weights that FSDP2 keeps for the backward pass, which frees them."""
    for module in root.modules() if not torch.is_grad_enabled() else ():
        if isinstance(module, FSDPModule):
            module.reshard()


def blocks(root: nn.Module, but: Set[nn.Parameter]) -> Iterator[nn.Module]:
    """Yield the modules that are gathered together: those that transformers does not split, such as decoder layers."""
    names = {name for module in root.modules() for name in getattr(module, "_no_split_modules", None) or ()}
    for module in root.modules():
        if type(module).__name__ in names and not but >= set(module.parameters()):
            yield module
