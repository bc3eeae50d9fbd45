"""The entry point ``vllm.general_plugins``, which vLLM calls in each of its processes. Imports nothing heavy."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading

BACKEND = "rlcore-shared-memory"
"""Name of the transfer in vLLM's registry."""
STARTED_BY_RLCORE = "RLCORE_STARTED_VLLM"
"""Set in the environment of the processes that rlcore's engine starts, and in no other vLLM process."""


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
    if STARTED_BY_RLCORE in os.environ and multiprocessing.parent_process() is not None:
        _belong_to_the_parent()


def _belong_to_the_parent() -> None:
    """End this process when its parent ends, and leave Ctrl-C to the parent, which finishes its step first.

    Otherwise vLLM's engine would outlive a killed parent and keep all of its memory.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    with contextlib.suppress(OSError):  # a session leader receives no signals from a terminal
        os.setpgid(0, 0)

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, name="rlcore-follow-parent", daemon=True).start()
