"""``rlcore run``: resolve the configuration, check it and train."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import click

from rlcore.abilities import ConversationsConfig, CountsSkipped, StepsConfig, TasksConfig
from rlcore.cli.escaped import logged_in
from rlcore.cli.json_output import json_option, print_json
from rlcore.cli.layering import Layered, gather, layer_options
from rlcore.config.resolve import resolve
from rlcore.contracts import Trainer
from rlcore.errors import DivergenceError, EngineError, ProcessError, UserError, WriteError
from rlcore.plugins.registry import Registry
from rlcore.runs.checkpoint_folder import check_checkpoint, has_manifest
from rlcore.runs.directory import (
    RunDirectory,
    best_checkpoint,
    check_name,
    checkpoint_to_resume,
    checkpoints_of,
    config_layer,
    last_checkpoint,
    recipe_of,
)
from rlcore.runs.output import Output
from rlcore.session.checks import check_run
from rlcore.session.exits import exits_reported
from rlcore.session.plan import RunPlan
from rlcore.session.processes import Processes, local_rank, processes_of, rank, speaks_first, world_size
from rlcore.session.resuming import check_unchanged, resumed_lines
from rlcore.session.session import RunSession
from rlcore.session.signals import interruption, status_of, stops_handled
from rlcore.specs import StrategySpec, TrainerSpec
from rlcore.terminal import say, traceback_lines
from rlcore.wording import counted


@contextmanager
def _refused_once() -> Iterator[None]:
    """Errors before the processes are connected are the same in all; one process of each machine prints them."""
    try:
        yield
    except UserError as error:
        if local_rank() == 0:
            raise
        raise click.exceptions.Exit(2) from error


@click.command(
    short_help="Train a policy.",
    epilog="""\b
    Examples:
      rlcore run -p gsm8k-tools                          the default recipe
      rlcore run -p gsm8k-tools --dry-run                show every value and its origin
      rlcore run -p gsm8k-tools trainer.steps=10 seed=1  override values
      rlcore run -p gsm8k-tools -r qwen2.5-3b model=DIR  use another recipe and model
      rlcore run --resume runs/NAME                      resume from the last checkpoint
      rlcore run --resume runs/NAME trainer.steps=200    resume and train for more steps""",
)
@layer_options
@click.option("--dry-run", is_flag=True, help="Check and print the configuration without starting the run.")
@click.option("--resume", metavar="DIR", help="Resume a run: its directory, or a folder in its checkpoints/.")
@json_option("Print the result as JSON; all other output goes to stderr.")
@_refused_once()
@exits_reported()
def run(
    plugin: str | None,
    recipe: str | None,
    files: tuple[str, ...],
    overrides: tuple[str, ...],
    dry_run: bool,
    resume: str | None,
    as_json: bool,
) -> int:
    """Train a policy with the configuration of a recipe.

    Later layers override earlier ones: defaults, the recipe, -c files from left to right, KEY=VALUE. A value is parsed
    as TOML; if that fails, it is text: rollout.group_size=4, reward.string-equal.weight=0.5, model=FOLDER (short for
    model.path). null unsets an optional key.
    """
    registry = Registry()
    if resume is not None and (plugin is not None or recipe is not None):
        raise UserError("--resume uses the recipe of the resumed run", fix="remove -p and -r")
    folder, checkpoint = checkpoint_to_resume(Path(resume)) if resume is not None else (None, None)
    directory: RunDirectory | None = None
    if resume is not None and folder is not None and not dry_run and rank() == 0:
        directory = RunDirectory.open(folder)
        click.get_current_context().call_on_close(directory.close)
        folder, checkpoint = checkpoint_to_resume(Path(resume))  # again, now that the run is locked
    if checkpoint is not None and has_manifest(checkpoint) and speaks_first():
        check_checkpoint(checkpoint)
    base = config_layer(folder) if folder is not None else None
    base_recipe = recipe_of(folder) if folder is not None else ""
    layered = gather(
        registry,
        plugin=plugin,
        recipe=recipe,
        files=files,
        overrides=overrides,
        base=base,
        base_recipe=base_recipe,
    )
    resolved = resolve(layered.layers, registry, recipe=layered.recipe)
    if base is None:
        check_name(resolved)
    else:
        check_unchanged(base, resolved)
    trial = RunSession(RunPlan(resolved=resolved, resume_from=checkpoint), registry)
    notes = check_run(trial)
    if dry_run:
        say(*(f"# note: {note}" for note in notes), *resolved.text().splitlines())
        return 0
    processes = processes_of(trial, sys.argv[1:])
    if callable(processes):
        if directory is not None:
            directory.close()  # the main process of those that are started opens it
        return processes()
    output = Output(sys.stderr if as_json else None)
    first_lines = [*headline(trial, layered), *(f"note      {note}" for note in notes)]
    with _told_by_main(processes):
        for line in first_lines if processes.is_main else ():
            output.say(line)
        trainer = registry.load("trainer", resolved.config.trainer.id)
        job, changes = _begin(trial, layered, processes, directory, checkpoint, output)
        for line in first_lines:
            job.note(line)
        if job.directory is not None:
            job.say(f"run       {job.directory.path}")
        if folder is not None:
            last = job.resume_from
            job.say(f"resumed   {f'from step {int(last.name)}' if last else 'from the start: there is no checkpoint'}")
        for line in changes:
            job.say(line)
        metrics = _train(job, trainer, new=folder is None, as_json=as_json)
    if not job.is_main:
        return 0
    finished = _is_finished(job)
    _last_lines(job, metrics, as_json, finished=finished)
    return 0 if finished else 128 + (job.stop_signal or 0)


def _begin(
    trial: RunSession,
    layered: Layered,
    processes: Processes,
    directory: RunDirectory | None,
    checkpoint: Path | None,
    output: Output,
) -> tuple[RunSession, list[str]]:
    """The run to train, and the changes since its last start. The main process creates or opens its directory."""
    resolved, opened = trial.resolved, directory

    def open_directory() -> tuple[Path | None, list[str]]:
        nonlocal opened
        if opened is None:
            opened = RunDirectory.create(resolved, layered.asked)
            return None, []
        return checkpoint, list(resumed_lines(opened.resume(resolved, layered.asked, checkpoint)))

    try:
        start, told = processes.from_main(open_directory)
    except ProcessError:
        if directory is None and opened is not None:
            opened.remove()
        raise
    job = RunSession(
        trial.plan.resuming(start),
        trial.registry,
        directory=opened,
        output=output,
        dataset=trial.dataset,
        is_main=processes.is_main,
    )
    return job, told


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
        *skipped_rows(run, "train", "evaluation"),
    ]


def skipped_rows(run: RunSession, *splits: str) -> list[str]:
    """A line for each split with skipped rows, if the dataset counts them."""
    dataset = run.dataset
    counts = {split: dataset.skipped(split) for split in splits} if isinstance(dataset, CountsSkipped) else {}
    return [f"skipped   {counted(n, 'unusable row')} in data.{split}" for split, n in counts.items() if n]


def _is_finished(job: RunSession) -> bool:
    """Whether no stop was requested, or only after the last step."""
    options = job.resolved.options.get("trainer")
    steps = options.steps if isinstance(options, StepsConfig) else None
    return not job.stop_requested or (steps is not None and job.last_step is not None and job.last_step >= steps)


def _train(
    job: RunSession, trainer: Callable[[RunSession], Trainer], *, new: bool, as_json: bool
) -> Mapping[str, float]:
    """Train with trackers open and signals handled. The result or error goes to the log and to observers."""
    error: BaseException | None = None
    try:
        job.open_trackers(skip=("console",) if as_json else ())
        job.started()
        with stops_handled(_stopping(job)):
            return trainer(job).train()
    except BaseException as failure:
        error = failure
        if isinstance(failure, UserError) and job.directory is not None:
            with suppress(UserError):
                job.directory.put_back()
        with suppress(UserError):  # the log may be what failed
            first, *others = str(failure).split("\n")
            job.note(f"failed: {type(failure).__name__}: {first}", *(f"    {line}" for line in others))
            if not isinstance(failure, UserError):
                job.note(*traceback_lines(failure))
                if job.directory is not None:
                    logged_in(failure, job.directory.path / "output.log")
        raise
    finally:
        job.finished(error)
        if error is not None and job.directory is not None:
            _leave(job.directory, error, new=new, resumed=job.resume_from is not None)
            if as_json and job.directory.checkpoints.is_dir():
                _last_lines(job, {}, as_json, finished=False)


def _leave(directory: RunDirectory, error: BaseException, *, new: bool, resumed: bool) -> None:
    """Print the path of the log and the resume command. Remove a new run that stopped on bad input before any work."""
    refused = isinstance(error, UserError) and not isinstance(error, WriteError)
    if not directory.checkpoints.is_dir():
        return  # it was removed while the run was active; the error reports that
    if new and refused and directory.is_blank:
        directory.remove()
        say(f"the run did not start; {directory.path} was removed", err=True)
        return
    say(f"the run ended early; the log is {directory.path / 'output.log'}", err=True)
    if isinstance(error, WriteError) or (checkpoints_of(directory.path) and not (resumed and refused)):
        say(f"resume with: rlcore run --resume {directory.path}", err=True)


def _stopping(job: RunSession) -> Callable[[int, FrameType | None], None]:
    """The first SIGINT or SIGTERM asks the trainer to stop after its step, the second interrupts."""

    def handle(number: int, frame: FrameType | None) -> None:
        if job.stop_requested:
            raise interruption(number)
        job.request_stop(number)
        job.say("stopping  after this step, with a checkpoint; interrupt again to stop immediately")

    return handle


def _last_lines(job: RunSession, metrics: Mapping[str, float], as_json: bool, *, finished: bool) -> None:
    assert job.directory is not None
    path = job.directory.path
    best = best_checkpoint(path)
    if as_json:
        numbers = {name: float(value) for name, value in metrics.items()}
        paths = {"directory": str(path), "best": str(best) if best else None}
        print_json({"finished": finished, **paths, "metrics": numbers})
        return
    if not finished:
        job.say(f"stopped   resume with: rlcore run --resume {path}")
    job.say(f"run       {path}")
    if best is not None:
        job.say(f"best      {best}")
    if checkpoint := best or last_checkpoint(path):
        # The configuration of a run without rollouts has no environment.
        own = bool(job.environments) and all(environment.rewards for environment in job.environments)
        job.say(f"next      rlcore eval {checkpoint}" if own else f"next      rlcore eval -p PLUGIN model={checkpoint}")
