"""verl's keys for estimators, losses, rewards, KL, rollout correction and filters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore_compat.tables import Refused, Several, Words

_ACTOR = "actor_rollout_ref.actor"
_ESTIMATORS = {
    "grpo_passk": "pass-at-k",
    "grpo_vectorized": "grpo",
    "rloo_vectorized": "rloo",
    "tir_optimal_token_baseline": "optimal-token-baseline",
}
_LOSSES = {"vanilla": "clip", "gspo": "gspo-token"}
_CORRECTION = "algorithm.rollout_importance_sampling"
_GROUPS = "algorithm.filter_groups"
_KEPT = f"{_GROUPS}.end_reason_filter_reserve_names"
_FILTERS = {"acc": "accuracy", "score": "reward", "seq_reward": "reward", "seq_final_reward": "reward"}
"""Metrics that compare the trajectories of a group."""
_ALWAYS = ("trajlength", "vtoken_images_num_consis")
"""Filters for trajectories that rlcore never produces: with too many tokens, or without the pixels of an image."""
_END = "end_reason"
_ENDS: Mapping[str, str | None] = {
    "DONE": None,
    "EXCEED_MAX_TURNS": "max_turns",
    "OVER_LENGTH": "length",
    "ERROR_IN_ACTION": "tool_errors",
    "EXCEED_MAX_IMAGE_NUM_32": None,
    "ON_GONIG": None,
}
"""Reasons to end an episode, and ours; None if it cannot or should not be excluded."""
_UNFAIR = {
    "hasimage": "it removes every trajectory without a picture of a tool, right or wrong, which rewards calling tools",
    "pos_sample_neg_adv": "it removes right trajectories from their groups, which biases the advantages of the others",
}


def _hyphens(value: Any) -> str:
    """An id with hyphens instead of underscores. Import paths are unchanged."""
    text = str(value)
    return text if ":" in text else text.replace("_", "-")


_WITHOUT_COUNTERPART = {
    "gpg": "it scales advantages by the share of trajectories with a score: algorithm.advantage=dr-grpo is the closest",
}
"""Estimators that are refused, with the reason."""


def estimator(value: Any, words: Words) -> Any:
    """The advantage; gae also needs a critic."""
    if reason := _WITHOUT_COUNTERPART.get(str(value)):
        raise Refused(f"{value} has no counterpart: {reason}")
    id = _ESTIMATORS.get(str(value)) or _hyphens(value)
    if id != "gae":
        return id
    return Several({"algorithm.advantage": id, "critic.model": words.get("critic.model.path", "copy")})


def loss(value: Any, words: Words) -> str:
    """The id of the loss."""
    return _LOSSES.get(str(value)) or _hyphens(value)


def reward(value: Any, words: Words) -> list[dict[str, str]]:
    """The only reward."""
    return [{"id": _hyphens(value)}]


def clip(value: Any, words: Words) -> Several:
    """Both bounds of the ratio."""
    return Several({"algorithm.loss.clip_low": value, "algorithm.loss.clip_high": value})


def largest_ratio(value: Any, words: Words) -> Several:
    """The largest ratio for negative advantages, or the largest weight of a token in dppo."""
    mode = words.get(f"{_ACTOR}.policy_loss.loss_mode", "vanilla")
    return Several({f"algorithm.loss.{'dual_clip' if mode == 'vanilla' else 'largest_ratio'}": value})


def clip_low(value: Any, words: Words) -> Any:
    """The lower bound; ratios are positive."""
    return min(value, 1) if isinstance(value, int | float) else value


def _is_on(words: Words, name: str) -> bool:
    """The value of a key that is True or False; an empty one is false in verl."""
    value = words.get(name, False) or False
    if not isinstance(value, bool):
        raise Refused(f"{name.rpartition('.')[2]} must be True or False")
    return value


def kl(value: Any, words: Words) -> Several:
    """``use_kl_loss`` and ``use_kl_in_reward`` (both off by default) select one of two coefficients."""
    in_loss, in_reward = _is_on(words, f"{_ACTOR}.use_kl_loss"), _is_on(words, "algorithm.use_kl_in_reward")
    if in_loss and in_reward:
        raise Refused("only one KL term is supported: use_kl_loss or use_kl_in_reward")
    if in_reward:
        coefficient = words.get("algorithm.kl_ctrl.kl_coef", 0.001)
        return Several({"algorithm.kl.target": "reward", "algorithm.kl.coefficient": coefficient})
    return Several({"algorithm.kl.coefficient": words.get(f"{_ACTOR}.kl_loss_coef", 0.001) if in_loss else 0.0})


def kl_in_reward(value: Any, words: Words) -> Several:
    """A key of the KL term in the reward."""
    return kl(value, words) if _is_on(words, "algorithm.use_kl_in_reward") else Several()


def correction(value: Any, words: Words) -> Several:
    """Weights for the gap between the engine and the trained policy."""
    if value is None:
        return Several({f"{_CORRECTION}.mode": "none"})
    if value not in ("token", "sequence"):
        raise Refused("must be token, sequence or null")
    return Several({f"{_CORRECTION}.mode": "truncate", f"{_CORRECTION}.level": value})


def correction_threshold(value: Any, words: Words) -> Any:
    """The largest weight."""
    if not isinstance(value, int | float):
        raise Refused("must be one number, the largest weight")
    return value


def oversample(value: Any, words: Words) -> Any:
    """Prompts that a rollout requests; verl filters the groups afterwards."""
    size = words.get("data.train_batch_size")
    if value is None or value == size or words.get(f"{_GROUPS}.enable") is not True:
        return Several()
    if not isinstance(value, int) or not isinstance(size, int) or value < 1 or size < 1:
        raise Refused("must be a positive integer, and needs data.train_batch_size")
    return value / size if value > size else Several()


def _metrics(words: Words) -> list[str]:
    given = words.get(f"{_GROUPS}.metric", "acc")
    return [str(name).strip("'\"") for name in (given if isinstance(given, list) else str(given).split(","))]


def filters(value: Any, words: Words) -> Several:
    """``filter_groups.enable`` and its metrics."""
    if not _is_on(words, f"{_GROUPS}.enable"):
        return Several({"algorithm.filter.metric": "none"})
    names = _metrics(words)
    for name in names:
        if name in _UNFAIR:
            raise Refused(f"leave out {name}: {_UNFAIR[name]}", of=f"{_GROUPS}.metric")
        if name not in (*_FILTERS, *_ALWAYS, _END):
            raise Refused(f"must be one of {', '.join(_FILTERS)}", of=f"{_GROUPS}.metric")
    chosen = {_FILTERS[name] for name in names if name in _FILTERS}
    if len(chosen) > 1:
        raise Refused("only one metric can compare groups: acc, or score", of=f"{_GROUPS}.metric")
    found = Several({"algorithm.filter.metric": next(iter(chosen), "none")})
    return Several({**found, "algorithm.filter.exclude": _excluded(words)}) if _END in names else found


def _excluded(words: Words) -> list[str]:
    """Our reasons to stop that are not kept. verl's default keeps only finished trajectories."""
    given = words.get(_KEPT)
    kept = [str(name).strip("'\"") for name in given] if isinstance(given, list) else [str(given or "DONE")]
    if unknown := [name for name in kept if name not in _ENDS]:
        raise Refused(f"{unknown[0]} is not one of {', '.join(_ENDS)}", of=_KEPT)
    if "DONE" not in kept:
        raise Refused("trajectories that ended with an answer are always kept: add DONE", of=_KEPT)
    return [ours for name, ours in _ENDS.items() if ours is not None and name not in kept]


def kept_ends(value: Any, words: Words) -> Any:
    """Reasons to end an episode that do not exclude a trajectory."""
    return _excluded(words) if _is_on(words, f"{_GROUPS}.enable") and _END in _metrics(words) else Several()


def extra_batches(value: Any, words: Words) -> Any:
    """Batches besides the first; 0 has no limit in verl."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Refused("must be a positive integer, or 0")
    return value - 1 if value and _is_on(words, f"{_GROUPS}.enable") else Several()
