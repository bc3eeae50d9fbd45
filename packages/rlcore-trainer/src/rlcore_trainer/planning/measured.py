"""What earlier runs measured: their trajectories, and how long sampling, learning and transfers took."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from rlcore.abilities import MultiTurnConfig
from rlcore.errors import UserError
from rlcore.plugins.registry import Registry
from rlcore.rollouts.index import TIMES, evidence_file, read_index, read_lines, records_of
from rlcore.runs.checkpoints import run_of
from rlcore.runs.directory import config_layer
from rlcore.runs.metrics import read_metrics
from rlcore.session.memory import ANSWER_TOKENS, own_tokens, prompt_lengths
from rlcore.session.session import RunSession

from rlcore_trainer.planning.cluster import GIGA, ClusterTable, EfficiencyTable, TrajectoriesTable
from rlcore_trainer.planning.costs import Decoding, Learning
from rlcore_trainer.planning.recipe import read_recipe
from rlcore_trainer.planning.trajectories import Distribution, Trajectories

SHARE_OF_LIMIT = 1 / 3
"""Mean tokens of a trajectory as a share of its limit, if nothing is known."""
TOOL_S = 0.5
"""Seconds of tools and environment after a turn of several, if nothing is known."""
TIMES_FILE = "times.jsonl.gz"
WAITS = {"start": {"make", "reset"}, "turn": {"step", "reward"}}
"""What a trajectory waits for besides its engine, before its first turn and after each; a step contains its tools."""
TOO_FAST = 1.2
"""A run that takes less than the described card by this factor was on another one."""
MOST_STEPS = 50
"""The last steps of a run that are read."""


def trajectories_of(run: RunSession, table: TrajectoriesTable, measured: Path | None) -> Trajectories:
    """The trajectories of a planned run: those of an earlier run, or from the description and the limits.

    Raises:
        UserError: the earlier run cannot be read.
    """
    prompts, limit = prompt_lengths(run), own_tokens(run)
    options: list[object] = [one.options for one in run.resolved.environments]
    most = max((one.max_turns for one in options if isinstance(one, MultiTurnConfig)), default=1)
    turns = table.turns or most
    tokens = table.tokens or limit * SHARE_OF_LIMIT
    tool_s = (TOOL_S if turns > 1 else 0.0) if table.tool_s is None else table.tool_s
    assumed = "assumed " if table.tokens is None else ""
    known = Trajectories(
        tokens=Distribution.log_normal(tokens, table.spread, limit),
        prompt=prompts.mean + prompts.visual,
        turns=turns,
        observation=ANSWER_TOKENS,
        tool_s=Distribution.log_normal(tool_s, table.tool_spread),
        source=f"log-normal, {assumed}mean {tokens:,.0f}, spread {table.spread:g}, at most {limit:,} tokens",
    )
    if measured is None:
        return known
    tokens_of, turns_of = [], []
    waits: dict[str, list[float]] = {name: [] for name in WAITS}
    for path in _records(_folder(measured)):
        seconds: Counter[tuple[str, int, int]] = Counter()
        for row in read_lines(evidence_file(path, TIMES_FILE), TIMES):
            for name, kinds in WAITS.items():
                if row["kind"] in kinds:
                    seconds[name, row["group"], row["sibling"]] += row["seconds"]
        for row in read_index(path):
            tokens_of.append(float(row["tokens"]))
            turns_of.append(max(1, row["turns"]))
            for name, values in waits.items():
                values.append(float(seconds[name, row["group"], row["sibling"]]))
    return replace(
        known,
        tokens=Distribution(tuple(sorted(tokens_of))),
        turns=round(fmean(turns_of)),
        start_s=Distribution(tuple(sorted(waits["start"]))),
        tool_s=Distribution(tuple(sorted(wait / turns for wait, turns in zip(waits["turn"], turns_of, strict=True)))),
        trained=fmean(map(_trained, read_metrics(_folder(measured) / "metrics.jsonl")[-MOST_STEPS:])),
        source=f"{len(tokens_of):,} trajectories of {measured}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of a run: what it did and how long that took."""

    lengths: Sequence[tuple[float, int]]
    """Sampled tokens and turns of its trajectories."""
    generated_s: float
    """Seconds in which its trajectories were sampled, summed over them."""
    sequences: float
    """The mean number that were sampled at the same time."""
    update_s: float
    sync_s: float
    trained: float
    """Share of the sampled tokens that the update computed."""


def calibrated(cluster: ClusterTable, runs: Sequence[Path]) -> EfficiencyTable:
    """The efficiencies at which simulated runs on one card take the times that were measured.

    Sampling and learning have two parameters each, which are fitted to all steps by least squares: the time of an
    iteration or an update besides the computation, and the share of the rates that the computation reaches.

    Raises:
        UserError: a run cannot be read, is asynchronous, or is faster than the described card.
    """
    efficiency = cluster.efficiency
    sampling, learning, syncs = [], [], []
    for path in runs:
        folder = _folder(path)
        recipe = read_recipe([config_layer(folder)], Registry(), "")
        if recipe.run.config.schedule.ahead:
            fix = "calibrate with a run with schedule.ahead=0"
            raise UserError("the steps of an asynchronous run overlap", where=str(path), fix=fix)
        prompt, model, trainer = prompt_lengths(recipe.run).mean, recipe.model, recipe.trainer
        free = efficiency.model_copy(update={"iteration_s": 0.0})
        engine = Decoding(model=model, card=cluster.kind, efficiency=free, cards=1, slots=1)
        learner = Learning(model=model, card=cluster.kind, efficiency=efficiency, cards=1, passes=recipe.passes)
        for step in _steps(folder):
            tokens = sum(sampled for sampled, _ in step.lengths)
            lengths = [prompt + sampled + (turns - 1) * ANSWER_TOKENS for sampled, turns in step.lengths]
            computed = tokens * engine.iteration(step.sequences, step.sequences * fmean(lengths))[0]
            # A prompt is computed once for its group, while the other sequences wait.
            prompts = prompt * len(lengths) / recipe.run.config.rollout.group_size
            observed = sum(turns - 1 for _, turns in step.lengths) * ANSWER_TOKENS
            computed += step.sequences * engine.prefill_s(prompts + observed)
            sampling.append((tokens, computed, step.generated_s))
            squares = sum(length**2 for length in lengths)
            work = learner.compute_s(sum(lengths), squares, len(lengths), max(lengths))
            updates = trainer.updates_per_rollout * trainer.epochs
            learning.append((float(updates), step.trained * work, step.update_s))
            syncs.append(step.sync_s - model.bytes / (efficiency.transfer * cluster.network_gb_s * GIGA))
    # No share of a rate is above 1.
    iteration_s, slower = _fitted(sampling, max(efficiency.decoding, efficiency.prefill))
    update_s, learns_slower = _fitted(learning, efficiency.training)
    for name, rows, slowed in (("sampling", sampling, slower), ("learning", learning, learns_slower)):
        if (least := slowed * sum(row[1] for row in rows)) > TOO_FAST * (taken := sum(row[2] for row in rows)):
            raise UserError(
                "the runs are faster than the described card",
                found=f"{name} took {taken:.3g} s, and the card needs {least:.3g} s at its full rates",
                where=", ".join(map(str, runs)),
                fix="describe the card of these runs: --calibrate needs runs on one card of the cluster",
            )
    shares = {name: getattr(efficiency, name) / slower for name in ("decoding", "prefill")}
    shares["training"] = efficiency.training / learns_slower
    fixed = {"iteration_s": iteration_s, "update_s": update_s, "transfer_s": max(0.0, fmean(syncs))}
    return efficiency.model_copy(update={**shares, **fixed})


def _fitted(rows: Sequence[tuple[float, float, float]], least: float = 0.0) -> tuple[float, float]:
    """The p ≥ 0 and q ≥ least for which p · a + q · b is closest to y, over rows of a, b and y."""
    aa, ab, bb = (sum(row[i] * row[j] for row in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    ay, by = (sum(row[i] * row[2] for row in rows) for i in (0, 1))
    tried = [(max(0.0, (ay - least * ab) / aa), least), (0.0, max(least, by / bb))]
    determinant = aa * bb - ab * ab
    if determinant > 1e-9 * aa * bb:
        p, q = (ay * bb - by * ab) / determinant, (by * aa - ay * ab) / determinant
        tried += [(p, q)] if p >= 0 and q >= least else []
    return min(tried, key=lambda one: sum((one[0] * a + one[1] * b - y) ** 2 for a, b, y in rows))


def _steps(folder: Path) -> list[Step]:
    metrics = {row["step"]: row for row in read_metrics(folder / "metrics.jsonl")}
    steps = []
    for path in _records(folder):
        rows, times = read_index(path), read_lines(evidence_file(path, TIMES_FILE), TIMES)
        row: Mapping[str, Any] = metrics.get(rows[0]["step"], {}) if rows else {}
        found = [row.get(f"time/{name}_s") for name in ("update", "sync")]
        seconds = [float(one) for one in found if isinstance(one, (int, float)) and math.isfinite(one)]
        turns = sorted((float(one["start"]), float(one["seconds"])) for one in times if one["kind"] == "turn")
        if len(seconds) < len(found) or not turns:
            continue
        queued = sum(float(one["seconds"]) for one in times if one["kind"] == "engine_queue")
        generated_s = max(1e-9, sum(length for _, length in turns) - queued)
        steps.append(
            Step(
                lengths=[(float(max(1, one["tokens"])), max(1, one["turns"])) for one in rows],
                generated_s=generated_s,
                sequences=max(1.0, generated_s / max(1e-9, _covered(turns))),
                update_s=seconds[0],
                sync_s=seconds[1],
                trained=_trained(row),
            )
        )
    if len(steps) < 2:
        raise UserError(
            f"{folder} has no measured steps",
            found="fewer than 2 steps with rollouts, their times, and the metrics time/update_s and time/sync_s",
            where="--calibrate",
            fix="give a run with the trainer policy-gradient and at least 3 steps",
        )
    return steps[1:]  # the first step warms caches up


def _trained(row: Mapping[str, Any]) -> float:
    """The share of the sampled tokens of a step that were trained; 1 if it is not known."""
    trained, sampled = row.get("tokens/trained"), row.get("tokens/sampled")
    if not isinstance(trained, (int, float)) or not isinstance(sampled, (int, float)) or sampled <= 0:
        return 1.0
    return min(1.0, trained / sampled)


def _covered(spans: Sequence[tuple[float, float]]) -> float:
    """The length of the union of spans, which are sorted pairs of start and length."""
    total, end = 0.0, -math.inf
    for start, length in spans:
        total += max(0.0, start + length - max(start, end))
        end = max(end, start + length)
    return total


def _folder(path: Path) -> Path:
    found = run_of(path.expanduser())
    if found is None:
        raise UserError(f"{path} is not a run directory", fix="give a directory created by rlcore run")
    return found[0]


def _records(folder: Path) -> list[Path]:
    paths = sorted(path for path in records_of(folder) if path.name.startswith("train-"))
    if not paths:
        raise UserError(f"{folder} has no training rollouts", fix="give a run that finished a step")
    return paths[-MOST_STEPS:]


__all__ = ["calibrated", "trajectories_of"]
