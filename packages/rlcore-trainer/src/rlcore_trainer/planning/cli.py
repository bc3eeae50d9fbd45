"""The command ``rlcore plan``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click
from rlcore.cli.layering import gather, layer_options
from rlcore.cli.output import examples, json_option, print_json
from rlcore.console.terminal import say
from rlcore.errors import UserError
from rlcore.plugins.registry import Registry

SIZES = (8, 64, 1024, 16384)
AHEAD = (0, 1, 2, 4)


@click.command(
    epilog=examples(
        "rlcore plan cluster.toml -p gsm8k-tools -r qwen2.5-3b",
        "rlcore plan cluster.toml -p gsm8k-tools -r qwen2.5-3b --gpus 64 trainer.tasks_per_step=256",
        "rlcore plan cluster.toml -p gsm8k-tools -r qwen2.5-3b --scale-batch schedule.ahead=8",
        "rlcore plan cluster.toml -c run.toml --lengths runs/first --calibrate runs/first",
    )
)
@click.argument("cluster", metavar="CLUSTER")
@layer_options
@click.option("--gpus", type=click.IntRange(1), multiple=True, help="Number of GPUs; repeatable.")
@click.option("--lengths", metavar="RUN", help="Take lengths, turns and times of tools from a run.")
@click.option(
    "--calibrate", metavar="RUN", multiple=True, help="Fit the efficiencies to a run on one card; repeatable."
)
@click.option("--scale-batch", is_flag=True, help="Multiply trainer.tasks_per_step with the number of GPUs.")
@json_option("Print the plans as JSON.")
def plan(
    cluster: str,
    plugin: str | None,
    recipe: str | None,
    files: tuple[str, ...],
    overrides: tuple[str, ...],
    gpus: tuple[int, ...],
    lengths: str | None,
    calibrate: tuple[str, ...],
    scale_batch: bool,
    as_json: bool,
) -> None:
    """Simulate a run on a cluster: time, use, memory and network of a step, and what limits it.

    CLUSTER is a TOML file with nodes, gpus_per_node, card and network_gb_s. The run is not started, and no GPU is
    needed. Synchronous training samples and learns on all GPUs in turn; with schedule.ahead above 0, GPUs are divided
    between samplers and learners, and the best division is shown. A recipe with schedule.ahead above 0 is planned with
    that value and its max_age.
    """
    from rlcore_trainer.controller.selection import MAX_AGE
    from rlcore_trainer.planning.cluster import read_cluster, sizes_of
    from rlcore_trainer.planning.measured import calibrated, trajectories_of
    from rlcore_trainer.planning.plan import Planner
    from rlcore_trainer.planning.recipe import read_recipe
    from rlcore_trainer.planning.report import lines_of

    described = read_cluster(Path(cluster).expanduser())
    sizes = sizes_of(described, gpus, SIZES)
    registry = Registry()
    layered = gather(registry, plugin=plugin, recipe=recipe, files=files, overrides=overrides)
    planned = read_recipe(layered.layers, registry, layered.recipe)
    if calibrate:
        fitted = calibrated(described, [Path(run) for run in calibrate])
        described = described.model_copy(update={"efficiency": fitted})
    measured = Path(lengths) if lengths is not None else None
    trajectories = trajectories_of(planned.run, described.trajectories, measured)
    planner = Planner(cluster=described, recipe=planned, trajectories=trajectories)
    schedule, groups = planned.run.config.schedule, planned.trainer.tasks_per_step
    rows, refused = [], []
    for size in sizes:
        for ahead in (0, schedule.ahead) if schedule.ahead else AHEAD:
            oldest = None if not ahead else ahead + MAX_AGE if schedule.max_age is None else schedule.max_age
            scaled = max(1, groups * size // sizes[0]) if scale_batch else groups
            try:
                rows.append(planner.row(size, ahead=ahead, max_age=oldest, groups=scaled))
            except UserError as error:
                refused.append(error)
    if not rows:
        raise refused[0]
    if as_json:
        plans = [asdict(row) for row in rows]
        print_json({"efficiency": described.efficiency.model_dump(), "plans": plans}, indent=2)
        return
    say(*lines_of(rows, described, planned, trajectories), *(f"left out  {error.line}" for error in refused))


__all__ = ["plan"]
