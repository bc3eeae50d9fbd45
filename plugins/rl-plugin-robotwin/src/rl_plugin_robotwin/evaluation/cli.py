"""``rlcore robotwin evaluate``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import click
from rlcore.console.terminal import say
from rlcore.errors import ConfigError, NotScoredError, UserError

BLOCKS = ("stack_blocks_two", "stack_blocks_three", "blocks_ranking_rgb", "blocks_ranking_size")
NOT_OPTIONS = ("id", "task", "python", "variables", "instructions", "looks", "domain_randomization", "reset_attempts")
"""Keys of a run's environment that the evaluation itself decides."""
INPUTS = "sampler.inputs."
"""Start of the arguments that say which observations a policy reads."""


@click.command(
    short_help="Success rates of a policy on bundled tasks and RoboTwin's tasks.",
    epilog="""\b
    Examples:
      rlcore robotwin evaluate reach --policy runs/NAME --episodes 50
      rlcore robotwin evaluate bundled --policy expert --out results --videos 1
      rlcore robotwin evaluate blocks --checkout RoboTwin --python robotwin-venv/bin/python""",
)
@click.argument("words", nargs=-1, required=True, metavar="TASK... [KEY=VALUE]...")
@click.option(
    "--policy", default="expert", show_default=True, help="expert, random, no-op, or the folder of a run or model."
)
@click.option("--episodes", type=click.IntRange(1, 100_000), default=100, help="Episodes of each task. Default: 100.")
@click.option("--level", type=click.Choice(["easy", "hard"]), default="easy", show_default=True, help="Randomisation.")
@click.option("--instructions", type=click.Choice(["seen", "unseen"]), help="Instructions. Default: unseen if hard.")
@click.option("--series", type=click.IntRange(0, 40_000), default=0, help="Seeds begin at 100000 * (1 + SERIES).")
@click.option("--expert-filter/--no-expert-filter", default=True, help="Count only seeds that the expert solves.")
@click.option("--seeds", type=click.Path(path_type=Path), help="List of seeds: reused if it exists, otherwise written.")
@click.option("--workers", type=click.IntRange(1, 1024), default=1, show_default=True, help="Processes.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for results.json and videos.")
@click.option("--videos", type=click.IntRange(0, 100_000), default=0, help="Episodes of each task with an MP4 video.")
@click.option("--executed", type=click.IntRange(1, 100_000), help="Executed actions of each chunk. Default: all.")
@click.option("--checkout", help="Folder of RoboTwin. Default: the variable RLCORE_ROBOTWIN.")
@click.option("--python", help="Interpreter with RoboTwin's libraries. Default: this one.")
def evaluate(words: tuple[str, ...], **given: Any) -> None:
    """Evaluate a policy under the protocol robotwin-v2.

    TASK is a bundled task, a task of the checkout, `bundled` or `blocks`. KEY=VALUE are keys of the environment, or
    sampler.inputs.NAME=KEY: the observation that a policy reads as its state or as a camera.
    """
    from rl_plugin_robotwin.evaluation.arenas import Level, Place, Split
    from rl_plugin_robotwin.evaluation.evaluating import Request
    from rl_plugin_robotwin.evaluation.evaluating import evaluate as run
    from rl_plugin_robotwin.evaluation.jobs import Setting
    from rl_plugin_robotwin.evaluation.policies import tables_of_run

    tasks = tasks_of([word for word in words if "=" not in word])
    _check_checkout(tasks, given)
    options = options_of([word for word in words if "=" in word and not word.startswith(INPUTS)])
    environment, inputs = tables_of_run(given["policy"])
    inputs |= options_of([word.removeprefix(INPUTS) for word in words if word.startswith(INPUTS)])
    trained = trained_options(environment, tasks, options)
    level = cast(Level, given["level"])
    split = cast(Split, given["instructions"] or ("unseen" if level == "hard" else "seen"))
    place = Place(
        level=level,
        instructions=split,
        checkout=given["checkout"],
        python=given["python"],
        options={**trained, **options},
        watched=given["videos"] > 0,
    )
    found = run(
        Request(
            tasks=tasks,
            setting=Setting(place=place, policy=given["policy"], executed=given["executed"], inputs=inputs),
            episodes=given["episodes"],
            series=given["series"],
            expert_filter=given["expert_filter"],
            workers=given["workers"],
            seeds=given["seeds"],
            out=given["out"],
            videos=given["videos"],
        ),
        say,
    )
    if len(tasks) > 1 and (mean := found["overall"]["mean_success"]) is not None:
        say(f"mean of {len(tasks)} tasks: {mean:.1%}")
    if given["out"] is not None:
        say(f"written to {given['out']}")
    failed = [task for task, result in found["tasks"].items() if result["success"] is None]
    if failed:
        first = next(one["exception"] for one in found["tasks"][failed[0]]["list"] if one["exception"])
        fix = "correct what raised it; with --out, results.json has the exceptions of all episodes"
        raise NotScoredError(f"no episode of {', '.join(failed)} has a result", found=first, fix=fix)


def _check_checkout(tasks: list[str], given: Mapping[str, Any]) -> None:
    """Refuse options that only RoboTwin's own tasks read."""
    from rl_plugin_robotwin.evaluation.arenas import bundled_tasks

    for name in ("checkout", "python"):
        if given[name] is not None and set(tasks) <= set(bundled_tasks()):
            fix = f"remove it, or name tasks of the checkout, such as {BLOCKS[0]}"
            raise UserError(f"bundled tasks do not read --{name}", found=given[name], where=f"--{name}", fix=fix)


def tasks_of(words: list[str]) -> list[str]:
    """The names of tasks, with the groups replaced by their tasks, each once."""
    from rl_plugin_robotwin.evaluation.arenas import bundled_tasks

    if not words:
        fix = "name a task, for example reach, or bundled, or blocks"
        raise UserError("there is no task to evaluate", found="none", where="the arguments", fix=fix)
    groups = {"bundled": bundled_tasks(), "blocks": BLOCKS}
    return list(dict.fromkeys(task for word in words for task in groups.get(word, (word,))))


def trained_options(environment: dict[str, Any], tasks: list[str], options: dict[str, Any]) -> dict[str, Any]:
    """The keys of a run's environment that its policy needs.

    Args:
        environment: the table of the run; empty for a policy without a run
        tasks: that are evaluated
        options: keys that are given

    Raises:
        ConfigError: another mode of control is given, whose actions mean something else.
    """
    trained, given = environment.get("control"), options.get("control")
    if trained is not None and given not in (None, trained):
        raise ConfigError(
            "a policy acts in the mode of control of its training",
            found=f"control={given}",
            where="the arguments",
            fix=f"remove it: the policy was trained with control={trained}",
        )
    own = tasks == [environment.get("task")]  # the limit of a task is not that of another one
    return {k: v for k, v in environment.items() if k not in NOT_OPTIONS and (own or k != "max_steps")}


def options_of(words: list[str]) -> dict[str, Any]:
    """Keys of the environment from ``KEY=VALUE``; dots separate tables, and ``environment.`` may precede them."""
    found: dict[str, Any] = {}
    for word in words:
        name, _, text = word.partition("=")
        *tables, key = name.removeprefix("environment.").split(".")
        if key in NOT_OPTIONS or (tables and tables[0] in NOT_OPTIONS):
            fix = "use --level, --instructions, --python or the names of tasks"
            raise ConfigError("the evaluation decides this key", found=word, where="the arguments", fix=fix)
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        place = found
        for table in tables:
            place = place.setdefault(table, {})
        place[key] = value
    return found
