"""``rlcore doctor``: check this machine or the files of a run, and suggest fixes."""

from __future__ import annotations

from pathlib import Path

import click

from rlcore.cli.output import examples, json_option, print_json
from rlcore.console.invocation import as_typed
from rlcore.console.terminal import say
from rlcore.errors import UserError

MARKS = {"ok": "✓", "warn": "!", "fail": "✗"}


@click.command(
    epilog=examples(
        "rlcore doctor",
        "rlcore doctor -p gsm8k-tools -r qwen2.5-3b",
        "rlcore doctor -p llm-judge reward.0.base_url=http://localhost:8000/v1",
        "rlcore doctor runs/NAME",
        "rlcore doctor --json",
    )
)
@click.argument("words", nargs=-1, metavar="[RUN] | [KEY=VALUE]...")
@click.option("-p", "--plugin", metavar="NAME", help="Also check a recipe of the plugin.")
@click.option("-r", "--recipe", metavar="NAME|FILE", help="Recipe of the plugin (default: default), or a file.")
@json_option("Print JSON.")
def doctor(words: tuple[str, ...], plugin: str | None, recipe: str | None, as_json: bool) -> int:
    """Check this machine, or the files of RUN, and suggest fixes. Exit with 1 if a check fails.

    RUN is a run directory or a folder in its checkpoints/. Every checkpoint is compared with its checksums.

    With -p, KEY=VALUE overrides the recipe, as in rlcore run. Rewards that ask a service, such as a judge, ask it
    once. For a plugin that only has such rewards, reward.0.KEY=VALUE overrides their options.
    """
    from rlcore.doctor import examine, examine_run

    named = plugin is not None or recipe is not None
    run, overrides = (words[0], words[1:]) if words and not named else (None, words)
    if run is not None and overrides:
        raise UserError("one run is checked at a time", found=" ".join(words), fix="give one RUN, or -p and overrides")
    if run is not None and "=" in run and not Path(run).exists():
        raise UserError("overrides need a plugin", found=run, fix="add -p NAME")
    if runs := [word for word in overrides if "=" not in word]:
        raise UserError("a run is checked without a plugin", found=runs[0], fix="remove -p and -r, or RUN")
    rows = []
    for check, finding in examine_run(Path(run)) if run is not None else examine(plugin, recipe, overrides):
        rows.append({"check": check, "status": finding.status, "text": finding.text, "fix": finding.fix})
        if not as_json:
            fix = [f"             fix: {as_typed(finding.fix)}"] if finding.fix else []
            say(f"{MARKS[finding.status]} {check:<10} {finding.text}", *fix)
    if as_json:
        print_json(rows, indent=2)
    return int(any(row["status"] == "fail" for row in rows))
