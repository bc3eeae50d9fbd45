"""Twenty runs, each killed at a random time (some twice) and resumed, end as the run that was left alone."""

from __future__ import annotations

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
"""Every so many runs one is killed a second and a third time."""


def count() -> tuple[int, int, str]:
    """How many runs ended as the undisturbed one, of how many, and the word for it."""
    warm()
    folder = Path(tempfile.mkdtemp(prefix="kill-resume-"))
    try:
        assert (made := command(IMITATE, folder / "made")).status == 0, made.said
        first = (*SMALL_RUN, f"model={folder / 'made' / 'runs' / NAME}")
        undisturbed = [command(first, folder / name) for name in ("one", "other")]
        assert [end.status for end in undisturbed] == [0, 0], undisturbed
        expected = content(folder / "one" / "runs" / NAME)
        assert not (differ := differences(expected, content(folder / "other" / "runs" / NAME))), f"two runs: {differ}"
        seconds = min(end.seconds for end in undisturbed)
        print(f"  undisturbed: {seconds:.1f} s, twice the same, {len(expected)} things to compare")
        chance = random.SystemRandom()
        phases: Counter[str] = Counter()
        identical = 0
        for number in range(1, RUNS + 1):
            kills = 3 if number % KILLED_AGAIN == 0 else 1
            place = folder / str(number)
            identical += _killed(number, place, first, kills, seconds, expected, chance, phases)
            shutil.rmtree(place)
        print("  kills: " + ", ".join(f"{what} {times}" for what, times in phases.most_common()))
        return identical, RUNS, "identical"
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
    told: list[str] = []
    while len(told) < kills:
        moment = chance.uniform(0, seconds)
        end = command(RESUME if run.is_dir() else first, place, kill_after=moment)
        assert end.status in (0, -9), end.said
        if end.status == 0:  # it was faster: a kill that came too late is none
            shutil.rmtree(place)
            told.clear()
            continue
        told.append(f"{moment:.1f} s: {phase(run)}")
    phases.update(what.partition(": ")[2].rstrip(" 0123456789") for what in told)
    end = command(RESUME if run.is_dir() else first, place)
    assert end.status == 0, end.said
    differ = differences(expected, content(run))
    print(f"  {number:2d}  {'; '.join(told)}  {'identical' if not differ else f'differs in {differ}'}", flush=True)
    return not differ
