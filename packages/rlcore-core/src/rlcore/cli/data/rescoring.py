"""``rlcore data rescore``: score stored trajectories again and compare the results."""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from rlcore.atomic_files import beside, told
from rlcore.cli.output import json_option, print_json, printable
from rlcore.console.terminal import say
from rlcore.console.wording import counted
from rlcore.errors import NotScoredError, UserError
from rlcore.plugins.registry import Registry
from rlcore.rollouts.records import purpose_and_step, read_groups, record_name, stored_rollouts, write_groups
from rlcore.runs.directory import config_layer
from rlcore.session.exits import exits_reported
from rlcore.session.rescoring import STATES, Comparison, Plan, plan, rescored
from rlcore.types import Group

PROGRESS_EVERY_S = 5.0
LONGEST_REASON = 160


@click.command(
    epilog="""\b
    Examples:
      rlcore data rescore runs/NAME                                  the rewards of the run
      rlcore data rescore runs/NAME reward.0.id=string-equal         replace the first reward
      rlcore data rescore runs/NAME reward.1.id=rewards.py:Polite    add a second reward
      rlcore data rescore runs/NAME/rollouts/evaluation-000030.jsonl.gz reward.0.id=string-equal out=again"""
)
@click.argument("source", metavar="RUN|FILE")
@click.argument("words", nargs=-1, metavar="[KEY=VALUE]...")
@json_option("Print JSON instead of the tables.")
@exits_reported()
def rescore(source: str, words: tuple[str, ...], as_json: bool) -> None:
    """Score stored trajectories again, with the same or other rewards, and show the differences.

    The default is the rewards of the run. reward.N.id=… replaces one of them, or adds one at the next free index. It
    takes an id, module:Class or file.py:Class. evaluation.success and rollout.reward_timeout_s work as in a run.
    out=FOLDER writes the rescored records to a new folder. The run itself is not changed.

    A trajectory with a failure of the engine, the environment or a tool stays not scored. A trajectory with a failure
    of a reward is scored again.
    """
    path = Path(source).expanduser()
    files = stored_rollouts(path)
    run = next((folder for folder in (path, *path.parents[:2]) if (folder / "config.toml").is_file()), None)
    how = plan(config_layer(run) if run is not None else None, words, Registry())
    session = _Session(how, files)
    if how.out is None:
        for file in files:
            deque(session.score(file), maxlen=0)
    else:
        with _new_folder(how.out, run) as folder:
            for file in files:
                write_groups(folder / f"rescored-{file.name}", session.score(file))
    if as_json:
        print_json({name: _as_json(comparison) for name, comparison in session.found.items()})
    else:
        _print(session.found, how, files)
    if not any(comparison.now.scored for comparison in session.found.values()):
        reasons = sum((comparison.reasons for comparison in session.found.values()), Counter[str]())
        found = "; ".join(f"{count} times {reason}" for reason, count in reasons.most_common(3))
        raise NotScoredError("no trajectory could be scored", found=found or None, fix="fix the failing reward")


def _print(found: Mapping[str, Comparison], how: Plan, files: Sequence[Path]) -> None:
    for name, rewards in how.rewards.items():
        listed = ", ".join(f"{reward.id} (weight {reward.weight:g})" for reward in rewards)
        say(f"rewards   {f'{name}: ' if name else ''}{listed}")
    say("", *_table(found))
    for purpose in dict.fromkeys(purpose_and_step(file)[0] for file in files):
        mine = [found[record_name(file)] for file in files if purpose_and_step(file)[0] == purpose]
        say("", *_counts(purpose, mine))
    if how.out is not None:
        say("", f"written   {how.out}: {counted(len(files), 'file')}")


class _Session:
    """Rescores the files, compares the results of each file, and periodically prints the progress."""

    def __init__(self, how: Plan, files: Sequence[Path]) -> None:
        self.found: dict[str, Comparison] = {}
        self._how, self._files = how, files
        self._groups, self._told = 0, time.monotonic()

    def score(self, file: Path) -> Iterator[Group]:
        """The rescored groups of a file."""
        comparison = self.found.setdefault(record_name(file), Comparison(success=self._how.success))
        for before, now in rescored(read_groups(file), self._how):
            comparison.add(before, now)
            self._groups += 1
            if time.monotonic() - self._told >= PROGRESS_EVERY_S:
                self._told = time.monotonic()
                place = f"file {self._files.index(file) + 1} of {len(self._files)}"
                say(f"{counted(self._groups, 'group')} scored, {place}", err=True)
            yield now


@contextmanager
def _new_folder(out: Path, run: Path | None) -> Iterator[Path]:
    """Create a folder atomically: it appears under its name only when it is complete."""
    if out.exists():
        raise UserError(f"{out} already exists", where=f"command line: out={out}", fix="give a new folder")
    if run is not None and out.resolve().is_relative_to(run.resolve()):
        raise UserError(f"{out} is inside the run directory", fix="give a folder outside of the run: out=FOLDER")
    partial = beside(out.with_name(f"{out.name}.{os.getpid()}"))  # another process may write to the same folder
    try:
        with told(out):
            partial.mkdir(parents=True)
        yield partial
        with told(out):
            partial.replace(out)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _table(found: Mapping[str, Comparison]) -> Iterator[str]:
    """One row per file. Each step has a different policy, so there is no average over steps."""
    width = max(map(len, found))
    yield f"{'before → now':<{width}}{'scored':>18}{'mean reward':>18}{'solved':>18}{'95 % now':>16}{'changed':>10}"
    for name, comparison in found.items():
        before, now = comparison.before, comparison.now
        interval = "–" if now.interval is None else " … ".join(map(_number, now.interval))
        cells = [
            f"{before.scored} → {now.scored}",
            f"{_number(before.mean)} → {_number(now.mean)}",
            f"{_number(before.solved)} → {_number(now.solved)}",
        ]
        yield f"{name:<{width}}{''.join(f'{cell:>18}' for cell in cells)}{interval:>16}{comparison.changed:>10}"


def _counts(purpose: str, comparisons: Sequence[Comparison]) -> Iterator[str]:
    """The number of trajectories of a purpose by state before and after, and the reasons for those not scored."""
    confusion = sum((comparison.confusion for comparison in comparisons), Counter[tuple[str, str]]())
    yield f"{purpose}: {counted(confusion.total(), 'trajectory')}"
    yield f"  {'before / now':<18}" + "".join(f"{state:>14}" for state in STATES)
    for old in STATES:
        yield f"  {old:<18}" + "".join(f"{confusion[old, new]:>14}" for new in STATES)
    reasons = sum((comparison.reasons for comparison in comparisons), Counter[str]())
    if reasons:
        yield ""
        yield "  not scored now"
        for reason, count in reasons.most_common(5):
            yield f"  {count:>6}  {printable(reason, LONGEST_REASON)}"
        if len(reasons) > 5:
            yield f"  and {len(reasons) - 5} more reasons"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _as_json(comparison: Comparison) -> dict[str, object]:
    return {
        "groups": len(comparison.groups),
        "trajectories": len(comparison.pairs),
        "before": dataclasses.asdict(comparison.before),
        "now": dataclasses.asdict(comparison.now),
        "changed": comparison.changed,
        "confusion": {old: {new: comparison.confusion[old, new] for new in STATES} for old in STATES},
        "not_scored": dict(comparison.reasons),
    }
