"""The policies that can be evaluated: the expert, the controls, and the model of a run or folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from rlcore.errors import UserError
from rlcore.runs.checkpoints import best_checkpoint, last_checkpoint, run_of
from rlcore.runs.directory import config_layer

from rl_plugin_robotwin.evaluation.arenas import Arena
from rl_plugin_robotwin.evaluation.results import Candidate

Action = NDArray[Any]
"""An action of the environment, or a part of an expert's script; see `Arena.step`."""
CONTROLS = ("expert", "random", "no-op")
WALK = 0.1
"""Largest change of a joint (rad) in one action of the random walk, and of half the opening."""


class Policy(Protocol):
    """Chooses actions for one episode after another."""

    def prepare(self, arena: Arena, candidate: Candidate) -> None:
        """Called before the reset of an episode."""
        ...

    def begin(self, observation: Mapping[str, Any], info: Mapping[str, Any]) -> None:
        """Called after the reset."""
        ...

    def actions(self, observation: Mapping[str, Any]) -> Sequence[Action]:
        """The next actions, at least one; none if the policy has nothing more to do."""
        ...


class Expert:
    """The scripted expert, acting through the environment."""

    def __init__(self) -> None:
        self._script: Iterator[Action] = iter(())

    def prepare(self, arena: Arena, candidate: Candidate) -> None:
        """As `Policy.prepare`."""
        self._script = arena.script(candidate)

    def begin(self, observation: Mapping[str, Any], info: Mapping[str, Any]) -> None:
        """As `Policy.begin`."""

    def actions(self, observation: Mapping[str, Any]) -> Sequence[Action]:
        """As `Policy.actions`."""
        action = next(self._script, None)
        return [] if action is None else [action]


class Control:
    """A policy that knows nothing: it moves at random, or not at all. Its numbers depend on the seed alone.

    Args:
        moves: whether it moves
    """

    def __init__(self, *, moves: bool) -> None:
        self._moves = moves

    def prepare(self, arena: Arena, candidate: Candidate) -> None:
        """As `Policy.prepare`."""
        space: Any = arena.environment.action_space
        self._low, self._high = space.low, space.high
        self._generator = np.random.default_rng([candidate.seed, 1])

    def begin(self, observation: Mapping[str, Any], info: Mapping[str, Any]) -> None:
        """As `Policy.begin`."""
        targets = np.asarray(observation["target"], dtype=np.float32)
        changes = bool((self._low == -1).all() and (self._high == 1).all())
        if not changes and targets.shape != self._low.shape:
            fix = "control=qpos, control=delta_qpos or control=delta_ee"
            raise UserError("this policy does not act with poses", found="control=ee", where="the options", fix=fix)
        self._changes = changes
        self._now = np.zeros_like(self._low) if changes else np.clip(targets, self._low, self._high)

    def actions(self, observation: Mapping[str, Any]) -> Sequence[Action]:
        """As `Policy.actions`."""
        if not self._moves:
            return [self._now]
        if self._changes:
            return [self._generator.uniform(self._low, self._high).astype(np.float32)]
        step = self._generator.uniform(-WALK, WALK, self._now.shape)
        self._now = np.clip(self._now + step, self._low, self._high).astype(np.float32)
        return [self._now]


class Model:
    """The model of a folder, without noise. It needs the extra ``train``.

    Args:
        folder: of the model
        executed: actions of each chunk that are executed; None for all
        inputs: the key ``sampler.inputs``: which observations the model sees
    """

    def __init__(self, folder: Path, *, executed: int | None = None, inputs: Mapping[str, Any] | None = None) -> None:
        import torch
        from rlcore_control.models.loading import load_action_model
        from rlcore_control.vector import bounded

        torch.set_num_threads(1)  # equal numbers whatever the number of workers
        self._torch, self._folder, self._executed = torch, folder, executed
        self._inputs, self._bounded = inputs, bounded
        self._model = load_action_model(folder).eval()
        self._view: Any = None

    def prepare(self, arena: Arena, candidate: Candidate) -> None:
        """As `Policy.prepare`. Raises UserError if the model needs other observations or actions."""
        from rlcore_control.models.observations import View

        environment = arena.environment
        self._space = environment.action_space
        self._view = View.of(environment.observation_space, self._space, self._inputs)
        self._view.check_fits(self._model.spaces, named="the environment", where=str(self._folder))

    def begin(self, observation: Mapping[str, Any], info: Mapping[str, Any]) -> None:
        """As `Policy.begin`."""
        self._instruction = self._model.encode_instruction(str(info["instruction"]))

    def actions(self, observation: Mapping[str, Any]) -> Sequence[Action]:
        """As `Policy.actions`, within the limits of the environment as in training."""
        torch = self._torch
        seen = {name: torch.from_numpy(np.array(value))[None] for name, value in self._view.arrays(observation).items()}
        if self._model.instruction_length:
            seen["instruction"] = self._instruction[None]
        with torch.no_grad():
            chunk = self._model.mode(seen)[0].numpy().astype(np.float32)
        return [self._bounded(action, self._space) for action in chunk[: self._executed]]


def open_policy(name: str, *, executed: int | None = None, inputs: Mapping[str, Any] | None = None) -> Policy:
    """The policy of a name.

    Args:
        name: one of `CONTROLS`, or the path of a run, a checkpoint or a model's folder
        executed: as `Model`
        inputs: as `Model`

    Raises:
        UserError: there is none.
    """
    if name == "expert":
        return Expert()
    if name in CONTROLS:
        return Control(moves=name == "random")
    return Model(model_folder(name), executed=executed, inputs=inputs)


def model_folder(name: str) -> Path:
    """The folder with the model of a run (its best checkpoint, or else its last one), checkpoint or folder.

    Raises:
        UserError: there is no such folder, or nothing is saved in it.
    """
    path = Path(name).expanduser()
    if not path.is_dir():
        fix = f"use {', '.join(CONTROLS)}, or the folder of a run or of a model"
        raise UserError("there is no such policy", found=name, where="--policy", fix=fix)
    if (found := run_of(path)) is not None:
        run, checkpoint = found
        checkpoint = checkpoint or best_checkpoint(run) or last_checkpoint(run)
        if checkpoint is None:
            fix = "train it with checkpoint.every"
            raise UserError("the run has no checkpoint", found=name, where="--policy", fix=fix)
        path = checkpoint / "model" if (checkpoint / "model").is_dir() else checkpoint
    if not (path / "config.json").is_file():
        what = "the networks of a phase" if (path / "model.pt").is_file() else "no config.json"
        fix = "give a run that trains a policy, such as rlcore run -p robotwin, or the folder of a model"
        raise UserError("the folder has no policy of a task", found=f"{what} in {path}", where="--policy", fix=fix)
    return path


def tables_of_run(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keys of ``[environment]``, and the table ``inputs`` of ``[sampler]``, of the run that a policy belongs to.

    Empty for other policies, and without an environment of this plugin.
    """
    path = Path(name).expanduser()
    found = run_of(path) if name not in CONTROLS and path.is_dir() else None
    if found is None:
        return {}, {}
    tree = config_layer(found[0]).tree
    environment = dict(tree.get("environment", {}))
    if environment.get("id") not in ("robotwin", "robotwin-checkout"):
        environment = {}
    return environment, dict(tree.get("sampler", {}).get("inputs", {}))
