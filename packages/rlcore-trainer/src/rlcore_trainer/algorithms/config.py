"""The ``[algorithm]`` table and values derived from it. Does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field
from rlcore.abilities import MultiTurnConfig
from rlcore.config.schema import LARGEST, ComponentTable, Table

from rlcore_trainer.algorithms.interface import Aggregation, Level

if TYPE_CHECKING:
    from rlcore.config.schema import RolloutTable

Positive = Annotated[int, Field(ge=1, le=LARGEST)]
NonNegative = Annotated[float, Field(ge=0)]

Divergence = Literal["sampled", "reverse-kl", "forward-kl", "jsd"]
ESTIMATOR_ALIASES = {"kl": "k1", "k2": "mse", "low_var_kl": "k3", "kl+": "k1+", "low_var_kl+": "k3+"}


class KlConfig(Table):
    """``algorithm.kl``: KL regularisation towards the reference policy."""

    estimator: Annotated[
        Literal["k1", "abs", "mse", "k3", "k1+", "k3+"],
        BeforeValidator(lambda name: ESTIMATOR_ALIASES.get(name, name) if isinstance(name, str) else name),
    ] = "k3"
    """``k1``, ``abs``, ``mse`` (also ``k2``) or ``k3`` (also ``low_var_kl``); ``k1+`` and ``k3+`` have their values and
    the gradient of ``mse``."""
    coefficient: NonNegative = 0.0
    """Weight of the KL term; 0 disables it, and no reference policy is loaded."""
    target: Literal["loss", "reward"] = "loss"
    """Where the term is applied: ``loss`` adds it to the loss, ``reward`` subtracts it from the reward of each
    token."""
    controller: Literal["fixed", "adaptive"] = "fixed"
    """``fixed`` keeps the coefficient constant; ``adaptive`` adjusts it to bring the divergence to ``target_kl``."""
    target_kl: Annotated[float, Field(gt=0)] = 0.1
    """Target divergence of the adaptive controller, in nats per token."""
    horizon: Positive = 10000
    """Number of trajectories over which the adaptive coefficient settles."""
    importance_weighted: bool = False
    """Multiply the KL term in the loss by the probability ratio, which keeps it unbiased after the first update."""
    reference: str | None = None
    """Folder of the reference policy; None uses the policy at the start of reinforcement learning."""


class DistillationConfig(Table):
    """``algorithm.distillation``: on-policy distillation from a teacher, on the tokens that the policy samples."""

    teacher: str | None = None
    """The teacher: a model folder with the policy's tokenizer, a run, a checkpoint or a hub id. It is never trained.
    None disables distillation."""
    divergence: Divergence = "reverse-kl"
    """What is minimised for each token: ``reverse-kl``, KL(policy, teacher), ``forward-kl``, KL(teacher, policy), or
    ``jsd``, all over the whole vocabulary; ``sampled`` estimates ``reverse-kl`` from the sampled token alone, as an
    advantage of the policy loss."""
    beta: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Share of the teacher in the mixture of ``jsd``; near 0 it resembles ``forward-kl``, near 1 ``reverse-kl``."""
    coefficient: Annotated[float, Field(gt=0)] = 1.0
    """Weight of the divergence, relative to the advantages of rewards."""
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    """Data type of the teacher's weights; None uses that of the policy."""


class RolloutImportanceSamplingConfig(Table):
    """``algorithm.rollout_importance_sampling``: weights that correct for the gap between engine and trained policy."""

    mode: Literal["none", "truncate", "mask"] = "truncate"
    """``truncate`` caps the weight at ``high``; ``mask`` drops weights outside ``low`` to ``high``."""
    level: Level = "token"
    """``token`` weights each token separately; ``sequence`` uses one weight per trajectory, the product over its
    tokens."""
    high: Annotated[float, Field(ge=1)] = 2.0
    """The largest weight."""
    low: Annotated[float, Field(ge=0, le=1)] = 0.5
    """The smallest weight that ``mask`` keeps."""


class OverlongConfig(Table):
    """``algorithm.overlong``: handling of trajectories near or at the length limit."""

    buffer: Annotated[int, Field(ge=0, le=LARGEST)] = 0
    """Number of tokens before ``max_response_tokens`` over which a penalty grows from 0; 0 disables the penalty."""
    penalty: NonNegative = 1.0
    """Penalty at the limit, subtracted from the reward."""
    mask_truncated: bool = False
    """Exclude trajectories truncated by a token limit from the loss; they still count in their group's statistics."""


class FilterConfig(Table):
    """``algorithm.filter``: dynamic sampling, which drops groups that carry no learning signal."""

    metric: Literal["none", "reward", "accuracy", "all-wrong"] = "none"
    """``reward`` drops a group whose rewards are all equal, ``accuracy`` a group that is all correct or all wrong,
    and ``all-wrong`` only a group that is all wrong."""
    score: str | None = None
    """The reward (``ID``) or component (``ID/COMPONENT``) that ``metric`` compares, such as the accuracy without a
    bonus; None uses the weighted sum. ``rank_by_std`` always uses the weighted sum."""
    exclude: list[Literal["max_turns", "length", "tool_errors"]] = []
    """Trajectories that stopped for one of these reasons are excluded from their group and from the loss, as if they
    were not scored."""
    oversample: Annotated[float, Field(ge=1, le=1000)] = 1.0
    """Factor by which each rollout requests more tasks than a step needs."""
    rank_by_std: bool = False
    """If more groups are available than a step needs, use those with the largest reward spread instead of the
    oldest."""
    max_extra_batches: Annotated[int, Field(ge=0, le=LARGEST)] = 3
    """Maximum number of additional rollouts per step when too few groups remain."""
    when_short: Literal["train", "skip"] = "train"
    """Action when too few groups remain after all rollouts: ``train`` on them, or ``skip`` the step and keep them for
    the next one."""


def id_of(default: str) -> BeforeValidator:
    """Use ``default`` as the id of a component table without one, and read a plain string as an id."""

    def read(value: Any) -> Any:
        if isinstance(value, str):
            return {"id": value}
        return {"id": default, **value} if isinstance(value, Mapping) else value

    return BeforeValidator(read)


class AlgorithmConfig(Table):
    """``[algorithm]``: advantage estimation and the training objective."""

    RENAMED = {"importance_sampling_level": "loss"}
    COMPONENTS: ClassVar[Mapping[str, str]] = {"advantage": "advantage", "loss": "loss"}
    """Component tables and their kinds; see `rlcore.config.resolve`."""
    advantage: Annotated[ComponentTable, id_of("grpo")] = ComponentTable(id="grpo")
    """The advantage estimator: an id, or a table with ``id`` and the estimator's own keys."""
    loss: Annotated[ComponentTable, id_of("clip")] = ComponentTable(id="clip")
    """The policy loss: an id, or a table with ``id`` and the loss's own keys."""
    turn_rewards: Literal["none", "add", "only"] = "none"
    """How training uses the environment's per-turn rewards. ``add`` assigns each turn reward to the last token of its
    turn and the trajectory reward to the last token; ``only`` ignores the trajectory reward. Estimators that compare
    trajectories use the sum."""
    aggregation: Aggregation | None = None
    """How token losses are averaged: all tokens equally, or all trajectories equally, using the mean or the sum of each
    trajectory's tokens (``norm`` divides by ``max_response_tokens``). None uses the loss's default."""
    max_response_tokens: Positive | None = None
    """Length used by ``seq-mean-token-sum-norm`` and ``overlong``. None uses the longest possible trajectory:
    ``rollout.max_new_tokens`` times ``environment.max_turns``, if the environment has that key."""
    kl: KlConfig = KlConfig()
    """KL regularisation towards the reference policy."""
    distillation: DistillationConfig = DistillationConfig()
    """On-policy distillation from a teacher."""
    entropy: float = 0.0
    """Weight of the entropy bonus; a positive weight encourages exploration."""
    rollout_importance_sampling: RolloutImportanceSamplingConfig = RolloutImportanceSamplingConfig()
    """Importance weights for the gap between engine and trainer."""
    off_policy_threshold: Annotated[float, Field(gt=0)] | None = None
    """Leave out tokens with a negative advantage if the log-probability of their sequence has fallen by more than this
    since it was sampled, in nats per token. None trains on all tokens."""
    overlong: OverlongConfig = OverlongConfig()
    """Handling of trajectories near the length limit."""
    filter: FilterConfig = FilterConfig()
    """Dynamic sampling: which groups are dropped and how they are replaced."""
    shuffle_rewards: bool = False
    """Permute the rewards of a step's trajectories, as a control experiment without a learning signal."""


def response_limit(algorithm: AlgorithmConfig, rollout: RolloutTable, *environments: object) -> int:
    """Return the trajectory length in tokens that ``seq-mean-token-sum-norm`` and ``overlong`` use.

    Args:
        algorithm: provides ``max_response_tokens``, if set
        rollout: provides ``max_new_tokens``, the limit per turn
        environments: their options; an integer ``max_turns`` is the number of turns in a trajectory
    """
    limits = [one.max_turns for one in environments if isinstance(one, MultiTurnConfig)]
    turns = max([1, *(limit for limit in limits if isinstance(limit, int))])
    return algorithm.max_response_tokens or rollout.max_new_tokens * turns


def comparable(rollout: RolloutTable) -> bool:
    """Return whether the engine's log-probabilities describe the distribution that is sampled and trained."""
    return rollout.temperature == 1.0 and rollout.top_p == 1.0 and rollout.top_k == 0
