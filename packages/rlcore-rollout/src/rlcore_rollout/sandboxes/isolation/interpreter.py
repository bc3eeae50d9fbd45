"""The files that code in a session may read: the interpreter, its packages, and the libraries that they load."""

from __future__ import annotations

import glob
import os
import sys
import sysconfig

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
"""Devices that code may open."""
_SYSTEM = ("/usr", "/usr/local")
_HIDDEN = ("rlcore", "rl_plugin_", "rl-plugin-", "__editable__")
"""How the names of packages begin that are hidden: they may contain tasks with their answers."""


def library_folders() -> list[str]:
    """Folders and files of shared libraries, fonts and time zones."""
    triplet = sysconfig.get_config_var("MULTIARCH") or ""
    paths = ["/lib64", "/usr/lib64", "/etc/ld.so.cache", "/usr/share/fonts", "/usr/share/zoneinfo"]
    if triplet:
        paths += [f"/lib/{triplet}", f"/usr/lib/{triplet}"]
    if (folder := sysconfig.get_config_var("LIBDIR")) and sys.base_prefix not in _SYSTEM:
        paths += glob.glob(os.path.join(folder, "lib*.so*"))
    return [path for path in paths if os.path.exists(path)]


def package_folders() -> list[str]:
    """Folders of the standard library and of installed packages."""
    standard = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    prefixes = tuple(os.path.join(prefix, "") for prefix in {sys.prefix, sys.base_prefix})
    found = [path for path in (*standard, *sys.path) if path and path.startswith(prefixes) and os.path.isdir(path)]
    return [path for path in dict.fromkeys(found) if not any(_inside(path, other) for other in found)]


def readable() -> tuple[list[str], list[str]]:
    """Paths whose trees code may read, and folders that it may list.

    Installed packages are entries of their own, so that those of rlcore are left out.
    """
    trees, folders = [*library_folders(), *DEVICES], []
    for folder in package_folders():
        inner = [path for path in sys.path if _inside(path, folder) and _has_packages(path)]
        for parent in (folder, *inner):
            if _has_packages(parent) or inner:
                folders.append(parent)
                names = [entry.path for entry in os.scandir(parent) if not entry.name.startswith(_HIDDEN)]
                trees += [path for path in names if not _has_packages(path)]
            else:
                trees.append(parent)
    return [os.path.realpath(path) for path in trees], folders


def _has_packages(path: str) -> bool:
    return os.path.basename(path) in ("site-packages", "dist-packages")


def _inside(path: str, folder: str) -> bool:
    return path != folder and path.startswith(os.path.join(folder, ""))
