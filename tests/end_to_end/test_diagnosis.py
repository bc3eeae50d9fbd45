"""Faults that are seeded into default recipes are named within five steps, and healthy runs have no finding.

The healthy runs of the proof are kept, see `kept_runs`. Each writes its row of the page; ``-k aitw-0`` selects one.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from kept_runs import SEEDS, commit_of, trained, with_row
from rlcore.diagnosis.diagnosing import Diagnoser, Diagnosis, diagnose
from seeded_faults import AFTER_WARM_UP, FAULTS, STEPS, Fault, found_in
from workspace import ROOT

PAGE = ROOT / "docs" / "results" / "diagnosis.md"
HEALTHY = "The default recipes, in full:"
RECIPES = ("gem", "gymnasium", "gsm8k-tools", "robotwin", "visual-search", "aitw", "mind2web")
"""Plugins with a default recipe, the fastest first."""


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_seeded_fault_is_named(fault: Fault, tmp_path: Path, warmed_up: Path, untrained: Path) -> None:
    found = found_in(fault, tmp_path, warmed_up=warmed_up, untrained=untrained)
    steps = {one.rule: one.step for one in found}
    assert fault.rejected or steps.get(fault.rule, STEPS + 1) <= STEPS, found


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_healthy_run_has_no_finding(shortened_run: Path) -> None:
    found = diagnose(shortened_run)
    assert (found.found, found.trained) == ([], True)


@pytest.mark.proof
@pytest.mark.timeout(3600)
def test_faults_are_named(warmed_up: Path, untrained: Path, tmp_path: Path) -> None:
    faults = {fault: found_in(fault, tmp_path, warmed_up=warmed_up, untrained=untrained) for fault in FAULTS}
    write_faults(faults)
    late = [fault.name for fault, found in faults.items() if not fault.rejected and place(fault, found) is None]
    assert late == []


@pytest.mark.proof
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("plugin", RECIPES)
def test_default_recipe_has_no_finding(plugin: str, seed: int) -> None:
    one = diagnose(trained(plugin, seed))
    write_healthy(plugin, seed, one)
    assert (one.found, one.trained) == ([], True)


def place(fault: Fault, found: list[Diagnosis]) -> int | None:
    """The step at which a fault is named; None if it is not, or too late."""
    return next((one.step for one in found if one.rule == fault.rule and one.step <= STEPS), None)


def write_faults(faults: Mapping[Fault, list[Diagnosis]]) -> None:
    """Write the page, and keep the rows of healthy runs."""
    words = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [
        "# diagnosis: what the rules say about faults and about healthy runs",
        "",
        "Faults are seeded into default recipes, which are then run for five steps of eight tasks. Those of",
        "`gsm8k-tools` start from the policy after the warm-up, unless they are about the warm-up. A run that is not",
        "listed has not been computed. The [guide](../how-to/my-run-does-not-learn.md) explains the rules. Written by",
        "`uv run pytest -m proof tests/end_to_end/test_diagnosis.py`, the first table",
        f"at commit {commit.stdout.strip()}.",
        "",
        "| Fault | Recipe | Change | Named by | Step | Finding |",
        "|---|---|---|---|---|---|",
    ]
    for fault, found in faults.items():
        changes = " ".join(f"`{word}`" for word in fault.words if word not in AFTER_WARM_UP)
        text = next((one.text for one in found if one.rule == fault.rule), "")
        shown = text[:160].replace("|", "/").replace("<", "&lt;")
        named = "the error, exit status 2" if fault.rejected else fault.rule
        step = 0 if fault.rejected else place(fault, found) or "not named"
        lines.append(f"| {fault.name} | `{fault.plugin}` | {changes} | {named} | {step} | {shown} |")
    _, _, healthy = PAGE.read_text(encoding="utf-8").partition(HEALTHY)
    PAGE.write_text("\n".join([*lines, "", HEALTHY]) + healthy, encoding="utf-8")


def write_healthy(plugin: str, seed: int, one: Diagnoser) -> None:
    """Write the row of a run, and keep the others."""
    first, last = (row.get("reward/mean", 0.0) for row in (one.evidence.rows[0], one.evidence.rows[-1]))
    rules = ", ".join(f"{found.rule} (step {found.step})" for found in one.found) or "none"
    before, _, after = PAGE.read_text(encoding="utf-8").partition(HEALTHY)
    known = (line for line in after.splitlines() if line.startswith("| `"))
    cells = (str(one.evidence.step), f"{first:.3f}", f"{last:.3f}", rules, commit_of(one.run))
    rows = with_row(known, f"| `{plugin}` | {seed} |", cells)
    head = [
        "| Recipe | Seed | Steps | Reward, first step | Reward, last step | Findings | Commit |",
        "|---|---|---|---|---|---|---|",
    ]
    PAGE.write_text("\n".join([f"{before}{HEALTHY}", "", *head, *rows]) + "\n", encoding="utf-8")
