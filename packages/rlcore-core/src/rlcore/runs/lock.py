"""A lock that allows one process at a time in a run directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from rlcore.atomic_files import told
from rlcore.errors import UserError


def take_lock(folder: Path) -> IO[str]:
    """Lock a run directory until the returned file is closed or the process ends for any reason.

    Raises:
        UserError: another process holds the lock, or the folder is not writable.
    """
    path = folder / ".lock"
    with told(path):
        lock = path.open("a+", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
    except BlockingIOError:
        lock.seek(0)
        pid = lock.read().strip()
        lock.close()
        raise UserError(
            f"another process uses {folder}",
            found=f"process {pid}" if pid else None,
            fix=f"wait until it ends, or stop it with: kill -INT {pid}" if pid else "wait until it ends",
        ) from None
    except OSError as error:
        lock.close()
        raise UserError(f"the run directory {folder} cannot be locked", found=error.strerror) from None
    return lock
