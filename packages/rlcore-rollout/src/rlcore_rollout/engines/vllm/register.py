"""What vLLM calls in each of its processes (entry point ``vllm.general_plugins``). Light: it imports nothing heavy."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading

BACKEND = "rlcore-shared-memory"
"""Name of the transfer in vLLM's registry."""
STARTED_BY_RLCORE = "RLCORE_STARTED_VLLM"
"""Set in the environment of the processes that rlcore's engine starts, and of no other vLLM."""


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
    if STARTED_BY_RLCORE in os.environ and multiprocessing.parent_process() is not None:
        _belong_to_the_parent()


def _belong_to_the_parent() -> None:
    """End when the parent has ended, however it did, and leave Ctrl-C to it: it finishes its step first.

    vLLM's engine would otherwise outlive a parent that was killed, with all the memory that it holds.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    with contextlib.suppress(OSError):  # one that leads a session gets no signals from a terminal anyway
        os.setpgid(0, 0)

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, name="rlcore-follow-parent", daemon=True).start()
