"""Confines this process and all that it starts: code that the policy writes reaches the policy and one folder.

Landlock limits files, TCP connections and signals, and a filter of system calls refuses every other socket and what
processes of a user share without files. Neither can be undone. Needs Linux 6.12, on x86-64 or 64-bit ARM.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import platform
import site
import stat
import struct
import sys
import sysconfig
from typing import Iterable

from rlcore_harness.inside.supervision import supervise

SYSTEM = (
    *("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt", "/proc", "/sys/devices/system/cpu"),
    *("/etc/alternatives", "/etc/fonts", "/etc/pki/tls/certs", "/etc/ssl/certs", "/etc/ssl/openssl.cnf"),
)
"""What programs need, besides the files in ``/etc`` that every user may read."""
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
NEEDED_LANDLOCK = 6
"""The version that limits signals and abstract sockets; version 4 limits TCP."""

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_EXECUTE, _WRITE, _READ, _LIST = 1, 2, 4, 8
_OF_FILES = 1 << 14 | 1 << 15 | _EXECUTE | _WRITE | _READ  # truncation and ioctl of devices
_ALL = (1 << 16) - 1
_MAKE_DEVICES = 1 << 6 | 1 << 11
_BIND, _CONNECT = 1, 2
_SCOPES = 3
_NO_NEW_PRIVILEGES, _DUMPABLE = 38, 4
_CAPABILITIES = 0x20080522  # version 3 of the interface

# Names, and their numbers on x86-64 and ARM64; -1 where there is no such call.
_FAMILIES, _STREAM, _TCP = (2, 10), 1, (0, 6)  # of sockets: IPv4, IPv6
_FAST_OPEN = 0x20000000  # connects without the check of landlock
_SOCKET, _PAIR, _SEND_TO, _SEND, _SEND_MANY, _LISTEN, _RING, _SECCOMP, _LIMIT = (
    *((41, 198), (53, 199), (44, 206), (46, 211), (307, 269), (50, 201), (425, 425), (317, 277), (302, 261)),
)
_PRETENDED = (
    *((90, -1), (91, 52), (268, 53), (452, 452)),  # chmod
    *((92, -1), (94, -1), (93, 55), (260, 54)),  # chown
    *((132, -1), (235, -1), (280, 88), (261, -1)),  # times
)
"""Landlock does not check these. They succeed without an effect, because programs such as git and tar need them."""
_REFUSED = (
    *(_LISTEN, _RING),
    *((188, 5), (189, 6), (190, 7), (197, 14), (198, 15), (199, 16), (463, 463), (466, 466), (469, 469)),  # attributes
    *((101, 117), (310, 270), (311, 271), (438, 438)),  # memory and descriptors of the agent, by what it has started
    *((29, 194), (30, 196), (31, 195), (64, 190), (68, 186), (240, 180)),  # System V and POSIX queues, memory
    *((248, 217), (249, 218), (250, 219)),  # keys
    *((272, 97), (308, 268)),  # namespaces
)
_CLONE, _CLONE_3, _IOCTL, _CONTROL = (56, 220), (435, 435), (16, 29), (72, 25)
_NAMESPACES = 0x7E020000
_FLAGS = (0x40086602, 0x401C5820)  # of the files of this user, also of those that it only reads
_LEASES = (1024, 1026)  # of files, and signals about folders
_LOAD, _AND, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_ALLOW, _KILL, _ERROR, _NOT_PERMITTED, _NO_SUCH_CALL = 0x7FFF0000, 0x80000000, 0x00050000, 1, 38
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)


def unsupported() -> str:
    """Why this system cannot confine processes; empty if it can."""
    system, machine, version = platform.system(), platform.machine(), 0
    if system != "Linux" or machine not in _ARCHITECTURES:
        return f"it needs Linux on x86-64 or 64-bit ARM, found {system} on {machine}"
    with contextlib.suppress(OSError):
        version = _syscall(_CREATE, None, 0, 1)
    return "" if version >= NEEDED_LANDLOCK else f"it needs landlock {NEEDED_LANDLOCK} (Linux 6.12), found {version}"


def confine(folder: str, port: int, readable: Iterable[str], modules: Iterable[str]) -> None:
    """Confine this process for good, in a fork: the original process becomes its supervisor.

    Args:
        folder: where it may write
        port: the only TCP port that it may connect to
        readable: files and folders that it may read, besides the system and this interpreter
        modules: folders whose modules and packages it may import, besides those in ``sys.path``

    Raises:
        OSError: this system cannot do it.
    """
    reason, machine = unsupported(), platform.machine()
    if not reason and len(os.listdir("/proc/self/task")) != 1:
        reason = "a process with threads cannot be confined"
    if reason:
        raise OSError(reason)
    supervise()
    attributes = struct.pack("QQQ", _ALL, _BIND | _CONNECT, _SCOPES)
    rules = _syscall(_CREATE, attributes, len(attributes), 0)
    settings = [entry.path for entry in os.scandir("/etc") if entry.is_file() and entry.stat().st_mode & stat.S_IROTH]
    searched = {*sys.path, *modules}
    for path in (
        *SYSTEM,
        *settings,
        *_interpreter(),
        *readable,
        *(path for each in searched for path in _modules(each)),
    ):
        _allow(rules, path, _EXECUTE | _READ | _LIST)
    for path in searched:  # an import lists them
        _allow(rules, path, _LIST)
    for path in DEVICES:
        _allow(rules, path, _READ | _WRITE)
    _allow(rules, folder, _ALL & ~_MAKE_DEVICES)
    _syscall(_ADD, rules, 2, struct.pack("QQ", _CONNECT, port), 0)
    if _libc.prctl(_NO_NEW_PRIVILEGES, *map(ctypes.c_ulong, (1, 0, 0, 0))):
        raise OSError(ctypes.get_errno(), "no_new_privs")
    # With capabilities, root could read the variables and maps of other processes in spite of landlock.
    _libc.capset((ctypes.c_uint32 * 2)(_CAPABILITIES, 0), (ctypes.c_uint32 * 6)())
    # A program that it starts must not read its memory or its descriptors through /proc, and answer in its place.
    _libc.prctl(_DUMPABLE, *map(ctypes.c_ulong, (0, 0, 0, 0)))
    _syscall(_RESTRICT, rules, 0)
    os.close(rules)
    code = ctypes.create_string_buffer(_filter(machine))
    header = struct.pack("HxxxxxxQ", (len(code) - 1) // 8, ctypes.addressof(code))
    _syscall(_SECCOMP[machine == "aarch64"], 1, 0, header)


def _interpreter() -> set[str]:
    """Folders of this interpreter and its packages."""
    paths = {os.path.dirname(os.path.realpath(sys.executable)), sys.prefix, sys.base_prefix, *site.getsitepackages()}
    paths.update(filter(None, (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))))
    return paths


def _modules(folder: str) -> list[str]:
    """The modules and packages in a folder, without the data beside them."""
    packages = (os.path.dirname(path) for path in glob.glob(os.path.join(glob.escape(folder), "*", "__init__.py")))
    return [*glob.glob(os.path.join(glob.escape(folder), "*.py")), *packages]


def _allow(rules: int, path: str, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        allowed = access if os.path.isdir(path) else access & _OF_FILES
        if allowed:
            _syscall(_ADD, rules, 1, struct.pack("=Qi", allowed, descriptor), 0)
    finally:
        os.close(descriptor)


def _syscall(number: int, *arguments: int | bytes | None) -> int:
    passed = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = int(_libc.syscall(ctypes.c_long(number), *passed))
    if result < 0:
        found = ctypes.get_errno()
        raise OSError(found, f"system call {number}: {os.strerror(found)}")
    return result


def _filter(machine: str) -> bytes:
    """The filter of system calls, as an array of ``struct sock_filter``."""
    column = list(_ARCHITECTURES).index(machine)
    lines = [_line(_LOAD, 4), _line(_IF_EQUAL, _ARCHITECTURES[machine], 1), _line(_RETURN, _KILL), _line(_LOAD, 0)]
    if machine == "x86_64":
        lines += [_line(_IF_AT_LEAST, _X32, 0, 1), _line(_RETURN, _KILL)]
    refuse, pretend = _line(_RETURN, _ERROR | _NOT_PERMITTED), _line(_RETURN, _ERROR)
    arguments = [
        (_SOCKET, _one_of(0, _FAMILIES) + _one_of(1, (_STREAM,), 0xF) + _one_of(2, _TCP)),
        (_PAIR, _one_of(1, (_STREAM,), 0xF)),
        (_LIMIT, _one_of(0, (0,))),  # limits of another process could kill it
        (_CLONE, _one_of(0, (0,), _NAMESPACES)),
        (_CLONE_3, [_line(_RETURN, _ERROR | _NO_SUCH_CALL)]),  # has its flags in memory; libraries call clone instead
        (_IOCTL, _none_of(1, _FLAGS)),
        (_CONTROL, _none_of(1, _LEASES)),
        (_SEND_TO, _one_of(3, (0,), _FAST_OPEN)),
        (_SEND, _one_of(2, (0,), _FAST_OPEN)),
        (_SEND_MANY, _one_of(3, (0,), _FAST_OPEN)),
        *((numbers, [refuse]) for numbers in _REFUSED),
        *((numbers, [pretend]) for numbers in _PRETENDED),
    ]
    for numbers, block in arguments:
        if numbers[column] >= 0:
            block = [*block, _line(_RETURN, _ALLOW)]
            lines += [_line(_IF_EQUAL, numbers[column], 0, len(block)), *block]
    return b"".join([*lines, _line(_RETURN, _ALLOW)])


def _one_of(argument: int, values: tuple[int, ...], mask: int = 0xFFFFFFFF) -> list[bytes]:
    """Refuse the call unless its masked argument has one of the values."""
    count = len(values)
    tests = [_line(_IF_EQUAL, value, count - place, 0) for place, value in enumerate(values)]
    return [
        _line(_LOAD, 16 + 8 * argument),
        _line(_AND, mask),
        *tests,
        _line(_RETURN, _ERROR | _NOT_PERMITTED),
    ]


def _none_of(argument: int, values: tuple[int, ...]) -> list[bytes]:
    """Refuse the call if its argument has one of the values."""
    refuse = _line(_RETURN, _ERROR | _NOT_PERMITTED)
    return [
        _line(_LOAD, 16 + 8 * argument),
        *(line for value in values for line in (_line(_IF_EQUAL, value, 0, 1), refuse)),
    ]


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)
