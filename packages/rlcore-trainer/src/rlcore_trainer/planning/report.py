"""Plans as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlcore.console.wording import counted

from rlcore_trainer.planning.cluster import ClusterTable
from rlcore_trainer.planning.plan import Row
from rlcore_trainer.planning.recipe import Recipe
from rlcore_trainer.planning.trajectories import Trajectories

COLUMNS = (
    *("GPUs", "ahead", "samplers", "learners", "step", "wait", "update", "transfer"),
    *("samplers busy", "learners busy", "tokens/s/GPU", "GB of sampler", "GB of learner", "ages"),
)


def lines_of(rows: Sequence[Row], cluster: ClusterTable, recipe: Recipe, trajectories: Trajectories) -> Iterator[str]:
    """The plans as a table, with what they assume and what limits them."""
    model, kind = recipe.model, cluster.kind
    sizes = f"{model.parameters / 1e9:.3g} B parameters"
    if model.active < model.parameters:
        sizes += f", {model.active / 1e9:.3g} B active"
    yield f"model     {sizes}{', from the size in its name' if recipe.known_by_name else ''}"
    yield (
        f"card      {kind.tflops:g} TFLOP/s, {kind.memory_gb:g} GB, {kind.bandwidth_gb_s:,g} GB/s; "
        f"{cluster.network_gb_s:g} GB/s between nodes"
    )
    yield f"sampled   {trajectories.source}; prompts of {trajectories.prompt:,.0f} tokens"
    start_s, turn_s = trajectories.start_s.mean, trajectories.tool_s.mean
    if start_s or turn_s:
        yield f"tools     {start_s:.2g} s before the first of {trajectories.turns} turns, {turn_s:.2g} s after each"
    last = rows[-1]
    yield (
        f"network   a transfer sends {model.bytes / 1e9:.3g} GB to each node with samplers: "
        f"{last.sent_bytes / 1e9:,.0f} GB in {last.outcome.transfer_s:.2g} s on {counted(last.cards, 'GPU')}"
    )
    yield ""
    table = [COLUMNS, *map(_cells, rows)]
    widths = [max(len(cells[place]) for cells in table) for place in range(len(COLUMNS))]
    for cells in table:
        yield "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    yield ""
    for row in rows:
        yield f"{counted(row.cards, 'GPU')}, ahead={row.ahead}: {row.limit}"


def _cells(row: Row) -> tuple[str, ...]:
    outcome = row.outcome
    times = outcome.step_s, outcome.waiting_s, outcome.learning_s, outcome.transfer_s
    ages = " ".join(f"{age}:{share:.0%}" for age, share in outcome.ages.items() if share >= 0.005)
    return (
        f"{row.cards:,}",
        str(row.ahead),
        f"{row.samplers:,}",
        f"{row.learners:,}" if row.ahead else "the same",
        *(f"{seconds:,.3g} s" for seconds in times),
        f"{outcome.samplers_busy:.0%}",
        f"{outcome.learners_busy:.0%}",
        f"{outcome.tokens / outcome.step_s / row.cards:,.0f}",
        f"{row.sampler_bytes / 1e9:.0f}",
        f"{row.learner_bytes / 1e9:.0f}",
        f"{ages}, dropped {outcome.dropped:.0%}" if outcome.dropped else ages,
    )
