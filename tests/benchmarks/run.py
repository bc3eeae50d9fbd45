"""Run benchmarks: ``uv run python tests/benchmarks/run.py NAME...``; without a name, the list.

A benchmark is a module beside this file; ``torch_engine.py`` is ``torch-engine``. It needs three things::

    '''One line for the list.'''

    from comparison import Comparison

    VERSIONS = ("torch", "transformers")          # distributions whose versions are printed

    def comparisons() -> list[Comparison]:        # set-up that both sides share happens here, unmeasured
        return [Comparison(name="groups-of-8", ours=run_ours, peer=run_transformers, floor=2.5)]

``ours()`` and ``peer()`` do the work once and return seconds; they assert that the work was done. ``peer`` may be a
number instead: a budget or an ideal time, ``Comparison(name="help", ours=..., peer=0.150, floor=1.0)``. A peer that
lives in ``tests/references/`` is started as a process and exchanges files only.

A benchmark that counts instead of measuring times has ``count() -> (right, of, word)`` in place of ``comparisons()``;
its last line is ``NAME: 20 of 20 identical (floor 20)``, and one that is missing makes exit status 1.

Both sides run in turn at least five times after a warm-up. Judged is the ratio of the minima, ``peer / ours``; medians
and versions are printed. The last line is ``NAME: R (floor F)``, of the comparison that stands nearest to its floor or
furthest below it; after several names, a table of them all follows. Exit status, the worst of all names: 0 every floor
is reached, 1 below a floor, 2 unknown name, 3 inconclusive: the halves of one side differ by more than 30 %.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import os
import platform
import sys
from pathlib import Path

from comparison import Outcome, measure
from rlcore.weights import let_waiting_threads_sleep

FRAME = {"run", "comparison"}
HERE = Path(__file__).parent
GRAVITY = (2, 1, 3, 0)
"""Exit statuses, the worst first."""


def names() -> list[str]:
    """Every benchmark, sorted."""
    stems = (path.stem for path in HERE.glob("*.py"))
    return sorted(stem.replace("_", "-") for stem in stems if stem not in FRAME and not stem.startswith(("_", "test_")))


def version(distribution: str) -> str:
    """``name version``."""
    try:
        return f"{distribution} {importlib.metadata.version(distribution)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{distribution} (not installed)"


def run(name: str, repeats: int, only: list[str], rows: list[str] | None = None) -> int:
    """Measure one benchmark, print it and return the exit status; ``rows`` takes its part of a table."""
    rows = [] if rows is None else rows
    module = importlib.import_module(name.replace("-", "_"))
    print(f"{name}: {(module.__doc__ or '').strip().splitlines()[0]}")
    print(f"  Python {platform.python_version()}, {os.cpu_count()} cores, {', '.join(map(version, module.VERSIONS))}")
    if hasattr(module, "count"):
        right, of, word = module.count()
        print(f"{name}: {right} of {of} {word} (floor {of})")
        rows.append(f"| `{name}` | {right} {word} | {of} | | | {'reached' if right == of else 'missed'} |")
        return 0 if right == of else 1
    outcomes = []
    for comparison in module.comparisons():
        if only and comparison.name not in only:
            continue
        outcome = measure(comparison, repeats)
        outcomes.append(outcome)
        print(f"{name}/{comparison.name}: {outcome.ratio:.2f} (floor {comparison.floor:g})")
        print("\n".join(outcome.lines()), flush=True)
        rows.append(row(name, outcome))
    if not outcomes:
        print(f"no comparison of {name} is called {', '.join(only)}", file=sys.stderr)
        return 2
    shaky = [outcome.comparison.name for outcome in outcomes if not outcome.conclusive]
    if shaky:
        print(f"inconclusive: the halves of {', '.join(shaky)} differ by more than 30 %; run it on a quieter machine")
    worst = min(outcomes, key=lambda outcome: outcome.ratio / outcome.comparison.floor)
    print(f"{name}: {worst.ratio:.2f} (floor {worst.comparison.floor:g})")
    if any(outcome.conclusive and not outcome.reaches_floor for outcome in outcomes):
        return 1
    return 3 if shaky else 0


def row(name: str, outcome: Outcome) -> str:
    """A comparison as a line of the table."""
    comparison, unit = outcome.comparison, outcome.comparison.unit
    peer = min(outcome.peer_s) if callable(comparison.peer) else comparison.peer
    judged = ("reached" if outcome.reaches_floor else "missed") if outcome.conclusive else "inconclusive"
    return (
        f"| `{name}/{comparison.name}` | {outcome.ratio:.2f} | {comparison.floor:g} | "
        f"{min(outcome.ours_s):.4g} {unit} | {peer:.4g} {unit} | {judged} |"
    )


def main() -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description="Run benchmarks of rlcore; without a name, list them.")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--repeats", type=int, default=6, help="measured runs of each side, at least 5 (default 6)")
    parser.add_argument("--only", action="append", default=[], help="one comparison of the benchmark; repeatable")
    arguments = parser.parse_args()
    if not arguments.names:
        print("\n".join(names()))
        return 0
    for name in arguments.names:
        if name not in names():
            print(f"no benchmark is called {name!r}; there are: {', '.join(names())}", file=sys.stderr)
            return 2
    if arguments.repeats < 5:
        parser.error("--repeats must be at least 5")
    let_waiting_threads_sleep()  # as the rlcore command does; peers.environment() takes it back
    rows = ["| benchmark | ratio | floor | ours | peer | |", "|---|---|---|---|---|---|"]
    statuses = {run(name, arguments.repeats, arguments.only, rows) for name in arguments.names}
    if len(arguments.names) > 1:
        print("\n".join(rows))
    return min(statuses, key=GRAVITY.index)


if __name__ == "__main__":
    sys.exit(main())
