"""SAPIEN, or a sentence that says how to get it."""

from __future__ import annotations

import multiprocessing
import os
import warnings

from rlcore.errors import NotInstalledError
from rlcore.plugins.loading import pip_line

os.environ.setdefault("LP_NUM_THREADS", "1")  # Mesa's threads; small pictures are drawn fastest by one
try:
    with warnings.catch_warnings():
        if multiprocessing.parent_process() is not None:  # one warning of a run is enough
            warnings.filterwarnings("ignore", message=".*libvulkan")
        import sapien
except ImportError as error:
    _missing = isinstance(error, ModuleNotFoundError) and error.name == "sapien"
    raise NotInstalledError(
        "the robots need SAPIEN 3.0.3 or later" if _missing else "SAPIEN is installed, but cannot be imported",
        found=f"{type(error).__name__}: {error}",
        where="import sapien",
        fix=pip_line(["rl-plugin-robotwin[sapien]"]) if _missing else "install what it misses, or reinstall SAPIEN",
    ) from error

__all__ = ["sapien"]
