"""What sessions do not offer, said by name. Without it, code of a model sees a missing file."""

from __future__ import annotations

import errno
import sys
from typing import Any, NoReturn

REASON = "{} is not allowed in this sandbox, which has no shared memory; compute in one process"
_MODULES = {
    "_multiprocessing": {"SemLock": "multiprocessing with locks, queues and pools"},
    "_posixshmem": {"shm_open": "multiprocessing.shared_memory"},
}


def explain_refusals() -> None:
    """Let the standard library say what is not allowed where it would need shared memory."""
    for module, names in _MODULES.items():
        try:
            __import__(module)
        except ImportError:
            continue
        for name, what in names.items():
            setattr(sys.modules[module], name, _refusing(getattr(sys.modules[module], name), what))
    if (heap := sys.modules.get("multiprocessing.heap")) is not None:
        heap.Arena._dir_candidates = []  # arrays without locks are in the scratch folder


def _refusing(original: Any, what: str) -> Any:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise PermissionError(errno.EPERM, REASON.format(what))

    if not isinstance(original, type):
        return refuse
    constants = {name: value for name, value in vars(original).items() if isinstance(value, int)}
    return type(original.__name__, (), {"__new__": refuse, **constants})
