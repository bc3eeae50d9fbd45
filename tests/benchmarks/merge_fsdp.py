"""Merge a checkpoint of four FSDP2 processes from float32 to bf16: rlcore merge against the merger of verl."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from _merge_sides import Sides, every_size
from comparison import Comparison

VERSIONS = ("rlcore-merge", "torch", "numpy")
REFERENCE = Path(__file__).parents[1] / "references" / "verl"
PEER = Path(os.environ.get("RLCORE_VERL_PYTHON", REFERENCE / ".venv" / "bin" / "python"))

WRITE = """
import sys, json
from pathlib import Path
import torch, torch.distributed as dist, torch.multiprocessing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
def write(rank, folder, layers, port):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=4)
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("fsdp",))
    torch.manual_seed(rank)
    h, i, v = 1024, 4096, 32000
    shapes = {"model.embed_tokens.weight": (v, h), "lm_head.weight": (v, h), "model.norm.weight": (h,)}
    for n in range(layers):
        p = f"model.layers.{n}."
        shapes |= {p + f"self_attn.{x}_proj.weight": (h, h) for x in "qkvo"}
        shapes |= {p + f"self_attn.{x}_proj.bias": (h,) for x in "qkv"}
        shapes |= {p + "mlp.gate_proj.weight": (i, h), p + "mlp.up_proj.weight": (i, h)}
        shapes[p + "mlp.down_proj.weight"] = (h, i)
        shapes |= {p + "input_layernorm.weight": (h,), p + "post_attention_layernorm.weight": (h,)}
    state = {}
    for name, shape in shapes.items():
        local = torch.randn(shape[0] // 4, *shape[1:]) * 0.02
        state[name] = DTensor.from_local(local, mesh, [Shard(0)], run_check=False)
    torch.save(state, Path(folder) / f"model_world_size_4_rank_{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()
if __name__ == "__main__":
    folder, layers = sys.argv[1], int(sys.argv[2])
    out = Path(folder) / "huggingface"
    out.mkdir(parents=True)
    config = dict(architectures=["Qwen2ForCausalLM"], model_type="qwen2", vocab_size=32000, hidden_size=1024,
                  intermediate_size=4096, num_hidden_layers=layers, num_attention_heads=16, num_key_value_heads=16,
                  tie_word_embeddings=False, torch_dtype="float32")
    (out / "config.json").write_text(json.dumps(config))
    (Path(folder) / "fsdp_config.json").write_text('{"FSDP_version": 2, "world_size": 4}')
    torch.multiprocessing.start_processes(write, (folder, layers, int(sys.argv[3])), nprocs=4, start_method="fork")
"""


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """Three comparisons per size."""
    return every_size(_sides, PEER, smoke=smoke)


def _sides(folder: Path, gigabytes: float) -> Sides:
    source = folder / "actor"
    # 67 million bytes per layer, and twice 131 million bytes for the embeddings.
    layers = max(1, round((gigabytes * 1e9 - 2 * 32000 * 1024 * 4) / (16.8e6 * 4)))
    script = folder / "write.py"
    script.write_text(WRITE, encoding="utf-8")
    subprocess.run([sys.executable, str(script), str(source), str(layers), "29641"], check=True, capture_output=True)
    sources = list(source.glob("*.pt"))
    verl = ["-m", "verl.model_merger", "merge", "--backend", "fsdp", "--local_dir"]
    return Sides(
        ours=[sys.executable, "-m", "rlcore", "merge", str(source), "--dtype", "bf16", "--out"],
        peer=[str(PEER), *verl, str(source), "--target_dir"],
        sources=sources,
        written=sum(path.stat().st_size for path in sources) // 2,
        out=folder / "out",
    )
