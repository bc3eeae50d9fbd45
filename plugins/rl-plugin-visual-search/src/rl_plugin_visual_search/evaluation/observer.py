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

from rl_plugin_visual_search.evaluation.answered import Answered, answered
from rl_plugin_visual_search.evaluation.results import Results, lines_of, metrics_of, results_of, table_of, title_of

RESULTS = "results"
"""Folder of a run with a file for each evaluation."""
INTERVALS = "95 % Wilson intervals, with questions as independent trials"


def evaluated(run: Any, step: int, groups: Sequence[Group]) -> Mapping[str, float]:
    """Write the results of an evaluation, print them, and return the metrics.

    In training, the file is ``results/evaluation-NNNNNN.json`` of the run directory, beside the sheet that rlcore
    writes. Otherwise, ``results.json``, ``sheet.html`` and ``config.toml`` are in a new folder beside the runs.

    Args:
        run: a `rlcore.session.session.RunSession`
        step: of the training
        groups: the scored groups

    Returns:
        The metrics as ``visual-search/…``; empty if no task is a question about pictures.

    Raises:
        UserError: a file cannot be written.
    """
    found = list(answered(groups, success=run.config.evaluation.success))
    if not found:
        return {}
    results = results_of(found)
    run.say(*lines_of(results))
    if run.directory is not None:
        _write(run.directory.path / RESULTS / f"evaluation-{step:06d}.json", run, step, results, found)
        return metrics_of(results)
    folder = _new_folder(Path(run.config.runs).expanduser())
    _write(folder / "results.json", run, step, results, found)
    write_whole(folder / "config.toml", run.resolved.text())
    rows = [("model", run.config.model.path), ("recipe", run.recipe), ("results", title_of(results))]
    rows += table_of(results)
    facts = Facts(title="Evaluation of visual search", rows=rows, success=run.config.evaluation.success)
    write_sheet(folder / "sheet.html", groups, facts, notes_of_plugins(run.registry))
    run.say(f"written   {folder}: results.json, sheet.html")
    return metrics_of(results)


def _write(path: Path, run: Any, step: int, results: Results, found: Sequence[Answered]) -> None:
    evaluation, data = run.config.evaluation, run.resolved.options.get("data")
    content = {
        "model": run.config.model.path,
        "recipe": run.recipe,
        "step": step,
        "seed": run.config.seed,
        "option_seed": getattr(data, "option_seed", None),
        "samples": evaluation.samples,
        "temperature": evaluation.temperature,
        "intervals": INTERVALS,
        **results.as_json(),
        "episodes": [each.as_json() for each in found],
    }
    with told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    with whole(path) as file:
        file.write(text.encode("utf-8", "backslashreplace"))  # a model can write halves of surrogate pairs


def _new_folder(parent: Path) -> Path:
    """A folder that did not exist, named by the time."""
    now = datetime.datetime.now()
    with told(parent):
        parent.mkdir(parents=True, exist_ok=True)
        while (folder := parent / stamped_name("evaluation-visual-search", now)).exists():
            now += datetime.timedelta(seconds=1)
        folder.mkdir()
    return folder


__all__ = ["evaluated"]
