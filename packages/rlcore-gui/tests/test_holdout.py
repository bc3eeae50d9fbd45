"""Whole episodes are held out, with equal shares of every stratum."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from rlcore.errors import DataError
from rlcore_gui.prepare.holdout import hold_out

Episode = tuple[str, str, int]


def episodes(count: int = 600) -> list[Episode]:
    rng = random.Random(0)
    return [(f"e{number}", rng.choice("aabc"), rng.randint(1, 12)) for number in range(count)]


def test_copies_count_in_the_stratum_of_the_first() -> None:
    other = [(id, {"a": "b", "b": "c", "c": "a"}[stratum], count) for id, stratum, count in episodes(40)]
    doubled = [(id, stratum, 2 * count) for id, stratum, count in episodes(40)]
    for seed in range(20):
        held = hold_out([*episodes(40), *other], 50, seed=seed)
        assert held == hold_out(doubled, 50, seed=seed)
        assert held


def test_subset_has_its_size_and_equal_shares() -> None:
    held = hold_out(episodes(), 200, seed=0)
    rows = Counter(stratum for id, stratum, count in episodes() if id in held for _ in range(count))
    total = Counter(stratum for _, stratum, count in episodes() for _ in range(count))
    assert abs(rows.total() - 200) <= 6
    assert all(abs(rows[name] - 200 * total[name] / total.total()) <= 12 for name in "abc")


def test_choice_depends_on_the_seed_and_not_on_the_order() -> None:
    held = hold_out(episodes(), 100, seed=0)
    assert hold_out(episodes()[::-1], 100, seed=0) == held
    assert hold_out(episodes(), 100, seed=1) != held


@pytest.mark.parametrize(
    ("data", "size"),
    [
        *(([("a", "x", 4)], 1), ([("a", "x", 4)], 300), ([], 1), ([("a", "x", 40), ("b", "y", 50)], 1)),
        *(([("a", "x", 4), ("b", "x", 4)], 300), ([("a", "x", 1), ("b", "y", 900)], 500)),
    ],
)
def test_subset_without_a_remainder_is_rejected_with_a_fix_that_works(data: list[Episode], size: int) -> None:
    with pytest.raises(DataError, match="both have episodes") as caught:
        hold_out(data, size, seed=0)
    fix = str(caught.value.fix)
    if len(data) < 2:
        assert "subset_size=" not in fix
        assert fix.startswith("add episodes")
    else:
        assert hold_out(data, int(fix.split("subset_size=")[1].split(",")[0]), seed=0)


def test_episodes_without_rows_are_not_held_out() -> None:
    held = hold_out([("a", "x", 4), ("b", "x", 0), ("c", "x", 4)], 4, seed=0)
    assert held in ({"a"}, {"c"})
