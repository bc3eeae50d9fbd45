"""Trainers on pairs of answers: of the policy by a loss of preferences, and of a reward model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from rlcore.console.wording import counted
from rlcore.errors import UserError

from rlcore_trainer.algorithms.preferences.config import selected_loss
from rlcore_trainer.algorithms.preferences.interface import traits_of
from rlcore_trainer.checkpoints.start import starting_policy
from rlcore_trainer.config import PairsConfig, RewardModelTrainerConfig
from rlcore_trainer.policy.policy import Policy
from rlcore_trainer.preferences.data import Pair, digest, read_pairs
from rlcore_trainer.preferences.learner import (
    Objective,
    PairLearner,
    PreferenceObjective,
    RankLearner,
    ScoreObjective,
)
from rlcore_trainer.preferences.reward_model import load_reward_model, scored_pairs
from rlcore_trainer.supervised.data import Examples
from rlcore_trainer.supervised.passes import OfflineTrainer

if TYPE_CHECKING:
    from rlcore.session.session import RunSession

Known = list[tuple[float, float]]


class PairTrainer(OfflineTrainer):
    """Minimises the mean of a loss over pairs of answers."""

    EXAMPLE = "pair"

    def __init__(self, run: RunSession, objective: Objective, *, load: Callable[..., Policy] = starting_policy) -> None:
        super().__init__(run, load=load)
        self._pairs = PairLearner(self.session.ranks, self._config.max_tokens_per_batch)
        RankLearner(self.session.trained, objective, progress=run.progress).offer(self.session.ranks)
        self._prepare(self._read())

    @abstractmethod
    def _read(self) -> Examples[Pair]:
        """Read the pairs of the run."""

    @abstractmethod
    def _known(self, pairs: range) -> Known:
        """Return what is known about training pairs, and after those about evaluation pairs; see `PairBatch.known`."""

    def _described_data(self) -> Iterator[str]:
        data = self.data
        tokens = sum(len(sequence) for pair in data.train for sequence in pair.sequences)
        yield f"data      {counted(len(data.train), 'pair')}, {counted(tokens, 'token')}"
        if data.evaluation:
            yield f"held out  {counted(len(data.evaluation), 'pair')}"

    def _update(self, members: Sequence[int], rate: float) -> tuple[dict[str, float], bool]:
        batch = [self.data.train[i] for i in members]
        known = [self._known(range(i, i + 1))[0] for i in members]
        metrics, updated = self._pairs.learn(batch, known, rate=rate, max_gradient_norm=self._config.max_gradient_norm)
        trained = sum(sequence.trained for pair in batch for sequence in pair.sequences)
        return metrics | {"tokens/trained": float(trained)}, updated

    def _held_out(self) -> dict[str, float]:
        first, held = len(self.data.train), self.data.evaluation
        if not held:
            return {}
        metrics = self._pairs.measure(held, self._known(range(first, first + len(held))))
        return {f"evaluation/{name}": value for name, value in metrics.items()}


class PreferenceTrainer(PairTrainer):
    """Trains a policy by a loss of preferences.

    The reference is the policy before the first step. Its log-probabilities are computed once and stored in the
    checkpoints, so no second model is in memory.
    """

    def __init__(self, run: RunSession) -> None:
        """Load the model, encode the pairs, and start the engine if the run has rollouts.

        Raises:
            UserError: the model or the data cannot be used, or a resumed run has other data.
        """
        loss, sft, beta = selected_loss(run)
        self._needs_reference = traits_of(loss).needs_reference
        self._reference: Known = []
        super().__init__(run, PreferenceObjective(loss, sft=sft, beta=beta))
        if self.session.resumed and self._needs_reference and self.session.ranks.is_main:
            self._restore_reference()

    def state(self) -> Mapping[str, Any]:
        """Return the log-probabilities of the reference."""
        return {"reference": torch.tensor(self._reference, dtype=torch.float64)} if self._reference else {}

    def collection(self) -> Mapping[str, Any]:
        """Return the position in the data, and a hash of the data that the reference belongs to."""
        return {**super().collection(), "digest": self._digest()}

    def _digest(self) -> str:
        return digest([*self.data.train, *self.data.evaluation])

    def _restore_reference(self) -> None:
        assert self._restored is not None
        if "reference" not in self._restored.state:
            raise UserError(
                "this loss needs the log-probabilities of the policy before the first step",
                found="a checkpoint without them, because the run began with a loss that does not need them",
                where=self._run.resolved.origin(("preference", "loss")),
                fix=f"the loss that the run began with, or start a new run: model={self._run.resume_from}",
            )
        if self._restored.collection["digest"] != self._digest():
            raise UserError(
                "a resumed run needs the pairs that it started with, because the log-probabilities of the reference "
                "are stored for them",
                found="other data, or another chat format",
                where=self._run.resolved.origin(("data", "id")),
                fix=f"restore the data, or start a new run: model={self._run.resume_from}",
            )
        self._reference = [(chosen, rejected) for chosen, rejected in self._restored.state["reference"].tolist()]

    def _read(self) -> Examples[Pair]:
        policy = self._token_policy()
        config: PairsConfig = self._run.options("trainer")
        return read_pairs(self._run, config, policy.folder, policy.max_length)

    def _train(self) -> Mapping[str, float]:
        if self._needs_reference and not self.session.resumed:
            self._reference = self._pairs.logprobs([*self.data.train, *self.data.evaluation])
        return super()._train()

    def _known(self, pairs: range) -> Known:
        return self._reference[pairs.start : pairs.stop] if self._needs_reference else [(0.0, 0.0)] * len(pairs)


class RewardModelTrainer(PairTrainer):
    """Trains a language model with a head that scores answers."""

    def __init__(self, run: RunSession) -> None:
        """Load the model, and encode the pairs.

        Raises:
            UserError: the model or the data cannot be used.
        """
        config: RewardModelTrainerConfig = run.options("trainer")
        super().__init__(run, ScoreObjective(center=config.center), load=load_reward_model)

    def _read(self) -> Examples[Pair]:
        config: PairsConfig = self._run.options("trainer")
        return scored_pairs(self._run, config, self.session.policy)

    def _known(self, pairs: range) -> Known:
        every, first = self.data.train, len(self.data.train)
        one = every[pairs.start : pairs.stop] or self.data.evaluation[pairs.start - first : pairs.stop - first]
        return [(pair.margin, pair.margin) for pair in one]
