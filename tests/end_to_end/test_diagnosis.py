"""Faults that are seeded into default recipes are named within five steps, and healthy runs have no finding.

The healthy runs of the proof are kept in ``RLCORE_PROOFS`` (default ``~/.cache/rlcore/proofs``), so that another proof
continues where it was interrupted. ``RLCORE_PROOF_SEEDS`` selects the seeds, such as ``0``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from rlcore.diagnosis.diagnosing import Diagnoser, Diagnosis, diagnose
from seeded_faults import AFTER_WARM_UP, FAULTS, STEPS, Fault, found_in
from workspace import ROOT

PAGE = ROOT / "docs" / "results" / "diagnosis.md"
FOLDER = Path(os.environ.get("RLCORE_PROOFS") or Path.home() / ".cache" / "rlcore" / "proofs") / "diagnosis"
SEEDS = tuple(int(seed) for seed in os.environ.get("RLCORE_PROOF_SEEDS", "0 1 2").split())
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
@pytest.mark.timeout(24 * 3600)
def test_faults_are_named_and_default_recipes_have_no_finding(warmed_up: Path, untrained: Path) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(FOLDER / "faults", ignore_errors=True)
    (FOLDER / "faults").mkdir()
    faults = {}
    healthy: dict[tuple[str, int], Diagnoser] = {}
    for fault in FAULTS:
        faults[fault] = found_in(fault, FOLDER / "faults", warmed_up=warmed_up, untrained=untrained)
        write_page(faults, healthy)
    for seed in SEEDS:
        for plugin in RECIPES:
            healthy[plugin, seed] = trained(plugin, seed)
            write_page(faults, healthy)
    assert {run: one.found for run, one in healthy.items() if one.found or not one.trained} == {}
    late = [fault.name for fault, found in faults.items() if not fault.rejected and place(fault, found) is None]
    assert late == []


def trained(plugin: str, seed: int) -> Diagnoser:
    """The diagnosis of a default recipe, which is trained or continued until its end."""
    run = FOLDER / "runs" / f"{plugin}-{seed}"
    if not (run / "done").exists():
        resumable = (run / "checkpoints" / "last").exists()
        new = ["-p", plugin, f"seed={seed}", f"name={run.name}", f"runs={run.parent}"]
        if not resumable:
            shutil.rmtree(run, ignore_errors=True)
        words = ["--resume", str(run)] if resumable else new
        done = subprocess.run(
            [sys.executable, "-m", "rlcore", "run", *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        (run / "done").touch()
    return diagnose(run)


def place(fault: Fault, found: list[Diagnosis]) -> int | None:
    """The step at which a fault is named; None if it is not, or too late."""
    return next((one.step for one in found if one.rule == fault.rule and one.step <= STEPS), None)


def write_page(faults: Mapping[Fault, list[Diagnosis]], healthy: Mapping[tuple[str, int], Diagnoser]) -> None:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = [
        "# diagnosis: what the rules say about faults and about healthy runs",
        "",
        "Faults are seeded into default recipes, which are then run for five steps of eight tasks. Those of",
        "`gsm8k-tools` start from the policy after the warm-up, unless they are about the warm-up. A run that is not",
        "listed has not been computed. The [guide](../how-to/my-run-does-not-learn.md) explains the rules. Written by",
        "`uv run pytest -m proof tests/end_to_end/test_diagnosis.py`",
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
    lines += [
        "",
        "The default recipes, in full:",
        "",
        "| Recipe | Seed | Steps | Reward, first step | Reward, last step | Findings |",
    ]
    lines += ["|---|---|---|---|---|---|"]
    for (plugin, seed), one in healthy.items():
        first, last = (row.get("reward/mean", 0.0) for row in (one.evidence.rows[0], one.evidence.rows[-1]))
        rules = ", ".join(f"{found.rule} (step {found.step})" for found in one.found) or "none"
        lines.append(f"| `{plugin}` | {seed} | {one.evidence.step} | {first:.3f} | {last:.3f} | {rules} |")
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")
