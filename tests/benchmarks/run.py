"""Run benchmarks: ``uv run python tests/benchmarks/run.py NAME...``. Without a name, list them.

A benchmark is a module in this folder; ``torch_engine.py`` is ``torch-engine``. It has three parts::

    '''One line for the list.'''

    from comparison import Comparison

    VERSIONS = ("torch", "transformers")          # print the versions of these distributions

    def comparisons(*, smoke: bool = False) -> list[Comparison]:  # set-up of both sides, not measured
        return [Comparison(name="groups-of-8", ours=run_ours, peer=run_transformers, floor=2.5)]

``ours()`` and ``peer()`` do the work once, assert its result and return seconds. ``peer`` can also be a number, for a
budget or an ideal time: ``Comparison(name="help", ours=..., peer=0.150, floor=1.0)``. A peer in ``tests/references/``
runs as a separate process and exchanges only files.

A benchmark that counts has ``count(*, smoke: bool = False) -> (right, of, word)`` instead. Its last line is
``NAME: 20 of 20 identical (floor 20)``, and the exit status is 1 if the count is lower.

A benchmark whose function has a keyword ``model`` accepts ``--model FOLDER``.

Both sides run in turn at least five times after a warm-up. The result is the ratio of the minima, ``peer / ours``.
Medians and versions are printed. The last line is ``NAME: R (floor F)`` of the comparison with the lowest ratio to its
floor. With several names, a table of all comparisons follows. The exit status is the worst of all names: 0 if every
floor is reached, 1 below a floor, 2 for an unknown name, 3 if inconclusive (the halves of one side differ by more than
30 %).

``--smoke`` runs each side once at a tiny size and does not check the speed: status 0 means that both sides completed.
Modules choose the size from ``smoke``. In a smoke run, a peer in ``tests/references/`` that is not installed is an
`Absent`, and its reason is printed. Without ``--smoke`` it is installed.

All processes that a benchmark started end with it, also after SIGTERM or Ctrl-C.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from types import ModuleType

from _processes import end_with_this_process
from comparison import Outcome, measure, smoke
from rlcore.models.threads import let_waiting_threads_sleep

FRAME = {"run", "comparison"}
HERE = Path(__file__).parent
GRAVITY = (2, 1, 3, 0)
"""Exit statuses, worst first."""


def names() -> list[str]:
    """The names of all benchmarks, sorted."""
    stems = (path.stem for path in HERE.glob("*.py"))
    return sorted(stem.replace("_", "-") for stem in stems if stem not in FRAME and not stem.startswith(("_", "test_")))


def version(distribution: str) -> str:
    """``name version``."""
    try:
        return f"{distribution} {importlib.metadata.version(distribution)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{distribution} (not installed)"


def load(name: str) -> ModuleType:
    """Import the module of a benchmark. Prints its summary, the versions and the number of cores."""
    module = importlib.import_module(name.replace("-", "_"))
    print(f"{name}: {(module.__doc__ or '').strip().splitlines()[0]}")
    print(f"  Python {platform.python_version()}, {os.cpu_count()} cores, {', '.join(map(version, module.VERSIONS))}")
    return module


def run_smoke(name: str, only: list[str]) -> int:
    """Run both sides of one benchmark once and return the exit status."""
    module = load(name)
    if hasattr(module, "count"):
        right, of, word = module.count(smoke=True)
        print(f"{name}: smoke run, {right} of {of} {word}", flush=True)
        return 0 if right == of else 1
    ran = 0
    for comparison in module.comparisons(smoke=True):
        if not only or comparison.name in only:
            print(f"  {comparison.name}: {smoke(comparison)}", flush=True)
            ran += 1
    print(f"{name}: smoke run, {ran} comparisons at a tiny size, speed not checked", flush=True)
    return 0 if ran else 2


def run(name: str, repeats: int, only: list[str], rows: list[str] | None = None, *, model: Path | None = None) -> int:
    """Measure one benchmark, print the result and return the exit status. Its table rows are added to ``rows``."""
    rows = [] if rows is None else rows
    module = load(name)
    given = {} if model is None else {"model": model}
    if hasattr(module, "count"):
        right, of, word = module.count(**given)
        print(f"{name}: {right} of {of} {word} (floor {of})")
        rows.append(f"| `{name}` | {right} {word} | {of} | | | {'reached' if right == of else 'missed'} |")
        return 0 if right == of else 1
    outcomes = []
    for comparison in module.comparisons(**given):
        if only and comparison.name not in only:
            continue
        outcome = measure(comparison, repeats)
        outcomes.append(outcome)
        print(f"{name}/{comparison.name}: {outcome.ratio:.2f} (floor {comparison.floor:g})")
        print("\n".join(outcome.lines()), flush=True)
        rows.append(row(name, outcome))
    if not outcomes:
        print(f"{name} has no comparison named {', '.join(only)}", file=sys.stderr)
        return 2
    shaky = [outcome.comparison.name for outcome in outcomes if not outcome.conclusive]
    if shaky:
        print(f"inconclusive: the halves of {', '.join(shaky)} differ by more than 30 %; repeat on an idle machine")
    worst = min(outcomes, key=lambda outcome: outcome.ratio / outcome.comparison.floor)
    print(f"{name}: {worst.ratio:.2f} (floor {worst.comparison.floor:g})")
    if any(outcome.conclusive and not outcome.reaches_floor for outcome in outcomes):
        return 1
    return 3 if shaky else 0


def row(name: str, outcome: Outcome) -> str:
    """A comparison as a row of the table."""
    comparison, unit, peer = outcome.comparison, outcome.comparison.unit, outcome.peer_least
    judged = ("reached" if outcome.reaches_floor else "missed") if outcome.conclusive else "inconclusive"
    return (
        f"| `{name}/{comparison.name}` | {outcome.ratio:.2f} | {comparison.floor:g} | "
        f"{min(outcome.ours_s):.4g} {unit} | {peer:.4g} {unit} | {judged} |"
    )


def main() -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description="Run benchmarks of rlcore. Without a name, list them.")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--repeats", type=int, default=6, help="measured runs of each side, at least 5 (default 6)")
    parser.add_argument("--only", action="append", default=[], help="one comparison of the benchmark; repeatable")
    parser.add_argument("--smoke", action="store_true", help="run each side once at a tiny size, ignoring the speed")
    parser.add_argument("--model", type=Path, help="folder of a real model, for benchmarks that take one")
    arguments = parser.parse_args()
    if not arguments.names:
        print("\n".join(names()))
        return 0
    for name in arguments.names:
        if name not in names():
            print(f"unknown benchmark {name!r}; available: {', '.join(names())}", file=sys.stderr)
            return 2
    if arguments.repeats < 5:
        parser.error("--repeats must be at least 5")
    let_waiting_threads_sleep()  # as in the rlcore command; peers.environment() reverts it
    if arguments.smoke:
        return max(run_smoke(name, arguments.only) for name in arguments.names)
    rows = ["| benchmark | ratio | floor | ours | peer | |", "|---|---|---|---|---|---|"]
    statuses = {run(name, arguments.repeats, arguments.only, rows, model=arguments.model) for name in arguments.names}
    if len(arguments.names) > 1:
        print("\n".join(rows))
    return min(statuses, key=GRAVITY.index)


if __name__ == "__main__":
    end_with_this_process()
    sys.exit(main())
