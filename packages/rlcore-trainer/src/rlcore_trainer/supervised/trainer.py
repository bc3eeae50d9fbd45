"""The supervised trainer: fine-tune on conversations and select the best checkpoint on held-out ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rlcore.console.wording import counted

from rlcore_trainer.config import SupervisedConfig
from rlcore_trainer.learner.learner import offer_training
from rlcore_trainer.supervised.data import read_conversations
from rlcore_trainer.supervised.passes import DECIDING, OfflineTrainer

if TYPE_CHECKING:
    from rlcore.session.session import RunSession


class SupervisedTrainer(OfflineTrainer):
    """Minimises the mean negative log-likelihood of the assistant's tokens in a run's conversations."""

    EXAMPLE = "conversation"

    def __init__(self, run: RunSession) -> None:
        """Load the model, encode the conversations, and start the engine if the run has rollouts.

        Raises:
            UserError: the model or the data cannot be used.
        """
        super().__init__(run)
        config: SupervisedConfig = run.options("trainer")
        offer_training(self.session.ranks, self.session.trained)
        self._prepare(read_conversations(run, config, self._token_policy()))

    def _described_data(self) -> Iterator[str]:
        train, held = self.data.train, self.data.evaluation
        trained, tokens = sum(one.trained for one in train), sum(len(one.token_ids) for one in train)
        conversations = counted(len(train), "conversation")
        yield f"data      {conversations}, {counted(tokens, 'token')}, {trained:,} of them trained"
        if held:
            tokens = sum(one.trained for one in held)
            yield f"held out  {counted(len(held), 'conversation')}, {counted(tokens, 'trained token')}"

    def _update(self, members: Sequence[int], rate: float) -> tuple[dict[str, float], bool]:
        batch = [self.data.train[i] for i in members]
        loss, norm, updated = self._learner.imitate(
            batch, learning_rate=rate, max_gradient_norm=self._config.max_gradient_norm
        )
        trained = float(sum(sequence.trained for sequence in batch))
        return {"loss": loss, "gradient_norm": norm, "tokens/trained": trained}, updated

    def _held_out(self) -> dict[str, float]:
        if not self.data.evaluation:
            return {}
        loss = self._learner.mean_loss(self.data.evaluation)
        return {DECIDING: loss, "evaluation/perplexity": _perplexity(loss)}


def _perplexity(loss: float) -> float:
    """Return ``exp(loss)``, or infinity on overflow."""
    return math.exp(loss) if loss < 700 else math.inf
