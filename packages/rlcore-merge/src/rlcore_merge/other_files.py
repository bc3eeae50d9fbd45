"""The files of a Hugging Face folder other than weights: config, tokenizer, processor, chat template, code."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcore.models.vision_language import is_vision_language

from rlcore_merge.dtypes import Kind
from rlcore_merge.json_files import read_object
from rlcore_merge.source_files import inside
from rlcore_merge.tensors import Tensor, size_of

_WEIGHTS = (
    ".safetensors",
    ".bin",
    ".pt",
    ".pth",
    ".ckpt",
    ".distcp",
    ".gguf",
    ".h5",
    ".msgpack",
    ".onnx",
    ".pkl",
    ".pickle",
)
_COPIED = re.compile(
    r"(config|generation_config|preprocessor_config|processor_config|video_preprocessor_config|image_processor_config"
    r"|tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab|chat_template|chat_templates|modules"
    r"|sentence_bert_config|normalizer|prompt_config)\.json|merges\.txt|vocab\.txt|bpe\.codes|.*\.(model|tiktoken|jinja|py)"
    r"|tokenizer.*|LICENSE.*|NOTICE.*"
)
_QUANTISED = re.compile(
    r"\.(absmax|quant_map|quant_state\..*|qweight|qzeros|scales|g_idx|SCB|weight_scale(_inv)?|weight_packed)$"
)


def read_config(folders: Iterable[Path]) -> dict[str, Any] | None:
    """The ``config.json`` of the first folder that has one. Raises `UserError` if it is not a JSON object."""
    for folder in folders:
        path = folder / "config.json"
        if path.is_file():
            return read_object(inside(path, folder))
    return None


def is_quantised(tensors: Mapping[str, Tensor]) -> bool:
    """Whether weights are stored as integers or 8-bit floats with separate scales."""
    return any(_QUANTISED.search(name) or tensor.kind.name.startswith("F8_") for name, tensor in tensors.items())


def copy(folders: Sequence[Path], out: Path) -> list[str]:
    """Copy the files other than weights, each from the first folder that has it. Return their names.

    Raises:
        UserError: a file is a link to a place outside of its folder.
    """
    copied: list[str] = []
    for folder in folders:
        for path in sorted(folder.iterdir()):
            if path.name in copied or path.suffix in _WEIGHTS or not _COPIED.fullmatch(path.name) or not path.is_file():
                continue
            shutil.copyfile(inside(path, folder), out / path.name)
            copied.append(path.name)
        templates = folder / "additional_chat_templates"
        if templates.is_dir() and templates.name not in copied:
            (out / templates.name).mkdir()
            for path in sorted(templates.glob("*.jinja")):
                shutil.copyfile(inside(path, folder), out / templates.name / path.name)
            copied.append(templates.name)
    return copied


def processor_note(config: Mapping[str, Any], out: Path) -> list[str]:
    """A note if the folder of a vision-language model has no image processor."""
    names = ("preprocessor_config.json", "processor_config.json", "image_processor_config.json")
    if not is_vision_language(config) or any((out / name).is_file() for name in names):
        return []
    return [f"there is no {names[0]}: pass the folder that has one with --base, or the output cannot read images"]


def write_config(
    config: Mapping[str, Any],
    out: Path,
    *,
    kind: Kind | None,
    changes: Mapping[str, Any],
    quantised: bool,
    names: Iterable[str],
) -> list[str]:
    """Write a ``config.json`` that matches the written weights. Return a note for each change.

    Args:
        config: the original content
        out: the output folder
        kind: the kind of most of the written elements
        changes: keys and their new values
        quantised: whether the written weights are quantised
        names: names of the written tensors
    """
    new, notes = dict(config), []
    if kind is not None:
        _set_dtype(new, kind.torch_name)
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
    names = set(names)
    if "score.weight" in names and "lm_head.weight" not in names:
        plain = [re.sub("ForCausalLM$", "ForTokenClassification", name) for name in plain]
    if plain != architectures:
        new["architectures"] = plain
        notes.append(f"architectures in config.json: {', '.join(plain)} instead of {', '.join(architectures)}")
    (out / "config.json").write_text(json.dumps(new, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return notes


def _set_dtype(config: dict[str, Any], name: str) -> None:
    key = "torch_dtype" if "torch_dtype" in config and "dtype" not in config else "dtype"
    config[key] = name
    for part, value in config.items():
        if part.endswith("_config") and isinstance(value, dict) and {"dtype", "torch_dtype"} & value.keys():
            inner = dict(value)
            for inner_key in {"dtype", "torch_dtype"} & value.keys():
                inner[inner_key] = name
            config[part] = inner


def main_kind(kinds: Mapping[str, Kind], tensors: Mapping[str, Tensor]) -> Kind | None:
    """The floating-point kind of most of the written elements; None if there is none."""
    sizes: dict[str, int] = {}
    for name, kind in kinds.items():
        if kind.floating:
            sizes[kind.name] = sizes.get(kind.name, 0) + size_of(tensors[name])
    found = max(sizes, key=lambda name: sizes[name], default=None)
    return next((kind for kind in kinds.values() if kind.name == found), None)
