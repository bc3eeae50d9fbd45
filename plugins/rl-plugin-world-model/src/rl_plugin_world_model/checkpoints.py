"""Checkpoints of the phases.

::

    checkpoints/000100/        written under another name, flushed to disk, then renamed
        model.pt               the networks and their configuration
        training_state.pt      optimisers, episodes, statistics, position
        manifest.json          size and checksum of every file
    checkpoint-100 -> checkpoints/000100

All files are read with ``weights_only``. No random state is stored, because all randomness is keyed by seed, episode
and step.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from rlcore.atomic_files import beside, flush
from rlcore.console.wording import counted
from rlcore.errors import UserError, WriteError
from rlcore.runs.checkpoint_folder import check_checkpoint, has_manifest, write_manifest
from rlcore_control.episodes import EpisodeBuffer
from rlcore_trainer.distributed.strategy import Strategy
from torch import nn

from rl_plugin_world_model.config import NetworkConfig
from rl_plugin_world_model.sequences import Interface

MODEL, STATE = "model.pt", "training_state.pt"
KEYS = {
    MODEL: {"world_model", "network", "sizes", "phase"},
    STATE: {"episode", "total_steps", "updates", "optimiser", "buffers"},
}
"""What each file has at least."""


def save(run: Path, step: int, model: Mapping[str, Any], state: Mapping[str, Any], *, keep: int) -> Path:
    """Write a checkpoint and its link, and remove the oldest ones.

    Args:
        run: the run directory
        step: number of episodes so far
        model: contents of ``model.pt``
        state: contents of ``training_state.pt``
        keep: number of checkpoints to keep

    Raises:
        WriteError: the checkpoint cannot be written.
    """
    target = run / "checkpoints" / f"{step:06d}"
    partial = beside(target)
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        torch.save(dict(model), partial / MODEL)
        torch.save(dict(state), partial / STATE)
        write_manifest(partial, step)
        for path in (*partial.iterdir(), partial):
            flush(path)
        if target.exists():
            shutil.rmtree(target)
        partial.rename(target)
        link = run / f"checkpoint-{step}"
        link.unlink(missing_ok=True)
        link.symlink_to(target.relative_to(run))
        for old in sorted(path for path in target.parent.iterdir() if path.name.isdigit())[:-keep]:
            (run / f"checkpoint-{int(old.name)}").unlink(missing_ok=True)
            shutil.rmtree(old.rename(beside(old)))
    except (OSError, RuntimeError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise not_written("the checkpoint", target, error) from error
    return target


def not_written(what: str, path: Path, error: BaseException) -> WriteError:
    """Return the error for a file that cannot be written, with the space that is left."""
    first = (str(error).splitlines() or [type(error).__name__])[0]
    if "inline_container" in first:  # PyTorch names neither the file nor the cause
        first = "PyTorch could not write all of it"
    room = next(folder for folder in path.absolute().parents if folder.is_dir())
    return WriteError(
        f"{what} cannot be written",
        found=f"{first}; {shutil.disk_usage(room).free / 1e6:,.1f} MB are free",
        where=str(path),
        fix="free disk space, then use --resume, which continues from the last checkpoint or else starts again",
    )


def read(folder: Path, name: str, *, where: str, device: torch.device) -> dict[str, Any]:
    """Return the contents of ``model.pt`` or ``training_state.pt``.

    Args:
        folder: a checkpoint
        name: `MODEL` or `STATE`
        where: where the folder was named, for messages
        device: where tensors are placed

    Raises:
        UserError: the folder is not a complete checkpoint of a phase.
    """
    if not (folder / name).is_file():
        found = f"no such folder: {folder}" if not folder.is_dir() else f"{folder} has no {name}"
        raise UserError("a checkpoint of a phase is needed", found=found, where=where, fix="give …/checkpoint-N")
    try:
        if has_manifest(folder):
            check_checkpoint(folder.resolve(), checksums=True)
        contents = torch.load(folder / name, map_location=device, weights_only=True)
        if not isinstance(contents, dict):
            raise TypeError(f"a {type(contents).__name__}")
        if lacks := KEYS[name] - contents.keys():
            raise UserError("parts are missing", found=f"no {', '.join(sorted(lacks))}")
    except Exception as error:  # PyTorch raises any for a file of another format
        told = error.found if isinstance(error, UserError) else type(error).__name__
        found = f"{told} in {folder / name}"
        fix = "give another checkpoint"
        raise UserError("the checkpoint is damaged", found=found, where=where, fix=fix) from error
    return dict(contents)


def restore(module: nn.Module, state: Mapping[str, Any], *, what: str, where: str) -> None:
    """Load the weights of a module, all of them and nothing else.

    Raises:
        UserError: names or shapes differ, or a weight is not finite; the message lists them.
    """
    own = module.state_dict()
    missing, extra = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
    other = [name for name in own.keys() & state.keys() if own[name].shape != state[name].shape]
    lists = {"missing": missing, "unexpected": extra, "of another shape": sorted(other)}
    if flaws := [f"{len(names)} {kind}, such as {names[0]}" for kind, names in lists.items() if names]:
        raise UserError(
            f"the checkpoint is not one of this {what}",
            found="; ".join(flaws),
            where=where,
            fix="give a checkpoint of the same environment and network",
        )
    for name, weight in state.items():
        if not torch.isfinite(weight).all():
            fix = "give an earlier checkpoint"
            raise UserError(f"the {what} cannot be used", found=f"NaN or infinity in {name}", where=where, fix=fix)
    module.load_state_dict(dict(state))


def stored_episodes(buffers: Sequence[EpisodeBuffer], strategy: Strategy) -> dict[str, Any]:
    """Return the stored episodes of all processes, by slot."""
    mine = {}
    for i, buffer in enumerate(buffers):
        torch.save(buffer.state_dict(), found := io.BytesIO())
        packed = torch.frombuffer(found.getbuffer(), dtype=torch.uint8)
        mine[strategy.processes.rank.index * len(buffers) + i] = packed
    return {str(slot): packed.cpu() for slot, packed in strategy.processes.union(mine).items()}


def restore_episodes(
    buffers: Sequence[EpisodeBuffer], state: Mapping[str, Any], strategy: Strategy, *, where: str
) -> None:
    """Restore the buffers of this process from `stored_episodes`.

    Raises:
        UserError: the run had another number of slots.
    """
    rank = strategy.processes.rank
    if len(state) != rank.world_size * len(buffers):
        raise UserError(
            f"the run has {counted(len(state), 'environment')} in all processes together",
            found=f"strategy.processes × trainer.num_envs = {rank.world_size} × {len(buffers)}",
            where=where,
            fix="resume with as many environments in all",
        )
    for i, buffer in enumerate(buffers):
        packed = io.BytesIO(state[str(rank.index * len(buffers) + i)].cpu().numpy().tobytes())
        buffer.load_state_dict(torch.load(packed, weights_only=True))


def loaded_model(folder: str, *, where: str, device: torch.device) -> tuple[dict[str, Any], NetworkConfig]:
    """Return ``model.pt`` of a checkpoint, with its configuration. Raises `UserError`."""
    model = read(Path(folder).expanduser(), MODEL, where=where, device=device)
    try:
        return model, NetworkConfig(**model["network"])
    except (ValidationError, TypeError) as error:
        fix = "give a checkpoint of a phase"
        raise UserError(
            "a checkpoint of a phase is needed", found=f"{folder}: {error}", where=where, fix=fix
        ) from error


def check_environment(model: Mapping[str, Any], interface: Interface, *, where: str) -> None:
    """Check that the networks of ``model.pt`` are those of an environment like the present one.

    Raises:
        UserError: the environment has other actions, another state or pictures of another size.
    """
    patch, (height, width) = model["network"]["patch"], model["world_model"]["code.marginal_hwK"].shape[:2]
    told = [
        f"actions of {sizes[0]} numbers, a state of {sizes[1]} and pictures of {size[1]} x {size[0]}"
        for sizes, size in (
            (model["sizes"], (height * patch, width * patch)),
            (interface.sizes, interface.picture),
        )
    ]
    if told[0] != told[1]:
        raise UserError(
            "the checkpoint is from another environment",
            found=f"{told[0]}; this environment has {told[1]}",
            where=where,
            fix="give a checkpoint of the same environment, or its keys of [environment]",
        )
