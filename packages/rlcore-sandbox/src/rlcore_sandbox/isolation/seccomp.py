"""The system calls that a session may make, as a BPF program for the kernel.

Calls are refused with an error, not with a signal, so that Python raises an exception that a model can read. A call of
another architecture ends the process.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from . import kernel, syscalls

_LOAD, _AND, _JUMP_IF_EQUAL, _JUMP_IF_AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000
_MODE_FILTER = 1
_ALL_BITS = 0xFFFFFFFF

_TERMINAL_QUERIES = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # TCGETS TIOCGWINSZ FIONREAD FIONBIO FIO(N)CLEX
_DESCRIPTOR_COMMANDS = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032)  # copies, flags and locks; no owner or lease
_PROCESS_PROPERTIES = (3, kernel.PR_SET_NAME, 16, 0x53564D41)  # GET_DUMPABLE SET_NAME GET_NAME SET_VMA
_NAMESPACES = (
    kernel.CLONE_NEWNS
    | kernel.CLONE_NEWCGROUP
    | kernel.CLONE_NEWUTS
    | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUSER
    | kernel.CLONE_NEWPID
    | kernel.CLONE_NEWNET
)
_UNIX, _STREAM = 1, 1
_SHARED, _ANONYMOUS = 0x01, 0x20
_SOCKET_LEVEL = 1
_SOCKET_OPTIONS = (2, 9, 20, 21, 66, 67)  # reused addresses, keep-alive and timeouts; no sizes and no filters


@dataclass(frozen=True, slots=True)
class Condition:
    """Argument `argument` (from 0), masked, must be one of `values`."""

    argument: int
    values: tuple[int, ...]
    mask: int = _ALL_BITS


def program(*, processes: bool, process_id: int) -> bytes:
    """The filter of a session, as an array of `struct sock_filter`.

    Args:
        processes: the session has a PID namespace and a file system of its own. It may start threads and processes,
            signal all of them and change modes. Otherwise it stays a single thread that can signal only itself.
        process_id: of the process that the filter is applied to.
    """
    allowed = {
        **syscalls.FILES,
        **syscalls.MEMORY,
        **syscalls.WAITING,
        **syscalls.TIME,
        **syscalls.SIGNALS,
        **syscalls.PROCESS,
        **syscalls.STREAMS,
    }
    refused = dict(syscalls.REFUSED)
    unchecked = syscalls.NEW_PROCESSES | syscalls.ATTRIBUTES | syscalls.DESCRIPTORS
    (allowed if processes else refused).update(unchecked)
    conditional = _conditions(processes, process_id)
    for name, number in syscalls.CONDITIONAL.items():
        if name not in conditional:
            (allowed if processes else refused)[name] = number

    lines = [_load(4), *_unless_equal(ARCHITECTURES[kernel.MACHINE], _return(_KILL)), _load(0)]
    if kernel.MACHINE == "x86_64":
        lines += [_line(_JUMP_IF_AT_LEAST, _X32, 0, 1), _return(_KILL)]
    for name, conditions in conditional.items():
        block = _block(conditions)
        lines += [_line(_JUMP_IF_EQUAL, syscalls.CONDITIONAL[name], 0, len(block)), *block]
    for number in sorted(allowed.values()):
        lines += [_line(_JUMP_IF_EQUAL, number, 0, 1), _return(_ALLOW)]
    for number in sorted(refused.values()):
        lines += [_line(_JUMP_IF_EQUAL, number, 0, 1), _return(_ERROR | errno.EPERM)]
    return b"".join([*lines, _return(_ERROR | errno.ENOSYS)])


def install(filter_program: bytes) -> None:
    """Apply the filter to this thread and its children for good. Requires `no_new_privs`."""
    code = ctypes.create_string_buffer(filter_program, len(filter_program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(filter_program) // 8, ctypes.addressof(code)))
    kernel.syscall(syscalls.SECCOMP, "seccomp", _MODE_FILTER, 0, header)


def supported() -> bool:
    """Whether this kernel and architecture have filters."""
    return kernel.MACHINE in ARCHITECTURES and os.path.exists("/proc/self/status")


def _conditions(processes: bool, process_id: int) -> dict[str, tuple[Condition, ...]]:
    conditions: dict[str, tuple[Condition, ...]] = {
        "ioctl": (Condition(1, _TERMINAL_QUERIES),),
        "fcntl": (Condition(1, _DESCRIPTOR_COMMANDS),),
        "prctl": (Condition(0, _PROCESS_PROPERTIES),),
        # RLIMIT_AS does not limit shared memory without a file: it stays when all but a page of it is unmapped.
        "mmap": (Condition(3, (0, _SHARED, _ANONYMOUS), _SHARED | _ANONYMOUS),),
        "setsockopt": (Condition(1, (_SOCKET_LEVEL,)), Condition(2, _SOCKET_OPTIONS)),
        "socketpair": (Condition(0, (_UNIX,)), Condition(1, (_STREAM,), 0xF)),
    }
    if processes:
        conditions["clone"] = (Condition(0, (0,), _NAMESPACES),)
    else:
        itself = (Condition(0, (process_id,)),)
        conditions |= dict.fromkeys(("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"), itself)
        conditions["prlimit64"] = (Condition(0, (0, process_id)),)
    return conditions


def _block(conditions: Iterable[Condition]) -> list[bytes]:
    lines = []
    for condition in conditions:
        lines.append(_load(16 + 8 * condition.argument))
        if condition.mask != _ALL_BITS:
            lines.append(_line(_AND, condition.mask))
        count = len(condition.values)
        lines += [_line(_JUMP_IF_EQUAL, value, count - place, 0) for place, value in enumerate(condition.values)]
        lines.append(_return(_ERROR | errno.EPERM))
    return [*lines, _return(_ALLOW)]


def _unless_equal(value: int, then: bytes) -> list[bytes]:
    return [_line(_JUMP_IF_EQUAL, value, 1, 0), then]


def _load(offset: int) -> bytes:
    return _line(_LOAD, offset)


def _return(action: int) -> bytes:
    return _line(_RETURN, action)


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)
