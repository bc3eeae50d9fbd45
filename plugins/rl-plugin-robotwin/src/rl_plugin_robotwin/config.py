"""The configuration of the environment and of the datasets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator
from rlcore.config.schema import LARGEST, Table

from rl_plugin_robotwin.simulation.cameras import NAMES, CameraConfig
from rl_plugin_robotwin.simulation.control_modes import Mode, Scales
from rl_plugin_robotwin.simulation.randomisation import RandomisationConfig


class EnvironmentConfig(Table):
    """Two arms at a table."""

    task: str = "reach"
    """The task: reach, lift, stack_two, rank_three or handover."""
    control: Mode = "delta_qpos"
    """What the numbers of an action mean: ``qpos`` joint positions, ``ee`` poses of the tools, or changes of them."""
    scales: Scales = Scales()
    """What a change of 1 means."""
    timing: Literal["fixed", "topp"] = "fixed"
    """How long an action takes: one control period (``fixed``), or as long as a time-optimal move to its goal
    (``topp``), as in RoboTwin. ``topp`` needs ``control=qpos`` or ``ee``."""
    max_steps: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Actions of an episode; none for the task's own limit. With ``timing=fixed``, there are 20 in a second."""
    end_on_success: bool = True
    """Whether success ends an episode. If not, `success_once` and `success_at_end` can differ."""
    render: Literal["auto", "none", "trivial", "default", "rt"] = "auto"
    """The renderer: flat colours (``trivial``), light and shadow (``default``), ray tracing (``rt``), or ``none``,
    which needs no Vulkan driver. ``auto`` is ``none`` without cameras; else ``default`` on a GPU and ``trivial`` on a
    CPU."""
    cameras: Mapping[str, CameraConfig] = {}
    """What policies see: ``head``, ``left_wrist`` and ``right_wrist``, each with its size."""
    state: Literal["auto", "robot", "all"] = "auto"
    """What the observation ``state`` contains: the measured joints and openings (``robot``), or also the poses of tools
    and boxes (``all``). ``auto`` is ``robot`` with cameras and ``all`` without."""
    watch: CameraConfig | None = None
    """The camera of ``render()``, for people who watch. It needs a renderer."""
    instructions: Literal["seen", "unseen"] = "seen"
    """Which instructions are drawn."""
    looks: Literal["seen", "unseen"] = "seen"
    """Which looks of ``domain_randomization`` are drawn."""
    domain_randomization: RandomisationConfig = RandomisationConfig()
    """What differs between episodes besides the task."""
    random_home: Annotated[float, Field(ge=0, le=0.2)] = 0.0
    """Largest displacement of each joint at the beginning of an episode, in radians."""
    reset_attempts: Annotated[int, Field(ge=1, le=1000)] = 10
    """Seeds that a reset tries at most, when boxes do not come to rest."""

    @model_validator(mode="after")
    def _consistent(self) -> EnvironmentConfig:
        unknown = sorted(set(self.cameras) - set(NAMES))
        if unknown:
            raise ValueError(f"there is no camera {unknown[0]!r}; cameras are {', '.join(NAMES)}")
        if self.timing == "topp" and self.control not in ("qpos", "ee"):
            raise ValueError(
                f"timing=topp moves to absolute goals, but control={self.control} has changes: use control=qpos or "
                "control=ee, or timing=fixed"
            )
        if self.render == "none" and (self.cameras or self.watch):
            raise ValueError("cameras need a renderer: remove render=none, or the cameras")
        return self


HELD_OUT = 2**30
"""First seed of the evaluation tasks."""
SHOWN = 2**29
"""First seed of the demonstrations."""
MOST = 2**20
"""Largest number of tasks."""


class SeedsConfig(Table):
    """``[data]``: seeds of the environment's task. Training, evaluation and demonstrations never share a seed."""

    train: Annotated[int, Field(ge=1, le=MOST)] = 4096
    """Number of training tasks, with the seeds from 0."""
    evaluation: Annotated[int, Field(ge=1, le=MOST)] = 64
    """Number of held-out tasks, with the seeds from 2³⁰."""


class DataConfig(SeedsConfig):
    """``[data]`` of a bundled task: seeds, and demonstrations of its expert."""

    demonstrations: Path | None = None
    """A file of ``rlcore data prepare robotwin``; none to record demonstrations of the expert at the start of a run."""


class PrepareConfig(EnvironmentConfig):
    """Options of ``rlcore data prepare robotwin``: the environment, and what is recorded."""

    out: Path
    """The file to write, which ends in ``.npz``."""
    count: Annotated[int, Field(ge=1, le=LARGEST)] = 50
    """Number of successful episodes of the expert."""
    first_seed: Annotated[int, Field(ge=0, le=2**31)] = SHOWN
    """Seed of the first episode."""
