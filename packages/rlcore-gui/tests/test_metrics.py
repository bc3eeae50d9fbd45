"""Means of measures over steps, groups and episodes."""

from __future__ import annotations

from rlcore_gui.benchmark import (
    StepScores,
    by_group,
    episode_success,
    macro_by_episode,
    mean_of_parts,
    means,
)


def scores(row: str, episode: str, group: str = "g", **values: float) -> StepScores:
    return StepScores(row_id=row, episode_id=episode, group=group, values=values)


LONG = [scores(f"a{n}", "a", "x", hit=0.0) for n in range(3)]
SHORT = [scores("b0", "b", "y", hit=1.0, text=1.0)]


def test_macro_and_micro_differ_for_episodes_of_different_length() -> None:
    assert means(LONG + SHORT) == {"hit": 0.25, "text": 1.0}
    assert macro_by_episode(LONG + SHORT) == {"hit": 0.5, "text": 1.0}
    assert episode_success(LONG + SHORT, "hit") == 0.5
    assert episode_success([*SHORT, scores("b1", "b", hit=0.0)], "hit") == 0


def test_parts_without_a_measure_do_not_count() -> None:
    groups = by_group(SHORT + LONG)
    assert list(groups) == ["x", "y"]
    assert mean_of_parts(groups.values()) == {"hit": 0.5, "text": 1.0}


def test_empty_evaluation_has_no_numbers() -> None:
    assert means([]) == macro_by_episode([]) == by_group([]) == {}
    assert episode_success([], "hit") is None
