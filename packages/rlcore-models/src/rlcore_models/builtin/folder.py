"""The Hugging Face folder of a built-in model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import GenerationConfig, PreTrainedModel

END, PADDING = "<|im_end|>", "<|endoftext|>"
TIED = "lm_head.weight"
"""A tied output layer, which is not stored separately."""


def end_tokens(tokenizer: Tokenizer) -> dict[str, Any]:
    """The ids of the end and the padding token, as a configuration of transformers names them."""
    return {"eos_token_id": tokenizer.token_to_id(END), "pad_token_id": tokenizer.token_to_id(PADDING)}


def write_folder(folder: Path, model: PreTrainedModel, tokenizer: Tokenizer, template: str, positions: int) -> None:
    """Write the tokenizer, its chat template, the configuration and the weights of a model.

    Args:
        folder: is created
        model: its weights are written under the names of its ``state_dict``
        tokenizer: has the end and padding tokens
        template: the chat template of transformers, equal to the chat format ``plain``
        positions: the maximum sequence length
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    described = {
        "tokenizer_class": "Qwen2Tokenizer",
        "rlcore_chat_format": "plain",
        "chat_template": template,
        "eos_token": END,
        "pad_token": PADDING,
        "model_max_length": positions,
        "clean_up_tokenization_spaces": False,
    }
    write_settings(folder / "tokenizer_config.json", described)
    model.config.save_pretrained(folder)
    GenerationConfig(**end_tokens(tokenizer)).save_pretrained(folder)  # type: ignore[no-untyped-call]
    tied = model.config.get_text_config().tie_word_embeddings
    weights = {name: weight.contiguous() for name, weight in model.state_dict().items() if not (tied and name == TIED)}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def write_settings(path: Path, settings: dict[str, object]) -> None:
    """Write a JSON file."""
    path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
