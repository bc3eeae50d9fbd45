"""``rlcore diagnose``: say why a run does not learn."""

from __future__ import annotations

from dataclasses import asdict

import click

from rlcore.cli.output import examples, json_option, print_json, printable
from rlcore.console.terminal import say
from rlcore.console.wording import counted
from rlcore.diagnosis.rules import GUIDE
from rlcore.runs.directory import asked_of
from rlcore.session.exits import exits_reported


@click.command(
    epilog=examples(
        "rlcore diagnose runs/NAME",
        "rlcore diagnose runs/NAME --json",
        "rlcore diagnose runs/NAME --rule rules.py:too_polite",
    )
)
@click.argument("run")
@click.option("--rule", "rules", multiple=True, metavar="FILE:NAME", help="A further rule; repeatable.")
@json_option("Print JSON.")
@exits_reported()
def diagnose(run: str, rules: tuple[str, ...], as_json: bool) -> int:
    """Say why RUN does not learn: what its metrics and rollouts show, and which key to change.

    RUN is a run directory, or a folder in its checkpoints/. It may have ended early, or may still train. Nothing is
    written into it, and no code that it names is imported: give the rules of its key diagnosis with --rule. Exit with 1
    if there is a finding.
    """
    from rlcore.diagnosis.diagnosing import diagnose as examine

    found = examine(run, rules=rules)
    steps, asked = found.evidence.step, asked_of(found.run)
    if as_json:
        rows = [asdict(one) for one in found.found]
        print_json({"trained": found.trained, "steps": steps, "asked": asdict(asked), "diagnosis": rows}, indent=2)
    else:
        changes = [*(f"-c {file}" for file in asked.files), *asked.overrides]
        settings = [f"asked     {' '.join(map(printable, changes))}"] if changes else []
        answers = f"read answers with rlcore data show {printable(run)} --purpose train"
        nothing = [f"no finding in {counted(steps, 'step')}", *([f"          {answers}; {GUIDE}"] if steps else [])]
        say(*found.summary() or nothing, *settings, *found.verdict())
    return int(bool(found.found) or found.trained is False)
