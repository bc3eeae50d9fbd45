"""``rlcore.evaluate``."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from rlcore.api.overrides import override_texts
from rlcore.api.process import calling_process_kept
from rlcore.api.runs import Run, viewed
from rlcore.api.trajectories import Stored, Trajectories
from rlcore.cli.evaluate import Evaluated, evaluated, require_scores, summary_rows
from rlcore.cli.layering import Request
from rlcore.config.layers import PYTHON
from rlcore.config.write import toml_value
from rlcore.episodes.evaluation import Summary
from rlcore.report.notebook import gallery, page
from rlcore.rollouts.records import write_groups
from rlcore.runs.output import Output


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of an evaluation."""

    _found: Evaluated

    @property
    def accuracy(self) -> float | None:
        """Mean over tasks of the solved fraction of their scored trajectories."""
        return self.summary.accuracy

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the accuracy, with tasks as independent trials."""
        return self.summary.interval

    @property
    def summary(self) -> Summary:
        """All numbers of the evaluation."""
        return self._found.summary

    @property
    def environments(self) -> Mapping[str, Summary]:
        """All numbers of each of several environments by name; empty for a run with only one."""
        return self._found.environments

    @property
    def seconds(self) -> float:
        """Duration of the rollouts."""
        return self._found.seconds

    @property
    def model(self) -> str:
        """The folder of the evaluated model, or its name if the engine provides it."""
        return str(self._found.folder or self._found.model)

    @property
    def trajectories(self) -> Trajectories:
        """The trajectories, in memory."""
        return Trajectories(self._stored)

    def _stored(self) -> Iterator[Stored]:
        return (Stored(self._found.split, 0, group) for group in self._found.groups)

    def __repr__(self) -> str:
        return f"Evaluation(accuracy={self.accuracy}, interval={self.interval}, model={self.model!r})"

    def _repr_html_(self) -> str:
        return page(f"Evaluation of {self.model}", summary_rows(self.summary), [gallery(self._found.groups)])

    def view(self, *, trajectories: int = 12) -> Any:
        """The pages of ``rlcore view`` in a notebook. Arguments as `Run.view`."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "evaluation.jsonl.gz"
            write_groups(path, self._found.groups)
            return viewed(path, trajectories)


def evaluate(
    policy: str | PathLike[str] | Run | None = None,
    /,
    *,
    recipe: str | PathLike[str] | None = None,
    files: Sequence[str | PathLike[str]] = (),
    split: str = "evaluation",
    **overrides: Any,
) -> Evaluation:
    """Evaluate a policy on held-out tasks, like ``rlcore eval``.

    ::

        rlcore.evaluate(run, evaluation={"samples": 4, "temperature": 1.0})
        rlcore.evaluate("gsm8k-tools", model="FOLDER")

    Args:
        policy: a run, whose best checkpoint is evaluated with its configuration; the path of a run or a checkpoint; or
            the name of a plugin, with the model as an override. A text is a path if it contains a slash.
        recipe: a recipe of the plugin, or a file, like ``-r``
        files: TOML or YAML files that override the recipe, like ``-c``
        split: split of the data set
        overrides: tables or keys of the configuration, as in `rlcore.train`

    Raises:
        UserError: the configuration, the data or the model cannot be used, or nothing could be scored.
        RlcoreError: the evaluation failed.
    """
    texts = override_texts(overrides)
    plugin: str | None = None
    if isinstance(policy, str) and os.sep not in policy:
        plugin = policy
    elif policy is not None:
        folder = policy.path if isinstance(policy, Run) else policy
        texts = (f"model.path={toml_value(os.path.expanduser(folder))}", *texts)
    request = Request(
        plugin=plugin,
        recipe=fspath(recipe) if recipe is not None else None,
        files=tuple(fspath(file) for file in files),
        overrides=texts,
        place=PYTHON,
    )
    with calling_process_kept():
        found = evaluated(request, split=split, output=Output())
    require_scores(found.summary)
    return Evaluation(found)


__all__ = ["Evaluation", "evaluate"]
