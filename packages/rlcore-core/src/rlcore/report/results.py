"""The files of an evaluation that an observer writes: results as JSON, and outside of training the rollouts."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcore.atomic_files import told, whole, write_whole
from rlcore.rollouts.records import write_groups
from rlcore.runs.layout import stamped_name
from rlcore.types import Group

RESULTS = "results"
"""Folder of a run with a file for each evaluation."""
ROLLOUTS = "evaluation-000000.jsonl.gz"
"""The rollouts beside results, by the name that they have in a run, so that every command reads the folder like one."""


def write_results(
    run: Any,
    name: str,
    step: int,
    groups: Sequence[Group],
    content: Mapping[str, Any],
) -> None:
    """Write the results of an evaluation, with the model, the recipe and the temperature of the run.

    In training, the file is ``results/evaluation-NNNNNN.json`` of the run directory. Otherwise, ``results.json``, the
    rollouts and ``config.toml`` are in a new folder beside the runs.

    Args:
        run: a `rlcore.session.session.RunSession`
        name: of what is evaluated, for the new folder
        step: of the training
        groups: the scored groups
        content: the results as plain data

    Raises:
        UserError: a file cannot be written.
    """
    whose = {"model": run.model_name, "recipe": run.recipe}
    content = {**whose, "step": step, "temperature": run.config.evaluation.temperature, **content}
    if run.directory is not None:
        _write(run.directory.path / RESULTS / f"evaluation-{step:06d}.json", content)
        return
    folder = new_folder(Path(run.config.runs).expanduser(), f"evaluation-{name}")
    _write(folder / "results.json", content)
    write_whole(folder / "config.toml", run.resolved.text())
    write_groups(folder / ROLLOUTS, groups)
    run.say(f"written   {folder}: results.json, {ROLLOUTS}", f"view      rlcore view {folder}")


def new_folder(parent: Path, name: str) -> Path:
    """Create a folder that did not exist, named by the time and ``name``."""
    now = datetime.datetime.now()
    with told(parent):
        parent.mkdir(parents=True, exist_ok=True)
        while True:
            folder = parent / stamped_name(name, now)
            try:
                folder.mkdir()
                return folder
            except FileExistsError:
                now += datetime.timedelta(seconds=1)


def _write(path: Path, content: Mapping[str, Any]) -> None:
    with told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    with whole(path) as file:
        file.write(text.encode("utf-8", "backslashreplace"))  # a model can write halves of surrogate pairs


__all__ = ["new_folder", "write_results"]
