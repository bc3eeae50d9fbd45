"""The tensors and ``config.json``: whether they agree, whether a tensor is missing, and the files of the output.

No model is built, so `check_complete` covers only what all common decoders have: layers that begin with a norm, an
embedding before them, a final norm, and an output layer unless it is tied. Models with several stacks or with custom
code are not checked.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rlcore.console.wording import counted
from rlcore.errors import UserError
from rlcore.models.vision_language import is_vision_language

from rlcore_merge.checkpoint import inside
from rlcore_merge.tensors import Kind, Tensor, size_of

LAYER = re.compile(r"^(?P<stack>(?:.*\.)?(?:layers|h|blocks))\.(?P<index>\d{1,9})\.(?P<rest>.+)$")
VISION = re.compile(r"(^|\.)(visual|vision\w*|audio\w*|image_\w+)\.")
_AHEAD = re.compile(r"(^|\.)mtp\.")
_EMBEDDING = re.compile(r"embed|emb\.|wte|embd")
_FIRST_NORM = re.compile(r"^(input_layernorm|ln_1)\.(weight|bias)$")
_IN_EVERY_LAYER = re.compile(r"(_proj|_layernorm|ln_\d|c_attn|c_fc)\.(weight|bias)$")
"""Tensors that the first layer has too. In some models it lacks the scales of its input."""
_LAST_NORM = re.compile(r"^((?!.*embed)\w*norm\w*|ln_\w+)\.weight$")
_WORDS = re.compile(r"(^|\.)(embed_tokens|wte|word_embeddings|tok_embeddings)\.weight$")
_WRAPPED = re.compile(r"^(?P<wrapper>model|net|network|policy|actor)\.(model|transformer\.h|lm_head)\.")
"""A name with the prefix of a wrapper class. The names of a model itself never match."""
_WEIGHTS = {
    ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".distcp", ".gguf", ".h5", ".msgpack", ".onnx", ".pkl", ".pickle",
}  # fmt: skip
_COPIED = re.compile(
    r"(config|generation_config|preprocessor_config|processor_config|video_preprocessor_config|image_processor_config"
    r"|tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab|chat_template|chat_templates|modules"
    r"|sentence_bert_config|normalizer|prompt_config)\.json|merges\.txt|vocab\.txt|bpe\.codes|.*\.(model|tiktoken|jinja|py)"
    r"|tokenizer.*|LICENSE.*|NOTICE.*"
)
_QUANTISED = re.compile(
    r"\.(absmax|quant_map|quant_state\..*|qweight|qzeros|scales|g_idx|SCB|weight_scale(_inv)?|weight_packed)$"
)


def text_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the decoder, which a model with several parts has in ``text_config``."""
    text = config.get("text_config")
    return {**config, **(text if isinstance(text, dict) else {})}


def _layer_count(text: Mapping[str, Any]) -> int | None:
    count = text.get("num_hidden_layers") or text.get("n_layer")
    return count if isinstance(count, int) else None


def _stacks(names: Iterable[str]) -> tuple[dict[str, dict[int, set[str]]], list[str]]:
    """The tensor names of each layer of each stack, without the prefix up to the index, and the names outside."""
    stacks: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    outside = []
    for name in names:
        if VISION.search(name):
            continue
        if match := LAYER.match(name):
            stacks[match["stack"]][int(match["index"])].add(match["rest"])
        else:
            outside.append(name)
    return stacks, outside


def check_consistent(tensors: Mapping[str, Tensor], config: Mapping[str, Any], where: str) -> None:
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
    embedding = next((name for name in tensors if _WORDS.search(name) and not VISION.search(name)), None)
    wrong = []
    if embedding is not None and len(tensors[embedding].shape) == 2:
        rows, width = tensors[embedding].shape
        if text.get("vocab_size") not in (None, rows):
            wrong.append(f"{embedding} has {rows} rows, vocab_size is {text['vocab_size']}")
        keys = ("word_embed_proj_dim", "embedding_size", "hidden_size", "n_embd")
        expected = next((text[key] for key in keys if text.get(key)), None)
        if expected not in (None, width):
            wrong.append(f"{embedding} is {width} wide, hidden_size is {expected}")
    wrong += [*_layers(tensors, text), *_projections(tensors, text)]
    if wrong:
        fix = "use the config.json that the model was trained with, or a complete checkpoint"
        raise UserError("the tensors contradict config.json", found="; ".join(wrong[:3]), where=where, fix=fix)


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


def _layers(names: Iterable[str], text: Mapping[str, Any]) -> Iterator[str]:
    """A difference between the number of layers in the largest stack and in the config."""
    wanted = _layer_count(text)
    stacks, _ = _stacks(names)
    if wanted is None or not stacks:
        return
    stack = max(stacks, key=lambda name: len(stacks[name]))
    missing = wanted - sum(index < wanted for index in stacks[stack])
    # Some models have extra layers for multi-token prediction at the end; an encoder-decoder has two stacks.
    ahead = text.get("num_nextn_predict_layers")
    most = wanted + (ahead if isinstance(ahead, int) else 0)
    if missing > 0:
        first = next(index for index in range(wanted) if index not in stacks[stack])
        yield f"{stack} lacks {missing} of {counted(wanted, 'layer')}, such as {first}"
    elif len(stacks[stack]) > most and not text.get("is_encoder_decoder"):
        found = counted(len(stacks[stack]), "layer")
        yield f"{stack} has {found}, num_hidden_layers is {wanted}: the last ones would be lost"


def _projections(tensors: Mapping[str, Tensor], text: Mapping[str, Any]) -> Iterator[str]:
    """Differences between the projections of layer 0 and the sizes in the config of a common decoder."""
    hidden, inner = text.get("hidden_size"), text.get("intermediate_size")
    heads, groups = text.get("num_attention_heads"), text.get("num_key_value_heads")
    halves = hidden // heads if isinstance(hidden, int) and isinstance(heads, int) and heads else None
    size = text.get("head_dim") or halves
    keys = groups * size if isinstance(groups, int) and isinstance(size, int) else None
    for end, wanted in (
        ("mlp.gate_proj.weight", (inner, hidden)),
        ("mlp.up_proj.weight", (inner, hidden)),
        ("mlp.down_proj.weight", (hidden, inner)),
        ("self_attn.k_proj.weight", (keys, hidden)),
    ):
        found = next((name for name in tensors if name.endswith(f"layers.0.{end}") and not VISION.search(name)), None)
        if found is None or not all(isinstance(length, int) for length in wanted):
            continue
        if tensors[found].shape != wanted and len(tensors[found].shape) == 2:
            yield f"{found} is {list(tensors[found].shape)}, config.json implies {list(wanted)}"


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
    stacks, outside = _stacks(names)
    # Multi-token prediction has a separate stack, or extra layers at the end, with different tensors.
    main = [stack for stack in stacks if not _AHEAD.search(stack)]
    if len(main) != 1 or not isinstance(text.get("vocab_size"), int):
        return
    stack, wanted = main[0], _layer_count(text)
    by_index = {index: parts for index, parts in stacks[stack].items() if wanted is None or index < wanted}
    if not any(_FIRST_NORM.match(rest) for parts in by_index.values() for rest in parts):
        return
    if text.get("model_type") == "openai-gpt":  # its norms follow the blocks that they are named after
        return
    missing = [] if quantised else _of_siblings(stack, by_index, text)
    missing += _outside(stack, outside, config, text)
    if missing:
        found = "; ".join(missing[:3]) + (f"; and {len(missing) - 3} more" if len(missing) > 3 else "")
        fix = "copy all weight files again, or save the checkpoint again"
        raise UserError("tensors are missing from the checkpoint", found=found, where=where, fix=fix)


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


def is_quantised(tensors: Mapping[str, Tensor]) -> bool:
    """Whether weights are stored as integers or 8-bit floats with separate scales."""
    return any(_QUANTISED.search(name) or tensor.kind.name.startswith("F8_") for name, tensor in tensors.items())


def copy_files(folders: Iterable[Path], out: Path) -> None:
    """Copy the files other than weights, each from the first folder that has it.

    Raises:
        UserError: a file is a link to a place outside of its folder.
    """
    for folder in folders:
        found = [path for path in folder.iterdir() if _COPIED.fullmatch(path.name) and path.suffix not in _WEIGHTS]
        for path in sorted(found):
            if path.is_file() and not (out / path.name).exists():
                shutil.copyfile(inside(path, folder), out / path.name)
        templates = folder / "additional_chat_templates"
        if templates.is_dir() and not (out / templates.name).exists():
            (out / templates.name).mkdir()
            for path in sorted(templates.glob("*.jinja")):
                shutil.copyfile(inside(path, folder), out / templates.name / path.name)


def write_config(
    config: Mapping[str, Any],
    out: Path,
    tensors: Mapping[str, Tensor],
    kinds: Mapping[str, Kind],
    changes: Mapping[str, Any],
) -> list[str]:
    """Write a ``config.json`` that matches the written weights. Return a note for each change, and for a missing file.

    Args:
        config: the original content
        out: the output folder, with all other files
        tensors: the written tensors
        kinds: the kinds in which they are written
        changes: keys and their new values
    """
    new, notes, quantised = dict(config), [], is_quantised(tensors)
    processors = ("preprocessor_config.json", "processor_config.json", "image_processor_config.json")
    if is_vision_language(config) and not any((out / name).is_file() for name in processors):
        what = f"there is no {processors[0]}"
        notes.append(f"{what}: pass the folder that has one with --base, or the output cannot read images")
    sizes: Counter[str] = Counter()
    for name, kind in kinds.items():
        if kind.floating:
            sizes[kind.torch_name] += size_of(tensors[name])
    if sizes:
        _set_dtype(new, max(sizes, key=lambda name: sizes[name]))
    for key, value in changes.items():
        if isinstance(text := new.get("text_config"), dict) and key in text:
            new["text_config"] = {**text, key: value}
        new[key] = value
    inner = [part for part, value in new.items() if isinstance(value, dict) and "quantization_config" in value]
    for part in inner if not quantised else []:
        new[part] = {key: value for key, value in new[part].items() if key != "quantization_config"}
    if not quantised and (new.pop("quantization_config", None) is not None or inner):
        notes.append("quantization_config was removed from config.json: the weights are not quantised")
    listed = new.get("architectures")
    architectures = [str(name) for name in listed] if isinstance(listed, list) else []
    plain = [name.removeprefix("FSDP") for name in architectures]
    if "score.weight" in tensors and "lm_head.weight" not in tensors:
        plain = [re.sub("ForCausalLM$", "ForTokenClassification", name) for name in plain]
    if plain != architectures:
        new["architectures"] = plain
        notes.append(f"architectures in config.json: {', '.join(plain)} instead of {', '.join(architectures)}")
    (out / "config.json").write_text(json.dumps(new, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return notes


def _set_dtype(config: dict[str, Any], name: str) -> None:
    config["torch_dtype" if "torch_dtype" in config and "dtype" not in config else "dtype"] = name
    for part, value in config.items():
        if part.endswith("_config") and isinstance(value, dict):
            config[part] = {**value, **dict.fromkeys({"dtype", "torch_dtype"} & value.keys(), name)}
