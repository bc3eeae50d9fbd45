"""The entry point ``vllm.general_plugins``, which vLLM calls in each of its processes. Imports nothing heavy."""

from __future__ import annotations

BACKEND = "rlcore-shared-memory"
"""Name of the transfer in vLLM's registry."""


def register() -> None:
    """Add the shared-memory transfer to vLLM's registry of weight transfers."""
    try:
        from vllm.distributed.weight_transfer import WeightTransferEngineFactory
    except ImportError:  # an older vLLM that is used without rlcore
        return
    if BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(
            BACKEND, "rlcore_rollout.engines.vllm.transfer", "SharedMemoryTransfer"
        )
