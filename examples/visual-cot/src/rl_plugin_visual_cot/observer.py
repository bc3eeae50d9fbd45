"""Writes the samples of every evaluation to ``result/`` of the run directory."""

from __future__ import annotations

import datetime
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcore import Group
from rlcore.atomic_files import write_whole
from rlcore.console.escaping import printable
from rlcore.redaction import mask_arguments
from rlcore.report import new_folder
from rlcore.rollouts.records import write_groups
from rlcore.runs.surroundings import surroundings

from rl_plugin_visual_cot.samples import lines_of, numbers_of, samples_of

EVALUATOR = "Evaluator"
"""The tag of evaluations outside of training."""


def evaluated(run: Any, groups: Sequence[Group]) -> Mapping[str, float]:
    """Write ``eval_samples_TAG.json``, print the numbers, and return them as metrics.

    Outside of training, also write the rollouts as ``eval_samples_TAG.jsonl.gz``. In training, rlcore writes them.

    Args:
        run: a `RunSession`; without a run directory, a new ``<runs>/<date>_<time>_Evaluator/`` is created
        groups: the scored groups of all processes
    """
    samples = list(samples_of(groups))
    numbers = numbers_of(samples)
    training = run.directory is not None
    folder = run.directory.path if training else _new_folder(run)
    tag = (run.config.name if training else None) or (run.config.trainer.id if training else EVALUATOR)
    result = folder / "result"
    result.mkdir(exist_ok=True)
    path = result / f"eval_samples_{tag}.json"
    write_whole(path, json.dumps([sample.as_json() for sample in samples], indent=2, ensure_ascii=False) + "\n")
    lines = [f"Saved {len(samples)} evaluation samples to {path}", *lines_of(numbers)]
    run.say(*lines)
    if not training:
        write_groups(path.with_suffix(".jsonl.gz"), groups)
        _log(folder, tag, lines)
    classes = {f"answers/{kind.replace(' ', '_')}": value for kind, (value, _) in numbers.classes.items()}
    consistency = {} if numbers.consistency is None else {"answers/consistent": numbers.consistency}
    return {
        **classes,
        **consistency,
        "answers/truncated": numbers.truncated,
        "answers/unanswered": numbers.unanswered,
    }


def _new_folder(run: Any) -> Path:
    """A new directory of an evaluation, with the layout of a training run and a backup of its configuration."""
    folder = new_folder(Path(run.config.runs), EVALUATOR)
    for name in ("backup", "ckpt", "result", "tensorboard"):
        (folder / name).mkdir()
    backup = folder / "backup"
    write_whole(backup / "config.toml", run.resolved.text())
    write_whole(backup / "environment.json", json.dumps(surroundings(list(sys.argv)), indent=2) + "\n")
    write_whole(backup / "command.txt", printable(shlex.join(mask_arguments(sys.argv))) + os.linesep)
    return folder


def _log(folder: Path, tag: str, lines: Sequence[str]) -> None:
    """Write ``time, name, level: message`` lines."""
    time = datetime.datetime.now().isoformat(sep=" ", timespec="seconds")
    write_whole(folder / "output.log", "".join(f"{time}, {tag}, INFO: {printable(line)}\n" for line in lines))
