"""Twenty runs that are killed at random times and resumed match the uninterrupted run."""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "repo"))
from killed_runs import IMITATE, NAME, RESUME, SMALL_RUN, command, content, differences, phase
from preloaded import warm

VERSIONS = ("torch", "transformers", "safetensors")
RUNS = 20
KILLED_AGAIN = 5
"""Every fifth run is killed three times."""


def count(*, smoke: bool = False) -> tuple[int, int, str]:
    """The number of runs that match the undisturbed one, the number of all runs, and the word for the report."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy is imported, as its threads would prevent forking
    warm()
    runs, made_by = (1, (*IMITATE, "warmup.steps=2")) if smoke else (RUNS, IMITATE)
    folder = Path(tempfile.mkdtemp(prefix="kill-resume-"))
    try:
        assert (made := command(made_by, folder / "made")).status == 0, made.output
        first = (*SMALL_RUN, f"model={folder / 'made' / 'runs' / NAME}")
        undisturbed = [command(first, folder / name) for name in ("one", "other")]
        assert [end.status for end in undisturbed] == [0, 0], undisturbed
        expected = content(folder / "one" / "runs" / NAME)
        assert not (differ := differences(expected, content(folder / "other" / "runs" / NAME))), f"two runs: {differ}"
        seconds = min(end.seconds for end in undisturbed)
        print(f"  undisturbed: {seconds:.1f} s, two identical runs, {len(expected)} entries to compare")
        chance = random.SystemRandom()
        phases: Counter[str] = Counter()
        identical = 0
        for number in range(1, runs + 1):
            kills = 3 if number % KILLED_AGAIN == 0 else 1
            place = folder / str(number)
            identical += _killed(number, place, first, kills, seconds, expected, chance, phases)
            shutil.rmtree(place)
        print("  kills: " + ", ".join(f"{what} {times}" for what, times in phases.most_common()))
        return identical, runs, "identical"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _killed(
    number: int,
    place: Path,
    first: tuple[str, ...],
    kills: int,
    seconds: float,
    expected: dict[str, str],
    chance: random.Random,
    phases: Counter[str],
) -> bool:
    run = place / "runs" / NAME
    moments: list[str] = []
    while len(moments) < kills:
        moment = chance.uniform(0, seconds)
        end = command(RESUME if run.is_dir() else first, place, kill_after=moment)
        assert end.status in (0, -9), end.output
        if end.status == 0:  # the run finished before the kill: try again
            shutil.rmtree(place)
            moments.clear()
            continue
        moments.append(f"{moment:.1f} s: {phase(run)}")
    phases.update(what.partition(": ")[2].rstrip(" 0123456789") for what in moments)
    end = command(RESUME if run.is_dir() else first, place)
    assert end.status == 0, end.output
    differ = differences(expected, content(run))
    print(f"  {number:2d}  {'; '.join(moments)}  {'identical' if not differ else f'differs in {differ}'}", flush=True)
    return not differ
