"""Writes the results of every evaluation, in runs whose ``observers`` name the plugin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlcore.report import Facts, write_results
from rlcore.types import Group

from rlcore_gui.benchmark import Benchmark
from rlcore_gui.evaluation.answered import answered
from rlcore_gui.evaluation.results import facts_of, lines_of, metrics_of, results_of


def evaluated(benchmark: Benchmark, run: Any, step: int, groups: Sequence[Group]) -> Mapping[str, float]:
    """Write the results of an evaluation (see `write_results`), print them, and return the metrics.

    Args:
        benchmark: the data set; tasks of others are left out
        run: a `rlcore.session.session.RunSession`
        step: of the training
        groups: the scored groups

    Returns:
        The metrics as ``BENCHMARK/MEMORY/METRIC``; empty if no task is of this benchmark.
    """
    found = list(answered(benchmark, groups))
    if not found:
        return {}
    results = results_of(benchmark, found)
    run.say(*(line for each in results for line in lines_of(benchmark, each)))
    content = {
        "benchmark": benchmark.name,
        "model": run.model_name,
        "recipe": run.recipe,
        "step": step,
        "temperature": run.config.evaluation.temperature,
        "intervals": "95 % Wilson intervals, with episodes as independent trials",
        "memory": {each.memory: each.as_json() for each in results},
        "steps": [each.as_json() for each in found],
    }
    rows = [("model", run.model_name), ("recipe", run.recipe), *(facts_of(benchmark, each) for each in results)]
    facts = Facts(title=f"Evaluation of {benchmark.name}", rows=rows, success=run.config.evaluation.success)
    write_results(run, f"evaluation-{benchmark.name}", step, groups, content, facts)
    return metrics_of(benchmark, results)


__all__ = ["evaluated"]
