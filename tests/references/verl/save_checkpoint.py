"""What verl's own checkpoint manager writes: ``python save_checkpoint.py MODEL_FOLDER OUT PORT``.

Four gloo processes shard the model of a folder with FSDP2 and save it, optimiser and all.
"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM, AutoTokenizer
from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager

PROCESSES = 4


def save(rank: int, folder: str, out: str, port: str) -> None:
    """One process: load, shard, one optimiser step of no length, save."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=str(rank), WORLD_SIZE=str(PROCESSES))
    dist.init_process_group("gloo", rank=rank, world_size=PROCESSES)
    mesh = init_device_mesh("cpu", (PROCESSES,), mesh_dim_names=("fsdp",))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0)
    model(input_ids=torch.tensor([[1, 2, 3]])).logits.sum().backward()
    optimiser.step()
    contents = {"save_contents": ["model", "optimizer", "extra"], "load_contents": ["model"]}
    tokenizer = AutoTokenizer.from_pretrained(folder)
    FSDPCheckpointManager(
        model,
        optimiser,
        torch.optim.lr_scheduler.ConstantLR(optimiser),
        processing_class=tokenizer,
        checkpoint_config=contents,
    ).save_checkpoint(out, global_step=1)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.multiprocessing.start_processes(save, tuple(sys.argv[1:4]), nprocs=PROCESSES, start_method="fork")
