"""What vLLM calls in each of its processes (entry point ``vllm.general_plugins``). Light: it imports nothing heavy."""

from __future__ import annotations

BACKEND = "rlcore-shared-memory"
"""Name of the transfer in vLLM's registry."""


def register() -> None:
    """Make the transfer through shared memory known to vLLM's registry of weight transfers."""
    try:
        from vllm.distributed.weight_transfer import WeightTransferEngineFactory
    except ImportError:  # an older vLLM, which somebody uses without rlcore
        return
    if BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(
            BACKEND, "rlcore_rollout.engines.vllm.transfer", "SharedMemoryTransfer"
        )
