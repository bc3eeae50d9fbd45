"""Folders of confined agents. Those of a run that was killed are deleted by the next one."""

from __future__ import annotations

import fcntl
import os
import re
import stat
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from rlcore.episodes.deletion import delete_folder

BOOT = Path("/proc/sys/kernel/random/boot_id")
"""Differs between machines, which may share the folder of temporary files, but not the locks in it."""
NEW_S = 60.0
"""Age from which a folder that nobody has locked is left over. A new one is locked after it was made."""
_looked = threading.Lock()
"""Locked by the first folder of this process, which looks for those of others."""


class Home:
    """A new folder, locked as long as its process runs.

    Attributes:
        path: of the folder
    """

    def __init__(self) -> None:
        if _looked.acquire(blocking=False):
            _delete_left()
        self.path = Path(tempfile.mkdtemp(prefix=_prefix()))
        self._lock = _locked(self.path)

    def delete(self) -> None:
        """Delete it. A second call does nothing."""
        delete_folder(self.path)
        lock, self._lock = self._lock, None  # another thread may delete it, too
        if lock is not None:
            os.close(lock)


def _locked(folder: Path) -> int | None:
    """A descriptor that locks a folder; None if another one does. The system removes the lock of a killed process."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _prefix() -> str:
    return f"rlcore-home-{BOOT.read_text(encoding='ascii').strip()}-"


def _delete_left() -> None:
    prefix = _prefix()
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        if not re.fullmatch("[a-z0-9_]{8}", folder.name.removeprefix(prefix)):  # as tempfile makes it
            continue
        with suppress(OSError):  # another run may delete it, too
            found = folder.lstat()
            own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
            if own and time.time() - found.st_mtime > NEW_S:
                lock = _locked(folder)
                if lock is not None:
                    delete_folder(folder)
                    os.close(lock)
