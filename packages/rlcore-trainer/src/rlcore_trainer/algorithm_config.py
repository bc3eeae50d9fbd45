"""``[algorithm]``: its keys, and what follows from them. Imports no torch: a run is checked before anything loads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import BeforeValidator, Field, model_validator
from rlcore.config.schema import Table

if TYPE_CHECKING:
    from rlcore.config.schema import RolloutTable

Positive = Annotated[int, Field(ge=1)]
NonNegative = Annotated[float, Field(ge=0)]
Aggregation = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"]
Level = Literal["token", "sequence"]

ESTIMATOR_ALIASES = {"kl": "k1", "k2": "mse", "low_var_kl": "k3"}


class LossDefaults(NamedTuple):
    """What a policy loss was published with."""

    level: Level
    clip_low: float
    clip_high: float
    aggregation: Aggregation


LOSS_DEFAULTS = {
    "clip": LossDefaults("token", 0.2, 0.2, "token-mean"),
    "gspo": LossDefaults("sequence", 3e-4, 4e-4, "seq-mean-token-mean"),
    "gspo-token": LossDefaults("sequence", 3e-4, 4e-4, "seq-mean-token-mean"),
    "cispo": LossDefaults("token", 1.0, 4.0, "token-mean"),
    "sapo": LossDefaults("token", 0.2, 0.2, "seq-mean-token-mean"),
}
"""By id; any other loss has those of ``clip``."""


class KlConfig(Table):
    """``algorithm.kl``: the pull towards the reference policy."""

    estimator: Annotated[
        Literal["k1", "abs", "mse", "k3"],
        BeforeValidator(lambda name: ESTIMATOR_ALIASES.get(name, name) if isinstance(name, str) else name),
    ] = "k3"
    """``k1``, ``abs``, ``mse`` (also ``k2``) or ``k3`` (also ``low_var_kl``)."""
    coefficient: NonNegative = 0.0
    """Weight of the term; 0 switches it off, and with it the reference policy."""
    target: Literal["loss", "reward"] = "loss"
    """Where the term goes: into the loss, or off the reward of each token."""
    controller: Literal["fixed", "adaptive"] = "fixed"
    """Whether the coefficient stays, or follows the measured divergence towards ``target_kl``."""
    target_kl: Annotated[float, Field(gt=0)] = 0.1
    """The divergence that an adaptive coefficient aims at, in nats a token."""
    horizon: Positive = 10000
    """Trajectories over which an adaptive coefficient settles."""
    importance_weighted: bool = False
    """Multiply the term in the loss by the probability ratio, which keeps it unbiased after the first update."""
    reference: str | None = None
    """Folder of the reference policy; None takes the policy as it is when reinforcement learning starts."""


class CorrectionConfig(Table):
    """``algorithm.correction``: weights for the gap between the engine that sampled and the policy that is trained."""

    mode: Literal["none", "truncate", "mask"] = "truncate"
    """``truncate`` caps the weight at ``high``; ``mask`` leaves out what lies outside ``low`` to ``high``."""
    level: Level = "token"
    """Whether each token has a weight of its own or its trajectory has one, the product of all."""
    high: Annotated[float, Field(ge=1)] = 2.0
    """The largest weight."""
    low: Annotated[float, Field(ge=0, le=1)] = 0.5
    """The smallest weight that ``mask`` keeps."""


class OverlongConfig(Table):
    """``algorithm.overlong``: what happens to trajectories that come near the limit of their length, or reach it."""

    buffer: Annotated[int, Field(ge=0)] = 0
    """Tokens before ``max_response_tokens`` over which a penalty grows from 0; 0 has no penalty."""
    penalty: NonNegative = 1.0
    """The penalty at the limit, taken off the reward."""
    mask_truncated: bool = False
    """Leave trajectories that a token limit cut short out of the loss; they stay in their group's statistics."""


class FilterConfig(Table):
    """``algorithm.filter``: dynamic sampling, which leaves out whole groups from which nothing can be learnt."""

    metric: Literal["none", "reward", "accuracy", "all-wrong"] = "none"
    """A group goes when its rewards are equal, when its trajectories are all right or all wrong, or only all wrong."""
    oversample: Annotated[float, Field(ge=1)] = 1.0
    """Ask for so many times the tasks of a step at once."""
    rank_by_std: bool = False
    """When more groups are there than a step needs, take those whose rewards spread most; else the oldest."""
    max_extra_batches: Annotated[int, Field(ge=0)] = 3
    """How many more rollouts a step may ask for when too few groups are left."""
    when_short: Literal["train", "skip"] = "train"
    """When too few groups are left even so: train on those, or keep them for the next step."""


class AlgorithmConfig(Table):
    """``[algorithm]``: what is a good trajectory, and how the policy is pushed towards it."""

    FOLLOWING: ClassVar[frozenset[str]] = frozenset(
        {"loss", "importance_sampling_level", "clip_low", "clip_high", "aggregation"}
    )
    """Keys that follow from others where nobody sets them; see `rlcore.config.resolve.Resolved.text`."""
    advantage: str = "grpo"
    """The advantage estimator."""
    normalise_by_std: bool = True
    """Divide a group's advantages by its standard deviation."""
    gamma: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Discount from one token that the policy wrote to the next."""
    gae_lambda: Annotated[float, Field(ge=0, le=1)] = 1.0
    """How far ``gae`` looks past its values: 0 to the next token, 1 to the end."""
    whiten: bool = True
    """Bring the advantages of a rollout's tokens to mean 0 and variance 1, where an estimator works on tokens."""
    loss: str = "clip"
    """The policy loss."""
    importance_sampling_level: Level | None = None
    """Whether each token has a probability ratio or each trajectory; with ``sequence``, ``clip`` is ``gspo``.
    None is the loss's own."""
    clip_low: Annotated[float, Field(ge=0, le=1)] | None = None
    """How far below 1 the probability ratio may push; None is the loss's own."""
    clip_high: NonNegative | None = None
    """How far above 1 the probability ratio may push; None is the loss's own."""
    dual_clip: Annotated[float, Field(gt=1)] | None = None
    """Where the advantage is negative, the ratio counts up to this much; None without limit."""
    sapo_positive: Annotated[float, Field(gt=0)] = 1.0
    """``sapo``: steepness of the gate where the advantage is positive."""
    sapo_negative: Annotated[float, Field(gt=0)] = 1.05
    """``sapo``: steepness of the gate where it is negative."""
    aggregation: Aggregation | None = None
    """How tokens weigh: all alike, or trajectories alike, each the mean or the sum of its tokens (``norm``: over
    ``max_response_tokens``); None is the loss's own."""
    max_response_tokens: Positive | None = None
    """The length that ``seq-mean-token-sum-norm`` and ``overlong`` mean; None is all that a trajectory may write:
    ``rollout.max_new_tokens`` in each of ``environment.max_turns``, where the environment has that key."""
    kl: KlConfig = KlConfig()
    """The pull towards the reference policy."""
    entropy: float = 0.0
    """Weight of the entropy bonus; positive keeps the policy broad."""
    correction: CorrectionConfig = CorrectionConfig()
    """Weights for the gap between engine and trainer."""
    overlong: OverlongConfig = OverlongConfig()
    """What happens to trajectories near the limit of their length."""
    filter: FilterConfig = FilterConfig()
    """Which groups are left out, and what takes their place."""
    shuffle_rewards: bool = False
    """Control experiment: permute the rewards among a step's trajectories, so that nothing can be learnt."""
    options: dict[str, Any] = {}
    """Further arguments of an advantage or a loss of somebody else."""

    @model_validator(mode="before")
    @classmethod
    def _resolve(cls, values: Any) -> Any:
        """Fill in what follows from the loss and its level, so that the resolved configuration shows it."""
        if not isinstance(values, dict):
            return values
        values = dict(values)
        loss, level = values.get("loss", "clip"), values.get("importance_sampling_level")
        if (loss, level) == ("clip", "sequence"):
            values["loss"] = loss = "gspo"
        defaults = LOSS_DEFAULTS.get(loss, LOSS_DEFAULTS["clip"]) if isinstance(loss, str) else LOSS_DEFAULTS["clip"]
        if level in ("token", "sequence") and loss in LOSS_DEFAULTS and level != defaults.level:
            fitting = [name for name, known in LOSS_DEFAULTS.items() if known.level == level]
            raise ValueError(
                f"importance_sampling_level={level} does not go with the loss {loss!r}, whose ratios are those of a "
                f"{defaults.level}; take loss={' or '.join(fitting)}, or leave the level out"
            )
        own = {
            "importance_sampling_level": defaults.level,
            "clip_low": defaults.clip_low,
            "clip_high": defaults.clip_high,
            "aggregation": defaults.aggregation,
        }
        return values | {key: value for key, value in own.items() if values.get(key) is None}


def response_limit(algorithm: AlgorithmConfig, rollout: RolloutTable, environment: object) -> int:
    """The length in tokens that ``seq-mean-token-sum-norm`` and ``overlong`` mean; lengths are of whole trajectories.

    Args:
        algorithm: its ``max_response_tokens``, where it is set
        rollout: whose ``max_new_tokens`` limits what is written in one turn
        environment: its options; an integer ``max_turns`` there says how many turns a trajectory has
    """
    turns = getattr(environment, "max_turns", 1)
    per_trajectory = rollout.max_new_tokens * (max(1, turns) if isinstance(turns, int) else 1)
    return algorithm.max_response_tokens or per_trajectory


def description(algorithm: AlgorithmConfig) -> str:
    """What was resolved, in one line."""
    level = {"token": "tokens", "sequence": "whole trajectories", None: "its own"}[algorithm.importance_sampling_level]
    parts = [f"{algorithm.advantage} advantage", f"{algorithm.loss} loss with ratios of {level}"]
    if algorithm.loss != "sapo":
        parts.append(f"clip {algorithm.clip_low:g} below and {algorithm.clip_high:g} above 1")
    parts.append(f"{algorithm.aggregation}")
    kl = algorithm.kl
    parts.append(f"KL {kl.estimator} × {kl.coefficient:g} in the {kl.target}" if kl.coefficient else "no KL")
    return ", ".join(parts)
