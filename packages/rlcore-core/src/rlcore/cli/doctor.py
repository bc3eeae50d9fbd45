"""``rlcore doctor``: check this machine, and suggest fixes."""

from __future__ import annotations

import json
import sys

import click

from rlcore.cli.json_output import json_option, print_json
from rlcore.cli.text import examples

MARKS = {"ok": "✓", "warn": "!", "fail": "✗"}


@click.command(epilog=examples("rlcore doctor", "rlcore doctor -p gsm8k-tools", "rlcore doctor --json"))
@click.option("-p", "--plugin", metavar="NAME", help="Also check the requirements of the plugin's default recipe.")
@json_option("Print JSON.")
def doctor(plugin: str | None, as_json: bool) -> None:
    """Check this machine, and suggest fixes. Exit with 1 if a check fails."""
    from rlcore.doctor import examine

    rows = []
    for check, finding in examine(plugin):
        rows.append({"check": check, "status": finding.status, "text": finding.text, "fix": finding.fix})
        if not as_json:
            click.echo(f"{MARKS[finding.status]} {check:<10} {finding.text}")
            if finding.fix:
                click.echo(f"             fix: {finding.fix}")
    if as_json:
        print_json(json.dumps(rows, indent=2, ensure_ascii=False))
    if any(row["status"] == "fail" for row in rows):
        sys.exit(1)
