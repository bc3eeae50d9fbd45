"""Policies of the pi0 family (Black et al., arXiv:2410.24164): folders of LeRobot, openpi and transformers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from rlcore.errors import UserError
from rlcore_control.models.folder import CONFIG, WEIGHTS, check_weights, read_tensors, unreadable
from torch import Tensor

from rl_plugin_lerobot.flow.folder import check_family
from rl_plugin_lerobot.flow.names import Names
from rl_plugin_lerobot.flow.policy import FlowPolicy, copied_files
from rl_plugin_lerobot.flow.prompt import Prompt
from rl_plugin_lerobot.pi0.folder import read_lerobot, read_transformers
from rl_plugin_lerobot.pi0.network import Pi0Network

_TOKENIZER = "google/paligemma-3b-pt-224"


def read_pi0(described: Mapping[str, Any], folder: Path) -> FlowPolicy:
    """Load a folder of LeRobot's or transformers' pi0, on the CPU and in float32.

    Raises:
        UserError: a file is missing or damaged, the weights are not those of the configuration, or it needs something
            that rlcore does not compute.
    """
    weights = read_tensors(folder / WEIGHTS)
    lerobot = "input_features" in described
    check_family(weights, "action_in_proj.", folder)
    known = read_lerobot(described, weights, folder) if lerobot else read_transformers(described, folder)
    vocabulary = int(known.config.vlm_config.text_config.vocab_size)
    prompt = Prompt(folder, length=known.sizes.tokenizer_max_length, vocabulary=vocabulary, source=_TOKENIZER)
    network, names = network_of(known.config, weights, folder, double_time=lerobot)
    saved = {**described, "dtype": "float32"}
    return FlowPolicy(saved, known, network, names, prompt, copied_files(folder))


_RENAMED = (
    (r"^model\.(?=paligemma_with_expert\.|state_proj\.|action_|time_mlp_)", ""),
    (r"^paligemma_with_expert\.paligemma\.(language_model\.)?lm_head\.", "model.vlm.language_model.embed_tokens."),
    (r"^paligemma_with_expert\.paligemma\.(model\.)?", "model.vlm."),
    (r"^paligemma_with_expert\.gemma_expert\.lm_head\.", "model.dit.embed_tokens."),
    (r"^paligemma_with_expert\.gemma_expert\.model\.", "model.dit."),
    (r"^model\.vlm\.language_model\.model\.", "model.vlm.language_model."),
    (r"^model\.vlm\.vision_tower\.vision_model\.", "model.vlm.vision_tower."),
    (r"^time_mlp_", "action_time_mlp_"),
    (r"^(state_proj|action_in_proj|action_time_mlp_in|action_time_mlp_out)\.", r"embed_action_time.\1."),
)
_UNUSED = "model.dit.embed_tokens.weight"
"""Embeddings of text that the expert never reads."""


def canonical(name: str) -> str:
    """Return the name that a weight has in transformers."""
    for pattern, other in _RENAMED:
        name = re.sub(pattern, other, name)
    return name


def network_of(
    config: Any, weights: Mapping[str, Tensor], folder: Path, *, double_time: bool
) -> tuple[Pi0Network, Names]:
    """Return the network with the weights of a file, on the CPU and in float32.

    Args:
        config: a ``PI0Config`` of transformers, which is changed
        weights: the weights of the file, by its names
        folder: where they come from
        double_time: see `Pi0Network`

    Raises:
        UserError: the weights are not those of the configuration.
    """
    from transformers import PI0ForConditionalGeneration
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # type: ignore[no-untyped-call]  # a run prints only its own lines
    path, names = folder / WEIGHTS, Names(weights, canonical, _UNUSED)
    own = names.own(weights)
    config.dit_config.vocab_size = 1  # no memory for embeddings that are not used
    config.dit_config.pad_token_id = None
    try:
        with torch.device("meta"):  # no memory is used before the weights are known to fit
            skeleton = PI0ForConditionalGeneration(config)
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        raise unreadable(f"{type(error).__name__}: {error}", folder / CONFIG) from error
    places = {canonical(name): name for name in skeleton.state_dict() if name != _UNUSED}
    check_weights(own, {name: skeleton.state_dict()[place] for name, place in places.items()}, path)
    state = {places[name]: one for name, one in own.items()}
    state[_UNUSED] = torch.zeros(1, config.dit_config.hidden_size)
    module = PI0ForConditionalGeneration.from_pretrained(
        None, config=config, state_dict=state, dtype=torch.float32, trust_remote_code=False
    )
    _check_loaded(module, state, path)
    return Pi0Network(module, double_time=double_time), names


def _check_loaded(module: Any, state: Mapping[str, Tensor], path: Path) -> None:
    loaded = module.state_dict()
    wrong = [name for name, one in state.items() if not torch.equal(loaded[name], one)]
    if wrong:
        raise UserError(
            "this version of transformers must load the weights of pi0",
            found=f"{wrong[0]} is not that of the file",
            where=str(path),
            fix="install the version of transformers of uv.lock",
        )
