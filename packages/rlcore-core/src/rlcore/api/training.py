"""``rlcore.train``."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from rlcore.api.overrides import override_texts
from rlcore.api.process import calling_process_kept
from rlcore.api.runs import Run
from rlcore.cli.layering import Request, prepared
from rlcore.cli.training import is_finished, resume_command, trained
from rlcore.config.layers import PYTHON
from rlcore.errors import UserError
from rlcore.runs.output import Output
from rlcore.session.processes import Alone, processes_of


def train(
    plugin: str | None = None,
    /,
    *,
    recipe: str | PathLike[str] | None = None,
    files: Sequence[str | PathLike[str]] = (),
    resume: str | PathLike[str] | Run | None = None,
    **overrides: Any,
) -> Run:
    """Train a policy, like ``rlcore run``, and return the run. Works in scripts, notebooks and threads.

    ::

        run = rlcore.train("gsm8k-tools", trainer={"steps": 10}, rollout={"group_size": 4}, name="first")

    An interruption (Ctrl-C) finishes the step, saves a checkpoint and raises ``KeyboardInterrupt``; a second one stops
    at once. ``resume`` continues the run. All other signals keep their meaning for the calling process.

    Args:
        plugin: provides the recipe, like ``-p``
        recipe: a recipe of the plugin, or a file, like ``-r``
        files: TOML or YAML files that override the recipe, like ``-c``
        resume: a run to continue, or a checkpoint of it, like ``--resume``
        overrides: tables of the configuration, ``trainer={"steps": 3}``, or single keys,
            ``**{"trainer.steps": 3}``; they take precedence

    Raises:
        UserError: the configuration, the data or the model cannot be used; the message names origin and fix.
        RlcoreError: training failed, and the run directory is kept.
        KeyboardInterrupt: the run was interrupted.
    """
    if resume is not None and (plugin is not None or recipe is not None):
        raise UserError("resume uses the recipe of the resumed run", fix="remove plugin and recipe")
    texts = override_texts(overrides)
    named = [("-p", plugin), ("-r", recipe), *(("-c", file) for file in files)]
    resumed = resume.path if isinstance(resume, Run) else resume
    arguments = [word for option, value in named if value is not None for word in (option, fspath(value))]
    arguments += ["--resume", fspath(resumed)] if resumed is not None else []
    command = ("rlcore", "run", *arguments, *texts)
    request = Request(
        plugin=plugin,
        recipe=fspath(recipe) if recipe is not None else None,
        files=tuple(fspath(file) for file in files),
        overrides=texts,
        resume=Path(resumed).expanduser() if resumed is not None else None,
        place=PYTHON,
        argv=command,
        stops=(signal.SIGINT,),
    )
    with calling_process_kept(), prepared(request) as start:
        processes = processes_of(start.trial, ())
        if not isinstance(processes, Alone):
            raise UserError(
                "from Python, a run has one process",
                found=f"strategy.id={start.trial.config.strategy.id} with several",
                where=start.trial.resolved.origin(("strategy", "id")),
                fix=f"{shlex.join(command)}; rlcore.load_run reads its results",
            )
        job, _ = trained(start, processes, Output())
    assert job.directory is not None
    if job.diagnosis is not None:
        job.say(*job.diagnosis.verdict())
    if not is_finished(job):
        command_line = resume_command(request, job.directory.path)
        raise KeyboardInterrupt(f"the run was interrupted; continue it with {command_line}")
    return Run(job.directory.path)


__all__ = ["train"]
