"""The libraries that RoboTwin needs in this interpreter, or a sentence that says how to get them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

from rlcore.errors import UserError

from rl_plugin_robotwin.robotwin_checkout.checkout import Checkout
from rl_plugin_robotwin.robotwin_checkout.stand_ins import inside, install, working_folder
from rl_plugin_robotwin.simulation.rendering import device_of

NEEDED = ("toppra", "transforms3d", "trimesh", "imageio", "h5py", "cv2", "scipy", "yaml", "PIL")
HOW_TO_INSTALL = (
    "uv venv --python 3.10 FOLDER; uv pip install --python FOLDER/bin/python 'numpy<2' mplib==0.2.1 'sapien>=3.0.3' "
    "gymnasium toppra transforms3d trimesh imageio h5py opencv-python-headless pyyaml scipy 'setuptools<81'; "
    "uv pip install --python FOLDER/bin/python --no-deps mani_skill; then name FOLDER/bin/python as environment.python "
    "(rlcore robotwin evaluate: --python)"
)
HOW_TO_GET_VULKAN = (
    "install a Vulkan driver; on a CPU, Mesa 23.2 or later (Debian 12: apt-get install -t bookworm-backports "
    "mesa-vulkan-drivers), and SAPIEN 3.0.3 or later"
)
_prepared: tuple[Path, str, str] | None = None


def prepare(checkout: Checkout, *, planner: str, shader: str) -> Path:
    """Make RoboTwin importable in this process, once, and return the folder in which it must run.

    Args:
        checkout: the checkout
        planner: ``mplib``, ``curobo``, or ``auto`` for CuRobo where it is installed
        shader: ``trivial``, ``default`` or ``rt``

    Pictures are drawn by the GPU of this process's place among those of the machine; see `rendering.device_of`.

    Raises:
        UserError: a library is missing, SAPIEN cannot draw, or another checkout, planner or shader is already in use.
    """
    global _prepared
    check_libraries()
    if planner == "auto":
        planner = "curobo" if importlib.util.find_spec("curobo") is not None else "mplib"
    elif planner == "curobo" and importlib.util.find_spec("curobo") is None:
        raise UserError(
            "the planner curobo is not installed",
            found="no package curobo",
            where=sys.executable,
            fix="install CuRobo 0.7.8 (it needs CUDA), or use planner=mplib",
        )
    wanted = (checkout.folder, planner, shader)
    folder = working_folder(checkout.folder)
    if _prepared is None:
        sys.path.insert(0, str(checkout.folder))
        device = device_of()
        try:
            with inside(folder):
                install(checkout.folder, planner=planner, shader=shader, device=None if device == "cpu" else device)
        except RuntimeError as error:
            raise no_renderer(error) from error
        _prepared = wanted
    elif _prepared != wanted:
        raise UserError(
            "one process runs one RoboTwin checkout, with one planner and one shader",
            found=", ".join(map(str, wanted)),
            where=f"a process that runs {', '.join(map(str, _prepared))}",
            fix="use several processes: environment.python",
        )
    return folder


def check_libraries() -> None:
    """Check that the libraries are here.

    Raises:
        UserError: one is missing, or cannot be imported.
    """
    for name in ("sapien", "mplib", *NEEDED):
        try:
            importlib.import_module(name)
        except Exception as error:  # a library that was built for another numpy raises anything
            raise UserError(
                f"RoboTwin needs the package {name}",
                found=f"{type(error).__name__}: {error}",
                where=sys.executable,
                fix=HOW_TO_INSTALL,
            ) from error
    import mplib

    if importlib.util.find_spec("mplib.sapien_utils") is None:
        raise UserError(
            "RoboTwin needs mplib 0.2",
            found=f"mplib {getattr(mplib, '__version__', '0.1')}",
            where=sys.executable,
            fix=HOW_TO_INSTALL,
        )


def no_renderer(error: BaseException) -> UserError:
    """The error of a machine on which SAPIEN cannot draw."""
    return UserError(
        "RoboTwin needs a Vulkan driver that SAPIEN can draw with",
        found=f"{type(error).__name__}: {str(error).strip()[:300]}",
        where="the set-up of a RoboTwin task",
        fix=HOW_TO_GET_VULKAN,
    )
