"""Translation of verl's keys that correct for the gap between the engine and the trained policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore_compat.vocabulary import Meaning, Refused, Several, Words, nothing

_TABLE = "algorithm.rollout_correction"
_OURS = "algorithm.rollout_importance_sampling"
_LEVELS = ("token", "sequence")


def _weights(value: Any, words: Words) -> Several:
    if value is None:
        return Several({f"{_OURS}.mode": "none"})
    if value not in _LEVELS:
        raise Refused("must be token, sequence or null")
    return Several({f"{_OURS}.mode": "truncate", f"{_OURS}.level": value})


def _threshold(value: Any, words: Words) -> Several:
    if words.get(f"{_TABLE}.rollout_is") is None:
        return Several({})
    if not isinstance(value, int | float):
        raise Refused("must be one number, the largest weight")
    return Several({f"{_OURS}.high": value})


CORRECTION: Mapping[str, Meaning] = {
    f"{_TABLE}.rollout_is": Meaning(ours=f"{_OURS}.mode", why="and its level; null is none", read=_weights),
    f"{_TABLE}.rollout_is_threshold": Meaning(ours=f"{_OURS}.high", why="only with rollout_is", read=_threshold),
    f"{_TABLE}.rollout_is_batch_normalize": nothing(
        "weights are not normalised", only=(False,), otherwise="weights are not normalised: give False"
    ),
    f"{_TABLE}.rollout_rs": nothing(
        "null has no effect",
        only=(None,),
        otherwise=f"trajectories are not rejected by their ratio: give null, or use {_OURS}.mode=mask",
    ),
    f"{_TABLE}.rollout_rs_threshold": nothing("only with rollout_rs"),
    f"{_TABLE}.bypass_mode": nothing(
        "False has no effect",
        only=(False,),
        otherwise="ratios are relative to the policy before the updates, not to the engine: give False",
    ),
    f"{_TABLE}.loss_type": nothing("only with bypass_mode=True"),
}
"""By key of verl."""
