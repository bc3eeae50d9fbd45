"""Prompts with pictures, engines over tiny vision-language models, and the answers of transformers to them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from live_weights import LiveWeights  # noqa: E402
from PIL import Image  # noqa: E402
from rlcore.images import ImageProcessor  # noqa: E402
from rlcore.types import Completion, MediaSpan, Prompt, Sampling, TokenIds, media_hash  # noqa: E402
from rlcore_rollout.engines.context import EngineContext  # noqa: E402
from rlcore_rollout.engines.torch.config import TorchEngineConfig  # noqa: E402
from rlcore_rollout.engines.torch.engine import TorchEngine  # noqa: E402
from torch_models import assert_are_among  # noqa: E402
from transformers import Qwen2VLImageProcessor  # noqa: E402
from vision_models import picture, processor_of, vision_language_model  # noqa: E402

PAD, VIDEO, START, END = 60, 61, 62, 63
"""The special tokens of the tiny models; text is below them."""

Part = bytes | Sequence[int]


def drawn(family: str, columns: int, rows: int, seed: int = 0) -> bytes:
    """A picture with this many visual tokens."""
    side = processor_of(family).token_side
    return picture(columns * side, rows * side, seed)


def extended(prompt: Prompt, processor: ImageProcessor, *parts: Part) -> Prompt:
    """The prompt with more text and pictures."""
    ids, media, images = list(prompt.token_ids), list(prompt.media), dict(prompt.images)
    for part in parts:
        if not isinstance(part, bytes):
            ids += part
            continue
        rows, columns = processor.tokens(*Image.open(io.BytesIO(part)).size)
        name = media_hash(part)
        images[name] = part
        ids.append(START)
        media.append(MediaSpan(sha256=name, offset=len(ids), length=rows * columns, rows=rows, columns=columns))
        ids += [*[PAD] * (rows * columns), END]
    return Prompt(token_ids=TokenIds(ids), media=tuple(media), images=images)


def prompt_of(family: str, *parts: Part) -> Prompt:
    return extended(Prompt(token_ids=TokenIds()), processor_of(family), *parts)


def vision_engine(family: str, model: Any = None, slots: int = 16, **options: Any) -> TorchEngine:
    model = vision_language_model(family) if model is None else model
    return TorchEngine(
        TorchEngineConfig(slots=slots, **options), LiveWeights(model), EngineContext(images=processor_of(family))
    )


def inputs_of(family: str, prompt: Prompt, more: Sequence[int] = ()) -> dict[str, Any]:
    """The arguments of a model of transformers, with pixels from its own image processor."""
    ids = torch.tensor([[*prompt.token_ids, *more]])
    if not prompt.media:
        return {"input_ids": ids}
    processor = processor_of(family)
    theirs = Qwen2VLImageProcessor(
        patch_size=processor.patch_size, min_pixels=processor.min_pixels, max_pixels=processor.max_pixels
    )
    images = [Image.open(io.BytesIO(prompt.images[span.sha256])) for span in prompt.media]
    kinds = torch.zeros_like(ids)
    for span in prompt.media:
        kinds[0, span.offset : span.offset + span.length] = 1
    return {"input_ids": ids, "mm_token_type_ids": kinds, **theirs(images, return_tensors="pt")}


def expected_logprobs(family: str, model: Any, prompt: Prompt, completion: Completion) -> Any:
    """Log-probabilities [tokens, vocabulary] before each token of the completion, by transformers in one pass."""
    model.model.rope_deltas = None
    with torch.no_grad():
        logits = model(**inputs_of(family, prompt, completion.token_ids)).logits[0]
    return torch.log_softmax(logits[len(prompt) - 1 : -1], dim=-1)


def assert_equals_transformers(family: str, model: Any, prompt: Prompt, completion: Completion) -> None:
    assert_are_among(completion, model, lambda model: expected_logprobs(family, model, prompt, completion))


def generated(family: str, model: Any, prompt: Prompt, sampling: Sampling) -> list[int]:
    """Greedy tokens of ``generate`` of transformers."""
    model.model.rope_deltas = None
    output = model.generate(
        **inputs_of(family, prompt),
        do_sample=False,
        max_new_tokens=sampling.max_new_tokens,
        suppress_tokens=list(sampling.suppressed_token_ids),
        eos_token_id=None,
        pad_token_id=0,
    )
    tokens: list[int] = output[0, len(prompt) :].tolist()
    return tokens
