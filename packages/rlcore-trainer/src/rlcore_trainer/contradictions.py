"""Tables that contradict each other, found before anything loads. Imports no torch.

A key counts as chosen when its value is not the default: a run that is continued has every key written down.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from rlcore.adapter_folder import is_adapter
from rlcore.config.messages import Problem, ProblemsError
from rlcore.errors import UserError
from rlcore.model_folder import BUILTIN, check_model_folder, local_folder
from rlcore.specs import AlgorithmSpec
from rlcore.wording import counted

from rlcore_trainer import lora_check, resume_check
from rlcore_trainer.algorithm_config import LOSS_DEFAULTS, AlgorithmConfig, response_limit
from rlcore_trainer.config import CriticConfig
from rlcore_trainer.needs import Needs, needs_of

if TYPE_CHECKING:
    from rlcore.config.schema import RolloutTable
    from rlcore.run import Run

FUNCTION_KEYS = (
    "normalise_by_std",
    "gamma",
    "gae_lambda",
    "whiten",
    "clip_low",
    "clip_high",
    "dual_clip",
    "sapo_positive",
    "sapo_negative",
)
"""Keys of ``[algorithm]`` that only an advantage or a loss reads."""
OF_KL = ("estimator", "target", "importance_weighted", "reference")
"""Keys of ``algorithm.kl`` that a recipe may keep beside a coefficient of 0, which switches the term off."""
WIDE = 0.05
"""A clip range of the ratio of a whole trajectory, which is a mean over its tokens, that practically nothing leaves."""


def check(run: Run) -> list[str]:
    """Raise every contradiction of a run at once.

    Returns:
        What is allowed and may surprise, one sentence each.

    Raises:
        ProblemsError: each with who set it and what mends it.
        UserError: an advantage or a loss of somebody else cannot be imported, or asks for what it cannot be given.
    """
    algorithm = run.resolved.options.get("algorithm")
    if not isinstance(algorithm, AlgorithmConfig):
        return []  # a trainer with a table of its own
    critic = run.resolved.options.get("critic")
    critic = critic if isinstance(critic, CriticConfig) else CriticConfig()
    found = [*_Contradictions(run, algorithm, critic).all(), *lora_check.problems(run, reinforcement=True)]
    found += resume_check.problems(run, critic, algorithm.kl)
    if found:
        raise ProblemsError(found)
    return [*_notes(run), *lora_check.notes(run)]


def comparable(rollout: RolloutTable) -> bool:
    """Whether the engine's log-probabilities are of the distribution that was sampled from and is trained."""
    return rollout.temperature == 1.0 and rollout.top_p == 1.0 and rollout.top_k == 0


def _notes(run: Run) -> list[str]:
    algorithm: AlgorithmConfig = run.options("algorithm")
    trainer = run.options("trainer")
    critic = run.resolved.options.get("critic")
    warmup = getattr(run.resolved.options.get("warmup"), "steps", 0)
    kl, found = algorithm.kl, []
    if warmup and not run.config.model.path.startswith(BUILTIN):  # it would harm a model that knows something
        found.append(
            f"the warm-up trains this model on demonstrations for {counted(warmup, 'step')}; warmup.steps=0: none"
        )
    updates = trainer.epochs * trainer.updates_per_rollout
    if updates > 1:
        found.append(f"{updates} updates on each rollout: all but the first are off policy")
    if not kl.coefficient and (unread := [key for key in _chosen(kl) if key in OF_KL]):
        keys = _listed([f"kl.{key}" for key in unread])
        found.append(f"kl.coefficient is 0: there is no KL term, and {keys} {_verb('change', unread)} nothing")
    if "max_extra_batches" in _chosen(algorithm.filter) and not _filters(algorithm):
        found.append("filter.max_extra_batches changes nothing: without a filter a step never asks again")
    if kl.coefficient and kl.target == "loss" and kl.estimator == "k1" and not kl.importance_weighted:
        found.append("k1 as a loss has a gradient of zero mean: it adds noise and does not pull; use mse or k3")
    if algorithm.importance_sampling_level == "sequence":
        if max(algorithm.clip_low or 0.0, algorithm.clip_high or 0.0) >= WIDE:
            found.append(
                f"the ratio of a whole trajectory practically never leaves {algorithm.clip_low:g} below to "
                f"{algorithm.clip_high:g} above 1: nothing is clipped; {LOSS_DEFAULTS['gspo'].clip_low:g} is usual"
            )
        if algorithm.aggregation != "seq-mean-token-mean":
            found.append(
                f"aggregation={algorithm.aggregation} with one ratio a trajectory gives long trajectories more weight"
            )
    if algorithm.correction.mode != "none" and not comparable(run.config.rollout):
        found.append(
            "sampling is not at temperature 1 from the whole vocabulary, which the engine's log-probabilities are of: "
            "the gap between engine and trainer is neither corrected nor measured"
        )
    if isinstance(critic, CriticConfig) and critic.model is not None and critic.warmup_steps:
        found.append(f"only the critic learns for the first {counted(critic.warmup_steps, 'step')}")
    if algorithm.shuffle_rewards:
        rest = "nothing can be learnt"
        if algorithm.gamma < 1:
            rest = f"only length can be learnt, as gamma={algorithm.gamma:g} makes any reward smaller with it"
        found.append(f"rewards are shuffled: a control experiment, {rest}")
    return found


class _Contradictions:
    def __init__(self, run: Run, algorithm: AlgorithmConfig, critic: CriticConfig) -> None:
        self._run, self._algorithm, self._critic = run, algorithm, critic
        self._rollout = run.config.rollout
        self._advantage = _needs(run, "advantage", algorithm.advantage)
        self._loss = _needs(run, "loss", algorithm.loss)

    def all(self) -> Iterator[Problem]:
        yield from self._of_values()
        yield from self._of_groups()
        yield from self._of_unread_keys()
        yield from self._of_options()
        yield from self._of_kl()
        yield from self._of_lengths()
        yield from self._of_correction()

    def _problem(self, path: str, value: object, reason: str, mend: str) -> Problem:
        return Problem(
            kind="bad value",
            path=path,
            value=str(value),
            origin=self._run.resolved.origin(tuple(path.split("."))),
            reason=f"{reason}\nfix: {mend}",
        )

    def _of_values(self) -> Iterator[Problem]:
        reads, critic, name = "values_NT" in self._advantage.reads, self._critic, self._algorithm.advantage
        if reads and critic.model is None:
            reason = f"the advantage {name} reads the values of a critic, and there is none"
            mend = "critic.model=copy (a model of its own) or critic.model=head (one output more on the policy)"
            yield self._problem("algorithm.advantage", name, reason, mend)
        if critic.model is None:
            for key, value in _chosen(critic).items():
                mend = "leave it out, or set critic.model=copy or head"
                yield self._problem(f"critic.{key}", value, "there is no critic", mend)
            return
        if not reads:
            reason = f"the advantage {name} reads no values: a critic would be trained for nothing"
            yield self._problem("critic.model", critic.model, reason, "algorithm.advantage=gae, or leave it out")
        unread = "learning_rate" if critic.model == "head" else "coefficient"
        if unread in _chosen(critic):
            reason = {
                "learning_rate": "a head learns with the policy's learning rate",
                "coefficient": "a critic of its own has a loss of its own, beside which nothing stands",
            }[unread]
            mend = "critic.coefficient, or critic.model=copy" if critic.model == "head" else "critic.learning_rate"
            yield self._problem(f"critic.{unread}", getattr(critic, unread), reason, mend)
        steps = getattr(self._run.resolved.options.get("trainer"), "steps", None)
        if steps is not None and critic.warmup_steps >= steps:
            reason = f"the run has {counted(steps, 'step')}: the policy would never learn"
            yield self._problem("critic.warmup_steps", critic.warmup_steps, reason, f"fewer than {steps}")
        if critic.model not in ("copy", "head") and (missing := _no_model(critic.model)):
            yield self._problem("critic.model", critic.model, missing, "copy, head, a model's folder or its hub id")

    def _of_groups(self) -> Iterator[Problem]:
        size, chosen = self._rollout.group_size, self._algorithm.filter
        if size == 1 and "groups_N" in self._advantage.reads:
            reason = f"the advantage {self._algorithm.advantage} compares the trajectories of a group"
            mend = "rollout.group_size=2 or more, or algorithm.advantage=reinforce-plus-plus, remax or gae"
            yield self._problem("rollout.group_size", size, reason, mend)
        if size == 1 and chosen.metric in ("reward", "accuracy"):
            reason = "a group of one has nothing to be equal to: the filter would leave out nothing"
            mend = "rollout.group_size=2 or more, or algorithm.filter.metric=none"
            yield self._problem("algorithm.filter.metric", chosen.metric, reason, mend)
        if _filters(self._algorithm):
            return
        if chosen.rank_by_std:
            reason = "there is nothing to choose from: a step asks for exactly the groups that it needs"
            mend = "algorithm.filter.oversample=1.5, or a filter.metric"
            yield self._problem("algorithm.filter.rank_by_std", True, reason, mend)
        if "when_short" in _chosen(chosen):
            reason = "without a filter no step is short of groups"
            mend = "a filter.metric, or leave it out"
            yield self._problem("algorithm.filter.when_short", chosen.when_short, reason, mend)

    def _of_unread_keys(self) -> Iterator[Problem]:
        algorithm = self._algorithm
        read = {*self._advantage.options, *self._loss.options}
        if self._critic.model is not None:
            read |= {"gamma", "gae_lambda"}  # the targets of the critic are made with these
        own = LOSS_DEFAULTS.get(algorithm.loss, LOSS_DEFAULTS["clip"])
        defaults = {"clip_low": own.clip_low, "clip_high": own.clip_high}
        for key in FUNCTION_KEYS:
            value, default = getattr(algorithm, key), defaults.get(key, AlgorithmConfig.model_fields[key].default)
            if value != default and key not in read:
                reason = f"neither the advantage {algorithm.advantage} nor the loss {algorithm.loss} reads it"
                yield self._problem(f"algorithm.{key}", value, reason, _instead(self._run, key))
        level = algorithm.importance_sampling_level
        if algorithm.loss not in LOSS_DEFAULTS and level == "sequence" and "importance_sampling_level" not in read:
            reason = f"the loss {algorithm.loss} makes its own ratios and does not read it"
            yield self._problem("algorithm.importance_sampling_level", level, reason, "leave it out, or loss=gspo")

    def _of_options(self) -> Iterator[Problem]:
        options, keys = self._algorithm.options, AlgorithmConfig.model_fields
        for key in options:
            if key in keys:
                reason = f"{key} is a key of [algorithm], whose value would be replaced without being checked"
                yield self._problem(f"algorithm.options.{key}", options[key], reason, f"set algorithm.{key} itself")
        for kind, id, needs in (
            ("advantage", self._algorithm.advantage, self._advantage),
            ("loss", self._algorithm.loss, self._loss),
        ):
            for key in needs.required:
                if key not in keys and key not in options:
                    reason, mend = f"the {kind} {id} has no default for {key}", f"set algorithm.options.{key}"
                    yield self._problem(f"algorithm.{kind}", id, reason, mend)
        if self._advantage.takes_any_option or self._loss.takes_any_option:
            return
        for key, value in options.items():
            if key not in keys and key not in self._advantage.options and key not in self._loss.options:
                reason = f"neither {self._algorithm.advantage} nor {self._algorithm.loss} takes it"
                mend = "leave it out, or make it a keyword-only parameter of the function"
                yield self._problem(f"algorithm.options.{key}", value, reason, mend)

    def _of_kl(self) -> Iterator[Problem]:
        kl = self._algorithm.kl
        if kl.controller == "adaptive" and not kl.coefficient:
            reason = "an adaptive coefficient starts from algorithm.kl.coefficient, which is 0 and would stay 0"
            yield self._problem("algorithm.kl.controller", kl.controller, reason, "algorithm.kl.coefficient=0.001")
        if kl.controller == "fixed":
            for key in ("target_kl", "horizon"):
                if key in _chosen(kl):
                    mend = "algorithm.kl.controller=adaptive, or leave it out"
                    yield self._problem(
                        f"algorithm.kl.{key}", getattr(kl, key), "only an adaptive coefficient reads it", mend
                    )
        if kl.importance_weighted and kl.target == "reward":
            reason = "a term in the reward is computed once, by the policy that sampled: its ratio is 1"
            mend = "algorithm.kl.target=loss, or leave it out"
            yield self._problem("algorithm.kl.importance_weighted", True, reason, mend)
        if kl.coefficient and kl.reference is not None and (missing := _no_folder(kl.reference)):
            mend = "the folder of a model, or leave it out for the policy as it is at the start"
            yield self._problem("algorithm.kl.reference", kl.reference, missing, mend)

    def _of_lengths(self) -> Iterator[Problem]:
        algorithm, rollout = self._algorithm, self._rollout
        limit = response_limit(algorithm, rollout, self._run.resolved.options.get("environment"))
        if algorithm.overlong.buffer >= limit:
            reason = f"the penalty would start before the first token: the limit is {counted(limit, 'token')}"
            mend = f"a buffer below {limit}, or a larger algorithm.max_response_tokens"
            yield self._problem("algorithm.overlong.buffer", algorithm.overlong.buffer, reason, mend)
        if not algorithm.overlong.buffer and "penalty" in _chosen(algorithm.overlong):
            reason = "without a buffer long answers have no penalty"
            mend = "algorithm.overlong.buffer, the tokens over which it grows, or leave it out"
            yield self._problem("algorithm.overlong.penalty", algorithm.overlong.penalty, reason, mend)
        if (
            algorithm.max_response_tokens is not None
            and algorithm.aggregation != "seq-mean-token-sum-norm"
            and not algorithm.overlong.buffer
            and "max_response_tokens" not in {*self._advantage.options, *self._loss.options}
        ):
            reason = "only algorithm.overlong.buffer and aggregation=seq-mean-token-sum-norm mean this length"
            mend = "leave it out, or rollout.max_new_tokens to let answers be longer"
            yield self._problem("algorithm.max_response_tokens", algorithm.max_response_tokens, reason, mend)

    def _of_correction(self) -> Iterator[Problem]:
        chosen, mode = _chosen(self._algorithm.correction), self._algorithm.correction.mode
        unread = {"none": ("level", "high", "low"), "truncate": ("low",), "mask": ()}[mode]
        if not comparable(self._rollout) and mode != "none":
            for key, value in chosen.items():
                reason = (
                    "the engine's log-probabilities are those of temperature 1 and the whole vocabulary, which is not "
                    "what was sampled from: there is nothing to correct with"
                )
                mend = "rollout.temperature=1 with top_p=1 and top_k=0, or algorithm.correction.mode=none"
                yield self._problem(f"algorithm.correction.{key}", value, reason, mend)
            return
        for key in unread:
            if key in chosen:
                mend = f"algorithm.correction.mode={'mask' if key == 'low' else 'truncate'}, or leave it out"
                reason = f"mode={mode} does not read it"
                yield self._problem(f"algorithm.correction.{key}", chosen[key], reason, mend)


def _chosen(table: BaseModel) -> Mapping[str, Any]:
    """The keys of a table that differ from their defaults."""
    fields = type(table).model_fields
    return {key: value for key, value in table if value != fields[key].default}


def _no_model(name: str) -> str | None:
    """Why there is no model of this name; None for a folder that holds one, and for a hub id."""
    if name.startswith(BUILTIN):
        return "what is built on the spot is the policy: a critic starts from a model that is there"
    try:
        folder = local_folder(name)
    except UserError as error:
        return error.message
    return "it is an adapter, and a whole model is wanted" if folder is not None and is_adapter(folder) else None


def _no_folder(name: str) -> str | None:
    """Why a folder is no model; None for one that is."""
    if not Path(name).is_dir():
        return "there is no such folder"
    try:
        check_model_folder(Path(name))
    except UserError as error:
        return error.message
    return None


def _filters(algorithm: AlgorithmConfig) -> bool:
    """Whether a step may differ from one rollout of its tasks."""
    return algorithm.filter.metric != "none" or algorithm.filter.oversample > 1


def _needs(run: Run, kind: str, id: str) -> Needs:
    spec = run.registry.spec(kind, id)
    if isinstance(spec, AlgorithmSpec) and spec.reads is not None and spec.options is not None:
        return Needs(reads=spec.reads, options=spec.options)
    return needs_of(kind, run.load(kind, id))


def _instead(run: Run, key: str) -> str:
    """Which advantages and losses read a key."""
    specs = [spec for kind in ("advantage", "loss") for spec in run.registry.specs(kind)]
    readers = [spec.id for spec in specs if isinstance(spec, AlgorithmSpec) and key in (spec.options or ())]
    return f"leave it out; {_listed(readers)} {_verb('read', readers)} it" if readers else "leave it out"


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _verb(verb: str, subjects: Sequence[str]) -> str:
    return verb if len(subjects) > 1 else f"{verb}s"
