"""The learner as the controller sees it: work is divided between the processes, and results are joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rlcore_trainer.batching.packing import Minibatch, Share, TrainingSequence, divide
from rlcore_trainer.batching.sequence_metrics import Rows
from rlcore_trainer.distributed.ranks import Ranks
from rlcore_trainer.learner.policy_learner import PolicyLearner, Update, Which
from rlcore_trainer.learner.trained_policy import TrainedPolicy

Numbered = Mapping[int, TrainingSequence]
"""Some sequences of a rollout, by their index in it."""
Known = Mapping[str, Rows]
"""Values of sequences by their index in the rollout, by the names of `Minibatch`."""


class Learner:
    """Trains a policy in all processes of a run. The arguments and results are those of a single process.

    Args:
        ranks: the processes, each after `offer_training` or `offer_reinforcement`
        max_tokens: most tokens of a micro-batch
    """

    def __init__(self, ranks: Ranks, max_tokens: int) -> None:
        self._ranks, self._max_tokens = ranks, max_tokens

    def seed(self, *key: object) -> None:
        """Set the random state of dropout."""
        self._ranks.call_all("seed", key)

    def imitate(
        self,
        sequences: Sequence[TrainingSequence],
        *,
        learning_rate: float,
        max_gradient_norm: float,
        shown: bool = True,
    ) -> tuple[float, float, bool]:
        """Update the policy once, to minimise the mean of ``-log p`` over all trained tokens.

        The mean is over the whole batch: each token has the weight 1 / (trained tokens of all ``sequences``), so it
        does not depend on the number or composition of the micro-batches.

        Returns:
            The mean in nats, the norm of the gradient, and whether the weights were updated.

        Raises:
            ValueError: there are no trained tokens.
        """
        trained = sum(sequence.trained for sequence in sequences)
        if not trained:
            raise ValueError("a batch without a trained token has no loss")
        shares = self._divided([replace(sequence, weight=1.0 / trained) for sequence in sequences])
        arguments = [(share, learning_rate, max_gradient_norm, shown) for share in shares]
        found: tuple[float, float, bool] = self._ranks.call("imitate", arguments)[0]
        return found

    def mean_loss(self, sequences: Sequence[TrainingSequence]) -> float:
        """Return the mean of ``-log p`` over all trained tokens in nats, without dropout."""
        shares = self._divided([replace(sequence, weight=1.0) for sequence in sequences])
        total: float = self._ranks.call("total_loss", [(share,) for share in shares])[0]
        return total / sum(sequence.trained for sequence in sequences)

    def begin_reinforcement(self) -> None:
        """Start reinforcement learning from the policy after the warm-up, with a new optimiser."""
        self._ranks.call_all("begin_reinforcement")

    def logprobs(self, sequences: Numbered, which: Which) -> Rows:
        """Return the log-probabilities of the trained tokens of each sequence."""
        shares = self._divided(list(sequences.values()))
        return _joined(self._ranks.call("logprobs", [(share, which) for share in shares]), list(sequences))

    def values(self, sequences: Numbered) -> Rows:
        """Return the values of the critic of the trained tokens of each sequence."""
        shares = self._divided(list(sequences.values()))
        return _joined(self._ranks.call("values", [(share,) for share in shares]), list(sequences))

    def update(
        self, update: Update, *, policy: Numbered | None, critic: Numbered | None, known: Known
    ) -> tuple[bool, dict[str, float], Rows]:
        """Update the policy and the critic once; see `PolicyLearner.update`.

        Returns:
            Whether the policy was updated, metrics, and what was captured of each sequence of ``policy`` [2, T].

        Args:
            update: the update without its mini-batches
            policy: what the policy is trained on; None leaves it unchanged
            critic: what the critic alone is trained on; None leaves it unchanged
            known: further values of a `Minibatch`, by their name there
        """
        of_critic = {name: rows for name, rows in known.items() if name in ("values", "returns")}
        of_policy = {name: rows for name, rows in known.items() if critic is None or name not in of_critic}
        parts = zip(self._minibatches(policy, of_policy), self._minibatches(critic, of_critic), strict=True)
        found = self._ranks.call("update", [(replace(update, policy=one, critic=other),) for one, other in parts])
        updated: bool
        metrics: dict[str, float]
        updated, metrics, _ = found[0]
        return updated, metrics, _joined([captured.rows() for _, _, captured in found], list(policy or ()))

    def _minibatches(self, sequences: Numbered | None, known: Known) -> Sequence[Minibatch | None]:
        if sequences is None:
            return [None] * self._ranks.count
        numbers = list(sequences)

        def rows(found: Rows, share: Share) -> Rows:
            mine = {place: found[numbers[place]] for place in share.places}
            # Views are copied before they are sent, because pickle would copy their whole storage.
            return mine if self._ranks.count == 1 else {place: row.clone() for place, row in mine.items()}

        return [
            Minibatch(share=share, **{name: rows(found, share) for name, found in known.items()})
            for share in self._divided(list(sequences.values()))
        ]

    def _divided(self, sequences: Sequence[TrainingSequence]) -> list[Share]:
        team = self._ranks.processes.team
        return divide(sequences, self._max_tokens, self._ranks.count, team_size=team.size if team is not None else 1)


def offer_training(ranks: Ranks, trained: TrainedPolicy) -> None:
    """Make the functions of supervised training available to a `Learner`."""
    ranks.offer(seed=trained.seed, imitate=trained.imitate, total_loss=trained.total_loss)


def offer_reinforcement(ranks: Ranks, learner: PolicyLearner) -> None:
    """Make the functions of reinforcement learning available to a `Learner`."""
    offer_training(ranks, learner.trained)
    ranks.offer(
        begin_reinforcement=learner.begin_reinforcement,
        logprobs=learner.logprobs,
        values=learner.values,
        update=learner.update,
    )


def _joined(found: Sequence[Rows], numbers: Sequence[int]) -> Rows:
    """Join the rows of all processes, by the numbers of the sequences that were divided."""
    rows = {place: row for one in found for place, row in one.items()}
    return {numbers[place]: rows[place] for place in sorted(rows)}
