"""Writes the results of every evaluation, in runs whose ``observers`` name the plugin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlcore.report import Facts, write_results
from rlcore.types import Group

from rl_plugin_visual_search.evaluation.answered import answered
from rl_plugin_visual_search.evaluation.results import lines_of, metrics_of, results_of, table_of, title_of


def evaluated(run: Any, step: int, groups: Sequence[Group]) -> Mapping[str, float]:
    """Write the results of an evaluation (see `write_results`), print them, and return the metrics.

    Args:
        run: a `rlcore.session.session.RunSession`
        step: of the training
        groups: the scored groups

    Returns:
        The metrics as ``visual-search/…``; empty if no task is a question about pictures.
    """
    evaluation, model = run.config.evaluation, run.config.model.path
    found = list(answered(groups, success=evaluation.success))
    if not found:
        return {}
    results = results_of(found)
    run.say(*lines_of(results))
    content = {
        "model": model,
        "recipe": run.recipe,
        "step": step,
        "seed": run.config.seed,
        "option_seed": getattr(run.resolved.options.get("data"), "option_seed", None),
        "samples": evaluation.samples,
        "temperature": evaluation.temperature,
        "intervals": "95 % Wilson intervals, with questions as independent trials",
        **results.as_json(),
        "episodes": [each.as_json() for each in found],
    }
    rows = [("model", model), ("recipe", run.recipe), ("results", title_of(results)), *table_of(results)]
    facts = Facts(title="Evaluation of visual search", rows=rows, success=evaluation.success)
    write_results(run, "evaluation-visual-search", step, groups, content, facts)
    return metrics_of(results)


__all__ = ["evaluated"]
