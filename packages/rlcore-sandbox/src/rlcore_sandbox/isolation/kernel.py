"""System calls that Python's standard library does not offer, for Linux on x86-64 and 64-bit ARM."""

import ctypes
import os
import platform
import signal

MACHINE = platform.machine()
SUPPORTED_MACHINES = ("x86_64", "aarch64")

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MNT_DETACH = 0x2

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4

_library = ctypes.CDLL(None, use_errno=True)
_library.syscall.restype = ctypes.c_long
_library_with_lock = ctypes.PyDLL(None, use_errno=True)
_library_with_lock.syscall.restype = ctypes.c_long
_CLONE = 220 if MACHINE == "aarch64" else 56
_CAPABILITY_VERSION = 0x20080522
_CAPABILITIES = 64


def check(result: int, what: str) -> int:
    """Return `result`, or raise the OSError of the call that has just failed; `what` names it."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def syscall(number: int, what: str, *arguments: "int | bytes | ctypes.c_void_p | ctypes.Array[ctypes.c_char]") -> int:
    """Make the system call `number`; integers are passed as 64 bits."""
    passed = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return check(_library.syscall(ctypes.c_long(number), *passed), what)


def prctl(option: int, *values: int) -> int:
    """Change a property of the calling thread."""
    padded = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]]
    return check(_library.prctl(option, *padded), f"prctl({option})")


def unshare(flags: int) -> None:
    """Enter new namespaces; `flags` is a sum of `CLONE_NEW*`."""
    check(_library.unshare(flags), f"unshare({flags:#x})")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount `source` at `target`."""
    result = _library.mount(
        os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), options.encode()
    )
    check(result, f"mount({source}, {target}, {kind})")


def unmount(target: str, flags: int = MNT_DETACH) -> None:
    """Remove a mount."""
    check(_library.umount2(os.fsencode(target), flags), f"umount({target})")


def fork_into(namespaces: int) -> int:
    """Fork as `os.fork`, into new namespaces; the child has process id 1 in a new PID namespace.

    Args:
        namespaces: a sum of `CLONE_NEW*`
    """
    ctypes.pythonapi.PyOS_BeforeFork()
    process = _library_with_lock.syscall(ctypes.c_long(_CLONE), ctypes.c_ulong(namespaces | signal.SIGCHLD), 0, 0, 0, 0)
    if process == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    return check(process, f"clone({namespaces:#x})")


def set_host_name(name: str) -> None:
    """Set the name that `os.uname()` shows in this namespace."""
    check(_library.sethostname(name.encode(), len(name)), "sethostname")


def drop_capabilities() -> None:
    """Give up every capability for good: effective, permitted, inheritable, ambient and in the bounding set."""
    for capability in range(_CAPABILITIES):
        if _library.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) < 0:
            break  # beyond the last capability of this kernel, or not allowed to change the bounding set
    _library.prctl(PR_CAP_AMBIENT, ctypes.c_ulong(PR_CAP_AMBIENT_CLEAR_ALL), 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    none = (ctypes.c_uint32 * 6)()
    check(_library.capset(header, none), "capset")


def capabilities() -> int:
    """The effective capabilities of this process, one bit each."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    values = (ctypes.c_uint32 * 6)()
    check(_library.capget(header, values), "capget")
    return int(values[0]) | int(values[3]) << 32
