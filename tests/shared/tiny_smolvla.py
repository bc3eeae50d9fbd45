"""Folders of LeRobot's SmolVLA with small random weights of the real architecture."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from rl_plugin_lerobot.smolvla.folder import Sizes, vlm_config
from rl_plugin_lerobot.smolvla.network import SmolVLANetwork
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Sequence, Split

SPECIAL = ("<pad>", "<fake_token_around_image>", "<global-img>", "<image>", "<end_of_utterance>")
WORDS = (*SPECIAL, "<unk>", "\n", "push", "the", "cube", "left", "right")
TEXT = {"hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 4, "num_attention_heads": 3}
TEXT |= {"num_key_value_heads": 1, "head_dim": 8, "vocab_size": 32, "rope_theta": 100_000, "rms_norm_eps": 1e-5}
VISION = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
VISION |= {"image_size": 28, "patch_size": 7}
VLM = {"model_type": "smolvlm", "scale_factor": 2, "text_config": TEXT, "vision_config": VISION}
SIZES = {"chunk_size": 5, "n_action_steps": 3, "max_state_dim": 6, "max_action_dim": 4, "num_steps": 3}
SIZES |= {"num_vlm_layers": 3, "resize_imgs_with_padding": [28, 28], "vlm_model_name": "tiny-smolvlm"}


def write_vlm(folder: Path) -> None:
    """Write the sizes of a vision-language model, and a tokenizer of words with its special tokens."""
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Sequence([Split(" ", "removed"), Split("<", "isolated")])
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.add_tokens([AddedToken("\n", normalized=False)])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "vlm_config.json").write_text(json.dumps(VLM))


def write(folder: Path, *, state: int, actions: int, cameras: Mapping[str, tuple[int, int]], **changed: Any) -> None:
    """Write a folder as LeRobot does for a policy of several datasets: without statistics of states and actions."""
    write_vlm(folder)
    pictures = {f"observation.images.{name}": [3, *size] for name, size in cameras.items()}
    inputs = {"observation.state": {"type": "STATE", "shape": [state]}}
    inputs |= {name: {"type": "VISUAL", "shape": shape} for name, shape in pictures.items()}
    described = {
        "type": "smolvla",
        **SIZES,
        "input_features": inputs,
        "output_features": {"action": {"type": "ACTION", "shape": [actions]}},
        "normalization_mapping": {"VISUAL": "IDENTITY", "STATE": "MEAN_STD", "ACTION": "MEAN_STD"},
        **changed,
    }
    (folder / "config.json").write_text(json.dumps(described))
    for name, kind in (("policy_preprocessor", "normalizer"), ("policy_postprocessor", "unnormalizer")):
        steps = [{"registry_name": f"{kind}_processor"}]
        (folder / f"{name}.json").write_text(json.dumps({"name": name, "steps": steps}))
    sizes = Sizes.model_validate(described)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = SmolVLANetwork(vlm_config(sizes, folder), sizes, ((), ()))
    save_file({_name(own): one for own, one in network.state_dict().items()}, folder / "model.safetensors")


def _name(own: str) -> str:
    """Return LeRobot's name of a weight."""
    part, _, rest = own.partition(".")
    return (
        "model."
        + {"vlm": "vlm_with_expert.vlm.model.", "expert": "vlm_with_expert.lm_expert."}.get(part, f"{part}.")
        + rest
    )
