"""Renderers: which there are, and whether they work here.

SAPIEN draws with Vulkan. A driver that is too old can abort the process, so `probe` takes a picture in a child process.
"""

from __future__ import annotations

import functools
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from rlcore.errors import UserError

from rl_plugin_robotwin.simulation.rotations import Array

Backend: TypeAlias = Literal["none", "trivial", "default", "rt"]
"""``none`` draws nothing, ``trivial`` flat colours, ``default`` light and shadow, ``rt`` traces rays."""
PROBE_SECONDS = 120
HOW_TO_GET_VULKAN = (
    "install a Vulkan driver. On a CPU: Mesa 23.2 or later (Debian 12: apt-get install -t bookworm-backports "
    "mesa-vulkan-drivers); or run without pictures: environment.render=none, without environment.cameras, or the "
    "phases with the recipes toy-teacher, toy-student and toy-adversarial"
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Whether a renderer works on a device."""

    works: bool
    text: str
    """The name of the device, or the last line of the error."""


def device_of(environment: Mapping[str, str] | None = None, present: int | None = None) -> str:
    """The device that draws for this process: ``cuda:N`` for its place among the processes of a machine, or ``cpu``.

    It depends on environment variables alone, and is passed to SAPIEN, so that it is chosen before SAPIEN is imported.

    N is ``LOCAL_RANK`` modulo the visible GPUs. Like PyTorch's numbers, it counts the GPUs of ``CUDA_VISIBLE_DEVICES``.
    """
    values = os.environ if environment is None else environment
    gpus = _visible_gpus(values.get("CUDA_VISIBLE_DEVICES"), _gpus() if present is None else present)
    rank = values.get("LOCAL_RANK", "0")
    return f"cuda:{(int(rank) if rank.isdigit() else 0) % gpus}" if gpus else "cpu"


def _visible_gpus(visible: str | None, present: int) -> int:
    if visible is None:
        return present
    numbers = [part.strip() for part in visible.split(",")]
    hidden = numbers.index("-1") if "-1" in numbers else len(numbers)  # CUDA stops at the first invalid number
    return min(present, sum(bool(number) for number in numbers[:hidden]))


def _gpus() -> int:
    """The NVIDIA GPUs of this machine."""
    folder = "/proc/driver/nvidia/gpus"
    return len(os.listdir(folder)) if os.path.isdir(folder) else 0


@functools.cache
def probe(backend: Backend, device: str) -> Probe:
    """Take one picture of 8 x 8 pixels in a child process. Results are kept for this process."""
    words = [sys.executable, "-W", "ignore", "-m", "rl_plugin_robotwin.simulation.probe", backend, device]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return Probe(works=False, text=f"no picture after {PROBE_SECONDS} s")
    lines = (done.stdout if done.returncode == 0 else done.stderr or done.stdout).strip().splitlines()
    last = lines[-1].strip() if lines else f"the process ended with status {done.returncode}"
    if done.returncode < 0:
        last = (
            f"the driver ended the process with {signal.Signals(-done.returncode).name}{f': {last}' if lines else ''}"
        )
    return Probe(works=done.returncode == 0, text=last)


def renderer_for(backend: Backend | Literal["auto"], *, needed: bool, wished: bool) -> Renderer | None:
    """The renderer of an environment.

    Args:
        backend: a `Backend`, or ``auto``: ``default`` on a GPU and ``trivial`` on a CPU.
        needed: whether a policy needs pictures.
        wished: whether people would like pictures. With ``auto``, they get none if nothing can draw.

    Raises:
        UserError: the renderer does not work here, but is needed, or was named.
    """
    if backend == "none" or not (needed or wished):
        return None
    device = device_of()
    chosen: Backend = backend if backend != "auto" else "trivial" if device == "cpu" else "default"
    if backend == "auto" and not needed and not probe(chosen, device).works:
        _log.warning("no video: %s. To get one, %s", probe(chosen, device).text, HOW_TO_GET_VULKAN)
        return None
    renderer = Renderer(chosen, device)
    _log.info("pictures are drawn with the renderer %s on %s", chosen, renderer.draws_on)
    return renderer


class Renderer:
    """A renderer that was found to work.

    Args:
        backend: any but ``none``.
        device: as `device_of`.

    Raises:
        UserError: it does not work here.
    """

    def __init__(self, backend: Backend, device: str | None = None):
        self.backend, self.device = backend, device or device_of()
        found = probe(backend, self.device)
        if not found.works:
            raise UserError(
                f"pictures need a Vulkan driver that supports the renderer {backend!r}",
                found=found.text,
                where=f"a picture of 8 x 8 pixels on the device {self.device}",
                fix=HOW_TO_GET_VULKAN,
            )
        self.draws_on = found.text
        """The name of the device."""

    def system(self) -> Any:
        """SAPIEN's system for a scene."""
        sapien = _sapien()
        if self.backend == "rt":
            sapien.render.set_ray_tracing_samples_per_pixel(8)
            sapien.render.set_ray_tracing_path_depth(4)
        return sapien.render.RenderSystem(sapien.Device(self.device))

    def camera(self, width: int, height: int) -> Any:
        """A camera component."""
        sapien = _sapien()
        sapien.render.set_camera_shader_dir(self.backend)
        return sapien.render.RenderCameraComponent(width, height)

    def pose(self, position: Array, rotation: Array) -> Any:
        """A pose of SAPIEN."""
        return _sapien().Pose(position.astype(np.float32), rotation.astype(np.float32))

    def stand(self, scene: Any, component: Any, position: Array, rotation: Array) -> None:
        """Put a camera into a scene, at a place of its own."""
        entity = _sapien().Entity()
        entity.add_component(component)
        entity.pose = self.pose(position, rotation)
        scene.add_entity(entity)


def _sapien() -> Any:
    from rl_plugin_robotwin.simulation.simulator import sapien

    return sapien
