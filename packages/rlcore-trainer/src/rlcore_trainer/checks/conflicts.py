"""Find conflicting settings before anything loads. Does not import torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.abilities import StepsConfig
from rlcore.checks import Finding, failure, is_set, unread, warning
from rlcore.console.wording import counted
from rlcore.errors import UserError
from rlcore.models.adapter import is_adapter
from rlcore.models.folder import BUILTIN, check_model_folder, local_folder
from rlcore.runs.checkpoint_folder import check_checkpoint
from rlcore.specs import EnvironmentSpec

from rlcore_trainer.algorithms.config import AlgorithmConfig, comparable, response_limit
from rlcore_trainer.algorithms.configured import PARTS, advantage_traits, loss_traits
from rlcore_trainer.algorithms.interface import ConfigWithNotes
from rlcore_trainer.checks import demonstrations, lora_check, metrics_check, model_check, resume_check, teacher_check
from rlcore_trainer.config import WarmupConfig
from rlcore_trainer.distributed.config import DataParallelConfig
from rlcore_trainer.distributed.launch import process_count
from rlcore_trainer.learner.critic_config import CriticConfig

if TYPE_CHECKING:
    from rlcore.session.session import RunSession

OF_KL = ("estimator", "target", "importance_weighted", "reference")
"""Keys of ``algorithm.kl`` that may be set while the coefficient is 0, which disables the KL term."""
NORMED = "seq-mean-token-sum-norm"


def check(run: RunSession) -> Iterator[Finding]:
    """Find all conflicts in the configuration of a run, and valid settings that may be unexpected.

    Raises:
        UserError: an advantage or a loss cannot be imported.
    """
    if run.resume_from is not None:
        check_checkpoint(run.resume_from, checksums=False)
    algorithm = run.resolved.options.get("algorithm")
    if not isinstance(algorithm, AlgorithmConfig):
        return  # the trainer defines its own table
    critic = run.resolved.options.get("critic")
    critic = critic if isinstance(critic, CriticConfig) else CriticConfig()
    yield from _of_critic(run, algorithm, critic)
    yield from _of_groups(run, algorithm)
    yield from _of_kl(run, algorithm)
    yield from teacher_check.check(run, algorithm)
    yield from _of_lengths(run, algorithm)
    yield from _of_importance_sampling(run, algorithm)
    yield from _of_schedule(run)
    yield from resume_check.check(run, critic, algorithm.kl)
    yield from metrics_check.check(run, run.options("trainer").early_stop)
    yield from model_check.check(run)
    yield from lora_check.check(run, reinforcement=True)
    yield from demonstrations.check(run)
    yield from map(warning, _notes(run, algorithm, critic))


def _of_critic(run: RunSession, algorithm: AlgorithmConfig, critic: CriticConfig) -> Iterator[Finding]:
    name = algorithm.advantage.id
    reads = advantage_traits(run.load("advantage", name)).needs_critic
    if critic.model is None:
        if reads:
            reason = f"the advantage {name} needs the values of a critic, but critic.model is not set"
            fix = "critic.model=copy (a separate model) or critic.model=head (a value head on the policy)"
            yield failure("algorithm.advantage", reason, fix)
        keys, fix = CriticConfig.model_fields, "remove it, or set critic.model=copy or head"
        yield from unread(run.resolved, "critic", keys, "the run has no critic", fix)
        return
    if not reads:
        reason = f"the advantage {name} does not use a critic"
        yield failure("critic.model", reason, "algorithm.advantage=gae, or remove it")
    if critic.model == "head":
        reason, fix = "a value head uses the policy's learning rate", "critic.coefficient, or critic.model=copy"
        yield from unread(run.resolved, "critic", ["learning_rate"], reason, fix)
    else:
        reason = "a separate critic minimises only the value loss, so the loss needs no weight"
        yield from unread(run.resolved, "critic", ["coefficient"], reason, "critic.learning_rate")
    trainer = run.resolved.options.get("trainer")
    steps = trainer.steps if isinstance(trainer, StepsConfig) else None
    if isinstance(steps, int) and critic.warmup_steps >= steps:
        reason = f"the run has {counted(steps, 'step')}: the policy would never be trained"
        yield failure("critic.warmup_steps", reason, f"fewer than {steps}")
    if critic.model not in ("copy", "head") and (missing := _no_model(critic.model)):
        yield failure("critic.model", missing, "copy, head, a model folder or a hub id")


def _of_groups(run: RunSession, algorithm: AlgorithmConfig) -> Iterator[Finding]:
    single, chosen, name = run.config.rollout.group_size == 1, algorithm.filter, algorithm.advantage.id
    if single and advantage_traits(run.load("advantage", name)).compares_siblings:
        fix = "rollout.group_size=2 or more, or algorithm.advantage=reinforce-plus-plus, remax or gae"
        if algorithm.distillation.teacher is not None:
            fix += "; none trains on the teacher alone"
        yield failure("rollout.group_size", f"the advantage {name} compares the trajectories of a group", fix)
    if advantage_traits(run.load("advantage", name)).reads_gradients and not _samples_tokens(run):
        reason = f"the advantage {name} needs the probabilities of all tokens, and this policy has actions without them"
        yield failure("algorithm.advantage", reason, "gae, rloo or grpo")
    if single and chosen.metric in ("reward", "accuracy"):
        reason = "the filter compares the trajectories of a group, and each group has only one"
        fix = "rollout.group_size=2 or more, or algorithm.filter.metric=none"
        yield failure("algorithm.filter.metric", reason, fix)
    if chosen.score is not None:
        if chosen.metric == "none":
            fix = "algorithm.filter.metric=accuracy, or remove it"
            yield failure("algorithm.filter.score", "only a filter.metric compares it", fix)
        ids = {table.id for environment in run.resolved.environments for table in environment.rewards}
        if (id := chosen.score.partition("/")[0].partition("#")[0]) not in ids:
            fix = f"{' or '.join(sorted(ids))}, or one of their components as ID/COMPONENT"
            yield failure("algorithm.filter.score", f"the run has no reward {id!r}", fix)
    if not _filters(algorithm):
        reason = "there is nothing to rank: a step requests exactly the groups that it needs"
        fix = "algorithm.filter.oversample=1.5, or a filter.metric"
        yield from unread(run.resolved, "algorithm.filter", ["rank_by_std"], reason, fix)
        reason, fix = "without a filter, a step always has enough groups", "set algorithm.filter.metric, or remove it"
        yield from unread(run.resolved, "algorithm.filter", ["when_short"], reason, fix)


def _of_kl(run: RunSession, algorithm: AlgorithmConfig) -> Iterator[Finding]:
    kl = algorithm.kl
    if kl.controller == "fixed":
        reason, fix = "only the adaptive controller uses it", "algorithm.kl.controller=adaptive, or remove it"
        yield from unread(run.resolved, "algorithm.kl", ["target_kl", "horizon"], reason, fix)
    elif not kl.coefficient:
        reason = "an adaptive coefficient starts from algorithm.kl.coefficient, which is 0 and would stay 0"
        yield failure("algorithm.kl.controller", reason, "algorithm.kl.coefficient=0.001")
    if kl.target == "reward":
        reason = "a KL term in the reward is computed once, under the sampling policy, so its ratio is always 1"
        fix = "algorithm.kl.target=loss, or remove it"
        yield from unread(run.resolved, "algorithm.kl", ["importance_weighted"], reason, fix)
    elif kl.importance_weighted and kl.estimator.endswith("+"):
        reason = f"{kl.estimator} has the gradient of the divergence, which the ratio would add a second time"
        yield failure(
            "algorithm.kl.importance_weighted", reason, f"false, or algorithm.kl.estimator={kl.estimator[:-1]}"
        )
    if kl.coefficient and kl.reference is not None and (missing := _no_folder(kl.reference)):
        fix = "the folder of a model, or remove it to use the initial policy"
        yield failure("algorithm.kl.reference", missing, fix)


def _of_lengths(run: RunSession, algorithm: AlgorithmConfig) -> Iterator[Finding]:
    buffer = algorithm.overlong.buffer
    limit = response_limit(algorithm, run.config.rollout, *(one.options for one in run.resolved.environments))
    if buffer >= limit:
        reason = f"the penalty would start before the first token: the limit is {counted(limit, 'token')}"
        fix = f"a buffer smaller than {limit}, or a larger algorithm.max_response_tokens"
        yield failure("algorithm.overlong.buffer", reason, fix)
    if buffer:
        return
    reason = "the penalty has no effect without a buffer"
    fix = "set algorithm.overlong.buffer to the number of tokens over which the penalty grows, or remove it"
    yield from unread(run.resolved, "algorithm.overlong", ["penalty"], reason, fix)
    if (algorithm.aggregation or loss_traits(run.load("loss", algorithm.loss.id)).aggregation) != NORMED:
        reason = f"only algorithm.overlong.buffer and aggregation={NORMED} use this length"
        fix = "remove it, or set rollout.max_new_tokens to allow longer responses"
        yield from unread(run.resolved, "algorithm", ["max_response_tokens"], reason, fix)


def _of_importance_sampling(run: RunSession, algorithm: AlgorithmConfig) -> Iterator[Finding]:
    table, path = algorithm.rollout_importance_sampling, "algorithm.rollout_importance_sampling"
    name = algorithm.loss.id
    if table.mode != "none" and table.level == "sequence" and loss_traits(run.load("loss", name)).weighs_rollout:
        reason = f"the loss {name} multiplies the weights of a trajectory's tokens itself"
        yield failure(f"{path}.level", reason, "token")
    if table.mode != "none" and not comparable(run.config.rollout):
        reason = (
            "the engine's log-probabilities assume temperature 1 and the full vocabulary, but sampling uses other "
            "settings: importance weights cannot be computed"
        )
        fix = f"rollout.temperature=1 with top_p=1 and top_k=0, or {path}.mode=none"
        yield from unread(run.resolved, path, type(table).model_fields, reason, fix)
        return
    for key in {"none": ("level", "high", "low"), "truncate": ("low",), "mask": ()}[table.mode]:
        fix = f"{path}.mode={'mask' if key == 'low' else 'truncate'}, or remove it"
        yield from unread(run.resolved, path, [key], f"mode={table.mode} does not use it", fix)


def _of_schedule(run: RunSession) -> Iterator[Finding]:
    if not run.config.schedule.ahead:
        return
    several = isinstance(run.options("strategy"), DataParallelConfig) and process_count(run) > 1
    if not _samples_tokens(run):
        yield failure("schedule.ahead", "a policy without tokens is sampled itself, so an update must wait", "0")
    elif not hasattr(run.load("sampler", run.config.sampler.id), "submit"):
        reason = f"the sampler {run.config.sampler.id!r} cannot sample single groups: it has no method submit"
        yield failure("schedule.ahead", reason, "0")
    elif several and not run.shares_sampler:
        reason = f"each process samples with its own {run.config.rollout.engine} engine, and cannot train meanwhile"
        yield failure("schedule.ahead", reason, "0, or rollout.engine=vllm, which samples for all processes")


def _samples_tokens(run: RunSession) -> bool:
    """Return whether the policy of a run is a language model, which an engine samples."""
    specs = [run.registry.spec("environment", one.id) for one in run.resolved.environments]
    return not any(isinstance(spec, EnvironmentSpec) and spec.action != "chat" for spec in specs)


def _notes(run: RunSession, algorithm: AlgorithmConfig, critic: CriticConfig) -> list[str]:
    trainer, warmup = run.options("trainer"), run.resolved.options.get("warmup")
    warmup_steps = warmup.steps if isinstance(warmup, WarmupConfig) else 0
    kl, found = algorithm.kl, []
    if warmup_steps and not run.config.model.path.startswith(BUILTIN):  # warm-up can degrade a pretrained model
        found.append(
            f"the warm-up trains this model on demonstrations for {counted(warmup_steps, 'step')}; "
            "set warmup.steps=0 to disable it"
        )
    updates = trainer.epochs * trainer.updates_per_rollout
    if updates > 1:
        found.append(f"{updates} updates on each rollout: all but the first are off-policy")
    if not kl.coefficient and (without := [key for key in OF_KL if is_set(run.resolved, f"algorithm.kl.{key}")]):
        keys, verb = _listed([f"kl.{key}" for key in without]), "have" if len(without) > 1 else "has"
        found.append(f"kl.coefficient is 0: the KL term is disabled, and {keys} {verb} no effect")
    if is_set(run.resolved, "algorithm.filter.max_extra_batches") and not _filters(algorithm):
        found.append("filter.max_extra_batches has no effect: without a filter, a step requests only one rollout")
    if "length" in algorithm.filter.exclude and algorithm.overlong.mask_truncated:
        found.append("overlong.mask_truncated has no effect: filter.exclude excludes truncated trajectories")
    if kl.coefficient and kl.target == "loss" and kl.estimator == "k1" and not kl.importance_weighted:
        found.append("k1 as a loss has a zero-mean gradient: it adds noise without reducing the KL; use mse or k3")
    for part in PARTS:
        options = run.resolved.options.get(f"algorithm.{part}")
        found += options.notes() if isinstance(options, ConfigWithNotes) else []
    traits = loss_traits(run.load("loss", algorithm.loss.id))
    aggregation = algorithm.aggregation or traits.aggregation
    if traits.level == "sequence" and traits.aggregation == "seq-mean-token-mean" != aggregation:
        found.append(f"aggregation={aggregation} with one ratio per trajectory gives long trajectories more weight")
    if traits.one_advantage and _differs_between_tokens(run, algorithm):
        sampled = _distils_sampled(algorithm)
        name, advantage = algorithm.loss.id, "distillation" if sampled else algorithm.advantage.id
        instead = "; gspo-token gives each token its own" if name == "gspo" else ""
        found.append(f"{advantage} gives each token its own advantage, but {name} trains all with their mean{instead}")
    if algorithm.rollout_importance_sampling.mode != "none" and not comparable(run.config.rollout):
        found.append(
            "the engine's log-probabilities assume temperature 1 and the full vocabulary, but sampling uses other "
            "settings: the gap between engine and trainer is neither weighted nor measured"
        )
    weighted = algorithm.rollout_importance_sampling.mode != "none" and comparable(run.config.rollout)
    if run.config.schedule.ahead and not weighted:
        found.append("schedule.ahead trains on groups of earlier weights, and no importance weights correct for it")
    if critic.model is not None and critic.warmup_steps:
        found.append(f"only the critic is trained for the first {counted(critic.warmup_steps, 'step')}")
    if algorithm.shuffle_rewards:
        found.append(
            "rewards are shuffled as a control experiment: the policy cannot learn the task from them, but a discount "
            "still favors shorter trajectories"
        )
    return found


def _differs_between_tokens(run: RunSession, algorithm: AlgorithmConfig) -> bool:
    """Return whether the advantages of a trajectory's tokens differ."""
    traits, kl = advantage_traits(run.load("advantage", algorithm.advantage.id)), algorithm.kl
    discounts = getattr(run.resolved.options.get("algorithm.advantage"), "gamma", 1.0) < 1
    spread = algorithm.turn_rewards != "none" or (kl.coefficient > 0 and kl.target == "reward")
    of_positions = traits.needs_critic or traits.reads_gradients
    return _distils_sampled(algorithm) or (traits.reads_tokens and (of_positions or discounts or spread))


def _distils_sampled(algorithm: AlgorithmConfig) -> bool:
    """Return whether the teacher is a part of the advantage of each token."""
    return algorithm.distillation.teacher is not None and algorithm.distillation.divergence == "sampled"


def _no_model(name: str) -> str | None:
    """Return why the critic cannot load this model; None for a model folder or a hub id."""
    if name.startswith(BUILTIN):
        return "only the policy can be a built-in model: a critic starts from an existing one"
    try:
        folder = local_folder(name)
    except UserError as error:
        return error.message
    return "it is an adapter, but the critic needs a full model" if folder is not None and is_adapter(folder) else None


def _no_folder(name: str) -> str | None:
    """Return why a folder is not a model; None if it is one."""
    if not Path(name).is_dir():
        return "no such folder"
    try:
        check_model_folder(Path(name))
    except UserError as error:
        return error.message
    return None


def _filters(algorithm: AlgorithmConfig) -> bool:
    """Return whether a step may need more than one rollout of its tasks."""
    return algorithm.filter.metric != "none" or algorithm.filter.oversample > 1


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
