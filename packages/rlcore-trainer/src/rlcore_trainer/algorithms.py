"""The advantages and losses on offer: what each is given of a rollout, and which keys of ``[algorithm]`` it reads."""

from __future__ import annotations

from typing import NamedTuple


class Offered(NamedTuple):
    """One function of `rlcore_trainer.advantages` or `rlcore_trainer.losses`."""

    id: str
    function: str
    reads: tuple[str, ...]
    """Its positional parameters."""
    options: tuple[str, ...]
    """Its keyword-only parameters that are keys of ``[algorithm]``."""
    summary: str


GROUPED = ("rewards_N", "groups_N")
TOKENS = ("logprobs_M", "old_logprobs_M", "advantages_M", "weights_M")
CLIPS = ("clip_low", "clip_high")

ADVANTAGES = (
    Offered("grpo", "grpo", GROUPED, ("normalise_by_std",), "Reward against the mean and spread of its group."),
    Offered("dr-grpo", "dr_grpo", GROUPED, (), "Reward against the mean of its group."),
    Offered("rloo", "rloo", GROUPED, (), "Reward against the mean of the others in its group."),
    Offered("opo", "opo", (*GROUPED, "lengths_N"), (), "Reward against the mean of its group weighted by length."),
    Offered("pass-at-k", "pass_at_k", GROUPED, ("normalise_by_std",), "The best of a group against the second best."),
    Offered(
        "reinforce-plus-plus",
        "reinforce_plus_plus",
        ("rewards_NT", "mask_NT"),
        ("gamma", "whiten"),
        "Discounted returns, whitened over the rollout; needs no groups.",
    ),
    Offered(
        "reinforce-plus-plus-baseline",
        "reinforce_plus_plus_baseline",
        (*GROUPED, "mask_NT"),
        ("whiten",),
        "Reward against the mean of its group, whitened over the rollout.",
    ),
    Offered(
        "remax",
        "remax",
        ("rewards_NT", "baselines_N", "mask_NT"),
        (),
        "Return against the reward of the greedy answer; needs no groups.",
    ),
    Offered(
        "gae",
        "gae",
        ("rewards_NT", "values_NT", "mask_NT"),
        ("gamma", "gae_lambda", "whiten"),
        "Generalised advantage estimation with a critic; needs no groups.",
    ),
)

LOSSES = (
    Offered("clip", "clip", TOKENS, (*CLIPS, "dual_clip"), "The clipped surrogate of PPO, a ratio for each token."),
    Offered("gspo", "gspo", (*TOKENS, "sequence_M"), CLIPS, "The clipped surrogate with a ratio for each trajectory."),
    Offered("gspo-token", "gspo_token", (*TOKENS, "sequence_M"), CLIPS, "GSPO with an advantage for each token."),
    Offered("cispo", "cispo", TOKENS, CLIPS, "Clips the weight of a token instead of its gradient."),
    Offered("sapo", "sapo", TOKENS, ("sapo_positive", "sapo_negative"), "A soft gate in place of the clip."),
)
