"""A short supervised phase on demonstrations, so that reinforcement learning has something to reinforce."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

import torch
from rlcore.errors import DataError
from rlcore.types import derive_seed
from rlcore.wording import counted
from transformers import PreTrainedModel

from rlcore_trainer.config import PolicyGradientConfig, WarmupConfig
from rlcore_trainer.packing import Sequence
from rlcore_trainer.schedule import learning_rate
from rlcore_trainer.strategies.single import SingleProcess
from rlcore_trainer.supervised_loss import supervised_gradient

if TYPE_CHECKING:
    from rlcore.contracts import ChatFormat, Dataset
    from rlcore.types import Demonstration


def warm_up(
    model: PreTrainedModel,
    strategy: SingleProcess,
    dataset: Dataset,
    chat_format: ChatFormat,
    config: WarmupConfig,
    trainer: PolicyGradientConfig,
    *,
    seed: int,
    say: Callable[[str], None],
    stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Minimise the mean negative log-likelihood of the demonstrations' assistant tokens.

    ``strategy`` must have been prepared with the model. Returns the number of updates, fewer than configured when
    ``stopped``, which is asked after each, says so.

    Raises:
        DataError: the dataset has no demonstrations, or too few.
    """
    wanted = config.steps * config.demonstrations_per_step
    stream = iter(dataset.demonstrations(wanted, seed=derive_seed(seed, "warmup")))
    torch.manual_seed(derive_seed(seed, "warmup", "dropout", *strategy.place.key))
    model.train()
    updates = 0
    for step in range(1, config.steps + 1):
        sequences = list(_encoded(islice(stream, config.demonstrations_per_step), chat_format))
        if not sequences:
            raise DataError(
                f"the warm-up wants {counted(wanted, 'demonstration')}",
                found=f"{(step - 1) * config.demonstrations_per_step}",
                where="warmup.steps",
                mend=f"set warmup.steps={step - 1}, or add demonstrations",
            )
        loss = 0.0
        if any(sequence.trained for sequence in sequences):
            loss = supervised_gradient(model, strategy, sequences, trainer.max_tokens_per_batch)
        rate = learning_rate(
            step, steps=config.steps, peak=config.learning_rate, warmup_steps=config.steps // 10, schedule="cosine"
        )
        _, updated = strategy.step(rate, trainer.max_gradient_norm)
        updates += updated
        if step == 1 or step == config.steps or step % max(1, config.steps // 10) == 0:
            say(f"warm-up {step:4d}/{config.steps}  loss {loss:7.4f} nats a token")
        if stopped():
            break
    model.train(False)
    return updates


def _encoded(demonstrations: Iterable[Demonstration], chat_format: ChatFormat) -> Iterator[Sequence]:
    for demonstration in demonstrations:
        token_ids, loss_mask = chat_format.conversation(demonstration.messages, demonstration.tools)
        yield Sequence(token_ids=token_ids, loss_mask=loss_mask)
