"""Find conflicting settings before anything loads. Does not import torch.

A key counts as set when its value differs from the default, because the configuration of a resumed run contains
every key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from rlcore.abilities import StepsConfig
from rlcore.config.messages import Problem, ProblemsError
from rlcore.console.wording import counted
from rlcore.errors import UserError
from rlcore.models.adapter import is_adapter
from rlcore.models.folder import BUILTIN, check_model_folder, local_folder
from rlcore.runs.checkpoint_folder import check_checkpoint

from rlcore_trainer.algorithms.config import AlgorithmConfig, comparable, response_limit
from rlcore_trainer.algorithms.configured import PARTS, advantage_traits, loss_traits
from rlcore_trainer.algorithms.interface import ConfigWithNotes
from rlcore_trainer.checks import lora_check, metrics_check, model_check, resume_check
from rlcore_trainer.config import WarmupConfig
from rlcore_trainer.learner.critic_config import CriticConfig

if TYPE_CHECKING:
    from rlcore.session.session import RunSession

OF_KL = ("estimator", "target", "importance_weighted", "reference")
"""Keys of ``algorithm.kl`` that may be set while the coefficient is 0, which disables the KL term."""


def check(run: RunSession) -> list[str]:
    """Report all conflicts in the configuration of a run at once.

    Returns:
        Notes on valid settings that may be unexpected, one sentence each.

    Raises:
        ProblemsError: settings conflict; each problem has an origin and a fix.
        UserError: an advantage or a loss cannot be imported.
    """
    if run.resume_from is not None:
        check_checkpoint(run.resume_from, checksums=False)
    algorithm = run.resolved.options.get("algorithm")
    if not isinstance(algorithm, AlgorithmConfig):
        return []  # the trainer defines its own table
    critic = run.resolved.options.get("critic")
    critic = critic if isinstance(critic, CriticConfig) else CriticConfig()
    found = [*_Conflicts(run, algorithm, critic).all(), *lora_check.problems(run, reinforcement=True)]
    found += resume_check.problems(run, critic, algorithm.kl)
    found += [*metrics_check.problems(run, run.options("trainer").early_stop), *model_check.problems(run)]
    if found:
        raise ProblemsError(found)
    return [*_notes(run), *model_check.notes(run), *lora_check.notes(run)]


def _notes(run: RunSession) -> list[str]:
    algorithm: AlgorithmConfig = run.options("algorithm")
    trainer = run.options("trainer")
    critic = run.resolved.options.get("critic")
    warmup = run.resolved.options.get("warmup")
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
    if not kl.coefficient and (unread := [key for key in _chosen(kl) if key in OF_KL]):
        keys = _listed([f"kl.{key}" for key in unread])
        found.append(f"kl.coefficient is 0: the KL term is disabled, and {keys} {_verb('have', unread)} no effect")
    if "max_extra_batches" in _chosen(algorithm.filter) and not _filters(algorithm):
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
    if traits.level == "sequence" and aggregation != "seq-mean-token-mean":
        found.append(f"aggregation={aggregation} with one ratio per trajectory gives long trajectories more weight")
    if traits.one_advantage and _differs_between_tokens(run, algorithm):
        name, advantage = algorithm.loss.id, algorithm.advantage.id
        instead = "; gspo-token gives each token its own" if name == "gspo" else ""
        found.append(f"{advantage} gives each token its own advantage, but {name} trains all with their mean{instead}")
    if algorithm.rollout_importance_sampling.mode != "none" and not comparable(run.config.rollout):
        found.append(
            "the engine's log-probabilities assume temperature 1 and the full vocabulary, but sampling uses other "
            "settings: the gap between engine and trainer is neither weighted nor measured"
        )
    if isinstance(critic, CriticConfig) and critic.model is not None and critic.warmup_steps:
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
    return traits.reads_tokens and (traits.needs_critic or discounts or spread)


class _Conflicts:
    def __init__(self, run: RunSession, algorithm: AlgorithmConfig, critic: CriticConfig) -> None:
        self._run, self._algorithm, self._critic = run, algorithm, critic
        self._rollout = run.config.rollout
        self._advantage = advantage_traits(run.load("advantage", algorithm.advantage.id))
        self._loss = loss_traits(run.load("loss", algorithm.loss.id))

    def all(self) -> Iterator[Problem]:
        yield from self._of_values()
        yield from self._of_groups()
        yield from self._of_kl()
        yield from self._of_lengths()
        yield from self._of_rollout_importance_sampling()

    def _problem(self, path: str, value: object, reason: str, fix: str) -> Problem:
        return Problem(
            kind="bad value",
            path=path,
            value=str(value),
            origin=self._run.resolved.origin((*path.split("."), "id")),  # a component's id, or else the key itself
            reason=f"{reason}\nfix: {fix}",
        )

    def _of_values(self) -> Iterator[Problem]:
        reads, critic, name = self._advantage.needs_critic, self._critic, self._algorithm.advantage.id
        if reads and critic.model is None:
            reason = f"the advantage {name} needs the values of a critic, but critic.model is not set"
            fix = "critic.model=copy (a separate model) or critic.model=head (a value head on the policy)"
            yield self._problem("algorithm.advantage", name, reason, fix)
        if critic.model is None:
            for key, value in _chosen(critic).items():
                fix = "remove it, or set critic.model=copy or head"
                yield self._problem(f"critic.{key}", value, "the run has no critic", fix)
            return
        if not reads:
            reason = f"the advantage {name} does not use a critic"
            yield self._problem("critic.model", critic.model, reason, "algorithm.advantage=gae, or remove it")
        unread = "learning_rate" if critic.model == "head" else "coefficient"
        if unread in _chosen(critic):
            reason = {
                "learning_rate": "a value head uses the policy's learning rate",
                "coefficient": "a separate critic minimises only the value loss, so the loss needs no weight",
            }[unread]
            fix = "critic.coefficient, or critic.model=copy" if critic.model == "head" else "critic.learning_rate"
            yield self._problem(f"critic.{unread}", getattr(critic, unread), reason, fix)
        trainer = self._run.resolved.options.get("trainer")
        steps = trainer.steps if isinstance(trainer, StepsConfig) else None
        if isinstance(steps, int) and critic.warmup_steps >= steps:
            reason = f"the run has {counted(steps, 'step')}: the policy would never be trained"
            yield self._problem("critic.warmup_steps", critic.warmup_steps, reason, f"fewer than {steps}")
        if critic.model not in ("copy", "head") and (missing := _no_model(critic.model)):
            yield self._problem("critic.model", critic.model, missing, "copy, head, a model folder or a hub id")

    def _of_groups(self) -> Iterator[Problem]:
        size, chosen = self._rollout.group_size, self._algorithm.filter
        if size == 1 and self._advantage.compares_siblings:
            reason = f"the advantage {self._algorithm.advantage.id} compares the trajectories of a group"
            fix = "rollout.group_size=2 or more, or algorithm.advantage=reinforce-plus-plus, remax or gae"
            yield self._problem("rollout.group_size", size, reason, fix)
        if size == 1 and chosen.metric in ("reward", "accuracy"):
            reason = "the filter compares the trajectories of a group, and each group has only one"
            fix = "rollout.group_size=2 or more, or algorithm.filter.metric=none"
            yield self._problem("algorithm.filter.metric", chosen.metric, reason, fix)
        if chosen.score is not None:
            yield from self._of_score(chosen.score)
        if _filters(self._algorithm):
            return
        if chosen.rank_by_std:
            reason = "there is nothing to rank: a step requests exactly the groups that it needs"
            fix = "algorithm.filter.oversample=1.5, or a filter.metric"
            yield self._problem("algorithm.filter.rank_by_std", True, reason, fix)
        if "when_short" in _chosen(chosen):
            reason = "without a filter, a step always has enough groups"
            fix = "set algorithm.filter.metric, or remove it"
            yield self._problem("algorithm.filter.when_short", chosen.when_short, reason, fix)

    def _of_score(self, score: str) -> Iterator[Problem]:
        if self._algorithm.filter.metric == "none":
            fix = "algorithm.filter.metric=accuracy, or remove it"
            yield self._problem("algorithm.filter.score", score, "only a filter.metric compares it", fix)
        ids = {table.id for environment in self._run.resolved.environments for table in environment.rewards}
        if (id := score.partition("/")[0].partition("#")[0]) not in ids:
            fix = f"{' or '.join(sorted(ids))}, or one of their components as ID/COMPONENT"
            yield self._problem("algorithm.filter.score", score, f"the run has no reward {id!r}", fix)

    def _of_kl(self) -> Iterator[Problem]:
        kl = self._algorithm.kl
        if kl.controller == "adaptive" and not kl.coefficient:
            reason = "an adaptive coefficient starts from algorithm.kl.coefficient, which is 0 and would stay 0"
            yield self._problem("algorithm.kl.controller", kl.controller, reason, "algorithm.kl.coefficient=0.001")
        if kl.controller == "fixed":
            for key in ("target_kl", "horizon"):
                if key in _chosen(kl):
                    fix = "algorithm.kl.controller=adaptive, or remove it"
                    yield self._problem(
                        f"algorithm.kl.{key}", getattr(kl, key), "only the adaptive controller uses it", fix
                    )
        if kl.importance_weighted and kl.target == "reward":
            reason = "a KL term in the reward is computed once, under the sampling policy, so its ratio is always 1"
            fix = "algorithm.kl.target=loss, or remove it"
            yield self._problem("algorithm.kl.importance_weighted", True, reason, fix)
        if kl.coefficient and kl.reference is not None and (missing := _no_folder(kl.reference)):
            fix = "the folder of a model, or remove it to use the initial policy"
            yield self._problem("algorithm.kl.reference", kl.reference, missing, fix)

    def _of_lengths(self) -> Iterator[Problem]:
        algorithm, rollout = self._algorithm, self._rollout
        limit = response_limit(algorithm, rollout, *(one.options for one in self._run.resolved.environments))
        if algorithm.overlong.buffer >= limit:
            reason = f"the penalty would start before the first token: the limit is {counted(limit, 'token')}"
            fix = f"a buffer smaller than {limit}, or a larger algorithm.max_response_tokens"
            yield self._problem("algorithm.overlong.buffer", algorithm.overlong.buffer, reason, fix)
        if not algorithm.overlong.buffer and "penalty" in _chosen(algorithm.overlong):
            reason = "the penalty has no effect without a buffer"
            fix = "set algorithm.overlong.buffer to the number of tokens over which the penalty grows, or remove it"
            yield self._problem("algorithm.overlong.penalty", algorithm.overlong.penalty, reason, fix)
        if (
            algorithm.max_response_tokens is not None
            and (algorithm.aggregation or self._loss.aggregation) != "seq-mean-token-sum-norm"
            and not algorithm.overlong.buffer
        ):
            reason = "only algorithm.overlong.buffer and aggregation=seq-mean-token-sum-norm use this length"
            fix = "remove it, or set rollout.max_new_tokens to allow longer responses"
            yield self._problem("algorithm.max_response_tokens", algorithm.max_response_tokens, reason, fix)

    def _of_rollout_importance_sampling(self) -> Iterator[Problem]:
        table = self._algorithm.rollout_importance_sampling
        chosen, path = _chosen(table), "algorithm.rollout_importance_sampling"
        unread = {"none": ("level", "high", "low"), "truncate": ("low",), "mask": ()}[table.mode]
        if not comparable(self._rollout) and table.mode != "none":
            for key, value in chosen.items():
                reason = (
                    "the engine's log-probabilities assume temperature 1 and the full vocabulary, but sampling uses "
                    "other settings: importance weights cannot be computed"
                )
                fix = f"rollout.temperature=1 with top_p=1 and top_k=0, or {path}.mode=none"
                yield self._problem(f"{path}.{key}", value, reason, fix)
            return
        for key in unread:
            if key in chosen:
                fix = f"{path}.mode={'mask' if key == 'low' else 'truncate'}, or remove it"
                yield self._problem(f"{path}.{key}", chosen[key], f"mode={table.mode} does not use it", fix)


def _chosen(table: BaseModel) -> Mapping[str, Any]:
    """Return the keys of a table whose values differ from the defaults."""
    fields = type(table).model_fields
    return {key: value for key, value in table if value != fields[key].default}


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


def _verb(verb: str, subjects: Sequence[str]) -> str:
    return verb if len(subjects) > 1 else {"have": "has"}[verb]
