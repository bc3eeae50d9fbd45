"""What DeepSpeed's ZeRO writes: ``python save_deepspeed.py MODEL_FOLDER OUT PORT STAGE``; two processes."""

from __future__ import annotations

import os
import sys

import torch
import torch.multiprocessing

PROCESSES = 2


def save(rank: int, folder: str, out: str, port: str, stage: str) -> None:
    """One process."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=str(rank), WORLD_SIZE=str(PROCESSES))
    os.environ.update(LOCAL_RANK=str(rank), DS_ACCELERATOR="cpu")
    import deepspeed
    from transformers import AutoModelForCausalLM

    deepspeed.init_distributed(dist_backend="gloo")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    settings = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": int(stage)},
        "zero_allow_untested_optimizer": True,
    }
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimiser, config=settings)
    engine.save_checkpoint(out, tag="global_step1")


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.multiprocessing.start_processes(save, tuple(sys.argv[1:5]), nprocs=PROCESSES, start_method="fork")
