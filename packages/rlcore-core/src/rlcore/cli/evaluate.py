"""``rlcore eval``: an engine, no trainer; a table with an interval."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from pathlib import Path

import click

from rlcore.checks import check_run
from rlcore.cli.layering import gather, layer_options
from rlcore.cli.run import skipped_rows
from rlcore.config.layers import Layer
from rlcore.config.resolve import resolve
from rlcore.errors import UserError
from rlcore.evaluation import Summary, summarise
from rlcore.model_folder import BUILTIN
from rlcore.output import Output
from rlcore.registry import Registry
from rlcore.run import Run
from rlcore.run_directory import config_layer, recipe_of, run_of
from rlcore.types import RolloutRequest
from rlcore.weights import FolderWeights


@click.command(
    name="eval",
    short_help="Measure a policy on held-out tasks.",
    epilog="""\b
    Examples:
      rlcore eval runs/NAME                            the best checkpoint of a run, with that run's configuration
      rlcore eval runs/NAME/checkpoints/000040         another checkpoint
      rlcore eval -p gsm8k-tools model=FOLDER          any Hugging Face folder
      rlcore eval runs/NAME evaluation.samples=8 evaluation.temperature=1.0    pass@k too""",
)
@layer_options
@click.option("--split", default="evaluation", show_default=True, help="Which tasks of the dataset.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of the table.")
def evaluate(
    plugin: str | None,
    recipe: str | None,
    files: tuple[str, ...],
    overrides: tuple[str, ...],
    split: str,
    as_json: bool,
) -> int:
    """Measure a policy on held-out tasks.

    Takes the same layers as rlcore run. The model is model.path; a run directory or a checkpoint may stand alone, and
    then brings the configuration of its run.
    """
    registry = Registry()
    overrides, base, base_recipe = _given_run(overrides, wanted=plugin is None and recipe is None)
    layered = gather(
        registry,
        plugin=plugin,
        recipe=recipe,
        files=files,
        overrides=overrides,
        base=base,
        base_recipe=base_recipe,
    )
    resolved = resolve(layered.layers, registry, recipe=layered.recipe, purpose="evaluation")
    output = Output(sys.stderr if as_json else None)
    run = Run(resolved, registry, output=output)
    try:
        check_run(run, purpose="evaluation", split=split)
        for line in skipped_rows(run, split):
            output.say(line)
        summary, seconds = _measure(run, split)
    finally:
        run.finished()
    if as_json:
        numbers = {"recipe": layered.recipe, "model": run.config.model.path, "split": split, "seconds": seconds}
        click.echo(json.dumps({**numbers, **dataclasses.asdict(summary)}))
    else:
        _print_table(run, summary, split, seconds)
    return 0


def _given_run(overrides: tuple[str, ...], *, wanted: bool) -> tuple[tuple[str, ...], Layer | None, str]:
    """A folder that stands alone becomes ``model=FOLDER``; a run's own configuration is the base unless ``-p`` is."""
    folders = [text for text in overrides if "=" not in text and Path(text).expanduser().is_dir()]
    strange = [text for text in overrides if "=" not in text and text not in folders]
    if strange:
        there = "a file" if Path(strange[0]).expanduser().exists() else "no such folder"
        mend = "name a run directory, a checkpoint in one or a model folder; everything else is KEY=VALUE"
        raise UserError(f"{strange[0]!r} cannot be evaluated", found=there, mend=mend)
    if len(folders) > 1:
        raise UserError("there is more than one folder to evaluate", found=", ".join(folders), mend="name one")
    overrides = tuple(f"model.path={text}" if text in folders else text for text in overrides)
    path = None
    for text in overrides:
        key, _, value = text.partition("=")
        if key in {"model", "model.path"}:
            path = value.strip("\"'")
    found = run_of(Path(path).expanduser()) if wanted and path and Path(path).expanduser().is_dir() else None
    if found is None:
        return overrides, None, ""
    return overrides, config_layer(found[0]), recipe_of(found[0])


def _measure(run: Run, split: str) -> tuple[Summary, float]:
    config = run.config
    built = config.model.path.startswith(BUILTIN)
    if built:
        run.say(f"model     {config.model.path} is built afresh and has learned nothing yet")
    folder = run.model_folder()
    if not built:
        run.say(f"model     {folder}")
    executor = run.executor(FolderWeights(folder=folder))
    try:
        started = time.perf_counter()
        request = RolloutRequest(
            tasks=list(run.dataset.tasks(split))[: config.evaluation.tasks],
            group_size=config.evaluation.samples,
            seed=config.seed,
            step=0,
            purpose="evaluation",
            sampling={"temperature": config.evaluation.temperature, "top_p": 1.0, "top_k": 0},
        )
        groups = executor.collect(request)
        seconds = round(time.perf_counter() - started, 3)
    finally:
        executor.close()
    return summarise(groups, success=config.evaluation.success), seconds


def summary_rows(summary: Summary) -> list[tuple[str, str]]:
    """What the table shows, name and value."""
    rows = []
    if summary.accuracy is None or summary.interval is None:
        rows.append(("accuracy", "nothing could be scored"))
    else:
        low, high = summary.interval
        rows.append(("accuracy", f"{summary.accuracy:.3f}   (95 % interval {low:.3f} to {high:.3f})"))
        rows.append(("solved", f"{summary.solved} of {summary.scored} scored trajectories, {summary.tasks} tasks"))
    if len(summary.pass_at_k) > 1:
        rows += [(f"pass@{k}", f"{value:.3f}") for k, value in summary.pass_at_k.items()]
    if summary.reward is not None:
        rows.append(("reward", f"{summary.reward:.3f}"))
    rows += [(f"reward {id}", f"{value:.3f}") for id, value in summary.rewards.items()]
    rows += [(f"  {name}", f"{value:.3f}") for name, value in summary.components.items()]
    rows.append(("ended by", ", ".join(f"{reason} {count}" for reason, count in summary.end_reasons.items())))
    if summary.not_scored:
        rows.append(("not scored", ", ".join(f"{reason} {count}" for reason, count in summary.not_scored.items())))
    rows.append(("per trajectory", f"{summary.turns:.1f} turns, {summary.tool_calls:.1f} tool calls, "))
    rows[-1] = (rows[-1][0], rows[-1][1] + f"{summary.tokens:.0f} tokens")
    rows += [("error", message.splitlines()[0]) for message in summary.errors if message]
    return rows


def _print_table(run: Run, summary: Summary, split: str, seconds: float) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    title = f"{run.recipe or run.config.environment.id}, {split}: {summary.tasks} tasks in {seconds:.1f} s"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in summary_rows(summary):
        table.add_row(Text(name), Text(value))
    Console(soft_wrap=not sys.stdout.isatty()).print(table)
