"""The metrics that the trainers log: names, meanings and which direction is better. Does not import torch."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from rlcore.errors import did_you_mean

Direction = Literal["max", "min"]


class Metric(NamedTuple):
    """One metric, or a family of them: a part in capitals, such as ``ID``, stands for any name."""

    name: str
    meaning: str
    better: Direction | None = None
    """None if neither direction is better in general."""
    healthy: str = ""
    """What it is in a run that learns; empty if that depends on the task."""


METRICS = (
    Metric(
        "reward/mean",
        "Mean reward of the scored trajectories of a step.",
        "max",
        healthy="above its minimum at the start, then rises",
    ),
    Metric("reward/ID", "Mean value of one reward, also of one with weight 0.", "max", healthy="as `reward/mean`"),
    Metric("reward/ROLE", "Mean reward of one role, in episodes with several.", "max"),
    Metric("reward/ID/COMPONENT", "Mean of a component over the trajectories that have it.", None),
    Metric(
        "accuracy",
        "Share of scored trajectories with a reward of at least `evaluation.success`.",
        "max",
        healthy="above 0 and below 1 at the start, then rises",
    ),
    Metric(
        "not_scored",
        "Trajectories without a score; they are not trained on.",
        "min",
        healthy="0; below a fifth of the trajectories",
    ),
    Metric("turns/mean", "Policy turns per trajectory.", healthy="above 1 if answers need a tool"),
    Metric(
        "tokens/sampled",
        "Tokens that the policy generated in a step.",
        healthy="per trajectory, within a factor of 4 of the first step",
    ),
    Metric(
        "tokens/trained", "Tokens in the loss of a step.", healthy="about `tokens/sampled`; 0 if nothing is trained"
    ),
    Metric(
        "stop/REASON",
        "Trajectories that stopped for this reason: `done`, `max_turns`, `length`, …",
        healthy="`done` for most; `length` for less than half",
    ),
    Metric(
        "length/LIMIT",
        "Trajectories that were cut by this limit: `turn` (`rollout.max_new_tokens`) or `context`.",
        "min",
        healthy="less than half of the trajectories",
    ),
    Metric(
        "failure/BOUNDARY",
        "Trajectories with a failure at this boundary: environment, tool, reward, …",
        "min",
        healthy="0",
    ),
    Metric(
        "reward_error/ID/KIND", "Trajectories that a reward could not score, by the kind of error.", "min", healthy="0"
    ),
    Metric("tools/calls", "Tool calls per trajectory.", healthy="above 0 if answers need a tool"),
    Metric("tools/errors", "Failed tool calls per trajectory.", "min", healthy="falls; below 0.9 of `tools/calls`"),
    Metric("tools/unreadable", "Share of the tool calls that cannot be parsed.", "min", healthy="falls; below 0.5"),
    Metric(
        "tools/missed",
        "Messages per trajectory with a tool call in a format that the parser does not read.",
        "min",
        healthy="0; below half of `tools/calls`",
    ),
    Metric("tools/NAME", "Calls of one tool, or its failures, per trajectory."),
    Metric("info/NAME", "A number that the environment reports, per trajectory."),
    Metric("evaluation/accuracy", "Share of solved held-out tasks.", "max", healthy="rises with `accuracy`"),
    Metric("evaluation/reward", "Mean reward on held-out tasks.", "max", healthy="rises with `reward/mean`"),
    Metric("evaluation/reward/ID", "Mean of one of several rewards on held-out tasks, also with weight 0.", "max"),
    Metric("evaluation/not_scored", "Held-out trajectories without a score.", "min", healthy="0"),
    Metric("evaluation/NAME/accuracy", "Share of solved held-out tasks of one of several environments.", "max"),
    Metric(
        "evaluation/NAME/reward", "Mean reward on held-out tasks of one of several environments, or of a role.", "max"
    ),
    Metric(
        "evaluation/NAME/not_scored", "Held-out trajectories of one environment without a score.", "min", healthy="0"
    ),
    Metric("evaluation/loss", "Loss on held-out conversations, in nats per token.", "min", healthy="falls with `loss`"),
    Metric("evaluation/perplexity", "`exp` of `evaluation/loss`.", "min", healthy="falls"),
    Metric("evaluation/tool_calls", "Tool calls per held-out trajectory."),
    Metric(
        "loss", "Loss of supervised training, in nats per token.", "min", healthy="falls; below 1.2 of the first step"
    ),
    Metric(
        "loss/total",
        "The minimised objective: policy loss, KL term, entropy bonus and value loss.",
        healthy="near 0, of either sign; it need not fall",
    ),
    Metric("loss/policy", "The policy loss.", healthy="near 0, of either sign; it need not fall"),
    Metric(
        "gradient_norm",
        "Norm of the gradient before clipping.",
        healthy="above 0; below 50 times `trainer.max_gradient_norm`",
    ),
    Metric("learning_rate", "Learning rate of the step.", healthy="above 1e-10"),
    Metric("updates", "Optimiser updates in the step.", healthy="at least 1"),
    Metric("conversations", "Conversations in the step of supervised training."),
    Metric("pairs", "Pairs of answers in the step of preference training or of a reward model."),
    Metric(
        "preference/accuracy",
        "Share of pairs whose chosen answer has the higher implicit reward, or score of the reward model.",
        "max",
        healthy="0.5 at the start, then rises",
    ),
    Metric("preference/margin", "Reward of the chosen answer minus that of the rejected one.", "max", healthy="rises"),
    Metric("preference/chosen", "Mean implicit reward, or score, of chosen answers."),
    Metric("preference/rejected", "Mean implicit reward, or score, of rejected answers."),
    Metric("logprobs/chosen", "Mean log-probability of chosen answers, in nats.", healthy="does not fall for long"),
    Metric("logprobs/rejected", "Mean log-probability of rejected answers, in nats."),
    Metric(
        "evaluation/preference/accuracy",
        "`preference/accuracy` on held-out pairs.",
        "max",
        healthy="rises with `preference/accuracy`",
    ),
    Metric("evaluation/preference/margin", "`preference/margin` on held-out pairs.", "max", healthy="rises"),
    Metric("data/epoch", "Passes over the training data so far."),
    Metric(
        "data/unused",
        "Conversations that are too long or have nothing to train on.",
        "min",
        healthy="0, or a small share of the conversations",
    ),
    Metric("advantage/mean", "Mean advantage over tokens.", healthy="near 0"),
    Metric("advantage/std", "Standard deviation of the advantages over tokens.", healthy="above 0"),
    Metric("advantages/mean", "Mean of the advantages before whitening."),
    Metric("advantages/std", "Standard deviation of the advantages before whitening."),
    Metric(
        "groups/equal",
        "Groups whose rewards are all equal; they have no gradient.",
        healthy="below 1; at 1, nothing is learned",
    ),
    Metric(
        "groups/same_answers",
        "Share of groups whose trajectories all have the same tokens.",
        healthy="below 0.9 in the first steps",
    ),
    Metric(
        "groups/contradictory",
        "Share of groups in which trajectories with the same tokens have different rewards.",
        "min",
        healthy="0; below 0.2 with a judge",
    ),
    Metric(
        "answers/same",
        "Share of the trajectories of all tasks that have the most common answer.",
        healthy="below 0.9, unless tasks are solved",
    ),
    Metric(
        "entropy/mean",
        "Mean entropy of the policy, in nats per token.",
        healthy="above a tenth of the first step, unless tasks are solved",
    ),
    Metric(
        "ratio/max",
        "Largest probability ratio between the current and the sampling policy.",
        healthy="1 with one update per step; below 1,000",
    ),
    Metric(
        "clip/fraction",
        "Share of tokens whose gradient is removed by clipping.",
        healthy="0 with one update per step; below 0.4",
    ),
    Metric("clip/low", "Share of tokens clipped at the lower bound."),
    Metric("clip/high", "Share of tokens clipped at the upper bound."),
    Metric("clip/dual", "Share of tokens at the bound of the dual clip."),
    Metric("clip/covariance", "Share of tokens that `clip-cov` removes for their covariance."),
    Metric("sapo/gate", "Mean gate of SAPO; 1 is an unchanged gradient."),
    Metric("vespo/weight", "Mean weight of VESPO; 1 is an unchanged gradient."),
    Metric("off_policy/masked", "Share of tokens that `algorithm.off_policy_threshold` leaves out."),
    Metric("kl/mean", "Divergence from the reference, in nats per token.", healthy="near 0 in the first step; below 1"),
    Metric("kl/old", "Divergence from the policy before the updates, in nats per token.", healthy="near 0"),
    Metric("kl/coefficient", "Coefficient of the KL term."),
    Metric(
        "distillation/kl",
        "Divergence of the policy from the teacher, estimated from the sampled tokens, in nats per token.",
        "min",
        healthy="falls towards 0",
    ),
    Metric(
        "distillation/divergence",
        "The divergence that distillation minimises, in nats per token; not with `sampled`.",
        "min",
        healthy="falls towards 0",
    ),
    Metric(
        "distillation/preferred",
        "Share of the sampled tokens that are more likely under the teacher than under the policy.",
        healthy="rises towards a half",
    ),
    Metric(
        "distillation/teacher_entropy",
        "Mean entropy of the teacher, in nats per token.",
        healthy="falls, as the policy reaches contexts that the teacher knows",
    ),
    Metric(
        "logprob_gap/mean",
        "Mean difference of log-probabilities between engine and trainer, in nats.",
        "min",
        healthy="below 0.1; about 1e-7 in float32 on one machine",
    ),
    Metric("logprob_gap/max", "Largest difference of log-probabilities between engine and trainer, in nats.", "min"),
    Metric(
        "sync/gap",
        "The same on a fixed prompt, right after a transfer of weights.",
        "min",
        healthy="as `logprob_gap/mean`",
    ),
    Metric("rollout_is/factor", "Mean weight of rollout importance sampling.", healthy="near 1"),
    Metric("rollout_is/square", "Mean squared weight."),
    Metric("rollout_is/ratio/max", "Largest ratio between trainer and engine."),
    Metric("rollout_is/low", "Share of weights below the range."),
    Metric("rollout_is/high", "Share of weights above the range."),
    Metric("rollout_is/kl", "Divergence between engine and trainer, in nats per token.", "min", healthy="near 0"),
    Metric("rollout_is/effective", "Effective sample size as a share of the tokens.", "max", healthy="near 1"),
    Metric("overlong/penalty", "Mean penalty for long answers."),
    Metric("truncated/masked", "Truncated trajectories that are left out of the loss."),
    Metric("baselines/missing", "Trajectories without a baseline; they are not trained on.", "min", healthy="0"),
    Metric("critic/loss", "Value loss of the critic.", "min", healthy="falls"),
    Metric("critic/mean", "Mean predicted value."),
    Metric("critic/gradient_norm", "Norm of the critic's gradient before clipping."),
    Metric("critic/clip_fraction", "Share of values at the bound of the clip range."),
    Metric(
        "critic/explained_variance",
        "Share of the variance of the returns that the values explain.",
        "max",
        healthy="rises towards 1; below 0, a constant would be better",
    ),
    Metric("environment/NAME/METRIC", "A metric of the rollouts, such as `accuracy`, of one of several environments."),
    Metric("mixture/NAME", "Prompts of one of several environments that were sampled in a step."),
    Metric("curriculum/resting", "Prompts that are skipped because of their success rate."),
    Metric("filter/excluded", "Trajectories that `algorithm.filter.exclude` leaves out of their group and the loss."),
    Metric("stream/running", "With `schedule.ahead`: groups that are being sampled when a step has its groups."),
    Metric("stream/waiting", "Groups that have been sampled for a later step."),
    Metric("stream/too_old", "Groups that were dropped because of `schedule.max_age`.", "min", healthy="0"),
    Metric("stream/age_mean", "Mean age of the trained groups: steps since the oldest of their tokens.", "min"),
    Metric("stream/age_max", "Largest age of a trained group.", "min", healthy="at most `schedule.ahead`"),
    Metric("filter/NAME", "Dynamic sampling: groups kept, dropped by reason, carried over, and rollouts of a step."),
    Metric(
        "memory/NAME",
        "The most memory of a part of the step in GiB: `rollout_gib`, `update_gib`, `sync_gib`, `evaluation_gib`, and "
        "`step_gib` of a trainer without rollouts. It is that of the GPU or, without one, of the process that trains, "
        "without engines in other processes.",
    ),
    Metric(
        "time/NAME",
        "Seconds of a part of the step: `rollout_s`, `update_s`, `sync_s`, `step_s`, `evaluation_s`. With "
        "`schedule.ahead`, `rollout_s` is the time that training waits for groups.",
    ),
    Metric("steps_covered", "Steps up to its own that a line describes, if the trainer does not log every step."),
)
"""All metrics. `docs/reference/metrics.md` is made of them."""


def metric_of(name: str) -> Metric | None:
    """Return the documented metric with this name; None for the name of a plugin or a misspelt one."""
    exact = next((metric for metric in METRICS if metric.name == name), None)
    return exact or next((metric for metric in METRICS if _pattern(metric.name).fullmatch(name)), None)


def direction_of(name: str) -> Direction:
    """Return which direction of a metric is better; higher values for one that is not documented."""
    metric = metric_of(name)
    return metric.better or "max" if metric is not None else "max"


def misspelt(name: str) -> str | None:
    """Return a suggestion if a name is close to that of a known metric, but not one."""
    names = [metric.name for metric in METRICS if metric.name == metric.name.lower()]
    return None if metric_of(name) is not None else did_you_mean(name, names)


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile("/".join(r".+" if part.isupper() else re.escape(part) for part in name.split("/")))


__all__ = ["METRICS", "Direction", "Metric", "direction_of", "metric_of", "misspelt"]
