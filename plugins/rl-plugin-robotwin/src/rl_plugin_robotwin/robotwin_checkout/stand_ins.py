"""Stand-ins for what RoboTwin imports but does not need, or cannot use here. The checkout itself is never changed."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import multiprocessing
import os
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EMPTY_TABLES: dict[str, object] = {"item_names": [], "list_of_items": {}}


def install(checkout: Path, *, planner: str, shader: str, device: str | None = None) -> None:
    """Put stand-ins into ``sys.modules``, before anything of RoboTwin is imported.

    Args:
        checkout: its folder, which is in ``sys.path``
        planner: ``mplib`` puts `MplibPlanner` in place of RoboTwin's CuRobo planner
        shader: the shader of cameras instead of RoboTwin's ray tracing, or ``rt``
        device: draws the pictures, such as ``cuda:1``; None for SAPIEN's choice

    Raises:
        RuntimeError: SAPIEN cannot draw with the device.
    """
    if device is not None:
        use_device(device)
    if importlib.util.find_spec("open3d") is None:
        sys.modules["open3d"] = types.ModuleType("open3d")
    if importlib.util.find_spec("torch") is None:
        sys.modules.update(_torch())
    if shader != "rt":
        _use_shader(shader)
    if planner == "mplib":
        _replace_curobo(checkout)


def _torch() -> dict[str, types.ModuleType]:
    """What RoboTwin takes from torch: a seed that nothing reads, and pipes."""
    torch, processes = types.ModuleType("torch"), types.ModuleType("torch.multiprocessing")
    torch.manual_seed = lambda seed: None  # type: ignore[attr-defined]
    processes.Pipe, processes.Process = multiprocessing.Pipe, multiprocessing.Process  # type: ignore[attr-defined]
    torch.multiprocessing = processes  # type: ignore[attr-defined]
    return {"torch": torch, "torch.multiprocessing": processes}


def use_device(device: str) -> None:
    """Draw all scenes of this process with a device. RoboTwin leaves the choice to SAPIEN, which takes the first GPU.

    Raises:
        RuntimeError: there is no such device, or it cannot draw.
    """
    import sapien.render

    system, chosen = sapien.render.RenderSystem, sapien.Device(device)
    _kept.append(system(chosen))  # SAPIEN's renderer is that of the first system, as long as one exists
    sapien.pysapien.render.RenderSystem = sapien.render.RenderSystem = lambda device=chosen: system(device)


_kept: list[Any] = []


def _use_shader(shader: str) -> None:
    """Take pictures with another shader than the ray tracing that RoboTwin asks for."""
    import sapien.render

    chosen = sapien.render.set_camera_shader_dir
    sapien.render.set_camera_shader_dir = lambda name: chosen(shader)
    for name in ("set_ray_tracing_samples_per_pixel", "set_ray_tracing_path_depth", "set_ray_tracing_denoiser"):
        setattr(sapien.render, name, lambda value: None)


def _replace_curobo(checkout: Path) -> None:
    """Put our planner where RoboTwin's robot imports CuRobo's, which is missing there without CuRobo.

    The module of planners is run before its package, because that package imports the robot at once.
    """
    from rl_plugin_robotwin.robotwin_checkout.planner import MplibPlanner

    sys.modules["curobo"] = None  # type: ignore[assignment]  # its import fails, also where it is installed
    name = "envs.robot.planner"
    spec = importlib.util.spec_from_file_location(name, checkout / "envs" / "robot" / "planner.py")
    assert spec is not None
    assert spec.loader is not None
    planner = importlib.util.module_from_spec(spec)
    with quiet():
        spec.loader.exec_module(planner)
    planner.CuroboPlanner = MplibPlanner  # type: ignore[attr-defined]
    sys.modules[name] = planner


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Print nothing meanwhile: RoboTwin prints a line per action and the tracebacks of missing packages."""
    with contextlib.ExitStack() as stack:
        nothing = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
        stack.enter_context(contextlib.redirect_stdout(nothing))
        stack.enter_context(contextlib.redirect_stderr(nothing))
        yield


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Be in a folder meanwhile: RoboTwin names its files relative to the current one."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def working_folder(checkout: Path) -> Path:
    """The folder in which RoboTwin's relative names are valid: the checkout, or one with empty tables of assets."""
    if (checkout / "assets" / "objects" / "objaverse" / "list.json").is_file():
        return checkout
    folder = Path(tempfile.gettempdir()) / f"rlcore-robotwin-{os.getuid()}"
    for name in ("objaverse/list.json", "same.json"):
        file = folder / "assets" / "objects" / name
        if not file.is_file():
            file.parent.mkdir(parents=True, exist_ok=True)
            temporary = file.with_name(f".{file.name}.{os.getpid()}")
            temporary.write_text(json.dumps(EMPTY_TABLES))
            os.replace(temporary, file)
    return folder


def task_class(name: str) -> Any:
    """The class of a RoboTwin task."""
    import importlib

    with quiet():
        return getattr(importlib.import_module(f"envs.{name}"), name)
