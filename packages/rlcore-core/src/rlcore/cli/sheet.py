"""``rlcore data sheet``: stored trajectories as one HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from rlcore.cli.rescore import newest_rollouts, purpose_and_step
from rlcore.config.schema import EvaluationTable
from rlcore.errors import DataError, UserError
from rlcore.plugins.registry import Registry
from rlcore.report import Facts, notes_of_plugins, write_sheet
from rlcore.runs.directory import config_layer, recipe_of
from rlcore.runs.records import read_groups
from rlcore.session.exits import exits_reported
from rlcore.terminal import say
from rlcore.wording import counted


@click.command(
    epilog="""\b
    Examples:
      rlcore data sheet runs/NAME --out page.html                                        the newest evaluation
      rlcore data sheet runs/NAME/rollouts/evaluation-000030.jsonl.gz --out page.html"""
)
@click.argument("source", metavar="RUN|FILE")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE.html",
    help="The page, which is replaced if it exists.",
)
@exits_reported()
def sheet(source: str, out: Path) -> None:
    """Write stored trajectories as one HTML page, with images, reasoning, answers and verdicts.

    A run's own evaluations with images are in its folder sheets/. The page needs no other file and no network.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        path = newest_rollouts(path)
    if not path.is_file():
        raise DataError(f"there is no file {path}", fix="give stored rollouts of a run, or of rlcore eval --save")
    if not out.parent.is_dir():
        raise UserError(f"the folder {out.parent} does not exist", where="--out", fix="create it")
    groups = list(read_groups(path))
    write_sheet(out, groups, _facts(path), notes_of_plugins(Registry()))
    say(f"written   {out}: {counted(len(groups), 'task')} of {path}")


def _facts(path: Path) -> Facts:
    """What is known about a file of rollouts: its run, if it is in one."""
    run = path.absolute().parent.parent
    if not (run / "config.toml").is_file():
        return Facts(title=path.name)
    tree = config_layer(run).tree
    purpose, step = purpose_and_step(path)
    rows = [("model", str(tree.get("model", {}).get("path", ""))), ("recipe", recipe_of(run)), ("run", run.name)]
    success = tree.get("evaluation", {}).get("success", EvaluationTable().success)
    return Facts(title=f"{purpose.capitalize()} at step {step}", rows=rows, success=float(success))


__all__ = ["sheet"]
