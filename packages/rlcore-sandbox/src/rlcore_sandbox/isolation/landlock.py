"""Landlock: the files that a process and its children may open, until they end.

A ruleset is created once, before any code of a model runs, and applied in each session. Access is denied unless a rule
allows it. Landlock checks opening, creating, removing and executing. It does not check `stat`, `chdir` or changes of
modes and times.
"""

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterable, Sequence

from . import kernel, syscalls

EXECUTE, WRITE_FILE, READ_FILE, READ_DIRECTORY = 1, 2, 4, 8
_CREATE_OR_REMOVE = 0x1FF0  # remove and make, of every kind of file: bits 4 to 12
_OF_VERSION = {2: 1 << 13, 3: 1 << 14, 5: 1 << 15}  # refer, truncate, ioctl of devices
_MAKE_DEVICES = 1 << 6 | 1 << 9 | 1 << 11  # character device, socket, block device
_TCP = 3  # bind, connect: version 4
_SCOPES = 3  # abstract unix sockets, signals: version 6
_VERSION_FLAG = 1
_RULE_PATH = 1


def version() -> int:
    """The version of landlock's interface in this kernel, 0 without landlock."""
    try:
        return kernel.syscall(syscalls.LANDLOCK_CREATE_RULESET, "landlock_create_ruleset", 0, 0, _VERSION_FLAG)
    except OSError:
        return 0


def create_ruleset(readable: Iterable[str], listable: Sequence[str] = ()) -> int:
    """Create a ruleset that allows to read `readable` and to list `listable`; add rules with `allow`.

    Returns: its file descriptor. Paths that do not exist are skipped.
    """
    available = version()
    attributes = struct.pack(
        "QQQ", _all_accesses(available), _TCP if available >= 4 else 0, _SCOPES if available >= 6 else 0
    )
    size = 8 if available < 4 else 16 if available < 6 else 24
    ruleset = kernel.syscall(syscalls.LANDLOCK_CREATE_RULESET, "landlock_create_ruleset", attributes[:size], size, 0)
    for path in readable:
        with contextlib.suppress(FileNotFoundError):
            allow(ruleset, path, READ_FILE | READ_DIRECTORY)
    for path in listable:
        with contextlib.suppress(FileNotFoundError):
            allow(ruleset, path, READ_DIRECTORY)
    return ruleset


def allow_scratch(ruleset: int, path: str) -> None:
    """Allow everything below the folder `path`, except executing files and making devices and sockets."""
    allow(ruleset, path, _all_accesses(version()) & ~EXECUTE & ~_MAKE_DEVICES & ~_OF_VERSION[5])


def allow(ruleset: int, path: str, access: int) -> None:
    """Add a rule for the file or the folder tree at `path`."""
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not os.path.isdir(path):
            access &= EXECUTE | WRITE_FILE | READ_FILE | _OF_VERSION[3] | _OF_VERSION[5]
        rule = ctypes.create_string_buffer(struct.pack("=Qi", access, descriptor))
        kernel.syscall(syscalls.LANDLOCK_ADD_RULE, f"landlock_add_rule({path})", ruleset, _RULE_PATH, rule, 0)
    finally:
        os.close(descriptor)


def restrict(ruleset: int) -> None:
    """Apply the ruleset to this thread for good. Requires `no_new_privs`."""
    kernel.syscall(syscalls.LANDLOCK_RESTRICT_SELF, "landlock_restrict_self", ruleset, 0)


def _all_accesses(available: int) -> int:
    access = EXECUTE | WRITE_FILE | READ_FILE | READ_DIRECTORY | _CREATE_OR_REMOVE
    return access | sum(bit for since, bit in _OF_VERSION.items() if available >= since)
