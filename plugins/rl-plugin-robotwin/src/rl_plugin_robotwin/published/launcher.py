"""``rlcore robotwin train PHASE [NUM_GPUS] [NUM_ENVS] [OPTIONS] [KEY=VALUE]...``: the published launcher."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from rlcore.cli.run import run
from rlcore.config.write import toml_value
from rlcore.console.terminal import say
from rlcore.errors import UserError
from rlcore.runs.directory import config_layer, run_of
from rlcore.session.processes import speaks_first

from rl_plugin_robotwin.published.translation import ALIASES, Translated, translated

NUMBERS = ("num_gpus", "num_envs")


Command = TypeVar("Command", bound=Callable[..., Any])


def _option(name: str, **settings: Any) -> Callable[[Command], Command]:
    spellings = dict.fromkeys((f"--{name}", f"--{name.replace('_', '-')}"))
    return click.option(*spellings, name, **settings)


@click.command("train", short_help="Train a phase.")
@click.argument("phase", default="teacher")
@click.argument("words", nargs=-1, metavar="[NUM_GPUS] [NUM_ENVS] [KEY=VALUE]...")
@_option("rl_config", metavar="FILE", help="The configuration file of the published program (rl_config.yaml).")
@_option("model_config", metavar="FILE", help="Refused: the networks are in [model.builder].")
@_option("teacher_path", metavar="DIR", help="A checkpoint of phase 1, for the phases 2 and 3.")
@_option("teacher_checkpoint", metavar="DIR", help="The same as --teacher_path.")
@_option("student_checkpoint", metavar="DIR", help="A checkpoint of phase 2, for phase 3.")
@_option("num_episodes", type=int, help="trainer.episodes")
@_option("steps_per_episode", type=int, help="trainer.steps_per_episode")
@_option("learning_rate", type=float, help="trainer.learning_rate, or that of the explorer in phase 2")
@_option("batch_size", type=int, help="trainer.batch_size")
@_option("total_iterations", type=int, help="Rounds of phase 3, each with one episode per environment.")
@_option("output_dir", metavar="DIR", help="The run directory; ./outputs/PHASE_rl by default.")
@_option("save_every", type=int, help="checkpoint.every, in episodes")
@_option("log_every", type=int, help="trainer.log_every, in episodes")
@_option("num_envs", type=int, help="The same as the third argument.")
@_option("use_ddp", is_flag=True, help="strategy.id=ddp, also with one process.")
@_option("mixed_precision", type=click.Choice(["no", "fp16", "bf16"]), help="Only no.")
@_option("gradient_accumulation_steps", type=int, help="Multiplies trainer.batch_size.")
@_option("memory_divergence_weight", type=float, help="Weight of the reward term memory_divergence.")
@_option("wm_uncertainty_weight", type=float, help="Weight of the reward term wm_uncertainty.")
@_option("sequential_training", is_flag=True, help="No effect: episodes are always trained in order.")
@_option("no_sequential_training", is_flag=True, help="Refused: the memory needs the order.")
@_option("device", metavar="NAME", help="model.device")
@_option("debug", is_flag=True, help="trainer.console_level=DEBUG")
@_option("resume", metavar="DIR", help="Resume a run: its directory, or one of its checkpoints.")
@_option("auto_resume", is_flag=True, help="Resume the run in the output directory, if there is one.")
@click.option("--dry-run", is_flag=True, help="Print the configuration; train nothing.")
@click.pass_context
def train(context: click.Context, /, phase: str, words: tuple[str, ...], dry_run: bool, **options: Any) -> None:
    """Train a phase: teacher (phase1, wm), student (phase2, explorer) or adversarial (phase3, adv).

    The settings of `rlcore run -p robotwin -r PHASE` apply, overridden by the published defaults, the file of
    --rl_config, the options, and KEY=VALUE, in this order. A line says which of rlcore's keys each setting became.
    """
    if phase not in ALIASES:
        raise UserError("unknown phase", found=phase, fix=f"one of {', '.join(ALIASES)}")
    numbers = [word for word in words if "=" not in word]
    overrides = [word for word in words if "=" in word]
    if len(numbers) > len(NUMBERS) or not all(number.isdecimal() and int(number) > 0 for number in numbers):
        fix = f"rlcore robotwin train {phase} 4 2 starts 4 processes with 2 environments each"
        raise UserError("NUM_GPUS and NUM_ENVS need to be numbers from 1", found=" ".join(numbers), fix=fix)
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    for name, number in zip(NUMBERS, numbers, strict=False):
        if given.get(name, int(number)) != int(number):
            raise UserError(f"{name} is given twice", found=f"{number} and --{name} {given[name]}", fix="give it once")
        given[name] = int(number)
    found = translated(ALIASES[phase], given, overrides)
    if found.resume is not None:
        _check_phase(Path(found.resume).expanduser(), ALIASES[phase])
    if speaks_first():
        say(*found.lines, err=True)
    status = _start(context, found, overrides, dry_run=dry_run)
    context.exit(status or 0)


def _check_phase(path: Path, phase: str) -> None:
    """Refuse to resume a run of another phase. What is no run is left to ``rlcore run``."""
    run = run_of(path) if path.is_dir() else None
    if run is None:
        return
    trainer = config_layer(run[0]).tree.get("trainer", {}).get("id")
    if trainer != f"world-model-{phase}":
        fix = f"rlcore run --resume {run[0]}, or give a run of the phase {phase}"
        raise UserError("this run is not one of the phase", found=f"trainer.id={trainer}", where=str(path), fix=fix)


def _start(context: click.Context, found: Translated, overrides: list[str], *, dry_run: bool) -> int | None:
    folder, resume = Path(found.output_dir), found.resume
    if resume is None and folder.exists():
        fix = "--auto_resume continues the run in it; --output_dir chooses another folder"
        raise UserError("the output directory exists", found=str(folder), fix=fix)
    texts = [f"{key}={toml_value(value)}" for key, value in found.values.items()]
    places = [f"runs={toml_value(str(folder.parent))}", f"name={toml_value(folder.name)}"]
    status: int | None = context.invoke(
        run,
        plugin=None if resume else "robotwin",
        recipe=None if resume else found.recipe,
        files=(),
        overrides=(*texts, *(() if resume else places), *overrides),
        dry_run=dry_run,
        verbose=dry_run,
        resume=resume,
        as_json=False,
    )
    return status
