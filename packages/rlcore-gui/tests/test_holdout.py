"""Whole episodes are held out, with equal shares of every stratum."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest
from rlcore.errors import DataError
from rlcore_gui.holdout import HoldOut

Episode = tuple[str, str, int]


def divided(episodes: list[Episode], rows: int, *, seed: int = 0) -> tuple[set[str], list[str], int]:
    """The held-out ids, all other ids in the order in which they pass, and the largest number that waited."""
    hold_out = HoldOut(rows, seed=seed)
    passed: list[str] = []
    waiting = most = 0
    for id, stratum, count in episodes:
        steps = pa.RecordBatch.from_pydict({"id": [id] * count})
        if hold_out.offer(id, stratum, count, lambda steps=steps: steps):  # type: ignore[misc]
            waiting += 1
        else:
            passed.append(id)
        removed = [batch["id"][0].as_py() for batch in hold_out.passed()]
        waiting, most = waiting - len(removed), max(most, waiting)
        passed += removed
    held, rest = ([batch["id"][0].as_py() for batch in part] for part in hold_out.divide())
    return set(held), passed + rest, most


def episodes(count: int = 600) -> list[Episode]:
    rng = random.Random(0)
    return [(f"e{number}", rng.choice("aabc"), rng.randint(1, 12)) for number in range(count)]


def test_parts_are_disjoint_and_complete() -> None:
    held, passed, _ = divided(episodes(), 200)
    assert not held & set(passed)
    assert sorted([*held, *passed]) == sorted(id for id, _, _ in episodes())


def test_copies_of_an_episode_are_in_one_part() -> None:
    rng = random.Random(1)
    for seed in range(20):
        twice = [*episodes(40), *episodes(40)]
        rng.shuffle(twice)
        held, passed, _ = divided(twice, 50, seed=seed)
        assert not held & set(passed)
        assert len(passed) == 2 * (40 - len(held))


def test_copies_in_different_strata_are_in_one_part() -> None:
    other = [(id, {"a": "b", "b": "c", "c": "a"}[stratum], count) for id, stratum, count in episodes(40)]
    for seed in range(20):
        held, passed, _ = divided([*episodes(40), *other], 50, seed=seed)
        assert held
        assert not held & set(passed)


def test_subset_has_its_size_and_equal_shares() -> None:
    held, _, _ = divided(episodes(), 200)
    rows = Counter(stratum for id, stratum, count in episodes() if id in held for _ in range(count))
    total = Counter(stratum for _, stratum, count in episodes() for _ in range(count))
    assert abs(rows.total() - 200) <= 6
    assert all(abs(rows[name] - 200 * total[name] / total.total()) <= 12 for name in "abc")


def test_choice_depends_on_the_seed_and_not_on_the_order() -> None:
    held, _, _ = divided(episodes(), 100)
    assert divided(episodes()[::-1], 100)[0] == held
    assert divided(episodes(), 100, seed=1)[0] != held


def test_few_episodes_wait() -> None:
    assert divided(episodes(5000), 60)[2] < 100


@pytest.mark.parametrize("data", [[("a", "x", 4)], [("a", "x", 4), ("b", "x", 4)], []])
def test_subset_without_a_remainder_is_rejected(data: list[Episode]) -> None:
    with pytest.raises(DataError, match="both have episodes"):
        divided(data, 300)


def test_episodes_without_rows_pass() -> None:
    held, passed, _ = divided([("a", "x", 4), ("b", "x", 0), ("c", "x", 4)], 4)
    assert "b" in passed
    assert len(held) == 1
