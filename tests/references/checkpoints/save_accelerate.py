"""What accelerate writes of a model sharded by FSDP2: ``python save_accelerate.py MODEL_FOLDER OUT PORT``."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing

PROCESSES = 4


def save(rank: int, folder: str, out: str, port: str) -> None:
    """One process."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=str(rank), WORLD_SIZE=str(PROCESSES))
    os.environ.update(LOCAL_RANK=str(rank), ACCELERATE_USE_FSDP="true", ACCELERATE_USE_CPU="true")
    from accelerate import Accelerator, FullyShardedDataParallelPlugin
    from transformers import AutoModelForCausalLM

    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=["Qwen2DecoderLayer"],
        state_dict_type="SHARDED_STATE_DICT",
        cpu_offload=False,
    )
    accelerator = Accelerator(cpu=True, fsdp_plugin=plugin)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0)
    model, optimiser = accelerator.prepare(model, optimiser)
    accelerator.save_state(out)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.multiprocessing.start_processes(save, tuple(sys.argv[1:4]), nprocs=PROCESSES, start_method="fork")
