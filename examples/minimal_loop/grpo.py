"""GRPO on the default recipe of gsm8k-tools, as one loop out of rlcore's parts.

::

    python examples/minimal_loop/grpo.py             # builds the tiny model and imitates demonstrations first
    python examples/minimal_loop/grpo.py FOLDER      # starts from the model in FOLDER

The model, the environment with its tool, the reward and the data come from the recipe. The algorithm is in this file.
Change it here: every function is a part of the loop, and nothing else trains.

Axes: ``N`` the trajectories of a step, ``M`` the sampled tokens of a micro-batch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import rlcore
import torch
from rlcore import Group, RolloutRequest, Sampler
from rlcore.episodes.evaluation import evaluation_request, summarise
from rlcore.session.session import RunSession
from rlcore.types import derive_seed
from rlcore_trainer.algorithms.advantages.grpo import grpo
from rlcore_trainer.algorithms.losses.clip import clip
from rlcore_trainer.batching.data_order import Cursor, draw
from rlcore_trainer.batching.packing import MicroBatch, TrainingSequence, pack
from rlcore_trainer.controller.schedule import learning_rate
from rlcore_trainer.policy.causal_lm import CausalLanguageModel
from torch import Tensor
from torch.optim import AdamW

SEED = 0
IMITATION_STEPS = 450
DEMONSTRATIONS_PER_STEP = 32
STEPS = 30
TASKS_PER_STEP = 16
GROUP_SIZE = 8
MAX_GRADIENT_NORM = 1.0
MAX_TOKENS_PER_BATCH = 4096
EVALUATE_EVERY = 5
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

Loss = Callable[[MicroBatch, Tensor], Tensor]
"""The loss of a micro-batch, from the log-probabilities of its tokens."""


def main(model: Path | None = None, *, steps: int = STEPS) -> float:
    """Train, and return the accuracy on held-out problems after the last step."""
    with rlcore.open_session("gsm8k-tools", seed=SEED) as run:
        policy = CausalLanguageModel.load(model or run.model_folder(), dtype="float32", device=DEVICE)
        rollouts = run.sampler(policy)
        try:
            if model is None:
                imitate(run, policy, rollouts)
            return reinforce(run, policy, rollouts, steps)
        finally:
            rollouts.close()


def imitate(run: RunSession, policy: CausalLanguageModel, rollouts: Sampler) -> None:
    """Maximise the likelihood of demonstrations, in which 70 % of the calculations are wrong."""
    optimiser = AdamW(policy.parameters(), betas=(0.9, 0.99), weight_decay=0.0)
    total = IMITATION_STEPS * DEMONSTRATIONS_PER_STEP
    demonstrations = iter(run.dataset.demonstrations(total, seed=derive_seed(SEED, "warmup")))
    for step in range(1, IMITATION_STEPS + 1):
        chats = islice(demonstrations, DEMONSTRATIONS_PER_STEP)
        encoded = (rollouts.chat_format.conversation(chat.messages, chat.tools) for chat in chats)
        sequences = [TrainingSequence(token_ids=ids, loss_mask=mask) for ids, mask in encoded]
        rate = learning_rate(step, steps=IMITATION_STEPS, peak=2e-3, warmup_steps=45, schedule="cosine")
        loss = update(policy, optimiser, sequences, negative_log_likelihood, rate)
        if step % 45 == 0:
            print(f"imitation {step:3d}  loss {loss:.4f}")


def reinforce(run: RunSession, policy: CausalLanguageModel, rollouts: Sampler, steps: int) -> float:
    """Sample groups, compare siblings, update: GRPO (arXiv 2402.03300), strictly on-policy and without a KL term."""
    optimiser = AdamW(policy.parameters(), betas=(0.9, 0.99), weight_decay=0.0)
    rollouts.update_weights(policy)
    accuracy = evaluate(run, rollouts)
    print(f"step   0  accuracy {accuracy:.3f}")
    for step, tasks in enumerate(islice(batches(run), steps), start=1):
        groups = rollouts.collect(RolloutRequest(tasks=tasks, group_size=GROUP_SIZE, seed=SEED, step=step))
        update(policy, optimiser, with_advantages(groups), clipped_surrogate, rate=1e-4)
        rollouts.update_weights(policy)
        rewards = [reward for group in groups for reward in group.rewards_G if reward is not None]
        line = f"step {step:3d}  reward {sum(rewards) / len(rewards):.3f}"
        if step % EVALUATE_EVERY == 0 or step == steps:
            accuracy = evaluate(run, rollouts)
            line += f"  accuracy {accuracy:.3f}"
        print(line)
    return accuracy


def batches(run: RunSession) -> Iterator[list[rlcore.Task]]:
    """The training tasks of each step, in a new order in each epoch."""
    tasks, cursor = run.dataset.tasks("train"), Cursor()
    while True:
        chosen, cursor = draw(cursor, TASKS_PER_STEP, tasks=len(tasks), seed=SEED)
        yield [tasks[i] for i in chosen]


def with_advantages(groups: Sequence[Group]) -> list[TrainingSequence]:
    """The scored trajectories, each with its reward relative to its group: ``(reward − mean) / std``."""
    scored = [(i, one) for i, group in enumerate(groups) for one in group.trajectories if one.reward is not None]
    rewards_N = torch.tensor([trajectory.reward for _, trajectory in scored], dtype=torch.float64)
    groups_N = torch.tensor([i for i, _ in scored])
    advantages_N, _ = grpo(rewards_N, groups_N)
    return [
        TrainingSequence.of(segment, advantage=advantage)
        for (_, trajectory), advantage in zip(scored, advantages_N.tolist(), strict=True)
        for segment in trajectory.segments
    ]


def clipped_surrogate(batch: MicroBatch, logprobs_M: Tensor) -> Tensor:
    """The loss of PPO. The engine recorded the log-probabilities with which it sampled."""
    loss, _ = clip(logprobs_M, batch.engine_logprobs_M, batch.advantages_M, batch.weights_M)
    return loss


def negative_log_likelihood(batch: MicroBatch, logprobs_M: Tensor) -> Tensor:
    """The loss of imitation."""
    return -(batch.weights_M * logprobs_M).sum()


def update(
    policy: CausalLanguageModel, optimiser: AdamW, sequences: Sequence[TrainingSequence], loss_of: Loss, rate: float
) -> float:
    """One optimiser step on the mean loss over all sampled tokens, which is returned.

    ``pack`` puts sequences into rows without padding and computes the prompt of a group once. The weights of all tokens
    sum to one, so the size of a micro-batch does not matter.
    """
    weight = 1.0 / sum(sequence.trained for sequence in sequences)
    total = 0.0
    with policy.computing():
        for batch in pack([replace(one, weight=weight) for one in sequences], MAX_TOKENS_PER_BATCH, DEVICE):
            logprobs_M, _ = policy.evaluate(batch)
            loss = loss_of(batch, logprobs_M)
            loss.backward()
            total += float(loss.detach())
    torch.nn.utils.clip_grad_norm_(policy.parameters(), MAX_GRADIENT_NORM)
    for parameters in optimiser.param_groups:
        parameters["lr"] = rate
    optimiser.step()
    optimiser.zero_grad()
    policy.version += 1
    return total


def evaluate(run: RunSession, rollouts: Sampler) -> float:
    """Accuracy of greedy answers to the held-out problems."""
    groups = rollouts.collect(evaluation_request(run.config, run.dataset.tasks("evaluation")))
    return summarise(groups).accuracy or 0.0


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
