"""Translation of verl's keys for estimators, losses, KL, filters and the critic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore_compat.verl_correction import CORRECTION
from rlcore_compat.verl_filter import FILTERING, is_on
from rlcore_compat.vocabulary import Meaning, Refused, Several, Words, nothing

ACTOR = "actor_rollout_ref.actor"
ESTIMATORS = {"grpo_passk": "pass-at-k", "grpo_vectorized": "grpo", "rloo_vectorized": "rloo"}
LOSSES = {"vanilla": "clip", "gspo": "gspo-token"}
_LOSS = f"{ACTOR}.policy_loss.loss_mode"
_LOSS_WHY = "vanilla is clip, and gspo is gspo-token; clip range and aggregation are ours unless given"
_NOT_CLIPPED = ("gpg", "sapo")
"""Losses of verl that do not read ``clip_ratio``."""
_PER_TRAJECTORY = ("geo_mean", "sapo")
"""Losses of verl that do not read ``loss_agg_mode``."""
_NOT_GAE = "only with adv_estimator=gae"
_ESTIMATOR = "algorithm.adv_estimator"
_DISCOUNTED = ("gae", "reinforce_plus_plus")
_BY_GROUP = ("grpo", "grpo_vectorized", "grpo_passk")
_NOT_READ = "not with gpg and sapo"


def hyphens(value: Any, words: Words) -> str:
    """An id with hyphens instead of underscores. Import paths are unchanged."""
    text = str(value)
    return text if ":" in text else text.replace("_", "-")


def _estimator(value: Any, words: Words) -> Any:
    id = ESTIMATORS.get(str(value)) or hyphens(value, words)
    if id != "gae":
        return id
    return Several({"algorithm.advantage": id, "critic.model": words.get("critic.model.path", "copy")})


def _of_critic(ours: str) -> Meaning:
    """A key that is used only with a critic."""

    def read(value: Any, words: Words) -> Several:
        return Several({ours: value} if words.get("algorithm.adv_estimator") == "gae" else {})

    return Meaning(ours=ours, why=_NOT_GAE, read=read)


def _kl(value: Any, words: Words) -> Several:
    """``use_kl_loss`` and ``use_kl_in_reward`` (both off by default) select one of two coefficients."""
    in_loss, in_reward = is_on(words, f"{ACTOR}.use_kl_loss"), is_on(words, "algorithm.use_kl_in_reward")
    if in_loss and in_reward:
        raise Refused("only one KL term is supported: use_kl_loss or use_kl_in_reward")
    if in_reward:
        coefficient = words.get("algorithm.kl_ctrl.kl_coef", 0.001)
        return Several({"algorithm.kl.target": "reward", "algorithm.kl.coefficient": coefficient})
    return Several({"algorithm.kl.coefficient": words.get(f"{ACTOR}.kl_loss_coef", 0.001) if in_loss else 0.0})


def _kl_in_reward(value: Any, words: Words) -> Several:
    return _kl(value, words) if is_on(words, "algorithm.use_kl_in_reward") else Several({})


def _of_kl(ours: str, switch: str, why: str) -> Meaning:
    """A key that is used only with one of the two KL terms."""

    def read(value: Any, words: Words) -> Several:
        return Several({ours: value} if is_on(words, switch) else {})

    return Meaning(ours=ours, why=why, read=read)


def _loss(value: Any, words: Words) -> str:
    return LOSSES.get(str(value)) or hyphens(value, words)


def _not_with(losses: tuple[str, ...], *ours: str, why: str = "") -> Meaning:
    """A word that sets these keys, unless the words choose a loss that does not read it."""

    def read(value: Any, words: Words) -> Several:
        return Several({} if words.get(_LOSS) in losses else dict.fromkeys(ours, value))

    return Meaning(ours=ours[0], why=why, read=read)


def _clip_low(value: Any, words: Words) -> Any:
    if words.get(_LOSS) in _NOT_CLIPPED:
        return Several({})
    return min(value, 1) if isinstance(value, int | float) else value


def _of(ours: str, chooser: str, readers: tuple[str, ...], why: str) -> Meaning:
    """A key that is used unless the selected estimator or loss does not read it."""

    def read(value: Any, words: Words) -> Several:
        return Several(
            {ours: value} if words.get(chooser, "vanilla" if chooser == _LOSS else readers[0]) in readers else {}
        )

    return Meaning(ours=ours, why=why, read=read)


ALGORITHM: Mapping[str, Meaning] = {
    "algorithm.adv_estimator": Meaning(
        ours="algorithm.advantage",
        why="gae: also critic.model, which is copy if critic.model.path is not given",
        read=_estimator,
    ),
    "algorithm.lam": _of("algorithm.advantage.gae_lambda", _ESTIMATOR, ("gae",), "only with adv_estimator=gae"),
    "algorithm.gamma": _of(
        "algorithm.advantage.gamma", _ESTIMATOR, _DISCOUNTED, "only with gae and reinforce_plus_plus"
    ),
    "algorithm.norm_adv_by_std_in_grpo": _of(
        "algorithm.advantage.normalise_by_std", _ESTIMATOR, _BY_GROUP, "only with grpo and grpo_passk"
    ),
    "algorithm.use_kl_in_reward": Meaning(
        ours="algorithm.kl.target", why="True: reward, with coefficient kl_ctrl.kl_coef", read=_kl_in_reward
    ),
    "algorithm.kl_ctrl.kl_coef": Meaning(
        ours="algorithm.kl.coefficient", why="only with use_kl_in_reward=True", read=_kl_in_reward
    ),
    "algorithm.kl_ctrl.type": Meaning(ours="algorithm.kl.controller"),
    "algorithm.kl_ctrl.target_kl": Meaning(ours="algorithm.kl.target_kl"),
    "algorithm.kl_ctrl.horizon": Meaning(ours="algorithm.kl.horizon"),
    **CORRECTION,
    "algorithm.use_pf_ppo": nothing("False has no effect", only=(False,), otherwise="PF-PPO is not supported"),
    "algorithm.pf_ppo.*": nothing("only with use_pf_ppo=True"),
    "algorithm.kl_penalty": _of_kl(
        "algorithm.kl.estimator", "algorithm.use_kl_in_reward", "only with use_kl_in_reward=True"
    ),
    **FILTERING,
    f"{ACTOR}.use_kl_loss": Meaning(ours="algorithm.kl.coefficient", why="True: kl_loss_coef; False: 0", read=_kl),
    f"{ACTOR}.kl_loss_coef": Meaning(ours="algorithm.kl.coefficient", why="with use_kl_loss=True, else 0", read=_kl),
    f"{ACTOR}.kl_loss_type": _of_kl("algorithm.kl.estimator", f"{ACTOR}.use_kl_loss", "only with use_kl_loss=True"),
    f"{ACTOR}.entropy_coeff": Meaning(ours="algorithm.entropy"),
    f"{ACTOR}.clip_ratio": _not_with(
        _NOT_CLIPPED,
        "algorithm.loss.clip_low",
        "algorithm.loss.clip_high",
        why=f"and algorithm.loss.clip_high; {_NOT_READ}",
    ),
    f"{ACTOR}.clip_ratio_low": Meaning(
        ours="algorithm.loss.clip_low", why=f"at most 1, because ratios are positive; {_NOT_READ}", read=_clip_low
    ),
    f"{ACTOR}.clip_ratio_high": _not_with(_NOT_CLIPPED, "algorithm.loss.clip_high", why=_NOT_READ),
    f"{ACTOR}.clip_ratio_c": _of(
        "algorithm.loss.dual_clip", _LOSS, ("vanilla",), "off by default; 3 by default in verl"
    ),
    f"{ACTOR}.loss_agg_mode": _not_with(
        _PER_TRAJECTORY, "algorithm.aggregation", why="not with geo_mean and sapo, which average over trajectories"
    ),
    _LOSS: Meaning(ours="algorithm.loss", why=_LOSS_WHY, read=_loss),
    f"{ACTOR}.policy_loss.tau_pos": _of(
        "algorithm.loss.positive_temperature", _LOSS, ("sapo",), "only with loss_mode=sapo"
    ),
    f"{ACTOR}.policy_loss.tau_neg": _of(
        "algorithm.loss.negative_temperature", _LOSS, ("sapo",), "only with loss_mode=sapo"
    ),
    "critic.model.path": _of_critic("critic.model"),
    "critic.optim.lr": _of_critic("critic.learning_rate"),
    "critic.cliprange_value": _of_critic("critic.clip"),
    "trainer.critic_warmup": _of_critic("critic.warmup_steps"),
}
"""By key of verl."""
