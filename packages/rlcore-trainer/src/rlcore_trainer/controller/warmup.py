"""A short supervised phase on demonstrations before reinforcement learning."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

from rlcore.abilities import DemonstrationDataset
from rlcore.console.wording import counted
from rlcore.errors import DataError
from rlcore.types import derive_seed

from rlcore_trainer.batching.conversations import ConversationEncoder
from rlcore_trainer.config import PolicyGradientConfig, WarmupConfig
from rlcore_trainer.controller.divergence import require_finite
from rlcore_trainer.controller.schedule import learning_rate
from rlcore_trainer.learner.learner import Learner

if TYPE_CHECKING:
    from rlcore.contracts import ChatFormat, Dataset
    from rlcore.runs.progress import Meter


def warm_up(
    learner: Learner,
    dataset: Dataset,
    chat_format: ChatFormat,
    config: WarmupConfig,
    trainer: PolicyGradientConfig,
    *,
    seed: int,
    say: Callable[[str], None],
    meter: Meter | None = None,
    done: int = 0,
    finished: Callable[[int], None] = lambda updates: None,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Minimise the mean negative log-likelihood of the demonstrations' assistant tokens.

    ``done`` updates were made before, by a run that was interrupted. ``finished`` is
    called after each update with the number of updates so far. ``stopped`` is checked after each update and ends the
    phase early. ``meter`` counts the updates.

    Raises:
        DataError: the dataset has no demonstrations or too few, or one of them has no assistant message or an
            image that cannot be used.
        UserError: a demonstration has images, and the model sees none.
        DivergenceError: the loss or the gradient is not finite.
    """
    wanted = config.steps * config.demonstrations_per_step
    if not isinstance(dataset, DemonstrationDataset):
        raise DataError(
            f"the warm-up needs {counted(wanted, 'demonstration')}",
            found=f"{type(dataset).__name__}, which provides none",
            where="warmup.steps",
            fix="set warmup.steps=0, or use another data.id",
        )
    stream = iter(dataset.demonstrations(wanted, seed=derive_seed(seed, "warmup")))
    deque(islice(stream, done * config.demonstrations_per_step), maxlen=0)
    for step in range(done + 1, config.steps + 1):
        first = (step - 1) * config.demonstrations_per_step + 1
        demonstrations = enumerate(islice(stream, config.demonstrations_per_step), start=first)
        encoder = ConversationEncoder(chat_format)  # keeps the images of this step only
        sequences = [encoder.sequence(one, f"demonstration {place}") for place, one in demonstrations]
        if not sequences:
            raise DataError(
                f"the warm-up needs {counted(wanted, 'demonstration')}",
                found=f"{(step - 1) * config.demonstrations_per_step}",
                where="warmup.steps",
                fix=f"set warmup.steps={step - 1}, or add demonstrations",
            )
        rate = learning_rate(
            step, steps=config.steps, peak=config.learning_rate, warmup_steps=config.steps // 10, schedule="cosine"
        )
        learner.seed(seed, "warmup", "dropout", step)
        loss, norm, _ = learner.imitate(
            sequences, learning_rate=rate, max_gradient_norm=trainer.max_gradient_norm, shown=False
        )
        when = f"warm-up step {step}"
        require_finite({"loss": loss, "gradient norm": norm}, when, key="warmup.learning_rate")
        finished(step)
        if meter is not None:
            meter.advance(tokens=sum(sequence.trained for sequence in sequences))
        if step == 1 or step == config.steps or step % max(1, config.steps // 10) == 0:
            say(f"warm-up {step:4d}/{config.steps}  loss {loss:7.4f} nats per token")
        if stopped():
            break
