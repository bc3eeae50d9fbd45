"""Tiny vision-language models with random weights, a byte-level tokenizer and a processor, made in a second."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from byte_level import byte_level_tokenizer
from PIL import Image
from rlcore.images import ImageProcessor, image_size
from rlcore.types import MediaSpan, Prompt, TokenIds
from tokenizers import AddedToken

Family = Literal["qwen2_vl", "qwen2_5_vl", "qwen3_vl"]
SPECIAL = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    *("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"),
)
SIDE = {"qwen2_vl": 28, "qwen2_5_vl": 28, "qwen3_vl": 32}
"""Side in pixels of the square that becomes one token."""
MOST_TOKENS = 64
"""Limit of visual tokens of one image."""
TEMPLATE = """{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.content is string %}{{ message.content }}
    {%- else %}
        {%- for part in message.content %}
            {%- if part.type == 'image' %}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}
            {%- else %}{{ part.text }}{% endif %}
        {%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


def vision_model(
    family: Family = "qwen2_5_vl", *, tied: bool = False, seed: int = 0, vocabulary: int = 320, width: int = 64
) -> Any:
    """A model of two text layers and two vision layers, in float32."""
    text = {
        "hidden_size": width,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": vocabulary,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": tied,
        "initializer_range": 0.08,
        "rope_parameters": {
            "rope_type": "default",
            "mrope_section": [width // 16, width // 16 * 3 // 2, width // 4 - width // 16 - width // 16 * 3 // 2],
            "rope_theta": 100.0,
        },
        "bos_token_id": None,
        "eos_token_id": None,
    }
    if family == "qwen3_vl":
        text |= {"head_dim": width // 2}
        text["rope_parameters"] |= {"mrope_interleaved": True}
    ids = {name: vocabulary - len(SPECIAL) + place for place, name in enumerate(SPECIAL)}
    settings = {
        "text_config": text,
        "vision_config": _vision(family, width),
        "tie_word_embeddings": tied,
        "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "vision_start_token_id": ids["<|vision_start|>"],
        "vision_end_token_id": ids["<|vision_end|>"],
    }
    name = {"qwen2_vl": "Qwen2VL", "qwen2_5_vl": "Qwen2_5_VL", "qwen3_vl": "Qwen3VL"}[family]
    config = getattr(transformers, f"{name}Config")(**settings)
    torch.manual_seed(seed)
    model = getattr(transformers, f"{name}ForConditionalGeneration")(config).float().eval()
    with torch.no_grad():
        for weight in model.parameters():  # the initialisation leaves biases at zero and norms at one
            weight.add_(0.05 * torch.randn_like(weight))
    return model


def _vision(family: Family, width: int) -> dict[str, Any]:
    vision: dict[str, Any] = {"depth": 2, "num_heads": 2, "patch_size": SIDE[family] // 2, "initializer_range": 0.08}
    if family == "qwen2_vl":
        return vision | {"embed_dim": 64, "hidden_size": width, "mlp_ratio": 2}
    vision |= {"hidden_size": 64, "out_hidden_size": width, "intermediate_size": 96}
    if family == "qwen3_vl":
        return vision | {"deepstack_visual_indexes": [0], "num_position_embeddings": 64}
    return vision | {"fullatt_block_indexes": [1], "window_size": 56}


def vision_folder(
    folder: Path, family: Family = "qwen2_5_vl", *, tied: bool = False, seed: int = 0, vocabulary: int = 320
) -> Path:
    """Save a tiny model with its tokenizer, processor and chat template."""
    vision_model(family, tied=tied, seed=seed, vocabulary=vocabulary).save_pretrained(folder)
    add_processor(folder, family, vocabulary=vocabulary)
    return folder


def add_processor(folder: Path, family: Family = "qwen2_5_vl", *, vocabulary: int = 320) -> None:
    """Save the tokenizer, the processor and the chat template of a tiny model."""
    tokenizer = byte_level_tokenizer(["the red square on the left", "What is there?"], vocabulary - len(SPECIAL))
    missing = vocabulary - len(SPECIAL) - tokenizer.get_vocab_size()
    tokenizer.add_tokens([AddedToken(f"<|unused_{place}|>", special=True) for place in range(missing)])
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIAL])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>")
    fast.pad_token = "<|endoftext|>"
    fast.save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    side = SIDE[family]
    own = (0.5, 0.5, 0.5) if family == "qwen3_vl" else None
    settings = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": {"qwen2_vl": "Qwen2VL", "qwen2_5_vl": "Qwen2_5_VL", "qwen3_vl": "Qwen3VL"}[family]
        + "Processor",
        "patch_size": side // 2,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "size": {"shortest_edge": side**2, "longest_edge": MOST_TOKENS * side**2},
        "image_mean": list(own or (0.48145466, 0.4578275, 0.40821073)),
        "image_std": list(own or (0.26862954, 0.26130258, 0.27577711)),
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(settings, indent=2), encoding="utf-8")
    video = settings | {
        "video_processor_type": "Qwen3VLVideoProcessor" if family == "qwen3_vl" else "Qwen2VLVideoProcessor"
    }
    del video["image_processor_type"]
    (folder / "video_preprocessor_config.json").write_text(json.dumps(video, indent=2), encoding="utf-8")


def picture(width: int, height: int, seed: int) -> bytes:
    """A PNG of random colours in squares of four pixels."""
    generator = torch.Generator().manual_seed(seed)
    colours = torch.randint(0, 256, (height // 4 + 1, width // 4 + 1, 3), generator=generator, dtype=torch.uint8)
    written = io.BytesIO()
    Image.fromarray(colours.numpy()).resize((width, height), Image.Resampling.NEAREST).save(written, format="PNG")
    return written.getvalue()


def prompt_of(folder: Path, parts: Sequence[bytes | Sequence[int]]) -> Prompt:
    """A prompt of token ids and images, each image between its start and end tokens and expanded."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    start, pad, end = (config[f"{name}_token_id"] for name in ("vision_start", "image", "vision_end"))
    processor = ImageProcessor.of_folder(folder)
    assert processor is not None
    ids: list[int] = []
    media, images = [], {}
    for part in parts:
        if not isinstance(part, bytes):
            ids += part
            continue
        fitted = processor.fit(part)
        rows, columns = processor.tokens(*image_size(fitted))
        name = hashlib.sha256(fitted).hexdigest()
        images[name] = fitted
        ids.append(start)
        span = MediaSpan(sha256=name, offset=len(ids), length=rows * columns, rows=rows, columns=columns)
        media.append(span)
        ids += [pad] * span.length + [end]
    return Prompt(token_ids=TokenIds(ids), media=tuple(media), images=images)


@torch.no_grad()
def reference_logprobs(model: Any, folder: Path, prompt: Prompt, completion: Sequence[int]) -> torch.Tensor:
    """The log-probabilities of all tokens at each place of a completion, from transformers, [T, V]."""
    ids = torch.tensor([[*prompt.token_ids, *completion]])
    inputs: dict[str, Any] = {}
    if prompt.media:
        processor = transformers.AutoImageProcessor.from_pretrained(folder)
        opened = [Image.open(io.BytesIO(prompt.images[span.sha256])) for span in prompt.media]
        inputs = dict(processor(images=opened, do_resize=False, return_tensors="pt"))
        inputs["mm_token_type_ids"] = (ids == model.config.image_token_id).int()
    logits = model(input_ids=ids, use_cache=False, **inputs).logits
    return logits[0, len(prompt) - 1 : -1].log_softmax(-1)
