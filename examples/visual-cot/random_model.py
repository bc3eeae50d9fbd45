"""Write a Qwen2.5-VL folder with random weights and a real tokenizer, to try out a run before the download.

    python random_model.py OUT --tokenizer FOLDER [--size 3b | tiny] [--layers 2]

``FOLDER`` has ``tokenizer.json``, ``tokenizer_config.json`` and ``preprocessor_config.json``. The size ``3b`` has the
widths of Qwen2.5-VL-3B-Instruct, with fewer layers.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

TEXT = {
    "3b": {
        "hidden_size": 2048,
        "intermediate_size": 11008,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
    },
    "tiny": {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 6, 6]},
    },
}
VISION = {
    "3b": {"hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "out_hidden_size": 2048},
    "tiny": {"hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 64},
}
SPECIAL = {
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "vision_start_token_id": 151652,
    "vision_end_token_id": 151653,
    "image_token_id": 151655,
    "video_token_id": 151656,
}
VOCABULARY = 151936


def build(out: Path, tokenizer: Path, *, size: str, layers: int, seed: int = 0) -> int:
    """Write the folder, and return the number of parameters."""
    import torch
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    text: dict[str, Any] = {
        **TEXT[size],
        "num_hidden_layers": layers,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 128000,
        "tie_word_embeddings": True,
        "use_sliding_window": False,
    }
    vision = {
        **VISION[size],
        "depth": layers,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "window_size": 112,
        "fullatt_block_indexes": [layers - 1],
    }
    config = Qwen2_5_VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True, **SPECIAL)
    torch.manual_seed(seed)
    model = Qwen2_5_VLForConditionalGeneration(config).to(torch.bfloat16)
    model.save_pretrained(out)
    for file in sorted(tokenizer.iterdir()):
        if file.suffix in (".json", ".txt", ".jinja") and file.name != "config.json":
            shutil.copyfile(file, out / file.name)
    return sum(weight.numel() for weight in model.parameters())


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--size", choices=sorted(TEXT), default="3b")
    parser.add_argument("--layers", type=int, default=2)
    given = parser.parse_args()
    count = build(given.out, given.tokenizer, size=given.size, layers=given.layers)
    print(f"{count:,} parameters written to {given.out}")


if __name__ == "__main__":
    main()
