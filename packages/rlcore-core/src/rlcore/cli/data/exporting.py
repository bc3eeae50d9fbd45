"""``rlcore data export``: write stored trajectories in a format that other programs open."""

from __future__ import annotations

from pathlib import Path

import click

from rlcore.console.terminal import say
from rlcore.console.wording import counted
from rlcore.errors import DataError, UserError
from rlcore.export import FORMATS, Selection, export
from rlcore.rollouts.conditions import Where, names_of
from rlcore.rollouts.records import record_name
from rlcore.runs.progress import Meter, PrintedProgress
from rlcore.session.exits import exits_reported


@click.command(
    name="export",
    epilog="""\b
    Examples:
      rlcore data export runs/NAME                                   NAME-trajectories.jsonl
      rlcore data export runs/NAME --media --out phone               a folder with the images
      rlcore data export runs/NAME --format parquet --purpose train
      rlcore data export runs/NAME --format inspect --purpose evaluation
      rlcore data export runs/NAME --format rrd --step 24 --where 'reward == 0'""",
)
@click.argument("source", metavar="RUN|FILE")
@click.option("--format", "form", type=click.Choice(list(FORMATS)), default="jsonl", show_default=True)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="New file, or folder for inspect and --media. [default: NAME-trajectories.FORMAT or NAME-FORMAT]",
)
@click.option("--purpose", type=click.Choice(["train", "evaluation"]), help="Rollouts of training or evaluation.")
@click.option("--step", "steps", metavar="STEP", default="all", help="A step, a range such as 3-9, or all (default).")
@click.option("--where", metavar="CONDITION", help="Trajectories that meet a condition on their columns.")
@click.option("--media", is_flag=True, help="With jsonl: write a folder that also has the images.")
@exits_reported()
def export_(
    source: str, form: str, out: Path | None, purpose: str | None, steps: str, where: str | None, media: bool
) -> None:
    """Write stored trajectories as JSON lines, parquet, logs of Inspect, or a recording of Rerun.

    The conditions of --where are those of rlcore data show.
    """
    path = Path(source).expanduser()
    if media and form != "jsonl":
        raise UserError("--media belongs to --format jsonl", found=form, fix="leave it out")
    condition = Where.parse(where) if where is not None else None
    selection = Selection(path, purpose, steps, condition or (lambda row: True))
    target = _target(selection, form, media, out)
    names, total = set[str](), 0
    for row in selection.rows():
        names |= names_of(row)
        total += condition is None or condition(row)
    if condition is not None:
        condition.check(names)
    if not total:
        raise DataError("no trajectory is selected", found=f"none in {path}", fix="change --purpose, --step or --where")
    with Meter("export", total, "trajectory", PrintedProgress(lambda line: say(line, err=True))) as meter:
        selection.on_read = meter.advance
        export(selection, form, target, media=media)
    lost = f"; {counted(len(selection.missing), 'image')} missing or damaged" if selection.missing else ""
    say(f"wrote {counted(meter.done, 'trajectory')} to {target}{lost}")


def _target(selection: Selection, form: str, media: bool, out: Path | None) -> Path:
    """The path to write to, which does not exist."""
    run = selection.run
    name = run.resolve().name if run is not None and selection.source.is_dir() else record_name(selection.source)
    target = out or Path(f"{name}-{form}" if media or form == "inspect" else f"{name}-trajectories.{form}")
    if target.exists() or target.is_symlink():
        raise UserError(f"{target} already exists", where="--out", fix="give another path: --out PATH")
    if not target.absolute().parent.is_dir():
        raise UserError(f"the folder {target.parent} does not exist", where="--out", fix="create it")
    if run is not None and target.resolve().is_relative_to(run.resolve()):
        raise UserError(f"{target} is inside the run directory", where="--out", fix="give a path outside of the run")
    return target
