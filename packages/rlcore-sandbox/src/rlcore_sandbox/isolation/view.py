"""A root folder of its own for a process: the interpreter, read-only, and nothing else of the host."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct

from . import interpreter, kernel, syscalls

_MOUNT_SETATTR = syscalls.REFUSED["mount_setattr"]
_RECURSIVE = 0x8000
_AT_CURRENT = -100
_READ_ONLY, _NO_SETUID, _NO_DEVICES = 1, 2, 4
_OLD = "/.host"


def enter_view(scratch_parent: str) -> None:
    """Replace the root folder of this mount namespace. Requires a mount namespace that no other process uses.

    /proc stays that of the host, for the process that starts sessions; `cover` hides it in a session.

    Args:
        scratch_parent: the folder that will hold the folders of sessions; it is empty in the view
    """
    packages, libraries = interpreter.package_folders(), interpreter.library_folders()
    os.chdir("/")
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("view", "/tmp", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755,size=1m")
    os.mkdir("/tmp" + _OLD)
    kernel.syscall(syscalls.PIVOT_ROOT, "pivot_root", b"/tmp", b"/tmp" + _OLD.encode())
    os.chdir("/")
    for path in (*packages, *libraries):
        _show(path)
    for path in interpreter.DEVICES:
        _show(path, devices=True)
    os.makedirs("/proc", exist_ok=True)
    kernel.mount(_OLD + "/proc", "/proc", "", kernel.MS_BIND | kernel.MS_REC)
    os.makedirs(scratch_parent, exist_ok=True)
    kernel.unmount(_OLD)
    os.rmdir(_OLD)
    _restrict("/", recursive=False)
    kernel.mount("scratch", scratch_parent, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755,size=1m")


def cover(path: str, *, megabytes: int, files: int) -> None:
    """Mount an empty file system of limited size over a folder."""
    options = f"mode=700,size={megabytes}m,nr_inodes={files}"
    kernel.mount("scratch", path, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)


def mount_proc() -> None:
    """Mount a /proc with the processes of this PID namespace over that of the host.

    It is empty where the kernel does not allow it, such as in a container with a restricted /proc.
    """
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    for options in ("subset=pid", ""):
        with contextlib.suppress(OSError):
            kernel.mount("proc", "/proc", "proc", flags | kernel.MS_RDONLY, options)
            return
    kernel.mount("none", "/proc", "tmpfs", flags | kernel.MS_RDONLY, "size=4k")


def _show(path: str, *, devices: bool = False) -> None:
    """Bind `path` of the host at the same place, read-only. A link is followed, and its target shown at both places."""
    real = _real(path)
    if real != path:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.symlink(real, path)
    if os.path.exists(real):
        return  # shown already
    source = _OLD + real
    if os.path.isdir(source):
        os.makedirs(real)
    else:
        os.makedirs(os.path.dirname(real), exist_ok=True)
        os.close(os.open(real, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o444))
    kernel.mount(source, real, "", kernel.MS_BIND | kernel.MS_REC)
    _restrict(real, devices=devices)


def _real(path: str) -> str:
    """The path of the host without symbolic links. Links are absolute in the host, where its root is `_OLD`."""
    parts = [part for part in path.split("/") if part]
    found = ""
    for _ in range(1000):
        if not parts:
            return found or "/"
        part = parts.pop(0)
        if part == "..":
            found = os.path.dirname(found).rstrip("/")
            continue
        here = f"{found}/{part}"
        if os.path.islink(_OLD + here):
            target = os.readlink(_OLD + here)
            parts = [step for step in target.split("/") if step and step != "."] + parts
            found = "" if target.startswith("/") else found
        else:
            found = here
    raise OSError(f"{path}: too many symbolic links")


def _restrict(path: str, *, recursive: bool = True, devices: bool = False) -> None:
    attributes = _READ_ONLY | _NO_SETUID | (0 if devices else _NO_DEVICES)
    request = ctypes.create_string_buffer(struct.pack("QQQQ", attributes, 0, 0, 0))
    flags = _RECURSIVE if recursive else 0
    kernel.syscall(_MOUNT_SETATTR, f"mount_setattr({path})", _AT_CURRENT, os.fsencode(path), flags, request, 32)
