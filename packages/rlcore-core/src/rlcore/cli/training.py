"""What ``rlcore run`` and `rlcore.train` share: check a requested run, start it, train, and report how it ended."""

from __future__ import annotations

import logging
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from types import FrameType
from typing import Any

import click

from rlcore.abilities import ConversationsConfig, StepsConfig, TasksConfig
from rlcore.cli.escaped import logged_in
from rlcore.cli.interrupts import ignore_repeats
from rlcore.cli.layering import Layered, Prepared, Request
from rlcore.cli.output import print_json
from rlcore.cli.retries import is_retried, secrets_among, tell_directory
from rlcore.config.layers import PYTHON
from rlcore.console.invocation import as_typed
from rlcore.console.terminal import leave_closed_terminal, say, traceback_lines
from rlcore.console.wording import counted
from rlcore.contracts import Trainer
from rlcore.errors import DivergenceError, EngineError, ProcessError, UserError, WriteError
from rlcore.models.freed_memory import choose_allocation
from rlcore.plugin_calls import Interrupt, plugin_code, value_text
from rlcore.runs.directory import (
    RunDirectory,
    best_checkpoint,
    checkpoints_of,
)
from rlcore.runs.output import FAILED, Output
from rlcore.runs.stacks import stacks_written
from rlcore.session.datasets import rows_told
from rlcore.session.exits import ENDS, REPEAT_S, status_of, stops_handled
from rlcore.session.memory import MemoryEstimate, estimate_memory, peak_line
from rlcore.session.processes import Processes, rank, world_size
from rlcore.session.resuming import resumed_lines
from rlcore.session.session import RunSession
from rlcore.specs import StrategySpec, TrainerSpec


def trained(
    start: Prepared,
    processes: Processes,
    output: Output,
    *,
    as_json: bool = False,
    hold: Callable[[ExitStack], object] | None = None,
) -> tuple[RunSession, Mapping[str, float]]:
    """Train a prepared run until its last step or a stop, and return its session and last metrics.

    Args:
        start: the run
        processes: those that train it
        output: where it prints
        as_json: whether the console prints no metrics
        hold: keeps the handlers of a stopped run until the command ends, so that repeated signals change nothing
    """
    trial, layered = start.trial, start.layered
    first_lines = [*headline(trial, layered), *(f"note      {note}" for note in start.notes)]
    with _told_by_main(processes):
        for line in first_lines if processes.is_main else ():
            output.say(line)
        trainer = trial.registry.load("trainer", trial.config.trainer.id)
        job, changes, folder = _begin(start, processes, output)
        for line in first_lines:
            job.note(line)
        if job.directory is not None:
            job.say(f"run       {job.directory.path}")
            if is_retried():
                tell_directory(job.directory.path, secrets_among(start.request.overrides, trial.resolved))
        if start.folder is not None:
            last = job.resume_from
            job.say(f"resumed   {f'from step {int(last.name)}' if last else 'from the start: there is no checkpoint'}")
        for line in changes:
            job.say(line)
        with ExitStack() as stopping:
            stopping.enter_context(stacks_written(folder, rank()))
            stopping.enter_context(_stopping_after_the_step(job, start.request.stops))
            metrics = _train(job, trainer, start, as_json=as_json)
            if job.stop_requested and hold is not None:
                hold(stopping.pop_all())
            return job, metrics


def _begin(start: Prepared, processes: Processes, output: Output) -> tuple[RunSession, list[str], Path]:
    """The run to train, the changes since its last start, and its directory, which the main process opens."""
    trial, asked, checkpoint = start.trial, start.layered.asked, start.trial.resume_from
    resolved, opened = trial.resolved, start.directory

    def open_directory() -> tuple[Path | None, list[str], Path]:
        nonlocal opened
        if opened is None:
            opened = RunDirectory.create(resolved, asked)
            return None, [], opened.path.absolute()
        changes = list(resumed_lines(opened.resume(resolved, asked, checkpoint)))
        return checkpoint, changes, opened.path.absolute()

    try:
        first, told, path = processes.from_main(open_directory)
    except ProcessError:
        if start.directory is None and opened is not None:
            opened.remove()
        raise
    if not path.is_dir():
        raise UserError(
            "the machines of a run need a shared disk with the folder of runs",
            found=f"{socket.gethostname()} has no {path}",
            where="runs",
            fix="start it in a folder on a shared disk, or set runs to one",
        )
    job = RunSession(
        trial.plan.resuming(first),
        trial.registry,
        directory=opened,
        output=output,
        dataset=trial.dataset,
        is_main=processes.is_main,
    )
    return job, told, path


@contextmanager
def _told_by_main(processes: Processes) -> Iterator[None]:
    """Report the result of this process to the others. Only the main process prints shared errors and warnings."""
    error: BaseException | None = None
    warned = logging.root.manager.disable
    if not processes.is_main:
        logging.disable(logging.WARNING)
    try:
        yield
    except BaseException as failure:
        error = failure
        shared = (UserError, DivergenceError, EngineError, ProcessError, KeyboardInterrupt)
        if processes.is_main or not isinstance(failure, shared):
            raise
        status = status_of(failure) if isinstance(failure, KeyboardInterrupt) else failure.exit_status
        raise click.exceptions.Exit(status) from failure
    finally:
        logging.disable(warned)
        processes.end(error)


def headline(run: RunSession, layered: Layered) -> list[str]:
    """The first lines of a run: its recipe and its main settings."""
    config = run.config
    algorithm, trainer = run.resolved.options.get("algorithm"), run.resolved.options.get("trainer")
    quantised = config.model.quantization
    strategy = run.registry.spec("strategy", config.strategy.id)
    shared = isinstance(strategy, StrategySpec) and strategy.launch is not None
    spread = [f"strategy  {strategy.id}, {counted(world_size(), 'process')}"] if shared else []
    tasks = trainer.tasks_per_step if isinstance(trainer, TasksConfig) else None
    steps = trainer.steps if isinstance(trainer, StepsConfig) else None
    advantage = getattr(algorithm, "advantage", None)
    settings = [config.trainer.id, getattr(advantage, "id", advantage)]
    spec = run.registry.spec("trainer", config.trainer.id)
    acts = not isinstance(spec, TrainerSpec) or spec.needs_environment
    settings += [f"{config.rollout.engine} engine" if acts else None, f"device {config.model.device}"]
    if acts:
        of_each = f" × {counted(tasks, 'task')}" if tasks else " a task"
        settings.append(counted(config.rollout.group_size, "trajectory") + of_each)
    if isinstance(trainer, ConversationsConfig):
        settings.append(f"{counted(trainer.conversations_per_step, 'conversation')} per step")
    settings += [counted(steps, "step") if isinstance(steps, int) else steps, f"seed {config.seed}"]
    brings = f" ({layered.summary})" if layered.summary else ""
    name = f"{layered.recipe or 'no recipe'}{brings}"
    return [
        f"recipe    {name}" + (f": {config.summary}" if config.summary else ""),
        f"settings  {' · '.join(str(part) for part in settings if part)}",
        f"model     {config.model.path}" + (f", base quantised to {quantised}" if quantised != "none" else ""),
        *spread,
        *rows_told(run.dataset, "train", "evaluation"),
    ]


def _metrics(job: RunSession, answer: Any) -> Mapping[str, float]:
    """The last metrics that a trainer returned. A wrong answer is only reported, because the run is complete."""
    try:
        with plugin_code(""):
            return {name: float(value) for name, value in answer.items() if isinstance(name, str)}
    except Exception:  # an answer may be of any class
        named = job.registry.named("trainer", job.config.trainer.id)
        job.say(f"train of {named} must return metrics by name; found {value_text(answer)}")
        return {}


def is_finished(job: RunSession) -> bool:
    """Whether no stop was requested, or only after the last step."""
    options = job.resolved.options.get("trainer")
    steps = options.steps if isinstance(options, StepsConfig) else None
    return not job.stop_requested or (steps is not None and job.last_step is not None and job.last_step >= steps)


def _train(
    job: RunSession, trainer: Callable[[RunSession], Trainer], start: Prepared, *, as_json: bool
) -> Mapping[str, float]:
    """Train with trackers open. The result or error goes to the log and to observers."""
    error: BaseException | None = None
    try:
        job.open_trackers(skip=("console",) if as_json else ())
        job.started()
        estimate = _estimate(job)
        choose_allocation(keep_up_to=estimate.kept if estimate is not None else 0)
        metrics = _metrics(job, trainer(job).train())
        job.say(peak_line(job, estimate))
        return metrics
    except BaseException as failure:
        error = failure
        if isinstance(failure, UserError) and job.directory is not None:
            with suppress(UserError):
                job.directory.put_back()
        with suppress(UserError):  # the log may be what failed
            first, *others = str(failure).split("\n")
            job.note(f"{FAILED}{type(failure).__name__}: {first}", *(f"    {line}" for line in others))
            if not isinstance(failure, UserError):
                job.note(*traceback_lines(failure))
                if job.directory is not None:
                    logged_in(failure, job.directory.path / "output.log")
        raise
    finally:
        job.finished(error)
        if error is not None and job.directory is not None:
            _leave(job.directory, error, start, resumed=job.resume_from is not None)
            if job.diagnosis is not None:
                say(*job.diagnosis.verdict(), err=True)
            if as_json and job.directory.checkpoints.is_dir():
                print_result(job, {}, finished=False)


def _estimate(job: RunSession) -> MemoryEstimate | None:
    """Print the estimate of memory before the model is loaded; None if its size is not known yet.

    Raises:
        UserError: the run does not fit into the memory.
    """
    spec = job.registry.spec("trainer", job.config.trainer.id)
    if isinstance(spec, TrainerSpec) and spec.memory is None:
        return None
    folder = job.model_here()
    estimate = estimate_memory(job, folder) if folder is not None else None
    if estimate is not None:
        job.say(*estimate.lines())
        estimate.require_fit(job.resolved)
    return estimate


def _leave(directory: RunDirectory, error: BaseException, start: Prepared, *, resumed: bool) -> None:
    """Print the path of the log and the resume command. Remove a new run that stopped on bad input before any work."""
    refused = isinstance(error, UserError) and not isinstance(error, WriteError)
    if not directory.checkpoints.is_dir():
        return  # it was removed while the run was active; the error reports that
    if start.folder is None and refused and directory.is_blank:
        directory.remove()
        say(f"the run did not start; {directory.path} was removed", err=True)
        return
    say(f"the run ended early; the log is {directory.path / 'output.log'}", err=True)
    if isinstance(error, WriteError) or (checkpoints_of(directory.path) and not (resumed and refused)):
        say(f"resume with: {resume_command(start.request, directory.path)}", err=True)


def resume_command(request: Request, path: Path) -> str:
    """How to continue a run, in the words of its request."""
    return f"rlcore.train(resume={str(path)!r})" if request.place == PYTHON else as_typed(f"rlcore run --resume {path}")


@contextmanager
def _stopping_after_the_step(job: RunSession, numbers: Sequence[signal.Signals]) -> Iterator[None]:
    """The first signal asks the trainer to stop after its step. A later Ctrl-C interrupts it.

    Another SIGTERM or SIGHUP changes nothing: batch systems and launchers repeat it, and end with SIGKILL.
    """
    asked: SimpleQueue[bool] = SimpleQueue()  # its `put` may be called from a handler, which must not print
    asked_at = 0.0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked_at
        if number == signal.SIGHUP:
            leave_closed_terminal()
        if not job.stop_requested:
            asked_at = time.monotonic()
            job.request_stop(signal.SIGTERM if number in ENDS else number)
            asked.put(True)
        elif number == signal.SIGINT and time.monotonic() - asked_at >= REPEAT_S:
            raise Interrupt

    def tell() -> None:
        if asked.get():
            with suppress(UserError):  # the log is not writable, which the run reports
                job.say("stopping  after this step, with a checkpoint; press Ctrl-C again to stop immediately")

    telling = Thread(target=tell, name="rlcore-stopping", daemon=True)
    telling.start()
    try:
        ignore_repeats()
        with stops_handled(handle, numbers):
            yield
    finally:
        asked.put(False)
        telling.join()


def print_result(job: RunSession, metrics: Mapping[str, float], *, finished: bool) -> None:
    """Print the result of ``--json``."""
    assert job.directory is not None
    path = job.directory.path
    best = best_checkpoint(path)
    paths = {"directory": str(path), "best": str(best) if best else None}
    diagnosis = job.diagnosis
    found = [] if diagnosis is None else [asdict(one) for one in diagnosis.found]
    trained = None if diagnosis is None else diagnosis.trained
    print_json({"finished": finished, "trained": trained, **paths, "metrics": metrics, "diagnosis": found})
