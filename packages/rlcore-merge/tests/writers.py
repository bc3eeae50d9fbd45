"""Write checkpoints of four, two and one processes with torch: ``python writers.py FOLDER``."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardedStateDictConfig, StateDictType, fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

CONFIG = {
    "architectures": ["FSDPQwen2ForCausalLM"],
    "model_type": "qwen2",
    "vocab_size": 7,
    "hidden_size": 4,
    "num_hidden_layers": 1,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
}


class Model(nn.Module):
    """Sizes 7 and 3 on four processes give uneven and empty shards; also buffers and tied weights."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(7, 4)
        self.layer = nn.Linear(4, 3)
        self.norm = nn.LayerNorm(1)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("Abuffer", torch.arange(5.0) / 3)
        self.register_buffer("count", torch.tensor(3.5))
        self.register_buffer("ids", torch.arange(3))


def two_layers() -> nn.Sequential:
    """Ten outputs on 2 x 2 processes give strided and uneven shards."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 10), nn.Linear(10, 6))


def write_processes(rank: int, folder: str) -> None:
    """Write the files of one of four processes. They rendezvous through a file, because a free port may be taken."""
    os.environ.update(RANK=str(rank), WORLD_SIZE="4")
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=4)

    def save(name: str, state: Mapping[str, Any]) -> None:
        out = Path(folder) / name
        (out / "huggingface").mkdir(parents=True, exist_ok=True)
        torch.save(dict(state), out / f"model_world_size_4_rank_{rank}.pt")
        if rank == 0:
            (out / "huggingface" / "config.json").write_text(json.dumps(CONFIG))

    line = init_device_mesh("cpu", (4,), mesh_dim_names=("dp_shard",))
    model = Model()
    fully_shard(model.layer)
    fully_shard(model, mesh=line)
    save("fsdp2", model.state_dict())
    dcp.save({"model": model.state_dict(), "step": torch.tensor(3)}, checkpoint_id=f"{folder}/dcp")
    hybrid = Model()
    fully_shard(hybrid, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("ddp", "fsdp")))
    save("hsdp", hybrid.state_dict())
    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    pair = two_layers()
    parallelize_module(pair, grid["tp"], {"0": ColwiseParallel(), "1": RowwiseParallel()})
    fully_shard(pair, mesh=grid["dp"])
    save("tensor-parallel", pair.state_dict())
    weight = two_layers()[0].weight.detach()
    save(
        "placements",
        {
            "second-axis": distribute_tensor(weight, line, [Shard(1)]),
            "replicated": distribute_tensor(weight, line, [Replicate()]),
            "both-axes": distribute_tensor(weight, grid, [Shard(1), Shard(0)]),
            "nested": distribute_tensor(weight, grid, [Shard(0), Shard(0)]),
        },
    )
    for name, arguments in (("fsdp1", {}), ("fsdp1-mesh", {"device_mesh": line})):
        old = FullyShardedDataParallel(Model(), device_id=torch.device("cpu"), use_orig_params=True, **arguments)
        settings = ShardedStateDictConfig(offload_to_cpu=True)
        with FullyShardedDataParallel.state_dict_type(old, StateDictType.SHARDED_STATE_DICT, settings):
            save(name, old.state_dict())
    dist.barrier()
    dist.destroy_process_group()


class Process:
    """What accelerate's function for saving needs of an accelerator."""

    def __init__(self, rank: int, world: int) -> None:
        self.process_index, self.num_processes = rank, world

    def wait_for_everyone(self) -> None:
        """Wait for all processes."""
        dist.barrier()


def save_by_accelerate(folder: Path, model: nn.Module, process: Process) -> None:
    """The files of accelerate's FSDP without DCP: of each process, and of rank 0 with the full state dict."""
    from accelerate import PartialState
    from accelerate.utils.dataclasses import FullyShardedDataParallelPlugin
    from accelerate.utils.fsdp_utils import save_fsdp_model

    PartialState(cpu=True)  # required by accelerate's logger
    for kind in ("SHARDED_STATE_DICT", "FULL_STATE_DICT"):
        plugin = FullyShardedDataParallelPlugin(fsdp_version=2, state_dict_type=kind)
        save_fsdp_model(plugin, process, model, str(folder / kind), use_dcp=False)


def write_small(rank: int, folder: str, world: int) -> None:
    """Write the files of meshes with dimensions of size 1, as every run on one GPU has."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="1")  # required by accelerate, but not used
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous-{world}", rank=rank, world_size=world)
    for sizes in ((world,), (1, world), (world, 1), (1, world, 1)):
        names = ("outer", "inner", "last")[: len(sizes)]
        mesh = init_device_mesh("cpu", sizes, mesh_dim_names=names)
        out = Path(folder) / f"mesh-{'x'.join(map(str, sizes))}"
        out.mkdir(exist_ok=True)
        weight = two_layers()[0].weight.detach()
        splits = {f"axis-{axis}": [*([Replicate()] * (len(sizes) - 1)), Shard(axis)] for axis in (0, 1)}
        splits |= {"outer": [Shard(0), *([Replicate()] * (len(sizes) - 1))], "nested": [Shard(0)] * len(sizes)}
        state = {name: distribute_tensor(weight, mesh, places) for name, places in splits.items()}
        state["part-of-the-mesh"] = distribute_tensor(weight, mesh[names[-1]], [Replicate()])
        torch.save(state, out / f"model_world_size_{world}_rank_{rank}.pt")
    model = Model()
    fully_shard(model, mesh=init_device_mesh("cpu", (world,), mesh_dim_names=("dp_shard",)))
    (Path(folder) / f"fsdp2-of-{world}").mkdir(exist_ok=True)
    torch.save(model.state_dict(), Path(folder) / f"fsdp2-of-{world}" / f"model_world_size_{world}_rank_{rank}.pt")
    dcp.save({"model": model.state_dict()}, checkpoint_id=f"{folder}/dcp-of-{world}")
    save_by_accelerate(Path(folder) / f"accelerate-of-{world}", model, Process(rank, world))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    # With fork torch is imported once instead of five times.
    torch.multiprocessing.start_processes(write_processes, (sys.argv[1],), nprocs=4, start_method="fork")
    for count in (1, 2):
        torch.multiprocessing.start_processes(write_small, (sys.argv[1], count), nprocs=count, start_method="fork")
