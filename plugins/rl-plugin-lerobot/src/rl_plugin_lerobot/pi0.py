"""Policies of the pi0 family (Black et al., arXiv:2410.24164): folders of LeRobot and transformers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlcore_control.models.folder import WEIGHTS, read_tensors

from rl_plugin_lerobot.flow_policy import FlowPolicy, copied_files
from rl_plugin_lerobot.pi0_folder import read_lerobot, read_transformers
from rl_plugin_lerobot.pi0_weights import network_of
from rl_plugin_lerobot.prompt import Prompt

_TOKENIZER = "google/paligemma-3b-pt-224"


def read_pi0(described: Mapping[str, Any], folder: Path) -> FlowPolicy:
    """Load a folder of LeRobot's or transformers' pi0, on the CPU and in float32.

    Raises:
        UserError: a file is missing or damaged, the weights are not those of the configuration, or it needs something
            that rlcore does not compute.
    """
    weights = read_tensors(folder / WEIGHTS)
    lerobot = "input_features" in described
    known = read_lerobot(described, weights, folder) if lerobot else read_transformers(described, folder)
    vocabulary = int(known.config.vlm_config.text_config.vocab_size)
    prompt = Prompt(folder, length=known.sizes.tokenizer_max_length, vocabulary=vocabulary, source=_TOKENIZER)
    network, names = network_of(known.config, weights, folder, double_time=lerobot)
    saved = {**described, "dtype": "float32"}
    return FlowPolicy(saved, known, network, names, prompt, copied_files(folder))
