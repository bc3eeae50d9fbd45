"""``rlcore eval``: evaluate a policy and print a table with a confidence interval."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from rlcore.cli.layering import Request, gather, layer_options
from rlcore.cli.output import json_option, print_json
from rlcore.config.layers import OVERRIDES, Layer
from rlcore.config.resolve import resolve
from rlcore.config.resolved import Resolved
from rlcore.console.terminal import say
from rlcore.console.wording import counted
from rlcore.episodes.evaluation import Summary, evaluation_request, summaries_of, summarise, tasks_to_evaluate
from rlcore.errors import NotScoredError, UserError
from rlcore.models.folder import BUILTIN
from rlcore.models.weights import FolderWeights
from rlcore.plugins.registry import Registry
from rlcore.rollouts.records import write_groups
from rlcore.runs.directory import asked_of, config_layer, run_of
from rlcore.runs.output import Output
from rlcore.session.checks import check_run
from rlcore.session.datasets import rows_told
from rlcore.session.exits import exits_reported
from rlcore.session.plan import RunPlan
from rlcore.session.session import RunSession
from rlcore.types import Group

SUFFIX = ".jsonl.gz"
"""Of stored trajectories."""


@click.command(
    name="eval",
    short_help="Evaluate a policy on held-out tasks.",
    epilog="""\b
    Examples:
      rlcore eval runs/NAME                            the best checkpoint of a run, with that run's configuration
      rlcore eval runs/NAME/checkpoints/000040         another checkpoint
      rlcore eval -p gsm8k-tools model=FOLDER          a Hugging Face folder
      rlcore eval -p mind2web model.path=runs/NAME     the policy of a run in another environment
      rlcore eval runs/NAME --save answers.jsonl.gz    for rlcore view, rlcore report and rlcore data show
      rlcore eval runs/NAME --compare data.tools=none  also without the tools, and the difference
      rlcore eval runs/NAME evaluation.samples=8 evaluation.temperature=1.0    also pass@k
      rlcore eval -p gsm8k-tools rollout.engine=openai rollout.openai.base_url=http://localhost:8000/v1 \\
        rollout.openai.model=NAME                      a chat-completions endpoint; needs no model.path""",
)
@layer_options
@click.option("--split", default="evaluation", show_default=True, help="Split of the dataset.")
@click.option(
    "--save",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.jsonl.gz",
    help="Store the trajectories, for rlcore view, rlcore report and rlcore data show.",
)
@click.option(
    "--compare",
    multiple=True,
    metavar="KEY=VALUE",
    help="Evaluate again with this setting, and print the difference; repeat for several settings.",
)
@json_option("Print JSON instead of the table.")
@exits_reported()
def evaluate(
    plugin: str | None,
    recipe: str | None,
    files: tuple[str, ...],
    overrides: tuple[str, ...],
    split: str,
    save: Path | None,
    compare: tuple[str, ...],
    as_json: bool,
) -> int:
    """Evaluate a policy on held-out tasks.

    Takes the same layers as rlcore run and evaluates the model in model.path. A run directory or a checkpoint can be
    given alone: it provides the configuration of its run. An engine that uses an endpoint provides its own model.
    """
    _check_save(save)
    _check_compared(compare)
    request = Request(plugin=plugin, recipe=recipe, files=files, overrides=overrides, argv=tuple(sys.argv))
    changed = dataclasses.replace(request, overrides=(*overrides, *compare)) if compare else None
    output = Output(sys.stderr if as_json else None)
    try:
        if changed is not None:
            _resolved(changed, Registry())  # mistakes are found before the first evaluation
        found = evaluated(request, split=split, output=output)
        if save is not None:
            write_groups(save, found.groups)
        other = evaluated(changed, split=split, output=output) if changed is not None else None
    except BaseException as error:
        if as_json and not isinstance(error, UserError):
            print_json({"finished": False})
        raise
    if as_json:
        compared = {"compared": {"overrides": compare, **_numbers(other)}} if other is not None else {}
        print_json({"finished": found.summary.scored > 0, **_numbers(found), **compared})
    else:
        _print_tables(found)
        if other is not None:
            _print_tables(other, f", {' '.join(compare)}")
            say(*_difference(found.summary, other.summary, " ".join(compare)))
    for each in (found, other):
        if each is not None:
            require_scores(each.summary)
    return 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """The result of an evaluation."""

    name: str
    """The recipe, or the environment if there is no recipe."""
    recipe: str
    model: str
    """The model as it was given, or its name if the engine provides it."""
    folder: Path | None
    """The folder of the model, which no longer exists if it was built; None if the engine provides it."""
    split: str
    groups: Sequence[Group]
    summary: Summary
    environments: Mapping[str, Summary]
    """The metrics of each of several environments by name; empty for a run with only one."""
    seconds: float
    """Duration of the rollouts."""


def evaluated(request: Request, *, split: str, output: Output) -> Evaluated:
    """Evaluate a policy on the tasks of a split.

    Raises:
        UserError: the request cannot be evaluated.
    """
    registry = Registry()
    resolved, recipe = _resolved(request, registry)
    run = RunSession(RunPlan(resolved=resolved, purpose="evaluation"), registry, output=output)
    try:
        check_run(run, split=split)
        for line in rows_told(run.dataset, split):
            output.say(line)
        folder = _folder(run)
        groups, seconds = _collect(run, split, folder)
        run.evaluated(groups)
    finally:
        run.finished()
    success = run.config.evaluation.success
    return Evaluated(
        name=run.recipe or ", ".join(one.name or one.id for one in run.environments),
        recipe=recipe,
        model=run.model_name,
        folder=folder,
        split=split,
        groups=groups,
        summary=summarise(groups, success=success),
        environments=summaries_of(groups, success=success),
        seconds=seconds,
    )


def _resolved(request: Request, registry: Registry) -> tuple[Resolved, str]:
    """The validated configuration, and the recipe."""
    plugin, recipe = request.plugin, request.recipe
    overrides, base, base_recipe = given_run(request.overrides, wanted=plugin is None and recipe is None)
    if base is None and plugin is None and recipe is None and not request.files:
        _check_folder(overrides)
    layered = gather(
        registry,
        plugin=plugin,
        recipe=recipe,
        files=request.files,
        overrides=overrides,
        base=base,
        base_recipe=base_recipe,
        place=request.place,
        argv=request.argv,
    )
    tables = {table for layer in layered.layers for table in layer.tree}
    if isinstance(base.tree.get("environment") if base is not None else None, list):
        tables.add("reward")  # in the tables of the environments
    if base is not None and (missing := [table for table in ("environment", "reward") if table not in tables]):
        trainer = base.tree.get("trainer")
        used = trainer.get("id", "its trainer") if isinstance(trainer, Mapping) else "its trainer"
        raise UserError(
            "the configuration of this run has no environment or reward",
            found=f"no {' and no '.join(missing)}: {used} trains without them",
            fix="if it trained a language model or a policy, give a plugin that provides them: "
            f"rlcore eval -p PLUGIN model={_model_path(overrides)}",
        )
    return resolve(layered.layers, registry, recipe=layered.recipe, purpose="evaluation"), layered.recipe


def require_scores(summary: Summary) -> None:
    """Raise `NotScoredError` if no trajectory was scored."""
    if not summary.scored:
        raise NotScoredError(
            f"none of {counted(summary.trajectories, 'trajectory')} could be scored",
            found="; ".join(summary.errors) or None,
            fix="fix the failing reward, environment or external service",
        )


def given_run(overrides: tuple[str, ...], *, wanted: bool) -> tuple[tuple[str, ...], Layer | None, str]:
    """Turn a bare folder into ``model=FOLDER``. The run's configuration is the base, unless ``-p`` is given."""
    folders = [text for text in overrides if "=" not in text and Path(text).expanduser().is_dir()]
    strange = [text for text in overrides if "=" not in text and text not in folders]
    if strange:
        if not Path(strange[0]).expanduser().exists():
            raise _no_folder(strange[0])
        fix = "give a run directory, a checkpoint of a run or a model folder; give other settings as KEY=VALUE"
        raise UserError(f"{strange[0]!r} cannot be evaluated", found="a file", fix=fix)
    if len(folders) > 1:
        raise UserError("more than one folder to evaluate is given", found=", ".join(folders), fix="give one folder")
    overrides = tuple(f"model.path={text}" if text in folders else text for text in overrides)
    path = _model_path(overrides)
    found = run_of(Path(path).expanduser()) if wanted and path and Path(path).expanduser().is_dir() else None
    if found is None:
        return overrides, None, ""
    return overrides, config_layer(found[0]), asked_of(found[0]).recipe


def _model_path(overrides: tuple[str, ...]) -> str | None:
    """The model given by the last override."""
    values = [text.partition("=")[2] for text in overrides if text.partition("=")[0] in {"model", "model.path"}]
    return values[-1].strip("\"'") if values else None


def _check_folder(overrides: tuple[str, ...]) -> None:
    """Reject a missing folder when no other configuration is given."""
    path = _model_path(overrides)
    if path and not path.startswith(BUILTIN) and not Path(path).expanduser().exists():
        raise _no_folder(path)


def _no_folder(path: str) -> UserError:
    fix = "give a run directory or a checkpoint of a run; with --plugin NAME, a model folder or model.path=HUB_ID"
    return UserError(f"there is no run or model folder {path}", fix=fix)


def _collect(run: RunSession, split: str, folder: Path | None) -> tuple[Sequence[Group], float]:
    """The scored groups of the split's tasks, and the duration in seconds."""
    tasks = tasks_to_evaluate(run.config, run.usable_tasks(split))
    sampler = run.sampler(FolderWeights(folder=folder))
    try:
        started = time.perf_counter()
        groups = sampler.collect(evaluation_request(run.config, tasks))
        seconds = round(time.perf_counter() - started, 3)
    finally:
        sampler.close()
    return groups, seconds


def _folder(run: RunSession) -> Path | None:
    """Print a line that identifies the model, and return its folder; None when the engine provides its own model."""
    if (name := run.own_model) is not None:
        origin = run.resolved.origin(("model", "path"))
        if origin.startswith(OVERRIDES):
            raise UserError(
                f"the engine {run.config.rollout.engine!r} provides its own model, {name}",
                found=f"model.path={run.config.model.path}",
                where=origin,
                fix="remove the folder; use -c RUN/config.toml for the configuration of a run",
            )
        run.say(f"model     {name}, provided by the engine {run.config.rollout.engine!r}")
        return None
    path = run.config.model.path
    if path.startswith(BUILTIN):
        run.say(f"model     {path}, newly built and untrained")
        return run.model_folder()
    folder = run.model_folder()
    quantised = run.config.model.quantization
    run.say(f"model     {folder}" + (f", base quantised to {quantised}" if quantised != "none" else ""))
    return folder


def _check_compared(settings: tuple[str, ...]) -> None:
    """Reject other words before the trajectories are collected."""
    for each in settings:
        if not all(each.partition("=")[::2]):
            raise UserError("--compare needs a setting", found=each, fix="give KEY=VALUE, such as data.tools=none")


def _check_save(path: Path | None) -> None:
    """Reject an unusable path before the trajectories are collected."""
    if path is None:
        return
    if not path.name.endswith(SUFFIX):
        raise UserError(f"trajectories are stored as {SUFFIX}", found=str(path), where="--save", fix=f"{path}{SUFFIX}")
    if not path.parent.is_dir():
        raise UserError(f"the folder {path.parent} does not exist", where="--save", fix="create it")


def summary_rows(summary: Summary) -> list[tuple[str, str]]:
    """The rows of the table: name and value."""
    rows = []
    if summary.accuracy is None or summary.interval is None:
        rows.append(("accuracy", "no trajectory was scored"))
    else:
        low, high = summary.interval
        rows.append(("accuracy", f"{summary.accuracy:.3f}   (95 % interval {low:.3f} to {high:.3f})"))
        scored = counted(summary.scored, "scored trajectory")
        rows.append(("solved", f"{summary.solved} of {scored}, {counted(summary.tasks, 'task')}"))
    if len(summary.pass_at_k) > 1:
        rows += [(f"pass@{k}", f"{value:.3f}") for k, value in summary.pass_at_k.items()]
    if summary.reward is not None:
        rows.append(("reward", f"{summary.reward:.3f}"))
    rows += [(f"reward {id}", f"{value:.3f}") for id, value in [*summary.roles.items(), *summary.rewards.items()]]
    rows += [(f"  {name}", f"{value:.3f}") for name, value in summary.components.items()]
    rows.append(("stopped by", _counts(summary.stops)))
    if summary.reward_errors:
        rows.append(("reward errors", _counts(summary.reward_errors)))
    if summary.failures:
        rows.append(("failures", _counts(summary.failures)))
    if summary.not_scored:
        rows.append(("not scored", f"{summary.not_scored} of {counted(summary.trajectories, 'trajectory')}"))
    rows.append(("per trajectory", f"{summary.turns:.1f} turns, {summary.tool_calls:.1f} tool calls, "))
    rows[-1] = (rows[-1][0], rows[-1][1] + f"{summary.tokens:.0f} tokens")
    rows += [("error", message.splitlines()[0]) for message in summary.errors if message]
    return rows


def _numbers(found: Evaluated) -> dict[str, Any]:
    """The results as JSON."""
    numbers = {"recipe": found.recipe, "model": found.model, "split": found.split, "seconds": found.seconds}
    each = {name: dataclasses.asdict(part) for name, part in found.environments.items()}
    return {**numbers, **dataclasses.asdict(found.summary), **({"environments": each} if each else {})}


def _difference(first: Summary, other: Summary, setting: str) -> list[str]:
    if first.accuracy is None or other.accuracy is None:
        return []
    both = f"{first.accuracy:.3f}, and {other.accuracy:.3f} with {setting}"
    return [f"difference  {first.accuracy - other.accuracy:+.3f}: accuracy {both}", ""]


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _print_tables(found: Evaluated, setting: str = "") -> None:
    for name, part in found.environments.items():
        _print_table(name + setting, part)
    title, duration = f"{found.name}, {found.split}{setting}", f" in {found.seconds:.1f} s"
    if found.environments:  # a mean over different environments has no meaning
        say(f"{title}: {counted(found.summary.tasks, 'task')}{duration}", "")
    else:
        _print_table(title, found.summary, duration)


def _print_table(name: str, summary: Summary, duration: str = "") -> None:
    rows = summary_rows(summary)
    width = max(len(name) for name, _ in rows)
    say(f"{name}: {counted(summary.tasks, 'task')}{duration}", "")
    say(*(f"  {name:<{width}}  {value}" for name, value in rows), "")
