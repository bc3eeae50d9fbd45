"""The files that code in a session may read: the interpreter, its packages, and the libraries that they load."""

from __future__ import annotations

import glob
import importlib.metadata
import os
import site
import sys
import sysconfig

DEVICES = ("/dev/null", "/dev/full", "/dev/random", "/dev/urandom")
"""Devices that code may open. Mapping ``/dev/zero`` would be shared memory, which the kernel does not limit."""
_SYSTEM = ("/usr", "/usr/local")
_HIDDEN = ("rlcore", "rl_plugin_", "rl-plugin-", "__editable__")
"""How the names of rlcore's own packages begin, which are hidden."""
_PLUGINS = "rlcore.plugins"
"""The group of entry points of plugins."""


def library_folders() -> list[str]:
    """Folders and files of shared libraries, fonts and time zones."""
    triplet = sysconfig.get_config_var("MULTIARCH") or ""
    paths = ["/lib64", "/usr/lib64", "/etc/ld.so.cache", "/usr/share/fonts", "/usr/share/zoneinfo"]
    if triplet:
        paths += [f"/lib/{triplet}", f"/usr/lib/{triplet}"]
    if sys.base_prefix not in _SYSTEM:
        paths += glob.glob(os.path.join(glob.escape(sys.base_prefix), "lib", "lib*.so*"))
    return [path for path in paths if os.path.exists(path)]


def package_folders() -> list[str]:
    """Folders of the standard library and of installed packages."""
    found = [*(sysconfig.get_path(name) for name in ("stdlib", "platstdlib")), *_site_packages()]
    folders = [path for path in dict.fromkeys(found) if os.path.isdir(path)]
    return [path for path in folders if not any(_inside(path, other) for other in folders)]


def readable() -> tuple[list[str], list[str]]:
    """Paths whose trees code may read, and folders that it may list.

    Installed packages are entries of their own, so that those of rlcore and of all plugins are left out: they may
    contain tasks with their answers.
    """
    trees, folders = [*library_folders(), *DEVICES], []
    plugins = _plugin_paths()
    for folder in package_folders():
        inner = [path for path in _site_packages() if _inside(path, folder)]
        for parent in (folder, *inner):
            if _has_packages(parent) or inner:
                folders.append(parent)
                shown = [entry.path for entry in os.scandir(parent) if not entry.name.startswith(_HIDDEN)]
                trees += [path for path in shown if not _has_packages(path) and os.path.realpath(path) not in plugins]
            else:
                trees.append(parent)
    return [os.path.realpath(path) for path in trees], folders


def _plugin_paths() -> set[str]:
    """What installed plugins have in folders of packages: their modules and their metadata."""
    found = set()
    for distribution in importlib.metadata.distributions():
        entries = [entry for entry in distribution.entry_points if entry.group == _PLUGINS]
        if entries:
            modules = {entry.module.partition(".")[0] for entry in entries}
            names = modules | {f"{module}.py" for module in modules}
            names |= {file.parts[0] for file in distribution.files or ()} - {os.pardir}
            found |= {os.path.realpath(str(distribution.locate_file(name))) for name in names}
    return found


def _site_packages() -> list[str]:
    paths = (*site.getsitepackages(), sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    return [path for path in dict.fromkeys(paths) if os.path.isdir(path)]


def _has_packages(path: str) -> bool:
    return os.path.basename(path) in ("site-packages", "dist-packages")


def _inside(path: str, folder: str) -> bool:
    return path != folder and path.startswith(os.path.join(folder, ""))
