"""Whether a decoder's tensors are all there, from their names: what a file that was lost or cut leaves out.

No model is built, so only what every decoder of the usual kind has is missed: layers that begin with a norm, an
embedding before them, a norm behind them, an output layer unless it is tied. A model of several stacks, or whose code
is its own, is not judged.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from rlcore.errors import UserError

LAYER = re.compile(r"^(?P<stack>(?:.*\.)?(?:layers|h|blocks))\.(?P<index>\d+)\.(?P<rest>.+)$")
VISION = re.compile(r"(^|\.)(visual|vision\w*|audio\w*|image_\w+)\.")
_AHEAD = re.compile(r"(^|\.)mtp\.")
_EMBEDDING = re.compile(r"embed|emb\.|wte|embd")
_FIRST_NORM = re.compile(r"^(input_layernorm|ln_1)\.(weight|bias)$")
_EVERYWHERE = re.compile(r"(_proj|_layernorm|ln_\d|c_attn|c_fc)\.(weight|bias)$")
"""What the first layer has too: some models begin with one that lacks what scales its input."""
_LAST_NORM = re.compile(r"^((?!.*embed)\w*norm\w*|ln_\w+)\.weight$")


def check_complete(names: Iterable[str], config: Mapping[str, Any], where: str, *, quantised: bool = False) -> None:
    """Refuse a model that lacks a tensor which its own others ask for.

    Args:
        names: of all tensors
        config: the content of config.json
        where: the folder of the weights
        quantised: whether scales stand beside weights: a layer that was left whole has none

    Raises:
        UserError: a layer lacks what its siblings have, or the embedding, the last norm or the output layer is missing.
    """
    if config.get("auto_map"):
        return
    text = {**config, **(config.get("text_config") or {})}
    layers, outside = _only_stack(names, text)
    if not layers or not isinstance(text.get("vocab_size"), int):
        return
    stack, by_index = layers
    if not any(_FIRST_NORM.match(rest) for parts in by_index.values() for rest in parts):
        return
    if text.get("model_type") == "openai-gpt":  # there norms stand behind what they are named after
        return
    missing = [] if quantised else _of_siblings(stack, by_index, text)
    missing += _outside(stack, outside, config, text)
    if missing:
        raise UserError(
            "the checkpoint lacks tensors that its model has",
            found="; ".join(missing[:3]) + (f"; and {len(missing) - 3} more" if len(missing) > 3 else ""),
            where=where,
            mend="copy all files of the weights again, or save the checkpoint anew",
        )


def _only_stack(
    names: Iterable[str], text: Mapping[str, Any]
) -> tuple[tuple[str, dict[int, set[str]]] | None, list[str]]:
    """The decoder's layers, each as what stands behind its index, and the names that are in no stack."""
    stacks: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    outside = []
    for name in names:
        if VISION.search(name):
            continue
        if match := LAYER.match(name):
            stacks[match["stack"]][int(match["index"])].add(match["rest"])
        else:
            outside.append(name)
    # What predicts tokens further ahead stands in a stack of its own, or behind the layers; it has parts of its own.
    main = [stack for stack in stacks if not _AHEAD.search(stack)]
    if len(main) != 1:
        return None, outside
    (stack,) = main
    wanted = text.get("num_hidden_layers") or text.get("n_layer")
    kept = {index: parts for index, parts in stacks[stack].items() if not isinstance(wanted, int) or index < wanted}
    return (stack, kept), outside


def _of_siblings(stack: str, layers: Mapping[int, set[str]], text: Mapping[str, Any]) -> list[str]:
    """What a layer lacks that nearly all of its kind have, where it has nothing else instead."""
    kinds = text.get("layer_types")
    shared = text.get("num_kv_shared_layers")  # the last ones attend with the keys and values of others
    alike: dict[tuple[Any, bool], list[int]] = defaultdict(list)
    for index in sorted(layers):
        kind = kinds[index] if isinstance(kinds, list) and index < len(kinds) else None
        alike[kind, isinstance(shared, int) and index >= len(layers) - shared].append(index)
    missing = []
    for indices in alike.values():
        for index in indices:
            like = [layers[other] for other in indices if layers[index] <= layers[other]]
            held = Counter(rest for parts in like for rest in parts - layers[index])
            missing += [
                f"{stack}.{index}.{rest}, which {count} of {len(like)} layers like it have"
                for rest, count in sorted(held.items())
                if len(like) - count <= max(1, len(like) // 10) and (index or _EVERYWHERE.search(rest))
            ]
    return missing


def _outside(stack: str, names: list[str], config: Mapping[str, Any], text: Mapping[str, Any]) -> list[str]:
    beside = stack.rpartition(".")[0]
    prefix = f"{beside}." if beside else ""
    usual = "ln_f" if stack.endswith(".h") or stack == "h" else "norm"
    missing = []
    if not any(_LAST_NORM.match(name.removeprefix(prefix)) for name in names):
        missing.append(f"{prefix}{usual}.weight, the norm behind the layers")
    embeddings = [name for name in names if _EMBEDDING.search(name) and "norm" not in name]
    if not [name for name in embeddings if not name.startswith("embed_out")]:
        missing.append(f"{prefix}{'wte' if usual == 'ln_f' else 'embed_tokens'}.weight, the embedding")
    if text.get("model_type") == "gpt2":
        missing += [f"{prefix}{end}" for end in ("wpe.weight", "ln_f.bias") if f"{prefix}{end}" not in names]
    if _has_output(config) and not [name for name in names if _is_output(name, prefix, embeddings)]:
        missing.append("lm_head.weight, the output layer, which config.json does not tie to the embedding")
    return missing


def _has_output(config: Mapping[str, Any]) -> bool:
    """Whether config.json says that there is an output layer of its own."""
    architectures = config.get("architectures")
    named = [name for name in architectures if isinstance(name, str)] if isinstance(architectures, list) else []
    text = config.get("text_config") or {}
    # In a model of several parts the outer word is the one that decides.
    untied = config.get("tie_word_embeddings", text.get("tie_word_embeddings")) is False
    return untied and any(name.endswith("ForCausalLM") for name in named)


def _is_output(name: str, prefix: str, embeddings: list[str]) -> bool:
    """Whether it may be an output layer: that of a value model has many names."""
    plain = name.removeprefix(prefix)
    return (
        not _LAST_NORM.match(plain)
        and plain != "ln_f.bias"
        and (name.startswith("embed_out") or name not in embeddings)
    )
