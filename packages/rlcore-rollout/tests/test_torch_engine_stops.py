"""Texts that end a generation of the torch engine."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from live_weights import LiveWeights  # noqa: E402
from rlcore.errors import EngineError  # noqa: E402
from rlcore.types import Completion, Sampling  # noqa: E402
from rlcore_rollout.engines.context import EngineContext  # noqa: E402
from rlcore_rollout.engines.torch.config import TorchEngineConfig  # noqa: E402
from rlcore_rollout.engines.torch.engine import TorchEngine  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402
from torch_models import as_prompt, build  # noqa: E402

PROMPT = (5, 9, 13, 21)


def generate(model: Any, folder: Path | None, **sampling: Any) -> Completion:
    async def main() -> Completion:
        source = LiveWeights(model)
        if folder is not None:
            shutil.copyfile(folder / "tokenizer.json", source.folder / "tokenizer.json")
        engine = TorchEngine(TorchEngineConfig(slots=8), source, EngineContext())
        try:
            return await engine.generate(
                as_prompt(PROMPT),
                Sampling(**{"max_new_tokens": 24, "temperature": 0.7, "seed": 4, **sampling}),
                session="a",
            )
        finally:
            await engine.close()

    return asyncio.run(main())


def test_token_that_completes_a_stop_text_is_the_last(tiny_folder: Path) -> None:
    model, tokenizer = build(vocab_size=300), Tokenizer.from_file(str(tiny_folder / "tokenizer.json"))
    whole = generate(model, tiny_folder)

    def text(count: int) -> str:
        return tokenizer.decode(list(whole.token_ids[:count]), skip_special_tokens=False)

    for count in (1, 5, 11, 20):
        stop = text(count)[-3:]
        first = next(n for n in range(1, 25) if stop in text(n))
        stopped = generate(model, tiny_folder, stop=("never written", stop))
        assert stopped.finish_reason == "stop"
        assert stopped.token_ids == whole.token_ids[:first]
        assert stopped.logprobs == whole.logprobs[:first]


def test_unmatched_stop_texts_do_not_end_generation(tiny_folder: Path) -> None:
    model = build(vocab_size=300)
    assert generate(model, tiny_folder, stop=("<|never|>", "\u2603 unlikely")) == generate(model, tiny_folder)


def test_stop_texts_without_a_tokenizer_are_rejected() -> None:
    with pytest.raises(EngineError, match="stop texts need the model's tokenizer"):
        generate(build(), None, stop=("x",))
