"""Policies of the SmolVLA family (Shukor et al., arXiv:2506.01844): folders of LeRobot."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rlcore_control.models.folder import CONFIG, WEIGHTS, check_weights, read_tensors, unreadable
from torch import Tensor

from rl_plugin_lerobot.flow.folder import FlowFolder, check_family
from rl_plugin_lerobot.flow.names import Names
from rl_plugin_lerobot.flow.policy import FlowPolicy, copied_files
from rl_plugin_lerobot.flow.prompt import Prompt
from rl_plugin_lerobot.smolvla.folder import Sizes, read_lerobot
from rl_plugin_lerobot.smolvla.network import SmolVLANetwork

_RENAMED = (
    (r"^model\.(_orig_mod\.)?", ""),  # the second part is that of a compiled model
    (r"^vlm_with_expert\.lm_expert\.", "expert."),
    (r"^vlm_with_expert\.vlm\.model\.", "vlm."),
    (r"^vlm_with_expert\.vlm\.lm_head\.", "vlm.lm_head."),
)
_EMBEDDINGS, _OUTPUT = "vlm.text_model.embed_tokens.weight", "vlm.lm_head.weight"
_BEFORE, _AFTER = ("<fake_token_around_image>", "<global-img>"), ("<fake_token_around_image>",)
"""Special tokens of SmolVLM before and after a picture."""


def canonical(name: str) -> str:
    """Return the name that a weight of a file has in `SmolVLANetwork`."""
    for pattern, other in _RENAMED:
        name = re.sub(pattern, other, name)
    return name


def read_smolvla(described: Mapping[str, Any], folder: Path) -> FlowPolicy:
    """Load a folder of LeRobot's SmolVLA, on the CPU and in float32.

    Raises:
        UserError: a file is missing or damaged, the weights are not those of the configuration, or it needs something
            that rlcore does not compute.
    """
    weights = read_tensors(folder / WEIGHTS)
    check_family(weights, "vlm_with_expert.", folder)
    known = read_lerobot(described, weights, folder)
    sizes = known.sizes
    assert isinstance(sizes, Sizes)
    vocabulary = int(known.config.text_config.vocab_size)
    length, source = sizes.tokenizer_max_length, sizes.vlm_model_name
    prompt = Prompt(folder, length=length, vocabulary=vocabulary, source=source, first=False)
    special: tuple[Sequence[int], Sequence[int]] = ((), ())
    if sizes.add_image_special_tokens:
        special = [prompt.token(name) for name in _BEFORE], [prompt.token(name) for name in _AFTER]
    names = Names(weights, _canonical_of(weights), _OUTPUT)
    network = _network_of(known, sizes, special, names.own(weights), folder)
    return FlowPolicy(described, known, network, names, prompt, copied_files(folder))


def _canonical_of(weights: Mapping[str, Tensor]) -> Callable[[str], str]:
    """Return `canonical`, where the output layer of the language model is its embeddings if it is a copy of them."""
    found = {canonical(name): one for name, one in weights.items() if canonical(name) in (_EMBEDDINGS, _OUTPUT)}
    output = found.get(_OUTPUT)
    if output is None or not torch.equal(found.get(_EMBEDDINGS, output), output):
        return canonical
    return _canonical_of_copy


def _canonical_of_copy(name: str) -> str:
    return _EMBEDDINGS if canonical(name) == _OUTPUT else canonical(name)


def _network_of(
    known: FlowFolder,
    sizes: Sizes,
    special: tuple[Sequence[int], Sequence[int]],
    weights: Mapping[str, Tensor],
    folder: Path,
) -> SmolVLANetwork:
    try:
        with torch.device("meta"):  # no memory is used before the weights are known to fit
            network = SmolVLANetwork(known.config, sizes, special)
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        raise unreadable(f"{type(error).__name__}: {error}", folder / CONFIG) from error
    check_weights(weights, network.state_dict(), folder / WEIGHTS)
    network.load_state_dict({name: one.clone() for name, one in weights.items()}, assign=True)
    network.train(False)
    return network
