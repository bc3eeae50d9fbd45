"""What each process of a run computes for pairs of answers: log-probabilities, scores, losses and updates.

Axes: ``M`` the trained tokens of a micro-batch, ``P`` its pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Protocol

import torch
from rlcore.errors import UserError
from torch import Tensor
from torch.nn.functional import logsigmoid

from rlcore_trainer.algorithms.preferences.interface import PreferenceInputs, PreferenceLoss, traits_of
from rlcore_trainer.batching.packing import MicroBatch, Share, divide
from rlcore_trainer.batching.sequence_metrics import add_metrics, split
from rlcore_trainer.distributed.ranks import Ranks
from rlcore_trainer.learner.trained_policy import ShowsProgress, TrainedPolicy, unshown
from rlcore_trainer.policy.policy import Policy
from rlcore_trainer.preferences.data import Pair

Numbers = Mapping[int, float]
"""A number for each sequence, by its place among those that were divided: chosen answers have even places."""
Terms = tuple[Tensor, dict[str, Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairBatch:
    """The part of a batch of pairs that a process computes."""

    share: Share
    known: Numbers = field(default_factory=dict)
    """What is known about each sequence: its log-probability under the reference, or the margin of its pair."""
    weight: float
    """1 / the number of pairs in all processes."""
    token_weight: float
    """1 / the number of tokens of chosen answers in all processes."""


class Objective(Protocol):
    """The loss of a micro-batch of pairs."""

    def __call__(self, policy: Policy, batch: MicroBatch, pairs: PairBatch) -> Terms:
        """Return the loss, and metrics that are sums over pairs times their weight."""


class PreferenceObjective:
    """A loss of preferences.

    Args:
        loss: the loss of each pair
        sft: weight of the negative log-likelihood of the tokens of chosen answers
        beta: scale of the implicit rewards among the metrics
    """

    def __init__(self, loss: PreferenceLoss, *, sft: float, beta: float) -> None:
        self._loss, self._sft, self._beta, self._traits = loss, sft, beta, traits_of(loss)

    def __call__(self, policy: Policy, batch: MicroBatch, pairs: PairBatch) -> Terms:
        """See `Objective`."""
        metrics: dict[str, Tensor] = {}

        def of(_: slice, logprobs_M: Tensor, __: Tensor | None) -> Terms:
            nonlocal metrics
            loss, metrics = self._of(logprobs_M, batch.sequence_M, pairs)
            return loss, {}

        return policy.loss(batch, of, entropy=False, token_wise=False).loss, metrics

    def _of(self, logprobs_M: Tensor, sequence_M: Tensor, pairs: PairBatch) -> Terms:
        if not len(logprobs_M):  # padding, see `rlcore_trainer.batching.packing.Share`
            return logprobs_M.sum(), {}
        rows = split(logprobs_M, sequence_M)
        places = [place for place in rows if place % 2 == 0]

        def numbers(of: Callable[[int], float], side: int) -> Tensor:
            return logprobs_M.new_tensor([of(place + side) for place in places], dtype=torch.float64)

        sums = [torch.stack([rows[place + side].double().sum() for place in places]) for side in (0, 1)]
        lengths = [numbers(lambda place: len(rows[place]), side) for side in (0, 1)]
        references = [numbers(lambda place: pairs.known.get(place, 0.0), side) for side in (0, 1)]
        inputs = PreferenceInputs(
            chosen_P=sums[0],
            rejected_P=sums[1],
            reference_chosen_P=references[0],
            reference_rejected_P=references[1],
            chosen_lengths_P=lengths[0],
            rejected_lengths_P=lengths[1],
        )
        loss_P = self._loss(inputs)
        if not isinstance(loss_P, Tensor) or loss_P.shape != sums[0].shape:
            raise UserError(
                "a loss of preferences must return one number for each pair",
                found=f"a tensor {list(loss_P.shape)}" if isinstance(loss_P, Tensor) else type(loss_P).__name__,
                where="preference.loss",
                fix="return the loss of each pair; an update minimises its mean",
            )
        total = pairs.weight * loss_P.sum()
        if self._sft:
            total = total - self._sft * pairs.token_weight * sums[0].sum()
        rewards = [(one - reference).detach() for one, reference in zip(sums, references, strict=True)]
        if self._traits.normalised:
            rewards = [one / length for one, length in zip(rewards, lengths, strict=True)]
        chosen_P, rejected_P = (self._beta * one for one in rewards)
        values = {
            **compared(chosen_P, rejected_P),
            "logprobs/chosen": sums[0],
            "logprobs/rejected": sums[1],
        }
        return total, {name: pairs.weight * value_P.detach().sum() for name, value_P in values.items()}


class ScoreObjective:
    """The loss of a reward model: ``-log σ(score(chosen) - score(rejected) - margin)``.

    It is the likelihood of Bradley and Terry (1952), as in Ouyang et al. (2022), arXiv 2203.02155, eq. 1. The margin is
    that of Llama 2 (Touvron et al. 2023, arXiv 2307.09288, eq. 2).

    Args:
        center: weight of the squared sum of the scores of a pair
    """

    def __init__(self, *, center: float) -> None:
        self._center = center

    def __call__(self, policy: Policy, batch: MicroBatch, pairs: PairBatch) -> Terms:
        """See `Objective`."""
        values_M = policy.values(batch)
        if not len(values_M):  # padding, see `rlcore_trainer.batching.packing.Share`
            return values_M.sum(), {}
        rows = {place: row[0].double() for place, row in split(values_M, batch.sequence_M).items()}
        places = [place for place in rows if place % 2 == 0]
        chosen_P, rejected_P = (torch.stack([rows[place + side] for place in places]) for side in (0, 1))
        margins_P = chosen_P.new_tensor([pairs.known[place] for place in places])
        loss_P = -logsigmoid(chosen_P - rejected_P - margins_P)
        if self._center:
            loss_P = loss_P + self._center * (chosen_P + rejected_P) ** 2
        metrics = {name: pairs.weight * value_P.sum() for name, value_P in compared(chosen_P, rejected_P).items()}
        return pairs.weight * loss_P.sum(), {name: value.detach() for name, value in metrics.items()}


def compared(chosen_P: Tensor, rejected_P: Tensor) -> dict[str, Tensor]:
    """Return metrics of each pair from the rewards of its answers. An equal pair counts as half right."""
    right_P = (chosen_P > rejected_P).double() + 0.5 * (chosen_P == rejected_P).double()
    return {
        "preference/accuracy": right_P,
        "preference/margin": chosen_P - rejected_P,
        "preference/chosen": chosen_P,
        "preference/rejected": rejected_P,
    }


class RankLearner:
    """Computes batches of pairs in one process.

    Args:
        trained: the policy with its optimiser
        objective: the loss
        progress: makes the meters
    """

    def __init__(self, trained: TrainedPolicy, objective: Objective, *, progress: ShowsProgress = unshown) -> None:
        self._trained, self._objective, self._progress = trained, objective, progress

    def offer(self, ranks: Ranks) -> None:
        """Make the functions available to a `PairLearner`."""
        ranks.offer(seed=self._trained.seed, learn=self.learn, measure=self.measure, logprobs=self.logprobs)

    def learn(self, pairs: PairBatch, learning_rate: float, max_gradient_norm: float) -> tuple[dict[str, float], bool]:
        """Update the policy once, and return the metrics of all processes and whether the weights were updated."""
        policy = self._trained.policy
        policy.train()
        metrics = self._computed(pairs, "update", gradient=True)
        norm, updated = self._trained.optimisation.step(learning_rate, max_gradient_norm)
        policy.train(False)
        return metrics | {"gradient_norm": norm}, updated

    def measure(self, pairs: PairBatch) -> dict[str, float]:
        """Return the metrics of all processes, without dropout."""
        return self._computed(pairs, "evaluation", gradient=False)

    @torch.no_grad()
    def logprobs(self, share: Share) -> dict[int, float]:
        """Return the log-probability of each answer of this process, by its place."""
        policy, found = self._trained.policy, dict[int, float]()
        with policy.computing(), self._progress("reference", share.trained, "token") as meter:
            for batch in share.micro_batches(policy.device):
                logprobs_M, _ = policy.evaluate(batch)
                rows = split(logprobs_M, batch.sequence_M)
                found |= {place: float(row.double().sum()) for place, row in rows.items()}
                meter.advance(len(batch.targets_M), tokens=len(batch.targets_M))
        return found

    def _computed(self, pairs: PairBatch, phase: str, *, gradient: bool) -> dict[str, float]:
        policy, totals = self._trained.policy, dict[str, float]()
        meter = self._progress(phase, pairs.share.trained, "token")
        with nullcontext() if gradient else torch.no_grad(), policy.computing(), meter:
            for batch in pairs.share.micro_batches(policy.device):
                loss, metrics = self._objective(policy, batch, pairs)
                if gradient:
                    self._trained.optimisation.backward(loss)
                add_metrics(totals, metrics | {"loss": loss})
                meter.advance(len(batch.targets_M), tokens=len(batch.targets_M))
        return self._trained.processes.metrics(totals)


class PairLearner:
    """Divides batches of pairs between the processes of a run, and joins the results.

    Args:
        ranks: the processes, each after `RankLearner.offer`
        max_tokens: most tokens of a micro-batch
    """

    def __init__(self, ranks: Ranks, max_tokens: int) -> None:
        self._ranks, self._max_tokens = ranks, max_tokens

    def learn(
        self, pairs: Sequence[Pair], known: Sequence[tuple[float, float]], *, rate: float, max_gradient_norm: float
    ) -> tuple[dict[str, float], bool]:
        """Update the policy once.

        Args:
            pairs: the pairs
            known: two numbers for each pair, see `PairBatch.known`
            rate: learning rate
            max_gradient_norm: largest norm of the gradient

        Returns:
            Means over pairs, with ``loss`` and ``gradient_norm``, and whether the weights were updated.
        """
        arguments = [(batch, rate, max_gradient_norm) for batch in self._batches(pairs, known)]
        found: tuple[dict[str, float], bool] = self._ranks.call("learn", arguments)[0]
        return found

    def measure(self, pairs: Sequence[Pair], known: Sequence[tuple[float, float]]) -> dict[str, float]:
        """Return the same means without an update and without dropout."""
        found: dict[str, float] = self._ranks.call("measure", [(one,) for one in self._batches(pairs, known)])[0]
        return found

    def logprobs(self, pairs: Sequence[Pair]) -> list[tuple[float, float]]:
        """Return the log-probabilities of both answers of each pair."""
        parts = self._ranks.call("logprobs", [(share,) for share in self._divided(pairs)])
        found = {place: value for one in parts for place, value in one.items()}
        return [(found[place], found[place + 1]) for place in range(0, 2 * len(pairs), 2)]

    def _batches(self, pairs: Sequence[Pair], known: Sequence[tuple[float, float]]) -> list[PairBatch]:
        numbers = {2 * number + side: value for number, both in enumerate(known) for side, value in enumerate(both)}
        weight, token_weight = 1.0 / len(pairs), 1.0 / sum(pair.chosen.trained for pair in pairs)
        return [
            PairBatch(
                share=share,
                known={place: numbers[place] for place in share.places},
                weight=weight,
                token_weight=token_weight,
            )
            for share in self._divided(pairs)
        ]

    def _divided(self, pairs: Sequence[Pair]) -> list[Share]:
        sequences = [sequence for pair in pairs for sequence in pair.sequences]
        return divide(sequences, self._max_tokens, self._ranks.count, pairs=True)
