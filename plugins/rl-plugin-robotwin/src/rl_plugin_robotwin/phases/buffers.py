"""The stored episodes of a process, in checkpoints: by slot, so that another division of the slots can read them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from rlcore.console.wording import counted
from rlcore.errors import UserError
from rlcore_control.buffer import EpisodeBuffer
from rlcore_trainer.distributed.strategy import Strategy


def gathered(buffers: Sequence[EpisodeBuffer], strategy: Strategy) -> dict[str, Any]:
    """Return the stored episodes of all processes, by slot."""
    mine = {}
    for i, buffer in enumerate(buffers):
        torch.save(buffer.state_dict(), found := io.BytesIO())
        packed = torch.frombuffer(found.getbuffer(), dtype=torch.uint8)
        mine[strategy.processes.rank.index * len(buffers) + i] = packed
    return {str(slot): packed.cpu() for slot, packed in strategy.processes.union(mine).items()}


def restore(buffers: Sequence[EpisodeBuffer], state: Mapping[str, Any], strategy: Strategy, *, where: str) -> None:
    """Restore the buffers of this process from `gathered`.

    Raises:
        UserError: the run had another number of slots.
    """
    rank = strategy.processes.rank
    if len(state) != rank.world_size * len(buffers):
        raise UserError(
            f"the run has {counted(len(state), 'environment')} in all processes together",
            found=f"strategy.processes × trainer.num_envs = {rank.world_size} × {len(buffers)}",
            where=where,
            fix="resume with as many environments in all",
        )
    for i, buffer in enumerate(buffers):
        packed = io.BytesIO(state[str(rank.index * len(buffers) + i)].cpu().numpy().tobytes())
        buffer.load_state_dict(torch.load(packed, weights_only=True))
