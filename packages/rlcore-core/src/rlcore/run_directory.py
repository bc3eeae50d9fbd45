"""The folder of one run: plain files that explain it, written whole or not at all.

::

    runs/2026-11-20-gsm8k-tools-a1b2/
      asked.toml         recipe, files and overrides as they were given
      config.toml        every value, with its origin as a comment
      environment.json   versions, plugins, interpreter, platform, commit, arguments
      metrics.jsonl      one object per step, flat names
      rollouts/          scored groups, one file per step and purpose
      media/             pictures and films
      checkpoints/       NNNNNN/, one folder per kept step
      model/             what a ``builtin:`` builder made
      output.log         what was said
"""

from __future__ import annotations

import datetime
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rlcore.config.layers import Layer, leaves
from rlcore.config.origins import KeyPath, parse_toml, read_text
from rlcore.config.resolve import Resolved
from rlcore.config.secrets import mask_arguments
from rlcore.config.write import toml_text
from rlcore.errors import UserError
from rlcore.run_layout import back_up, lay_out, stamped_name
from rlcore.run_lock import take_lock
from rlcore.surroundings import changed_versions, surroundings
from rlcore.whole_files import sweep, told, write_whole

LONGEST_NAME_BYTES = 200
"""Of a run's folder; file systems take 255."""
FOLDERS = ("rollouts", "media", "checkpoints")
_CHECKPOINT = re.compile(r"[0-9]{6,}")
_RECORD = re.compile(r"[a-z]+-([0-9]{6,})\.jsonl\.gz")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the person gave, before defaults."""

    recipe: str = ""
    files: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()


class RunDirectory:
    """One run's folder, locked against other processes until `close`."""

    def __init__(self, path: Path, lock: IO[str]) -> None:
        self.path = path
        self._lock = lock
        self._before: tuple[int, str] | None = None
        """The step that a resumed run went on from, and its configuration until then."""

    @classmethod
    def create(cls, resolved: Resolved, asked: Asked) -> RunDirectory:
        """A new folder: written beside under a hidden name, then renamed.

        Raises:
            UserError: the given name is taken; an existing folder is never reused.
        """
        parent = Path(resolved.config.runs)
        try:
            parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make the folder of runs {parent}", found=str(error), mend="runs=FOLDER") from None
        if resolved.config.name is not None:
            check_name(resolved)
        temporary = parent / f".making-{os.getpid()}-{secrets.token_hex(4)}"
        lock: IO[str] | None = None
        try:
            for folder in FOLDERS:
                (temporary / folder).mkdir(parents=True)
            (temporary / "asked.toml").write_text(toml_text(_asked(asked)), encoding="utf-8")
            (temporary / "config.toml").write_text(resolved.text(), encoding="utf-8")
            (temporary / "environment.json").write_text(_json(surroundings(list(asked.argv))), encoding="utf-8")
            (temporary / "output.log").touch()
            if resolved.config.layout == "stamped":
                lay_out(temporary, asked.argv)
            lock = take_lock(temporary)
            path = _rename_to_free_name(temporary, parent, resolved)
        except BaseException:
            if lock is not None:
                lock.close()
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        return cls(path, lock)

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """An existing run, to go on with it.

        Raises:
            UserError: it is no run directory, or another process writes in it.
        """
        if not (path / "config.toml").is_file():
            mend = "name a folder that rlcore run made, or a folder in its checkpoints/"
            raise UserError(f"{path} is not a run directory", found="no config.toml in it", mend=mend)
        return cls(path, take_lock(path))

    @property
    def rollouts(self) -> Path:
        """Scored groups."""
        return self.path / "rollouts"

    @property
    def media(self) -> Path:
        """Pictures and films."""
        return self.path / "media"

    @property
    def checkpoints(self) -> Path:
        """Where ``NNNNNN/`` folders are put, each renamed into place when whole."""
        return self.path / "checkpoints"

    @property
    def metrics(self) -> Path:
        """``metrics.jsonl``."""
        return self.path / "metrics.jsonl"

    def write(self, name: str, text: str) -> None:
        """Put a file there whole, or not at all."""
        write_whole(self.path / name, text)

    def resume(self, resolved: Resolved, asked: Asked, checkpoint: Path | None) -> tuple[list[str], list[Path]]:
        """Go on from a checkpoint, or from the start: what came later goes, later checkpoints step aside.

        Every part can be cut short and done again: checkpoints step aside first and the last one first, so that the
        newest one that is still there always has its metrics.

        Returns:
            What is of another version now, and the checkpoints that stepped aside.
        """
        try:
            known = json.loads((self.path / "environment.json").read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            known = None
        here = surroundings(list(asked.argv))
        # what is damaged is left out, as it serves only to say what is of another version
        changed = changed_versions(known, here) if isinstance(known, dict) else []
        step = int(checkpoint.name) if checkpoint is not None else -1
        aside: list[Path] = []
        for later in reversed(checkpoints_of(self.path)):
            if int(later.name) > step:  # of a branch that this run leaves: it must not be taken for the last one
                left = later.with_name(f"{later.name}.left")
                shutil.rmtree(left, ignore_errors=True)
                aside.insert(0, later.rename(left))
        for folder in FOLDERS:  # somebody may have removed one to make room
            with told(self.path / folder):
                (self.path / folder).mkdir(exist_ok=True)
        self._drop_after(step)
        self._before = step, read_text(self.path / "config.toml")
        self.write("config.toml", resolved.text())
        entry = {
            "time": here["time"],
            "step": step,
            "overrides": mask_arguments(list(asked.overrides)),
            "changed": changed,
        }
        back_up(self.path, asked.argv)
        resumes = self.path / "resumes.jsonl"
        earlier = read_text(resumes) if resumes.exists() else ""
        self.write("resumes.jsonl", f"{earlier}{json.dumps(entry)}\n")
        return changed, aside

    def put_back(self) -> None:
        """The configuration from before `resume`, unless something was measured or saved with the new one.

        For a configuration with which the run cannot start: going on must not need all its keys undone.

        Raises:
            UserError: it cannot be written.
        """
        if self._before is None:
            return
        step, text = self._before
        measured = [line["step"] for line in read_metrics(self.metrics)]
        saved = [int(path.name) for path in checkpoints_of(self.path)]
        if max([*measured, *saved], default=-1) <= step:
            self.write("config.toml", text)

    def _drop_after(self, step: int) -> None:
        """Remove records and metrics of later steps, and whatever a killed process left half written."""
        for folder in (self.path, self.rollouts):
            sweep(folder)
        for record in self.rollouts.iterdir():
            match = _RECORD.fullmatch(record.name)
            if match is not None and int(match[1]) > step:
                record.unlink()
        if self.metrics.exists():
            kept = [json.dumps(line) for line in read_metrics(self.metrics) if line["step"] <= step]
            write_whole(self.metrics, "".join(line + "\n" for line in kept))

    @property
    def is_blank(self) -> bool:
        """Whether nothing has been measured, collected or saved in it."""
        parts = [*self.rollouts.iterdir(), *self.checkpoints.iterdir(), *self.media.iterdir()]
        return not parts and not read_metrics(self.metrics)

    def remove(self) -> None:
        """Take the folder away, as if there had been no run."""
        self.close()
        shutil.rmtree(self.path, ignore_errors=True)

    def close(self) -> None:
        """Let other processes in. A second call does nothing."""
        self._lock.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The steps of a ``metrics.jsonl``; a line that is damaged, as by a kill, is left out."""
    found = []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else ()
    for line in lines:
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(data, dict) and isinstance(data.get("step"), int):
            found.append(data)
    return found


def checkpoints_of(run: Path) -> list[Path]:
    """Whole checkpoints, oldest first. Folders that are still being written have other names."""
    folder = run / "checkpoints"
    found = [path for path in folder.iterdir() if _CHECKPOINT.fullmatch(path.name)] if folder.is_dir() else []
    return sorted((path for path in found if path.is_dir()), key=lambda path: int(path.name))


def best_checkpoint(run: Path) -> Path | None:
    """The checkpoint that the trainer's link ``best`` names.

    Without one that leads to a whole checkpoint: the one with the highest evaluation accuracy (reward where there is
    none; the later of equals), None when none was scored.
    """
    linked = (run / "checkpoints" / "best").resolve()
    for path in checkpoints_of(run):
        if path.resolve() == linked:
            return path
    scores: dict[int, tuple[float, float]] = {}
    for line in read_metrics(run / "metrics.jsonl"):
        accuracy, reward = line.get("evaluation/accuracy"), line.get("evaluation/reward")
        if accuracy is not None or reward is not None:
            scores[line["step"]] = (float(accuracy or 0.0), float(reward or 0.0))
    scored = [path for path in checkpoints_of(run) if int(path.name) in scores]
    return max(scored, key=lambda path: (scores[int(path.name)], int(path.name)), default=None)


def last_checkpoint(run: Path) -> Path | None:
    """The newest whole checkpoint."""
    return next(iter(reversed(checkpoints_of(run))), None)


def run_of(path: Path) -> tuple[Path, Path | None] | None:
    """The run directory and the checkpoint that a path names; None when it is neither."""
    path = _short(path.resolve())
    if (path / "config.toml").is_file() and (path / "checkpoints").is_dir():
        return path, None
    for checkpoint in (path, path.parent):  # a checkpoint, or the model in one
        run = checkpoint.parent.parent
        named = checkpoint.parent.name == "checkpoints" and _CHECKPOINT.fullmatch(checkpoint.name)
        if named and (run / "config.toml").is_file():
            return run, checkpoint
    return None


def _short(path: Path) -> Path:
    """Relative to where the person stands, when that is above."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) and path != here else path


def checkpoint_to_resume(path: Path) -> tuple[Path, Path | None]:
    """The run directory and the checkpoint to go on from, None where it has none yet.

    Raises:
        UserError: the path is neither a run directory nor a checkpoint in one.
    """
    found = run_of(path)
    if found is None:
        there = "no such folder" if not path.exists() else "no config.toml and checkpoints/ in it"
        mend = "name a folder that rlcore run made, or a folder in its checkpoints/"
        raise UserError(f"cannot resume from {path}: it is not a run directory", found=there, mend=mend)
    run, checkpoint = found
    return run, checkpoint or next(iter(reversed(checkpoints_of(run))), None)


def config_layer(run: Path) -> Layer:
    """The resolved configuration of an earlier run; each value keeps the origin that it had there."""
    path = run / "config.toml"
    text = read_text(path)
    tree, lines = parse_toml(text, str(path))
    rows = text.splitlines()
    origins: dict[KeyPath, str] = {}
    for key, _ in leaves(tree):
        row = rows[lines[key] - 1] if key in lines else ""
        note = row.rpartition("  # ")[2] if "  # " in row else ""
        origins[key] = note or f"{path}:{lines.get(key, 1)}"
    return Layer(tree=tree, origins=origins)


def recipe_of(run: Path) -> str:
    """The recipe that an earlier run was asked for."""
    if not (run / "asked.toml").is_file():
        return ""
    tree, _ = parse_toml(read_text(run / "asked.toml"), str(run / "asked.toml"))
    return str(tree.get("recipe", ""))


def check_name(resolved: Resolved) -> None:
    """Raise `UserError` when the asked name is taken or would leave the folder of runs."""
    config = resolved.config
    if config.name is None:
        return
    where = resolved.origin(("name",))
    plain = Path(config.name).name == config.name and config.name not in {"", ".", ".."} and "\0" not in config.name
    if not plain or len(os.fsencode(config.name)) > LONGEST_NAME_BYTES:
        raise UserError(f"name = {config.name!r} is not the name of a folder", where=where, mend="choose a plain name")
    if config.layout == "stamped":
        return  # the time makes it another name every second
    path = Path(config.runs) / config.name
    if path.exists():
        mend = f"choose another name, remove it, or continue it with --resume {path}"
        raise UserError(f"the run directory {path} exists already", where=where, mend=mend)


def _rename_to_free_name(temporary: Path, parent: Path, resolved: Resolved) -> Path:
    while True:
        path = parent / _name(resolved)
        if not path.exists():
            try:
                os.rename(temporary, path)
                return path
            except OSError:
                if not path.exists():
                    raise
        check_name(resolved)
        time.sleep(0.1)  # a stamped name is free again in the next second


def _name(resolved: Resolved) -> str:
    config = resolved.config
    if config.layout == "plain" and config.name is not None:
        return config.name
    name = (resolved.recipe or config.environment.id or config.trainer.id).removesuffix("/default")
    if name.endswith(".toml"):
        name = Path(name).stem
    slug = re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.") or "run"
    if config.layout == "stamped":
        return stamped_name(config.name or slug, datetime.datetime.now())
    return f"{datetime.date.today().isoformat()}-{slug}-{secrets.token_hex(2)}"


def _asked(asked: Asked) -> Mapping[str, Any]:
    return {
        "recipe": asked.recipe,
        "files": list(asked.files),
        "overrides": mask_arguments(list(asked.overrides)),
    }


def _json(data: Mapping[str, Any]) -> str:
    return json.dumps(data, indent=2) + "\n"


__all__: Sequence[str] = [
    "Asked",
    "RunDirectory",
    "best_checkpoint",
    "check_name",
    "checkpoint_to_resume",
    "checkpoints_of",
    "config_layer",
    "last_checkpoint",
    "read_metrics",
    "recipe_of",
    "run_of",
]
