"""A process of one side of ``fsdp2-step``: ``python _fsdp2_side.py ours|torch ROWS STEPS``, as a rank of `launch`.

The main process prints a JSON object with the seconds of all steps but the first and the last loss.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as distributed
from transformers import Qwen2Config, Qwen2ForCausalLM

LENGTH, VOCABULARY, RATE, MOST = 256, 8192, 1e-3, 4
"""Tokens of a row, tokens of the model, learning rate, and most rows of a micro-batch."""


def model(smoke: bool) -> Qwen2ForCausalLM:
    """A model with random weights, the same in all processes."""
    torch.manual_seed(0)
    width, layers = (64, 2) if smoke else (512, 8)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=VOCABULARY, hidden_size=width, intermediate_size=3 * width, num_hidden_layers=layers,
            num_attention_heads=8, num_key_value_heads=2, tie_word_embeddings=True,
        )
    ).eval()  # fmt: skip


def ours(made: Qwen2ForCausalLM, ids_BL: torch.Tensor) -> Callable[[], float]:
    """The steps of rlcore's learner."""
    from rlcore_trainer.batching.packing import TrainingSequence
    from rlcore_trainer.config import SupervisedConfig
    from rlcore_trainer.distributed.config import FullyShardedConfig
    from rlcore_trainer.distributed.ranks import Ranks
    from rlcore_trainer.distributed.strategies.fully_sharded import FullySharded
    from rlcore_trainer.learner.learner import Learner, offer_training
    from rlcore_trainer.learner.trained_policy import TrainedPolicy
    from rlcore_trainer.policy.causal_lm import CausalLanguageModel

    strategy = FullySharded(FullyShardedConfig())
    ranks = Ranks(strategy.processes)
    offer_training(ranks, TrainedPolicy(CausalLanguageModel(made), strategy, SupervisedConfig()))
    learner, rows = Learner(ranks, MOST * LENGTH), ids_BL.tolist()
    sequences = [TrainingSequence(token_ids=row, loss_mask=[t > 0 for t in range(LENGTH)]) for row in rows]

    def step() -> float:
        return learner.imitate(sequences, learning_rate=RATE, max_gradient_norm=1.0, shown=False)[0]

    if not ranks.is_main:
        ranks.serve()
        raise SystemExit
    return step


def plain(made: Qwen2ForCausalLM, ids_BL: torch.Tensor) -> Callable[[], float]:
    """A minimal loop of torch's FSDP2."""
    from torch.distributed.fsdp import fully_shard

    distributed.init_process_group("gloo")
    for layer in made.model.layers:
        fully_shard(layer)
    fully_shard(made)
    optimiser = torch.optim.AdamW(made.parameters(), lr=RATE, fused=True)
    rank, count = distributed.get_rank(), distributed.get_world_size()
    batches = ids_BL[rank::count].split(MOST)

    def step() -> float:
        total = torch.zeros(())
        for batch_BL in batches:
            loss = made(input_ids=batch_BL, labels=batch_BL, use_cache=False).loss / len(batches)
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(made.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        distributed.all_reduce(total)
        return float(total / count)

    return step


def main(side: str, rows: int, steps: int) -> None:
    """Measure the steps of one side."""
    torch.set_num_threads(1)
    made = model(smoke=steps < 3)
    ids_BL = torch.randint(VOCABULARY, (rows, LENGTH), generator=torch.Generator().manual_seed(0))
    step = {"ours": ours, "torch": plain}[side](made, ids_BL)
    step()
    started = time.perf_counter()
    losses = [step() for _ in range(steps - 1)]
    seconds = time.perf_counter() - started
    if os.environ["RANK"] == "0":
        print(json.dumps({"seconds": seconds, "loss": losses[-1]}), flush=True)
        os._exit(0)  # the other processes of rlcore wait for a call


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
