"""Apply the rules to a run, while it goes or afterwards."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcore.checks import Finding
from rlcore.diagnosis.evidence import Evidence, changes_policy
from rlcore.errors import PluginError, UserError
from rlcore.plugin_calls import error_text, plugin_code, value_text
from rlcore.plugins.registry import Registry
from rlcore.runs.directory import config_layer, run_of
from rlcore.runs.metrics import read_metrics
from rlcore.runs.output import failure_in
from rlcore.specs import DiagnosisSpec

log = logging.getLogger("rlcore.diagnosis")
LONGEST = 600
"""Characters of a finding that are kept."""
Rule = Callable[[Evidence], str | None]
"""Returns what it found in a run, such as ``16 of 16 groups``; None if the rule does not hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis(Finding):
    """A rule that held in a run."""

    rule: str
    """The id of the rule."""
    step: int
    """The first step at which it held."""
    guide: str = ""
    """The place in the guide; empty for a rule of a plugin that names none."""

    @property
    def change(self) -> str:
        """What to do about it; empty if the rule has no fix."""
        return f"change {self.key}: {self.fix}" if self.key and self.fix else self.fix

    def lines(self) -> list[str]:
        """The lines that are printed."""
        rows = [f"finding   step {self.step}: {self.text}", *([f"          {self.change}"] if self.change else [])]
        return [*rows, *([f"          {self.guide}"] if self.guide else [])]


class Diagnoser:
    """Applies all rules after each step, and keeps each finding from when its rule first holds.

    A rule that raises is logged once and then left out.

    Attributes:
        run: the run directory
        found: the findings so far; that with the rule ``failed`` is the error with which the run ended
        evidence: what the rules see
        trained: whether any step may have changed the policy; None before the first step
    """

    def __init__(self, run: Path, config: Mapping[str, Any], registry: Registry, extra: Sequence[str] = ()) -> None:
        """Load the rules of all plugins, and those with the import paths of ``extra``."""
        self.run, self.evidence = run, Evidence(run, config)
        self.found: list[Diagnosis] = []
        self.trained: bool | None = None
        self._rules: dict[str, tuple[DiagnosisSpec, Rule, str]] = {}
        for id in dict.fromkeys([*(spec.id for spec in registry.specs("diagnosis")), *extra]):
            try:
                spec = registry.spec("diagnosis", id)
                assert isinstance(spec, DiagnosisSpec)
                self._rules[id] = spec, registry.load("diagnosis", id), registry.named("diagnosis", id)
            except (PluginError, UserError) as error:
                log.error("the diagnosis %s is left out: %s", id, error_text(error))

    def after(self, line: Mapping[str, Any]) -> list[Diagnosis]:
        """Add the metrics of a step, and return the findings whose rules hold for the first time."""
        if not self.evidence.add(line) or not self.evidence.rows:
            return []
        self.trained = bool(self.trained) or changes_policy(self.evidence.rows[-1])
        new = [found for id in list(self._rules) if (found := self._apply(id)) is not None]
        for found in new:
            del self._rules[found.rule]
        self.found += new
        return new

    def add_failure(self, lines: Sequence[str]) -> None:
        """Add the error with which the run ended, as a finding."""
        self.found.append(failure_found(lines, self.evidence.step))

    def summary(self) -> list[str]:
        """The lines of all findings, which a run prints at its end."""
        return [line for found in self.found for line in found.lines()]

    def verdict(self) -> list[str]:
        """The last line of a run in which no step changed the policy; empty for another run."""
        if self.trained is not False:
            return []
        updates = self.evidence.setting("warmup.steps")
        return [f"untrained nothing was trained{' after the warm-up' if updates else ''}: no step changed the policy"]

    def _apply(self, id: str) -> Diagnosis | None:
        spec, rule, named = self._rules[id]
        try:
            with plugin_code(named):
                answer = rule(self.evidence)
                if answer is None:
                    return None
                if not isinstance(answer, str):
                    raise TypeError(f"it returned {value_text(answer)}, expected a text or None")
        except Exception as error:  # the boundary to rules of plugins
            log.error("%s failed and is left out: %s", named, error_text(error))
            del self._rules[id]
            return None
        text = f"{spec.summary}: {answer}" if spec.summary and answer else spec.summary or answer
        return Diagnosis(
            status="warn",
            text=text[:LONGEST],
            fix=spec.fix,
            key=spec.key,
            rule=id,
            step=self.evidence.step,
            guide=spec.guide,
        )


def failure_found(lines: Sequence[str], step: int) -> Diagnosis:
    """The error with which a run ended, as a finding: its message, then its other lines."""
    first, *others = lines
    told = {name: text.strip() for name, _, text in (line.strip().partition(" ") for line in others)}
    text = ": ".join(["the run failed", first, *([told["found"]] if "found" in told else [])])[:LONGEST]
    return Diagnosis(status="fail", text=text, fix=told.get("fix", ""), rule="failed", step=step)


def diagnose(run: str | Path, *, rules: Sequence[str] = ()) -> Diagnoser:
    """Apply the rules to a run directory, step by step. The run may have ended in any way, or may still train.

    Nothing is written into it, and damaged lines of metrics and rollouts are left out. No code that it names is
    imported: the rules of its key ``diagnosis`` apply only if ``rules`` has them.

    Args:
        run: the directory, or a checkpoint in it
        rules: import paths of further rules, besides those of plugins

    Raises:
        UserError: it is not a run directory, or its configuration cannot be read.
    """
    path = Path(run).expanduser()
    found = run_of(path)
    if found is None:
        fix = "give a directory created by rlcore run, or a folder in its checkpoints/"
        raise UserError(f"{run} is not a run directory", found="no config.toml in it", fix=fix)
    folder = found[0]
    diagnoser = Diagnoser(folder, config_layer(folder).tree, Registry(), rules)
    for row in read_metrics(folder / "metrics.jsonl"):
        diagnoser.after(row)
    if failure := failure_in(folder / "output.log"):
        diagnoser.add_failure(failure)
    return diagnoser
