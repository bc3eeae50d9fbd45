"""The parity table: each line is a call of a peer's function and the equivalent call of rlcore.

``theirs`` are the options of the peer and ``ours`` those of rlcore, so the table also translates between them. Imports
nothing, because the interpreters of the peers also read it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

TOLERANCE = 1e-6
AGGREGATIONS = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm")
DIVERGENCES = {
    "kl-bias-correction": "TRL multiplies the KL term by the ratio; ours is algorithm.kl.importance_weighted, off",
    "cispo-bounds": "verl bounds CISPO's weight by 1±0.2, paper and TRL only above; ours is clip_low=1, clip_high=4",
    "dual-clip": "verl caps the ratio at 3 where the advantage is negative; ours is algorithm.loss.dual_clip, off",
    "k3-clamp": "ours and verl bound k3 by 10 nats a token, TRL does not; ours is clamp=None",
    "empty-rows": "TRL counts trajectories without a trained token in its means, verl and ours do not; count_empty",
    "advantage-epsilon": "TRL adds 1e-4 to the standard deviation, verl and ours 1e-6; ours is epsilon",
    "gspo-tokens": "verl's gspo is our gspo-token, which differs where the tokens of a row have different advantages",
    "geo-mean-rows": "verl counts trajectories without a trained token in the mean of geo_mean, ours does not",
    "geo-mean-weights": "verl multiplies geo_mean by the geometric mean of the rollout weights, ours by their mean",
    "gdpo-tokens": "verl whitens gdpo over tokens, the paper, TRL and ours over trajectories",
    "otb-columns": "verl's optimal_token_baseline compares columns, its tir_ variant and ours generated tokens",
    "micro-batches": "verl without global_batch_info averages means of micro-batches; ours weighs by the whole batch",
}
"""Intended differences between the peers or from rlcore, with the option that controls each."""

NOT_FLOAT64 = {
    "trl/advantage": "TRL corrects standard deviations in float32",
    "trl/correction": "TRL holds the engine's log-probabilities in float32",
    "trl/loss/clip": "the lines with an engine's gap are float32 for the same reason",
    "trl/loss/vespo": "the lines with an engine's gap are float32 for the same reason",
    "trl/loss/sapo": "TRL holds the steepness in float32",
    "verl/advantage": "verl adds 1e-8 to the count when it takes a masked mean",
}
"""Why some lines differ by 1e-7 instead of 1e-15. The tolerance is the same for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One comparison. A line with ``divergence`` compares the defaults of both sides, which must differ."""

    peer: str
    kind: str
    function: str
    case: str
    theirs: dict[str, Any] = field(default_factory=dict)
    ours: dict[str, Any] = field(default_factory=dict)
    divergence: str = ""
    label: str = ""

    @property
    def group(self) -> str:
        """The row of the printed table."""
        return f"{self.peer}/{self.kind}/{self.function}" + (f"/{self.divergence}" if self.divergence else "")

    @property
    def name(self) -> str:
        """The unique key of the golden tensors."""
        return "/".join(part for part in (self.group, self.label, self.case) if part)


def line(
    of: str, case: str, theirs: dict[str, Any], ours: dict[str, Any], label: str = "", divergence: str = ""
) -> Line:
    """A comparison of ``PEER/KIND/FUNCTION``."""
    values = dict(zip(("peer", "kind", "function"), of.split("/"), strict=True))
    return Line(**values, case=case, theirs=theirs, ours=ours, label=label, divergence=divergence)


def _verl_advantages() -> list[Line]:
    plain = [
        ("grpo", "grpo", {"norm_adv_by_std_in_grpo": True}, {}),
        ("grpo", "grpo", {"norm_adv_by_std_in_grpo": False}, {"normalise_by_std": False}),
        ("grpo", "dr_grpo", {"norm_adv_by_std_in_grpo": False}, {}),
        ("rloo", "rloo", {}, {}),
        ("opo", "opo", {}, {}),
        ("reinforce_plus_plus_baseline", "reinforce_plus_plus_baseline", {}, {}),
        ("remax", "remax", {}, {}),
        *(("reinforce_plus_plus", "reinforce_plus_plus", {"gamma": g}, {"gamma": g}) for g in (1.0, 0.9)),
        *(
            ("gae", "gae", {"gamma": g, "lam": lam}, {"gamma": g, "gae_lambda": lam})
            for g, lam in ((1.0, 1.0), (0.95, 0.8), (1.0, 0.0))
        ),
    ]
    lines = [
        line(
            f"verl/advantage/{function}",
            case,
            {"estimator": estimator, "groups": "unequal-groups", **theirs},
            {"groups": "unequal-groups", **ours},
            ",".join(f"{key}={value}" for key, value in theirs.items()),
        )
        for estimator, function, theirs, ours in plain
        for case in ("holes", "empty-row", "large")
    ]
    lines += [
        line(
            "verl/advantage/pass_at_k",
            case,
            {"estimator": "grpo_passk", "groups": "equal-groups", "norm_adv_by_std_in_grpo": std},
            {"groups": "equal-groups", "normalise_by_std": std},
            f"norm_adv_by_std_in_grpo={std}",
        )
        for std in (True, False)
        for case in ("holes", "empty-row", "large")
    ]
    lines += [
        line(
            "verl/advantage/optimal_token_baseline",
            case,
            {"estimator": "tir_optimal_token_baseline", "groups": "unequal-groups"},
            {"groups": "unequal-groups"},
        )
        for case in ("holes", "empty-row", "large")
    ]
    lines += [
        line(
            "verl/advantage/optimal_token_baseline",
            "holes",
            {"estimator": "optimal_token_baseline", "groups": "unequal-groups"},
            {"groups": "unequal-groups"},
            divergence="otb-columns",
        ),
        line(
            "verl/advantage/gdpo",
            "holes",
            {"estimator": "gdpo", "groups": "equal-groups"},
            {"groups": "equal-groups"},
            divergence="gdpo-tokens",
        ),
    ]
    return lines


def _verl_losses() -> list[Line]:
    symmetric = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.2}
    higher = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28}
    wide = {"clip_ratio_low": 0.05, "clip_ratio_high": 0.08}
    published = {"clip_ratio_low": 3e-4, "clip_ratio_high": 4e-4}

    def clips(theirs: dict[str, Any]) -> dict[str, Any]:
        return {"clip_low": theirs["clip_ratio_low"], "clip_high": theirs["clip_ratio_high"]}

    narrow = {"clip_cov_lb": 0.05, "clip_cov_ub": 1.5}
    of_narrow = {"covariance_low": 0.05, "covariance_high": 1.5}
    no_cap = {"clip_ratio_c": 1e9}
    cases = ("holes", "empty-row", "large")
    variants: list[tuple[str, str, dict[str, Any], dict[str, Any], str, tuple[str, ...]]] = [
        ("vanilla", "clip", symmetric | no_cap, clips(symmetric), "symmetric", cases),
        ("vanilla", "clip", higher | no_cap, clips(higher), "clip-higher", cases),
        ("vanilla", "clip", higher, clips(higher) | {"dual_clip": 3.0}, "dual-clip-3", cases),
        ("gspo", "gspo", wide, clips(wide), "wide", cases),
        ("gspo", "gspo", published, {}, "published", ("near",)),
        ("gspo", "gspo_token", wide, clips(wide), "wide", cases),
        ("gspo", "gspo_token", published, {}, "published", ("near",)),
        ("cispo", "cispo", {"clip_ratio_low": 1.0, "clip_ratio_high": 4.0}, {}, "upper-5", cases),
        ("cispo", "cispo", symmetric, clips(symmetric), "both-0.2", cases),
        ("gpg", "gpg", {}, {}, "plain", cases),
    ]
    lines = [
        line(
            f"verl/loss/{function}",
            case,
            {"loss": loss, "loss_agg_mode": aggregation, "advantages": advantages, **theirs},
            {"aggregation": aggregation, "advantages": advantages, **ours},
            f"{label},{aggregation},{advantages}",
        )
        for loss, function, theirs, ours, label, in_cases in variants
        for aggregation in AGGREGATIONS
        for case in in_cases
        for advantages in (("advantages",) if function == "gspo" else ("advantages", "token-advantages"))
    ]
    selecting: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
        *(
            (f"dppo_{kind}", bounds | {"clip_ratio_c": limit}, clips(bounds) | ratio, label)
            for kind, low, high in (("tv", 0.15, 0.15), ("kl", 0.05, 0.05))
            for bounds in ({"clip_ratio_low": low, "clip_ratio_high": high},)
            for limit, ratio, label in ((20.0, {}, "published"), (1.1, {"largest_ratio": 1.1}, "truncated"))
        ),
        *(
            (name, theirs | chosen, ours | {"share": share}, f"{label},{share}")
            for name, theirs, ours, label in (
                ("clip_cov", symmetric | narrow, clips(symmetric) | of_narrow, "narrow"),
                ("clip_cov", wide | narrow, clips(wide) | of_narrow, "clipped"),
                ("kl_cov", {"ppo_kl_coef": 0.7}, {"kl_coefficient": 0.7}, "0.7"),
            )
            for share in (2e-4, 0.2)
            for chosen in ({f"{name}_ratio": share},)
        ),
    ]
    lines += [  # losses that leave out tokens or select them; the aggregation is that of the other losses
        line(
            f"verl/loss/{function}",
            case,
            {"loss": function, "loss_agg_mode": "token-mean", "advantages": advantages, **theirs},
            {"aggregation": "token-mean", "advantages": advantages, **ours},
            f"{label},{advantages}",
        )
        for function, theirs, ours, label in selecting
        for case in cases
        for advantages in ("advantages", "token-advantages")
    ]
    lines += [
        line(  # SAPO in verl supports one aggregation
            "verl/loss/sapo",
            case,
            {"loss": "sapo", "advantages": advantages, **theirs},
            {"aggregation": "seq-mean-token-mean", "advantages": advantages, **ours},
            f"{label},{advantages}",
        )
        for theirs, ours, label in (
            ({}, {}, "published"),
            ({"tau_pos": 2.0, "tau_neg": 0.7}, {"positive_temperature": 2.0, "negative_temperature": 0.7}, "steep"),
        )
        for case in cases
        for advantages in ("advantages", "token-advantages")
    ]
    published = {"clip_ratio_low": 0.4, "clip_ratio_high": 0.4}
    lines += [
        line(  # verl averages this loss over all rows of a batch, whatever loss_agg_mode says
            "verl/loss/geo_mean",
            case,
            {"loss": "geo_mean", "advantages": advantages, **theirs},
            {"aggregation": "seq-mean-token-mean", "advantages": advantages, **ours},
            f"{label},{advantages}",
        )
        for theirs, ours, label in ((published, {}, "published"), (higher, clips(higher), "clip-higher"))
        for case in ("holes", "large")
        for advantages in ("advantages", "token-advantages")
    ]
    lines += [  # the weights of the engine's gap multiply the loss
        line(
            "verl/loss/clip",
            case,
            {"loss": "vanilla", "loss_agg_mode": "token-mean", "advantages": "advantages", **symmetric, **no_cap}
            | {"rollout_is": level, "rollout_is_threshold": threshold},
            {"aggregation": "token-mean", "advantages": "advantages", "correction": (mode, level, low, 2.0)},
            f"rollout_is={level},{threshold}",
        )
        for level in ("token", "sequence")
        for mode, threshold, low in (("truncate", 2.0, 0.5), ("mask", "0.5_2.0", 0.5))
        for case in cases
    ]
    lines += [
        line(
            "verl/loss/clip",
            case,
            {"loss": "vanilla", "loss_agg_mode": aggregation, "advantages": "advantages", **symmetric, **no_cap}
            | {"micro_batches": 2, "global_batch_info": True},
            {"aggregation": aggregation, "advantages": "advantages", "micro_batches": 2},
            f"micro-batches,{aggregation}",
        )
        for aggregation in AGGREGATIONS
        for case in ("holes", "empty-row")
    ]
    base = {"loss_agg_mode": "token-mean", "advantages": "advantages"}
    default = {"aggregation": "token-mean", "advantages": "advantages"}
    lines += [
        line("verl/loss/clip", "large", {"loss": "vanilla", **base}, default, divergence="dual-clip"),
        line("verl/loss/cispo", "holes", {"loss": "cispo", **base}, default, divergence="cispo-bounds"),
        line(
            "verl/loss/clip",
            "empty-row",
            {"loss": "vanilla", **base, **no_cap, "micro_batches": 2, "global_batch_info": False},
            default | {"micro_batches": 2},
            divergence="micro-batches",
        ),
    ]
    lines += [
        line(
            "verl/loss/gspo",
            "holes",
            {"loss": "gspo", "loss_agg_mode": "seq-mean-token-mean", "advantages": "token-advantages", **wide},
            {"aggregation": "seq-mean-token-mean", "advantages": "token-advantages", **clips(wide)},
            divergence="gspo-tokens",
        )
    ]
    by_trajectory = {"aggregation": "seq-mean-token-mean", "advantages": "advantages"}
    lines += [
        line(
            "verl/loss/geo_mean",
            "empty-row",
            {"loss": "geo_mean", "advantages": "advantages", **published},
            by_trajectory,
            divergence="geo-mean-rows",
        ),
        line(
            "verl/loss/geo_mean",
            "holes",
            {"loss": "geo_mean", "advantages": "advantages", **published}
            | {"rollout_is": "token", "rollout_is_threshold": 2.0},
            by_trajectory | {"correction": ("truncate", "token", 0.5, 2.0)},
            divergence="geo-mean-weights",
        ),
    ]
    return lines


def _verl_rest() -> list[Line]:
    cases = ("holes", "empty-row", "large")
    lines = [
        line(f"verl/kl/{ours}", case, {"kl_penalty": theirs}, {}, theirs)
        for theirs, ours in (
            ("kl", "k1"),
            ("abs", "abs"),
            ("mse", "mse"),
            ("low_var_kl", "k3"),
            ("k1+", "k1+"),
            ("low_var_kl+", "k3+"),
        )
        for case in cases
    ]
    lines += [
        line(
            f"verl/correction/{mode}",
            case,
            {"rollout_is": level, "rollout_is_threshold": threshold},
            {"level": level, "low": 0.5, "high": 2.0},
            level,
        )
        for level in ("token", "sequence")
        for mode, threshold in (("truncate", 2.0), ("mask", "0.5_2.0"))
        for case in cases
    ]
    lines += [
        line(
            "verl/value-loss/value_loss",
            case,
            {"cliprange_value": clip, "loss_agg_mode": aggregation},
            {"clip": clip, "aggregation": aggregation},
            f"{aggregation},cliprange_value={clip}",
        )
        for clip in (0.5, 2.0)
        for aggregation in AGGREGATIONS
        for case in cases
    ]
    lines += [
        line(
            "verl/controller/next_coefficient",
            "holes",
            {"init_kl_coef": 0.02, "target_kl": 0.1, "horizon": 100, "n_steps": 64, "measured": measured},
            {"coefficient": 0.02, "target_kl": 0.1, "horizon": 100, "trajectories": 64, "measured": measured},
            f"{len(measured)} steps",
        )
        for measured in ([0.1, 0.11, 0.5, 0.0, 0.095, 3.0],)
    ]
    return lines


def _trl() -> list[Line]:
    cases = ("holes", "empty-row", "large")
    kinds = {
        "grpo": "seq-mean-token-mean",
        "bnpo": "token-mean",
        "dapo": "token-mean",
        "dr_grpo": "seq-mean-token-sum-norm",
    }
    variants: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
        ("clip", {}, {}, "symmetric"),
        ("clip", {"epsilon_high": 0.28}, {"clip_high": 0.28}, "clip-higher"),
        ("clip", {"delta": 4.0}, {"dual_clip": 4.0}, "delta"),
        (
            "gspo",
            {"importance_sampling_level": "sequence", "epsilon": 0.05, "epsilon_high": 0.08},
            {"clip_low": 0.05, "clip_high": 0.08},
            "sequence",
        ),
    ]

    def loss(function: str, case: str, theirs: dict[str, Any], ours: dict[str, Any], label: str, **more: str) -> Line:
        common = {"advantages": "advantages", "count_empty": True}
        return line(f"trl/loss/{function}", case, theirs, common | ours, label, **more)

    lines = [
        loss(function, case, {"loss_type": kind, **theirs}, {"aggregation": aggregation, **ours}, f"{label},{kind}")
        for function, theirs, ours, label in variants
        for kind, aggregation in kinds.items()
        for case in cases
    ]
    lines += [
        loss(function, case, theirs, {"aggregation": aggregation, **ours}, label)
        for function, theirs, ours, aggregation, label in (
            ("cispo", {"loss_type": "cispo", "epsilon_high": 5.0}, {}, "token-mean", "upper-5"),
            ("sapo", {"loss_type": "sapo"}, {}, "seq-mean-token-mean", "published"),
            ("vespo", {"loss_type": "vespo"}, {}, "token-mean", "published"),
            (
                "vespo",
                {"loss_type": "vespo", "vespo_k_pos": 1.5, "vespo_lambda_neg": 0.5},
                {"positive_power": 1.5, "negative_decay": 0.5},
                "token-mean",
                "flat",
            ),
            (
                "luspo",
                {"loss_type": "luspo", "importance_sampling_level": "sequence", "epsilon": 0.05, "epsilon_high": 0.08},
                {"clip_low": 0.05, "clip_high": 0.08},
                "seq-mean-token-sum",
                "wide",
            ),
            (
                "gspo",
                {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4},
                {},
                "seq-mean-token-mean",
                "published",
            ),
        )
        for case in (("near",) if function == "gspo" else cases)
    ]
    lines += [  # the KL term in the loss
        loss(
            function,
            case,
            {"loss_type": kind, "beta": 0.1, "use_bias_correction_kl": weighted, **theirs},
            {"aggregation": kinds[kind], "kl": (0.1, weighted, None), **ours},
            f"kl,{kind},use_bias_correction_kl={weighted}",
        )
        for function, theirs, ours in (("clip", {}, {}),)
        for kind in kinds
        for weighted in (False, True)
        for case in cases
    ]
    lines += [  # the engine's gap
        loss(
            "clip",
            case,
            {"loss_type": "dapo", "vllm_importance_sampling_mode": f"{level}_{mode}", "low": low, "high": 2.0},
            {"aggregation": "token-mean", "correction": (mode, level, low, 2.0)},
            f"vllm_importance_sampling_mode={level}_{mode}",
        )
        for level in ("token", "sequence")
        for mode, low in (("truncate", None), ("mask", 0.5))
        for case in ("holes", "empty-row", "engine-nan")
    ]
    lines += [
        loss(
            "vespo",
            case,
            {"loss_type": "vespo", "vllm_importance_sampling_mode": f"token_{mode}", "low": low, "high": 2.0},
            {"aggregation": "token-mean", "correction": (mode, "token", low, 2.0)},
            f"vllm_importance_sampling_mode=token_{mode}",
        )
        for mode, low in (("truncate", None), ("mask", 0.5))
        for case in ("holes", "empty-row", "engine-nan")
    ]
    lines += [  # bad sequences from which the policy has moved away
        loss(
            "clip",
            case,
            {"loss_type": "dapo", "off_policy_mask_threshold": threshold},
            {"aggregation": "token-mean", "off_policy_threshold": threshold},
            f"off_policy_mask_threshold={threshold}",
        )
        for threshold in (0.02, 0.5)
        for case in ("holes", "empty-row", "large", "engine-nan")
    ]
    lines += [  # gradient accumulation: two micro-batches, one optimiser step
        loss(
            "clip",
            case,
            {"loss_type": "dapo", "micro_batches": 2},
            {"aggregation": "token-mean", "micro_batches": 2},
            "micro-batches,dapo",
        )
        for case in ("holes", "empty-row")
    ]
    lines += [
        line(
            f"trl/correction/{mode}",
            case,
            {"vllm_importance_sampling_mode": f"{level}_{mode}", "low": low, "high": 2.0},
            {"level": level, "low": 0.5, "high": 2.0},
            level,
        )
        for level in ("token", "sequence")
        for mode, low in (("truncate", None), ("mask", 0.5))
        for case in ("holes", "empty-row", "engine-nan")
    ]
    groups = {"groups": "equal-groups"}
    lines += [
        line(f"trl/advantage/{function}", case, theirs, groups | ours, label)
        for function, theirs, ours, label in (
            ("grpo", {"trainer": "grpo", "scale_rewards": "group"}, {"epsilon": 1e-4}, "scale_rewards=group"),
            (
                "grpo",
                {"trainer": "grpo", "scale_rewards": "batch"},
                {"epsilon": 1e-4, "normalise_by_std": "batch"},
                "scale_rewards=batch",
            ),
            *(
                (
                    "gdpo",
                    {"trainer": "grpo", "multi_objective_aggregation": "normalize_then_sum", "reward_weights": weights},
                    {"epsilon": 1e-4, "weights": tuple(weights)},
                    f"reward_weights={weights}",
                )
                for weights in ([1.0, 1.0], [1.0, -0.3])
            ),
            ("grpo", {"trainer": "grpo", "scale_rewards": "none"}, {"normalise_by_std": False}, "scale_rewards=none"),
            ("dr_grpo", {"trainer": "grpo", "scale_rewards": "none"}, {}, "scale_rewards=none"),
            ("rloo", {"trainer": "rloo"}, {}, ""),
        )
        for case in cases
    ]
    ours = {"aggregation": "token-mean"}
    kl = {"loss_type": "dapo", "beta": 0.1}
    lines += [
        loss("clip", "holes", kl, ours | {"kl": (0.1, False, None)}, "", divergence="kl-bias-correction"),
        loss(
            "clip",
            "large",
            kl | {"use_bias_correction_kl": False},
            ours | {"kl": (0.1, False, 10.0)},
            "",
            divergence="k3-clamp",
        ),
        loss(
            "clip",
            "empty-row",
            {"loss_type": "grpo"},
            {"aggregation": "seq-mean-token-mean", "count_empty": False},
            "",
            divergence="empty-rows",
        ),
        line(
            "trl/advantage/grpo",
            "holes",
            {"trainer": "grpo", "scale_rewards": "group"},
            groups,
            divergence="advantage-epsilon",
        ),
    ]
    return lines


LINES = [*_verl_advantages(), *_verl_losses(), *_verl_rest(), *_trl()]
