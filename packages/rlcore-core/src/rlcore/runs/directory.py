"""The directory of one run. All files are plain and written atomically.

::

    runs/2026-11-20-gsm8k-tools-a1b2/
      asked.toml         recipe, files and overrides of the command line
      config.toml        every value, with its origin as a comment
      environment.json   versions, plugins, interpreter, platform, commit, arguments
      metrics.jsonl      one object per step, flat names
      rollouts/          scored groups, one file per step and purpose
      evidence/          what is known about the rollouts: index, times, and values of trained tokens, by the same names
      media/             images of the rollouts, each stored once by content hash
      checkpoints/       NNNNNN/, one folder per saved step
      superseded/        results of later steps, moved aside when the run was resumed from an earlier one
      model/             the output of a ``builtin:`` builder
      run-id             id of the run at services such as W&B, if a tracker needs one
      output.log         the printed output
      stacks.txt         where the process has crashed or hung; ``stacks-RANK.txt`` of the other processes
"""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rlcore.atomic_files import sweep, told, write_whole
from rlcore.config.layers import Layer, leaves
from rlcore.config.origins import KeyPath, parse_toml, read_text
from rlcore.config.resolved import Resolved
from rlcore.config.write import toml_text
from rlcore.errors import UserError
from rlcore.json_files import read_json
from rlcore.redaction import mask_arguments
from rlcore.rollouts.index import unfinished_of
from rlcore.rollouts.records import EVIDENCE, BlobStore
from rlcore.runs.checkpoints import (
    best_checkpoint,
    checkpoint_to_resume,
    checkpoints_of,
    last_checkpoint,
    run_of,
)
from rlcore.runs.layout import back_up, lay_out, stamped_name
from rlcore.runs.metrics import metrics_gap, metrics_lines, read_metrics
from rlcore.runs.superseded import Superseded, supersede
from rlcore.runs.surroundings import changed_versions, surroundings

LONGEST_NAME_BYTES = 200
"""Maximum length of a run name in bytes; file systems allow 255."""
FOLDERS = ("rollouts", "media", "checkpoints")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The requested configuration, before defaults."""

    recipe: str = ""
    files: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """What a resumed run found."""

    changed: list[str]
    """Versions that are not those of the start."""
    superseded: Superseded
    """The results of later steps, which were moved aside."""
    gap: str | None
    """What is missing in the metrics of earlier steps."""


class RunDirectory:
    """The directory of one run, locked against other processes until `close`.

    Attributes:
        path: the directory itself
        rollouts: scored groups
        media: images of the rollouts, by content hash
        checkpoints: the parent of the ``NNNNNN/`` folders, each of which is renamed into place when it is complete
        metrics: ``metrics.jsonl``
    """

    def __init__(self, path: Path, lock: IO[str]) -> None:
        self.path = path
        self.rollouts, self.media, self.checkpoints = (path / name for name in FOLDERS)
        self.metrics = path / "metrics.jsonl"
        self._lock = lock
        self._before: tuple[int, str] | None = None
        """The step from which a run was resumed, and its configuration up to that step."""

    @classmethod
    def create(cls, resolved: Resolved, asked: Asked) -> RunDirectory:
        """Create a new directory atomically: write it under a hidden name, then rename it.

        Raises:
            UserError: the name is already used; an existing directory is never reused.
        """
        parent = Path(resolved.config.runs)
        _make_parent(parent)
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
            lock = _take_lock(temporary)
            path = _rename_to_free_name(temporary, parent, resolved)
        except BaseException:
            if lock is not None:
                lock.close()
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        return cls(path, lock)

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """Open an existing run to resume it.

        Raises:
            UserError: it is not a run directory, or another process uses it.
        """
        if not (path / "config.toml").is_file():
            fix = "give a directory created by rlcore run, or a folder in its checkpoints/"
            raise UserError(f"{path} is not a run directory", found="no config.toml in it", fix=fix)
        return cls(path, _take_lock(path))

    def write(self, name: str, text: str) -> None:
        """Write a file atomically."""
        write_whole(self.path / name, text)

    def resume(self, resolved: Resolved, asked: Asked, checkpoint: Path | None) -> Resumption:
        """Resume from a checkpoint, or from the start: move the results of later steps aside.

        Every part can be interrupted and repeated.

        Raises:
            UserError: a file cannot be written or moved.
        """
        try:
            known = read_json(self.path / "environment.json")
        except (OSError, ValueError):
            known = None
        here = surroundings(list(asked.argv))
        # damaged values are ignored: they are only used to report changed versions
        changed = changed_versions(known, here) if isinstance(known, dict) else []
        step = int(checkpoint.name) if checkpoint is not None else -1
        gap = self._metrics_gap(step, resolved)
        for folder in FOLDERS:  # a folder may have been deleted to free space
            with told(self.path / folder):
                (self.path / folder).mkdir(exist_ok=True)
        for folder_of_files in (self.path, self.rollouts, self.path / EVIDENCE):
            sweep(folder_of_files)
        for path in unfinished_of(self.path):  # the step is sampled again
            with told(path):
                path.unlink()
        BlobStore(self.media).sweep()
        resumes = self.path / "resumes.jsonl"
        earlier = read_text(resumes) if resumes.exists() else ""
        superseded = supersede(self.path, step, number=earlier.count("\n") + 1)
        self._before = step, read_text(self.path / "config.toml")
        self.write("config.toml", resolved.text())
        entry = {
            "time": here["time"],
            "step": step,
            "overrides": mask_arguments(list(asked.overrides)),
            "changed": changed,
            "superseded": str(superseded.folder.relative_to(self.path)) if superseded else None,
        }
        back_up(self.path, asked.argv)
        self.write("resumes.jsonl", f"{earlier}{json.dumps(entry)}\n")
        return Resumption(changed=changed, superseded=superseded, gap=gap)

    def _metrics_gap(self, step: int, resolved: Resolved) -> str | None:
        """The gap in the metrics up to a step, if the run writes them."""
        if not self.metrics.exists() and "jsonl" not in resolved.config.trackers.use:
            return None
        return metrics_gap(metrics_lines(self.metrics), last=max(step, 0))

    def put_back(self) -> None:
        """Restore the configuration from before `resume`, unless metrics or checkpoints were saved with the new one.

        This is for a configuration with which the run cannot start: a later resume does not have to revert its keys.

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

    @property
    def is_blank(self) -> bool:
        """Whether it has no metrics, rollouts and checkpoints."""
        parts = [*self.rollouts.iterdir(), *self.checkpoints.iterdir(), *self.media.iterdir()]
        return not parts and not read_metrics(self.metrics)

    def remove(self) -> None:
        """Remove the directory."""
        self.close()
        shutil.rmtree(self.path, ignore_errors=True)

    def close(self) -> None:
        """Release the lock. A second call does nothing."""
        self._lock.close()


def _take_lock(folder: Path) -> IO[str]:
    """Lock a run directory until the returned file is closed or the process ends for any reason.

    Raises:
        UserError: another process holds the lock, or the folder is not writable.
    """
    path = folder / ".lock"
    with told(path):
        lock = path.open("a+", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
    except BlockingIOError:
        lock.seek(0)
        pid = lock.read().strip()
        lock.close()
        raise UserError(
            f"another process uses {folder}",
            found=f"process {pid}" if pid else None,
            fix=f"wait until it ends, or stop it with: kill -INT {pid}" if pid else "wait until it ends",
        ) from None
    except OSError as error:
        lock.close()
        raise UserError(f"the run directory {folder} cannot be locked", found=error.strerror) from None
    return lock


def config_layer(run: Path) -> Layer:
    """The resolved configuration of an earlier run. Each value keeps its origin."""
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


def asked_of(run: Path) -> Asked:
    """The requested configuration of an earlier run; empty if it is not stored."""
    if not (run / "asked.toml").is_file():
        return Asked()
    tree, _ = parse_toml(read_text(run / "asked.toml"), str(run / "asked.toml"))
    lists = (tree.get(name) for name in ("files", "overrides"))
    files, overrides = (tuple(map(str, one)) if isinstance(one, list) else () for one in lists)
    return Asked(recipe=str(tree.get("recipe", "")), files=files, overrides=overrides)


def check_name(resolved: Resolved) -> None:
    """Raise `UserError` if the name is already used, or if its path is outside of the folder of runs."""
    config = resolved.config
    if config.name is None:
        return
    where = resolved.origin(("name",))
    plain = Path(config.name).name == config.name and config.name not in {"", ".", ".."} and config.name.isprintable()
    if not plain or len(os.fsencode(config.name)) > LONGEST_NAME_BYTES:
        raise UserError(f"name = {config.name!r} is not a valid folder name", where=where, fix="choose a plain name")
    if config.layout == "stamped":
        return  # the time in the name changes every second
    path = Path(config.runs) / config.name
    if path.exists():
        fix = f"choose another name, remove the directory, or resume it with --resume {path}"
        raise UserError(f"the run directory {path} already exists", where=where, fix=fix)


def check_runs(resolved: Resolved) -> None:
    """Raise the errors of `RunDirectory.create` for a folder of runs that cannot be created or written."""
    parent = Path(resolved.config.runs)
    missing = [path for path in (parent, *parent.parents) if not path.exists()]
    try:
        _make_parent(parent)
        os.rmdir(tempfile.mkdtemp(prefix=".making-", dir=parent))
    except OSError as error:
        raise UserError(f"cannot write to the folder of runs {parent}", found=str(error), fix="runs=FOLDER") from None
    finally:
        for path in missing:
            with suppress(OSError):
                path.rmdir()


def _make_parent(parent: Path) -> None:
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot create the folder of runs {parent}", found=str(error), fix="runs=FOLDER") from None


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
    names = "-".join(environment.name or environment.id for environment in resolved.environments)
    name = (resolved.recipe or names or config.trainer.id).removesuffix("/default")
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


__all__ = ["best_checkpoint", "checkpoint_to_resume", "checkpoints_of", "last_checkpoint", "read_metrics", "run_of"]
