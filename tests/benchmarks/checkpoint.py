"""How long training pauses for a checkpoint of 1 GB, against the time until the checkpoint is complete on the disk.

A Llama shape with 83 M parameters in float32 and the two moments of AdamW. The peer waits until the checkpoint is
complete, as a synchronous write does.
"""

from __future__ import annotations

import atexit
import itertools
import shutil
import tempfile
import time
from functools import partial
from pathlib import Path

import torch
from comparison import Comparison
from rlcore_trainer.checkpoints.checkpoint import Checkpoints, Progress, write_part
from rlcore_trainer.policy.causal_lm import CausalLanguageModel
from transformers import LlamaConfig, LlamaForCausalLM

VERSIONS = ("rlcore-trainer", "torch", "transformers")
SHAPE = {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 7, "num_attention_heads": 12}
SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """The pause of training."""
    folder = Path(tempfile.mkdtemp(prefix="rlcore-benchmark-"))
    atexit.register(shutil.rmtree, folder)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=256 if smoke else 22_000, **(SMALL if smoke else SHAPE)))
    state = {name: [torch.rand_like(one), torch.rand_like(one)] for name, one in model.named_parameters()}
    write = partial(write_part, policy=CausalLanguageModel(model, folder), state=state, main=True)
    checkpoints, steps = Checkpoints(folder / "checkpoints", keep=1), itertools.count(1)

    def seconds(*, until_complete: bool) -> float:
        started = time.perf_counter()
        completed = checkpoints.save(Progress(step=next(steps)), state, write)
        pause = time.perf_counter() - started
        assert (completed.result() / "manifest.json").is_file()
        return time.perf_counter() - started if until_complete else pause

    return [
        Comparison(
            name="pause",
            ours=partial(seconds, until_complete=False),
            peer=partial(seconds, until_complete=True),
            floor=3.0,
        )
    ]
