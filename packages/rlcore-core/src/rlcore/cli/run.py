"""``rlcore run``: resolve the configuration, check it and train."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

import click

from rlcore.cli.layering import Request, layer_options, prepared
from rlcore.cli.output import json_option
from rlcore.cli.retries import is_retried, retried, secrets_among
from rlcore.cli.training import is_finished, print_result, trained
from rlcore.config.adapters import config_adapter_of, flags_of
from rlcore.config.layers import COMMAND_LINE
from rlcore.console.invocation import as_typed
from rlcore.console.terminal import say
from rlcore.errors import UserError
from rlcore.plugins.registry import Registry
from rlcore.runs.directory import best_checkpoint, last_checkpoint
from rlcore.runs.output import Output
from rlcore.session.dry_run import rehearse
from rlcore.session.exits import exits_reported, exits_with
from rlcore.session.processes import local_rank, processes_of
from rlcore.session.session import RunSession


@contextmanager
def _refused_once() -> Iterator[None]:
    """Errors before the processes are connected are the same in all; one process of each machine prints them."""
    try:
        yield
    except UserError as error:
        if local_rank() == 0:
            raise
        raise click.exceptions.Exit(2) from error


def _check_flags(overrides: tuple[str, ...], known: list[str]) -> None:
    """Refuse options that are no flags of another system. Raises `click.NoSuchOption`."""
    _, flags = flags_of(overrides)
    unknown = next((word.partition("=")[0] for word in overrides if word.startswith("-")), None)
    if unknown is None or (flags.tree and config_adapter_of(Registry(), flags.tree, COMMAND_LINE) is not None):
        return
    raise click.NoSuchOption(unknown, possibilities=get_close_matches(unknown, known))


@click.command(
    short_help="Train a policy.",
    context_settings={"ignore_unknown_options": True},  # they may be flags of another system
    epilog="""\b
    Examples:
      rlcore run -p gsm8k-tools                          the default recipe
      rlcore run -p gsm8k-tools --dry-run -v             check it without training; -v shows every value
      rlcore run -p gsm8k-tools trainer.steps=10 seed=1  override values
      rlcore run -p gsm8k-tools -r qwen2.5-3b model=DIR  use another recipe and model
      rlcore run --resume runs/NAME                      resume from the last checkpoint
      rlcore run --resume runs/NAME trainer.steps=200    resume and train for more steps""",
)
@layer_options
@click.option("--dry-run", is_flag=True, help="Check everything and print the verdict; train nothing.")
@click.option("-v", "--verbose", is_flag=True, help="With --dry-run, also print every value and its origin.")
@click.option("--resume", metavar="DIR", help="Resume a run: its directory, or a folder in its checkpoints/.")
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Resume from the last checkpoint if an engine or a process fails, at most N times.",
)
@json_option("Print the result as JSON; all other output goes to stderr.")
@_refused_once()
@exits_reported()
def run(
    plugin: str | None,
    recipe: str | None,
    files: tuple[str, ...],
    overrides: tuple[str, ...],
    dry_run: bool,
    verbose: bool,
    resume: str | None,
    retries: int,
    as_json: bool,
) -> int:
    """Train a policy with the configuration of a recipe.

    Later layers override earlier ones: defaults, the recipe, -c files from left to right, KEY=VALUE. A value is parsed
    as TOML; if that fails, it is text: rollout.group_size=4, reward.string-equal.weight=0.5, model=FOLDER (short for
    model.path). null unsets an optional key.
    """
    context = click.get_current_context()
    _check_flags(overrides, [name for one in context.command.params for name in one.opts])
    if resume is not None and (plugin is not None or recipe is not None):
        raise UserError("--resume uses the recipe of the resumed run", fix="remove -p and -r")
    if retries and not dry_run and not is_retried():
        return exits_with(retried(sys.argv[1:], overrides, ["--json"] if as_json else [], retries))
    request = Request(
        plugin=plugin,
        recipe=recipe,
        files=files,
        overrides=overrides,
        resume=Path(resume) if resume is not None else None,
        argv=tuple(sys.argv),
    )
    with prepared(request, locks=not dry_run) as start:
        if dry_run:
            rehearsal = rehearse(start.trial)
            say(*(f"# {line}" for line in rehearsal.lines()), *(f"# note: {note}" for note in start.notes))
            if verbose:
                say("", *start.trial.resolved.text().splitlines())
            return 0
        if is_retried():
            secrets_among(overrides, start.trial.resolved)  # refuses others before the run begins
        processes = processes_of(start.trial, sys.argv[1:])
        if callable(processes):
            if start.directory is not None:
                start.directory.close()  # the main process of those that are started opens it
            return exits_with(processes())
        output, hold = Output(sys.stderr if as_json else None), click.get_current_context().with_resource
        job, metrics = trained(start, processes, output, as_json=as_json, hold=hold)
    if not job.is_main:
        return exits_with(0)
    finished = is_finished(job)
    if as_json:
        print_result(job, metrics, finished=finished)
    else:
        _last_lines(job, finished=finished)
    return 0 if finished else exits_with(128 + (job.stop_signal or 0))


def _last_lines(job: RunSession, *, finished: bool) -> None:
    assert job.directory is not None
    path = job.directory.path
    best, untrained = best_checkpoint(path), job.diagnosis.verdict() if job.diagnosis is not None else []
    if not finished:
        job.say(as_typed(f"stopped   resume with: rlcore run --resume {path}"))
    job.say(f"run       {path}")
    if best is not None:
        job.say(f"best      {best} (of the saved checkpoints)")
    checkpoint = best or last_checkpoint(path)
    if checkpoint and (checkpoint / "model").is_dir():  # a trainer of a plugin may write no model folder
        # The configuration of a run without rollouts has no environment.
        own = bool(job.environments) and all(environment.rewards for environment in job.environments)
        following = f"rlcore eval {checkpoint}" if own else f"rlcore eval -p PLUGIN model={checkpoint}"
        if job.config.trainer.id == "reward-model":  # it scores episodes, and samples none
            following = f"rlcore run -p PLUGIN reward.0.id=reward-model reward.0.model={path}"
        if untrained:
            following = f"rlcore data show {path} --purpose train"
        job.say(as_typed(f"next      {following}"))
    job.say(*untrained)
