"""``rlcore doctor``: check this machine, and suggest fixes."""

from __future__ import annotations

import click

from rlcore.cli.text import examples
from rlcore.terminal import say, say_json

MARKS = {"ok": "✓", "warn": "!", "fail": "✗"}


@click.command(epilog=examples("rlcore doctor", "rlcore doctor -p gsm8k-tools", "rlcore doctor --json"))
@click.option("-p", "--plugin", metavar="NAME", help="Also check the requirements of the plugin's default recipe.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(plugin: str | None, as_json: bool) -> int:
    """Check this machine, and suggest fixes. Exit with 1 if a check fails."""
    from rlcore.doctor import examine

    rows = []
    for check, finding in examine(plugin):
        rows.append({"check": check, "status": finding.status, "text": finding.text, "fix": finding.fix})
        if not as_json:
            fix = [f"             fix: {finding.fix}"] if finding.fix else []
            say(f"{MARKS[finding.status]} {check:<10} {finding.text}", *fix)
    if as_json:
        say_json(rows, indent=2)
    return int(any(row["status"] == "fail" for row in rows))
