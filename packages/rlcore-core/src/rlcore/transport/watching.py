"""Ends the calls of servers that hang: the system of a machine keeps connections alive whose program is stopped."""

from __future__ import annotations

import threading
import time
import weakref
from typing import TYPE_CHECKING

from rlcore.transport.network import hangs

if TYPE_CHECKING:
    from rlcore.transport.served import ServedObject

LOOK_S, ANSWER_S = 2.0, 7.0
"""Time between looks, and the time in which a server must greet a new connection."""

_open: weakref.WeakSet[ServedObject] = weakref.WeakSet()
_lock = threading.Lock()
_watching = False


def watch(served: ServedObject) -> None:
    """End a call of this connection if its server hangs, until it is collected."""
    global _watching
    with _lock:
        _open.add(served)
        if not _watching:
            _watching = True
            threading.Thread(target=_look, name="rlcore-servers", daemon=True).start()


def _look() -> None:
    global _watching
    while True:
        time.sleep(LOOK_S)
        with _lock:
            served = list(_open)
            if not served:
                _watching = False
                return
        waiting = [each for each in served if each.busy]
        for address in {each.address for each in waiting}:
            if hangs(address, ANSWER_S):
                for each in waiting:
                    if each.address == address:
                        each.kill()
        del served, waiting  # they would keep the connections


__all__ = ["watch"]
