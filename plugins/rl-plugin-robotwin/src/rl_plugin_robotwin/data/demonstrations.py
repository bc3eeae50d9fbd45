"""Demonstrations of the experts, for cloning: recorded from seeds, and kept in memory or in a NumPy archive.

The archive is read without unpickling anything. It has ``actions`` (N, A), ``observation/<key>`` (N, ...), ``lengths``
(E,), ``seeds`` (E,) and ``instructions`` (E,), for E episodes with N steps together, and ``environment``, a JSON text
with `MEANING`.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rlcore.atomic_files import whole
from rlcore.console.wording import counted
from rlcore.errors import DataError, EnvironmentFailure, UserError

from rl_plugin_robotwin.config import EnvironmentConfig, PrepareConfig
from rl_plugin_robotwin.data.seeded_tasks import play
from rl_plugin_robotwin.environment import BimanualEnvironment
from rl_plugin_robotwin.experts import expert_actions


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """A successful episode of the expert, of T steps."""

    seed: int
    """The seed of the reset. The actions, executed after a reset with it, give the same episode again."""
    instruction: str
    observations: dict[str, NDArray[np.generic]]
    """What the environment returned before each action: T rows each."""
    actions: NDArray[np.float32]
    """(T, A) in the units of the environment."""

    def __len__(self) -> int:
        return len(self.actions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An episode of the expert, with its outcome."""

    demonstration: Demonstration
    success: bool
    """Whether the task was done at the end."""


def attempt(environment: BimanualEnvironment, seed: int) -> Attempt:
    """Let the expert play the episode of a seed until it succeeds, or the plan or the episode ends."""
    observation, info = environment.reset(seed=seed)
    played = play(environment, observation, expert_actions(environment))
    demonstration = Demonstration(
        seed=seed,
        instruction=str(info["instruction"]),
        observations=played.observations,
        actions=played.actions,
    )
    return Attempt(demonstration=demonstration, success=played.success)


def demonstrations(environment: BimanualEnvironment, count: int, *, seed: int) -> Iterator[Demonstration]:
    """Successful episodes of the expert, from consecutive seeds. Episodes that fail or cannot begin are left out.

    Args:
        environment: it is reset for each episode.
        count: how many.
        seed: the first seed.

    Raises:
        DataError: the expert fails in more than half of the episodes.
    """
    found, failure = 0, ""
    for number in range(2 * count + 8):
        if found == count:
            return
        try:
            tried = attempt(environment, seed + number)
        except EnvironmentFailure as error:
            failure = failure or f"; first failure: {error}"
            continue
        if tried.success:
            found += 1
            yield tried.demonstration
    if found < count:
        raise DataError(
            f"the expert of {environment.task.name} fails too often to record {count} demonstrations",
            found=f"{found} in {2 * count + 8} episodes, from seed {seed} on{failure}",
            where="environment",
            fix=_advice(environment),
        )


def _advice(environment: BimanualEnvironment) -> str:
    """How the expert would succeed more often."""
    config, limit = environment.config, environment.task.step_limit
    name = f"{environment.task.name} needs up to {limit}"
    parts = (
        [f"raise environment.max_steps from {environment.max_steps}: {name}"] if environment.max_steps < limit else []
    )
    if config.domain_randomization.random_table_height or config.random_home:
        parts.append("lower environment.domain_randomization.random_table_height and environment.random_home")
    return "; or ".join(parts) or "choose other seeds or another task"


PREFIX = "observation/"
MEANING = ("task", "control", "scales", "timing")
"""Keys of the environment on which the meaning of actions depends."""


def prepare(config: PrepareConfig) -> Mapping[str, object]:
    """Record demonstrations of an expert in a file, and return a summary.

    Raises:
        UserError: the file exists already, or its name does not end in ``.npz``.
        DataError: the expert fails too often.
    """
    if config.out.suffix != ".npz":
        raise UserError("demonstrations are written to an .npz file", found=str(config.out), where="out")
    if config.out.exists():
        raise UserError("the file exists already", found=str(config.out), where="out", fix="give another name")
    own = config.model_dump(include=set(EnvironmentConfig.model_fields))
    environment = BimanualEnvironment(EnvironmentConfig.model_validate(own))
    try:
        shown = list(demonstrations(environment, config.count, seed=config.first_seed))
    finally:
        environment.close()
    write(config.out, shown, environment.config)
    steps = sum(map(len, shown))
    last = max(one.seed for one in shown)
    return {
        "task": config.task,
        "seeds": f"{config.first_seed} to {last}",
        "written": f"{counted(len(shown), 'episode')}, {counted(steps, 'step')}, to {config.out}",
    }


def write(path: Path, shown: Sequence[Demonstration], config: EnvironmentConfig) -> None:
    """Write an archive. The file is complete or absent."""
    arrays = {PREFIX + key: np.concatenate([one.observations[key] for one in shown]) for key in shown[0].observations}
    arrays["actions"] = np.concatenate([one.actions for one in shown])
    arrays["lengths"] = np.array([len(one) for one in shown])
    arrays["seeds"] = np.array([one.seed for one in shown])
    arrays["instructions"] = np.array([one.instruction for one in shown])
    arrays["environment"] = np.array(json.dumps(config.model_dump(mode="json", include=set(MEANING))))
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as file:
        np.savez_compressed(file, **arrays)


def read(path: Path, config: EnvironmentConfig | None = None) -> Iterator[Demonstration]:
    """The demonstrations of an archive.

    Args:
        path: the archive
        config: the environment in which the actions are to be imitated; None does not compare it

    Raises:
        DataError: the file is not there, not an archive of demonstrations, damaged, or of another environment.
    """
    try:
        if not zipfile.is_zipfile(path):
            raise ValueError("it is no .npz archive" if path.is_file() else "there is no such file")
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        made = json.loads(str(arrays.pop("environment", "{}")))
        lengths = arrays.pop("lengths")
        ends = np.cumsum(lengths)
        actions, seeds, words = (arrays.pop(name) for name in ("actions", "seeds", "instructions"))
        if lengths.min() < 1 or ends[-1] != len(actions) or any(len(rows) != len(actions) for rows in arrays.values()):
            raise ValueError("its arrays have different lengths")
        if not all(np.isfinite(rows).all() for rows in (actions, *arrays.values())):
            raise ValueError("it has numbers that are not finite")
    except (OSError, ValueError, TypeError, KeyError, IndexError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(
            "demonstrations cannot be read",
            found=str(error) or type(error).__name__,
            where=f"data.demonstrations, {path}",
            fix="write the file with rlcore data prepare robotwin",
        ) from error
    own = config.model_dump(mode="json") if config is not None else made
    if other := [key for key in made if made[key] != own.get(key)]:
        raise DataError(
            "demonstrations of another environment cannot be imitated",
            found=", ".join(f"environment.{key}={made[key]}, but {own.get(key)} in this run" for key in other),
            where=f"data.demonstrations, {path}",
            fix="record them with the same environment keys, or remove data.demonstrations",
        )
    for end, start, seed, text in zip(ends, np.append(0, ends[:-1]), seeds, words, strict=True):
        yield Demonstration(
            seed=int(seed),
            instruction=str(text),
            observations={name.removeprefix(PREFIX): rows[start:end] for name, rows in arrays.items()},
            actions=actions[start:end],
        )
