"""A pretrained model that ``rlcore merge`` converted from a GGUF file loads in trainer and engine, and knows things."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch
from rlcore.models.folder import check_model_folder
from rlcore.models.weights import FolderWeights
from rlcore.types import Prompt, Sampling, TokenIds
from rlcore_rollout.chat.tokenizer import ChatTokenizer
from rlcore_rollout.engines.context import EngineContext
from rlcore_rollout.engines.torch.config import TorchEngineConfig
from rlcore_rollout.engines.torch.engine import TorchEngine
from rlcore_trainer.policy.model import load_policy


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
