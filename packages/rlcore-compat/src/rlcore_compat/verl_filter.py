"""Translation of verl's keys for filters of groups, and of those of PyVision-RL for single trajectories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore_compat.vocabulary import Meaning, Refused, Several, Words

_GROUPS = "algorithm.filter_groups"
_KEPT = f"{_GROUPS}.end_reason_filter_reserve_names"
FILTERS = {"acc": "accuracy", "score": "reward", "seq_reward": "reward", "seq_final_reward": "reward"}
"""Metrics that compare the trajectories of a group."""
ALWAYS = ("trajlength", "vtoken_images_num_consis")
"""Filters for trajectories that rlcore never produces: with too many tokens, or without the pixels of an image."""
END = "end_reason"
ENDS: Mapping[str, str | None] = {
    "DONE": None,
    "EXCEED_MAX_TURNS": "max_turns",
    "OVER_LENGTH": "length",
    "ERROR_IN_ACTION": "tool_errors",
    "EXCEED_MAX_IMAGE_NUM_32": None,
    "ON_GONIG": None,
}
"""Reasons to end an episode, and ours; None if it cannot or should not be excluded."""
UNFAIR = {
    "hasimage": "it removes every trajectory without a picture of a tool, right or wrong, which rewards calling tools",
    "pos_sample_neg_adv": "it removes right trajectories from their groups, which biases the advantages of the others",
}
_NO_FILTER = "only with filter_groups.enable=True"


def is_on(words: Words, name: str) -> bool:
    """The value of a key that is True or False; an empty one is false in verl."""
    value = words.get(name, False) or False
    if not isinstance(value, bool):
        raise Refused(f"{name.rpartition('.')[2]} must be True or False")
    return value


def _metrics(words: Words) -> list[str]:
    given = words.get(f"{_GROUPS}.metric", "acc")
    return [str(name).strip("'\"") for name in (given if isinstance(given, list) else str(given).split(","))]


def _filter(value: Any, words: Words) -> Several:
    if not is_on(words, f"{_GROUPS}.enable"):
        return Several({"algorithm.filter.metric": "none"})
    names = _metrics(words)
    for name in names:
        if name in UNFAIR:
            raise Refused(f"leave out {name}: {UNFAIR[name]}", of=f"{_GROUPS}.metric")
        if name not in (*FILTERS, *ALWAYS, END):
            raise Refused(f"must be one of {', '.join(FILTERS)}", of=f"{_GROUPS}.metric")
    chosen = {FILTERS[name] for name in names if name in FILTERS}
    if len(chosen) > 1:
        raise Refused("only one metric can compare groups: acc, or score", of=f"{_GROUPS}.metric")
    found = Several({"algorithm.filter.metric": next(iter(chosen), "none")})
    return Several({**found, "algorithm.filter.exclude": _excluded(words)}) if END in names else found


def _excluded(words: Words) -> list[str]:
    """Our reasons to stop that are not kept. verl's default keeps only finished trajectories."""
    given = words.get(_KEPT)
    kept = [str(name).strip("'\"") for name in given] if isinstance(given, list) else [str(given or "DONE")]
    if unknown := [name for name in kept if name not in ENDS]:
        raise Refused(f"{unknown[0]} is not one of {', '.join(ENDS)}", of=_KEPT)
    if "DONE" not in kept:
        raise Refused("trajectories that ended with an answer are always kept: add DONE", of=_KEPT)
    return [ours for name, ours in ENDS.items() if ours is not None and name not in kept]


def _kept_ends(value: Any, words: Words) -> Several:
    if not is_on(words, f"{_GROUPS}.enable") or END not in _metrics(words):
        return Several({})
    return Several({"algorithm.filter.exclude": _excluded(words)})


def _extra_batches(value: Any, words: Words) -> Any:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Refused("must be a positive integer, or 0")
    return value - 1 if value and is_on(words, f"{_GROUPS}.enable") else Several({})


def _ranked(value: Any, words: Words) -> Any:
    return value if is_on(words, f"{_GROUPS}.enable") else Several({})


FILTERING: Mapping[str, Meaning] = {
    f"{_GROUPS}.enable": Meaning(
        ours="algorithm.filter.metric", why="set by filter_groups.metric, acc by default", read=_filter
    ),
    f"{_GROUPS}.metric": Meaning(
        ours="algorithm.filter.metric",
        why=f"end_reason sets algorithm.filter.exclude; pictures and tokens always agree; {_NO_FILTER}",
        read=_filter,
    ),
    _KEPT: Meaning(
        ours="algorithm.filter.exclude",
        why="the other reasons; only with end_reason in filter_groups.metric",
        read=_kept_ends,
    ),
    f"{_GROUPS}.std_sort_enable": Meaning(ours="algorithm.filter.rank_by_std", why=_NO_FILTER, read=_ranked),
    f"{_GROUPS}.max_num_gen_batches": Meaning(
        ours="algorithm.filter.max_extra_batches",
        why=f"minus 1 for the first batch; 0 has no limit in verl, and keeps the limit of rlcore; {_NO_FILTER}",
        read=_extra_batches,
    ),
}
"""By key of verl."""
