"""verl's words for estimators, losses, divergences, filters and the critic: what each is here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore.config.vocabulary import Meaning, Refused, Several, Words

ACTOR = "actor_rollout_ref.actor"
ESTIMATORS = {"grpo_passk": "pass-at-k", "grpo_vectorized": "grpo", "rloo_vectorized": "rloo"}
LOSSES = {"vanilla": "clip"}
FILTERS = {"acc": "accuracy", "score": "reward", "seq_reward": "reward", "seq_final_reward": "reward"}
_NOT_GAE = "only adv_estimator=gae has a critic"
_NO_FILTER = "counts where filter_groups.enable=True"


def hyphens(value: Any, words: Words) -> str:
    """Ids are written with hyphens here; an import path stays as it is."""
    text = str(value)
    return text if ":" in text else text.replace("_", "-")


def _estimator(value: Any, words: Words) -> Any:
    id = ESTIMATORS.get(str(value)) or hyphens(value, words)
    if id != "gae":
        return id
    return Several({"algorithm.advantage": id, "critic.model": words.get("critic.model.path", "copy")})


def _of_critic(ours: str) -> Meaning:
    """A word that counts where there is a critic."""

    def read(value: Any, words: Words) -> Several:
        return Several({ours: value} if words.get("algorithm.adv_estimator") == "gae" else {})

    return Meaning(ours=ours, why=_NOT_GAE, read=read)


def _switch(words: Words, name: str) -> bool:
    switch = words.get(name, False)
    if not isinstance(switch, bool):
        raise Refused(f"{name.rpartition('.')[2]} is True or False")
    return switch


def _kl(value: Any, words: Words) -> Several:
    """``use_kl_loss`` and ``use_kl_in_reward`` (both off where not given) decide which of two coefficients counts."""
    in_loss, in_reward = _switch(words, f"{ACTOR}.use_kl_loss"), _switch(words, "algorithm.use_kl_in_reward")
    if in_loss and in_reward:
        raise Refused("there is one KL term: choose use_kl_loss or use_kl_in_reward")
    if in_reward:
        coefficient = words.get("algorithm.kl_ctrl.kl_coef", 0.001)
        return Several({"algorithm.kl.target": "reward", "algorithm.kl.coefficient": coefficient})
    return Several({"algorithm.kl.coefficient": words.get(f"{ACTOR}.kl_loss_coef", 0.001) if in_loss else 0.0})


def _kl_in_reward(value: Any, words: Words) -> Several:
    return _kl(value, words) if _switch(words, "algorithm.use_kl_in_reward") else Several({})


def _of_kl(ours: str, switch: str, why: str) -> Meaning:
    """A word that counts where one of the two KL terms is on."""

    def read(value: Any, words: Words) -> Several:
        return Several({ours: value} if _switch(words, switch) else {})

    return Meaning(ours=ours, why=why, read=read)


def _filter(value: Any, words: Words) -> Several:
    if not _switch(words, "algorithm.filter_groups.enable"):
        return Several({"algorithm.filter.metric": "none"})
    metric = words.get("algorithm.filter_groups.metric", "acc")
    if metric not in FILTERS:
        raise Refused(f"groups are filtered by one of {', '.join(FILTERS)}")
    return Several({"algorithm.filter.metric": FILTERS[metric]})


def _extra_batches(value: Any, words: Words) -> Any:
    if not isinstance(value, int) or value < 1:
        raise Refused("a step that asks for batches without end may never end: give a number above 0")
    return value - 1 if _switch(words, "algorithm.filter_groups.enable") else Several({})


def _loss(value: Any, words: Words) -> str:
    return LOSSES.get(str(value)) or hyphens(value, words)


def _both_clips(value: Any, words: Words) -> Several:
    return Several({"algorithm.clip_low": value, "algorithm.clip_high": value})


ALGORITHM: Mapping[str, Meaning] = {
    "algorithm.adv_estimator": Meaning(
        ours="algorithm.advantage",
        why="gae: and critic.model, copy where critic.model.path is not given",
        read=_estimator,
    ),
    "algorithm.lam": Meaning(ours="algorithm.gae_lambda"),
    "algorithm.norm_adv_by_std_in_grpo": Meaning(ours="algorithm.normalise_by_std"),
    "algorithm.use_kl_in_reward": Meaning(
        ours="algorithm.kl.target", why="True: reward, and kl_ctrl.kl_coef is in force", read=_kl_in_reward
    ),
    "algorithm.kl_ctrl.kl_coef": Meaning(
        ours="algorithm.kl.coefficient", why="in force where use_kl_in_reward=True", read=_kl_in_reward
    ),
    "algorithm.kl_ctrl.type": Meaning(ours="algorithm.kl.controller"),
    "algorithm.kl_ctrl.target_kl": Meaning(ours="algorithm.kl.target_kl"),
    "algorithm.kl_ctrl.horizon": Meaning(ours="algorithm.kl.horizon"),
    "algorithm.kl_penalty": _of_kl(
        "algorithm.kl.estimator", "algorithm.use_kl_in_reward", "in force where use_kl_in_reward=True"
    ),
    "algorithm.filter_groups.enable": Meaning(
        ours="algorithm.filter.metric", why="by filter_groups.metric, acc where it is not given", read=_filter
    ),
    "algorithm.filter_groups.metric": Meaning(ours="algorithm.filter.metric", why=_NO_FILTER, read=_filter),
    "algorithm.filter_groups.max_num_gen_batches": Meaning(
        ours="algorithm.filter.max_extra_batches", why=f"less one, the first; {_NO_FILTER}", read=_extra_batches
    ),
    f"{ACTOR}.use_kl_loss": Meaning(
        ours="algorithm.kl.coefficient", why="True puts kl_loss_coef in force, else it is 0", read=_kl
    ),
    f"{ACTOR}.kl_loss_coef": Meaning(
        ours="algorithm.kl.coefficient", why="in force where use_kl_loss=True, else 0", read=_kl
    ),
    f"{ACTOR}.kl_loss_type": Meaning(ours="algorithm.kl.estimator"),
    f"{ACTOR}.entropy_coeff": Meaning(ours="algorithm.entropy"),
    f"{ACTOR}.clip_ratio": Meaning(ours="algorithm.clip_low", why="and algorithm.clip_high", read=_both_clips),
    f"{ACTOR}.clip_ratio_low": Meaning(ours="algorithm.clip_low"),
    f"{ACTOR}.clip_ratio_high": Meaning(ours="algorithm.clip_high"),
    f"{ACTOR}.clip_ratio_c": Meaning(ours="algorithm.dual_clip", why="on at 3 in verl where it is not given, off here"),
    f"{ACTOR}.loss_agg_mode": Meaning(ours="algorithm.aggregation"),
    f"{ACTOR}.policy_loss.loss_mode": Meaning(ours="algorithm.loss", why="vanilla is clip", read=_loss),
    "critic.model.path": _of_critic("critic.model"),
    "critic.optim.lr": _of_critic("critic.learning_rate"),
    "critic.cliprange_value": _of_critic("critic.clip"),
    "trainer.critic_warmup": _of_critic("critic.warmup_steps"),
}
"""By verl's key."""
