"""Writes the results of every evaluation, in runs whose ``observers`` name the plugin."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcore.atomic_files import told, whole, write_whole
from rlcore.runs.layout import stamped_name
from rlcore.sheets import Facts, notes_of_plugins, write_sheet
from rlcore.types import Group

from rlcore_gui.benchmark import Benchmark
from rlcore_gui.evaluation.answered import Answered, answered
from rlcore_gui.evaluation.results import Results, facts_of, lines_of, metrics_of, results_of

RESULTS = "results"
"""Folder of a run with a file for each evaluation."""


def evaluated(benchmark: Benchmark, run: Any, step: int, groups: Sequence[Group]) -> Mapping[str, float]:
    """Write the results of an evaluation, print them, and return the metrics.

    In training, the file is ``results/evaluation-NNNNNN.json`` of the run directory, beside the sheet that rlcore
    writes. Otherwise, ``results.json``, ``sheet.html`` and ``config.toml`` are in a new folder beside the runs.

    Args:
        benchmark: the data set; tasks of others are left out
        run: a `rlcore.session.session.RunSession`
        step: of the training
        groups: the scored groups

    Returns:
        The metrics as ``BENCHMARK/MEMORY/METRIC``; empty if no task is of this benchmark.

    Raises:
        UserError: a file cannot be written.
    """
    found = list(answered(benchmark, groups))
    if not found:
        return {}
    results = results_of(benchmark, found)
    run.say(*(line for each in results for line in lines_of(benchmark, each)))
    if run.directory is not None:
        path = run.directory.path / RESULTS / f"evaluation-{step:06d}.json"
        _write(path, benchmark, run, step, results, found)
        return metrics_of(benchmark, results)
    folder = _new_folder(Path(run.config.runs).expanduser(), f"evaluation-{benchmark.name}")
    _write(folder / "results.json", benchmark, run, step, results, found)
    write_whole(folder / "config.toml", run.resolved.text())
    rows = [("model", run.model_name), ("recipe", run.recipe), *(facts_of(benchmark, each) for each in results)]
    facts = Facts(title=f"Evaluation of {benchmark.name}", rows=rows, success=run.config.evaluation.success)
    write_sheet(folder / "sheet.html", groups, facts, notes_of_plugins(run.registry))
    run.say(f"written   {folder}: results.json, sheet.html")
    return metrics_of(benchmark, results)


def _write(
    path: Path, benchmark: Benchmark, run: Any, step: int, results: Sequence[Results], found: Sequence[Answered]
) -> None:
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
    with told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    with whole(path) as file:
        file.write(text.encode("utf-8", "backslashreplace"))  # a model can write halves of surrogate pairs


def _new_folder(parent: Path, tag: str) -> Path:
    """A folder that did not exist, named by the time."""
    now = datetime.datetime.now()
    with told(parent):
        parent.mkdir(parents=True, exist_ok=True)
        while (folder := parent / stamped_name(tag, now)).exists():
            now += datetime.timedelta(seconds=1)
        folder.mkdir()
    return folder


__all__ = ["evaluated"]
