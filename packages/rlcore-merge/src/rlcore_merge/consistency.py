"""Check names and shapes of tensors against ``config.json``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rlcore.console.wording import counted
from rlcore.errors import UserError

from rlcore_merge.completeness import LAYER, VISION, text_settings
from rlcore_merge.tensors import Tensor

_EMBEDDING = re.compile(r"(^|\.)(embed_tokens|wte|word_embeddings|tok_embeddings)\.weight$")

_WRAPPED = re.compile(r"^(?P<wrapper>model|net|network|policy|actor)\.(model|transformer\.h|lm_head)\.")
"""A name with the prefix of a wrapper class. The names of a model itself never match."""


def check(tensors: Mapping[str, Tensor], config: Mapping[str, Any], where: str) -> None:
    """Reject a model that contradicts its config.json.

    Args:
        tensors: tensors by name
        config: the content of config.json
        where: the folder of config.json

    Raises:
        UserError: the embedding, a projection or the number of layers differs, or the names have the prefix of a
            wrapper class.
    """
    _check_names(tensors, config, where)
    text = text_settings(config)
    embedding = next((name for name in tensors if _EMBEDDING.search(name) and not VISION.search(name)), None)
    wrong = []
    if embedding is not None and len(tensors[embedding].shape) == 2:
        rows, width = tensors[embedding].shape
        if text.get("vocab_size") not in (None, rows):
            wrong.append(f"{embedding} has {rows} rows, vocab_size is {text['vocab_size']}")
        expected = (
            text.get("word_embed_proj_dim")
            or text.get("embedding_size")
            or text.get("hidden_size")
            or text.get("n_embd")
        )
        if expected not in (None, width):
            wrong.append(f"{embedding} is {width} wide, hidden_size is {expected}")
    wrong += _layers(tensors, text)
    wrong += _projections(tensors, text)
    if wrong:
        raise UserError(
            "the tensors contradict config.json",
            found="; ".join(wrong[:3]),
            where=where,
            fix="use the config.json that the model was trained with, or a complete checkpoint",
        )


def _check_names(tensors: Mapping[str, Tensor], config: Mapping[str, Any], where: str) -> None:
    match = next((match for name in tensors if (match := _WRAPPED.match(name))), None)
    if match is None or config.get("auto_map"):  # custom code may use such names
        return
    prefix = f"{match['wrapper']}."
    if all(name.startswith(prefix) for name in tensors):
        raise UserError(
            "the tensor names have the prefix of a wrapper class",
            found=f"all names start with {prefix!r}, such as {match.string}: transformers would find no weight",
            where=where,
            fix="save the state dict again without the prefix: "
            f"{{name.removeprefix({prefix!r}): tensor for name, tensor in state.items()}}",
        )


def _layers(tensors: Mapping[str, Tensor], text: Mapping[str, Any]) -> list[str]:
    wanted = text.get("num_hidden_layers") or text.get("n_layer")
    if not isinstance(wanted, int):
        return []
    stacks: dict[str, set[int]] = {}
    for name in tensors:
        if (match := LAYER.match(name)) and not VISION.search(name):
            stacks.setdefault(match["stack"], set()).add(int(match["index"]))
    if not stacks:
        return []
    stack = max(stacks, key=lambda name: len(stacks[name]))
    missing = wanted - sum(index < wanted for index in stacks[stack])
    if missing > 0:
        first = next(index for index in range(wanted) if index not in stacks[stack])
        return [f"{stack} lacks {missing} of {counted(wanted, 'layer')}, such as {first}"]
    # Some models have extra layers for multi-token prediction at the end; an encoder-decoder has two stacks.
    ahead = text.get("num_nextn_predict_layers")
    most = wanted + (ahead if isinstance(ahead, int) else 0)
    if len(stacks[stack]) > most and not text.get("is_encoder_decoder"):
        return [
            f"{stack} has {counted(len(stacks[stack]), 'layer')}, num_hidden_layers is {wanted}: the last ones "
            "would be lost"
        ]
    return []


def _projections(tensors: Mapping[str, Tensor], text: Mapping[str, Any]) -> list[str]:
    """Differences between the projections of layer 0 and the sizes in the config of a common decoder."""
    hidden, inner = text.get("hidden_size"), text.get("intermediate_size")
    heads, groups = text.get("num_attention_heads"), text.get("num_key_value_heads")
    size = text.get("head_dim") or (
        hidden // heads if isinstance(hidden, int) and isinstance(heads, int) and heads else None
    )
    widths = {
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        "self_attn.k_proj.weight": (
            groups * size if isinstance(groups, int) and isinstance(size, int) else None,
            hidden,
        ),
    }
    wrong = []
    for end, wanted in widths.items():
        found = next((name for name in tensors if name.endswith(f"layers.0.{end}") and not VISION.search(name)), None)
        if found is None or not all(isinstance(length, int) for length in wanted):
            continue
        if tensors[found].shape != wanted and len(tensors[found].shape) == 2:
            wrong.append(f"{found} is {list(tensors[found].shape)}, config.json implies {list(wanted)}")
    return wrong
