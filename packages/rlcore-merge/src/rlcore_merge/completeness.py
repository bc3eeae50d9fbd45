"""Check from the names that no tensor of a decoder is missing, for example after a file was lost or truncated.

No model is built, so the check covers only what all common decoders have: layers that begin with a norm, an embedding
before them, a final norm, and an output layer unless it is tied. Models with several stacks or with custom code are
not checked.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from rlcore.errors import UserError

LAYER = re.compile(r"^(?P<stack>(?:.*\.)?(?:layers|h|blocks))\.(?P<index>\d{1,9})\.(?P<rest>.+)$")
VISION = re.compile(r"(^|\.)(visual|vision\w*|audio\w*|image_\w+)\.")
_AHEAD = re.compile(r"(^|\.)mtp\.")
_EMBEDDING = re.compile(r"embed|emb\.|wte|embd")
_FIRST_NORM = re.compile(r"^(input_layernorm|ln_1)\.(weight|bias)$")
_IN_EVERY_LAYER = re.compile(r"(_proj|_layernorm|ln_\d|c_attn|c_fc)\.(weight|bias)$")
"""Tensors that the first layer has too. In some models it lacks the scales of its input."""
_LAST_NORM = re.compile(r"^((?!.*embed)\w*norm\w*|ln_\w+)\.weight$")


def text_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the decoder, which a model with several parts has in ``text_config``."""
    text = config.get("text_config")
    return {**config, **(text if isinstance(text, dict) else {})}


def check_complete(names: Iterable[str], config: Mapping[str, Any], where: str, *, quantised: bool = False) -> None:
    """Reject a model with a missing tensor, judged by its other tensors.

    Args:
        names: names of all tensors
        config: the content of config.json
        where: the folder of the weights
        quantised: whether weights have scales; layers that were not quantised have none

    Raises:
        UserError: a layer lacks a tensor that similar layers have, or the embedding, the final norm or the output layer
            is missing.
    """
    if config.get("auto_map"):
        return
    text = text_settings(config)
    layers, outside = _only_stack(names, text)
    if not layers or not isinstance(text.get("vocab_size"), int):
        return
    stack, by_index = layers
    if not any(_FIRST_NORM.match(rest) for parts in by_index.values() for rest in parts):
        return
    if text.get("model_type") == "openai-gpt":  # its norms follow the blocks that they are named after
        return
    missing = [] if quantised else _of_siblings(stack, by_index, text)
    missing += _outside(stack, outside, config, text)
    if missing:
        raise UserError(
            "tensors are missing from the checkpoint",
            found="; ".join(missing[:3]) + (f"; and {len(missing) - 3} more" if len(missing) > 3 else ""),
            where=where,
            fix="copy all weight files again, or save the checkpoint again",
        )


def _only_stack(
    names: Iterable[str], text: Mapping[str, Any]
) -> tuple[tuple[str, dict[int, set[str]]] | None, list[str]]:
    """The tensor names of each layer, without the prefix up to the index, and the names outside of the stack."""
    stacks: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    outside = []
    for name in names:
        if VISION.search(name):
            continue
        if match := LAYER.match(name):
            stacks[match["stack"]][int(match["index"])].add(match["rest"])
        else:
            outside.append(name)
    # Multi-token prediction has a separate stack, or extra layers at the end, with different tensors.
    main = [stack for stack in stacks if not _AHEAD.search(stack)]
    if len(main) != 1:
        return None, outside
    (stack,) = main
    wanted = text.get("num_hidden_layers") or text.get("n_layer")
    kept = {index: parts for index, parts in stacks[stack].items() if not isinstance(wanted, int) or index < wanted}
    return (stack, kept), outside


def _of_siblings(stack: str, layers: Mapping[int, set[str]], text: Mapping[str, Any]) -> list[str]:
    """Tensors that nearly all layers of the same kind have and a layer lacks without a replacement."""
    kinds = text.get("layer_types")
    shared = text.get("num_kv_shared_layers")  # the last layers reuse the keys and values of earlier ones
    alike: dict[tuple[Any, bool], list[int]] = defaultdict(list)
    for index in sorted(layers):
        kind = kinds[index] if isinstance(kinds, list) and index < len(kinds) else None
        alike[kind, isinstance(shared, int) and index >= len(layers) - shared].append(index)
    missing = []
    for indices in alike.values():
        for index in indices:
            similar = [layers[other] for other in indices if layers[index] <= layers[other]]
            held = Counter(rest for parts in similar for rest in parts - layers[index])
            missing += [
                f"{stack}.{index}.{rest}, which {count} of {len(similar)} similar layers have"
                for rest, count in sorted(held.items())
                if len(similar) - count <= max(1, len(similar) // 10) and (index or _IN_EVERY_LAYER.search(rest))
            ]
    return missing


def _outside(stack: str, names: list[str], config: Mapping[str, Any], text: Mapping[str, Any]) -> list[str]:
    beside = stack.rpartition(".")[0]
    prefix = f"{beside}." if beside else ""
    usual = "ln_f" if stack.endswith(".h") or stack == "h" else "norm"
    missing = []
    if not any(_LAST_NORM.match(name.removeprefix(prefix)) for name in names):
        missing.append(f"{prefix}{usual}.weight, the final norm")
    embeddings = [name for name in names if _EMBEDDING.search(name) and "norm" not in name]
    if not [name for name in embeddings if not name.startswith("embed_out")]:
        missing.append(f"{prefix}{'wte' if usual == 'ln_f' else 'embed_tokens'}.weight, the embedding")
    if text.get("model_type") == "gpt2":
        missing += [f"{prefix}{end}" for end in ("wpe.weight", "ln_f.bias") if f"{prefix}{end}" not in names]
    if _has_output(config) and not [name for name in names if _is_output(name, prefix, embeddings)]:
        missing.append("lm_head.weight, the output layer, which config.json does not tie to the embedding")
    return missing


def _has_output(config: Mapping[str, Any]) -> bool:
    """Whether config.json says that the output layer is not tied to the embedding."""
    architectures = config.get("architectures")
    named = [name for name in architectures if isinstance(name, str)] if isinstance(architectures, list) else []
    # In a composite model the outer value takes precedence.
    untied = {**text_settings(config), **config}.get("tie_word_embeddings") is False
    return untied and any(name.endswith("ForCausalLM") for name in named)


def _is_output(name: str, prefix: str, embeddings: list[str]) -> bool:
    """Whether the tensor may be an output layer. In value models it has many names."""
    plain = name.removeprefix(prefix)
    return (
        not _LAST_NORM.match(plain)
        and plain != "ln_f.bias"
        and (name.startswith("embed_out") or name not in embeddings)
    )
