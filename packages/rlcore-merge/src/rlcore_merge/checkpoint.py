"""The common form that every layout is read into: named tensors, an adapter, and the folders of the other files.

Links in a source folder are followed only inside of it, so that no other file is read or copied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.errors import UserError
from rlcore.json_files import read_json
from rlcore.models.adapter import FINGERPRINT

if TYPE_CHECKING:
    from rlcore_merge.tensors import Tensor

_UNSUPPORTED = ("target_parameters", "layer_replication", "trainable_token_indices", "alora_invocation_tokens")
"""Keys that, when set, make the model compute something other than a weight plus a low-rank product."""
_VARIANT = re.compile(r"use_\w+|\w+_config")
"""The naming pattern of the keys for peft's variants. It also matches variants of future versions."""
_NO_VARIANT = frozenset(
    {
        *("use_rslora", "use_dora"),  # supported
        *("loftq_config", "eva_config", "corda_config", "lora_ga_config"),  # initialisation only
        *("velora_config", "runtime_config"),  # training and device only
    }
)
_CHANGES_BASE = re.compile(r"(pissa|corda).*|olora|loftq|lora_ga", re.IGNORECASE)
"""Values of ``init_lora_weights`` for which peft subtracts the initial product of the matrices from the base."""
_WRAPPERS = re.compile(r"_fsdp_wrapped_module\.|_checkpoint_wrapped_module\.|_orig_mod\.|_flat_param\.")
_QWEN2_VL = (("model.language_model.", "model."), ("model.visual.", "visual."))
_PUBLISHED = {"qwen2_vl": _QWEN2_VL, "qwen2_5_vl": _QWEN2_VL}
"""By ``model_type``: prefixes of module names and of published names."""
_SAME = frozenset({"qwen3_vl", "qwen3_vl_moe", "gpt_oss", "llama4"})
"""Model types whose published names are those of the modules, although they look like `_MODULES`."""
_MODULES = re.compile(r"model\.(language_model|vision_tower)\.|.*\.experts\.(gate_up_proj|down_proj)$")
"""Names of modules that ``save_pretrained`` translates for most models: parts of them, and experts in one tensor."""
PARTS = ("lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B", "lora_magnitude_vector")
PART = re.compile(rf"^(?P<module>.+)\.(?P<part>{'|'.join(PARTS)})(?P<rest>\..+)?$")
_SAVED = re.compile(r"\.modules_to_save\.[^.]+\.")
ALPHA = "pass the value from the training configuration: --lora-alpha NUMBER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A low-rank adapter: its settings, with the keys of ``adapter_config.json``, and its tensors.

    Tensor names are those of the model's modules, without ``base_model.model.`` and without the adapter's name.
    Invalid ranks, α or patterns of them raise `UserError`.
    """

    settings: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    where: str
    about_base: Mapping[str, str] = field(default_factory=dict)
    """The entries about the base model in the metadata of the weights, see `rlcore.models.adapter`."""

    def __post_init__(self) -> None:
        wrong = list(_wrong_settings(self.settings))
        if wrong:
            fix = "restore adapter_config.json as written by peft"
            raise UserError("the adapter settings are invalid", found="; ".join(wrong[:3]), where=self.where, fix=fix)

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of the base model; None if it was not recorded."""
        return self.about_base.get(FINGERPRINT) or self.settings.get(FINGERPRINT)

    def check_kind(self) -> None:
        """Raise `UserError` if the adapter is more than low-rank matrices with a scale and magnitudes."""
        kind = self.settings.get("peft_type", "LORA")
        wrong = [] if kind in {"LORA", "PeftType.LORA", None} else [f"peft_type {kind}"]
        wrong += [
            key
            for key, value in self.settings.items()
            if value and (key in _UNSUPPORTED or (_VARIANT.fullmatch(key) and key not in _NO_VARIANT))
        ]
        if wrong:
            fix = "merge it with peft's merge_and_unload, or serve it unmerged if peft cannot merge it either"
            raise UserError("this type of adapter cannot be merged", found=", ".join(wrong), where=self.where, fix=fix)

    def check_base_unmodified(self) -> None:
        """Raise `UserError` if peft modified the base at initialisation: the matrices fit only the modified base."""
        initialisation = self.settings.get("init_lora_weights")
        if isinstance(initialisation, str) and _CHANGES_BASE.fullmatch(initialisation):
            raise UserError(
                "the adapter belongs to a base that peft modified at initialisation",
                found=f"init_lora_weights is {initialisation!r}, which subtracts the initial adapter from the base",
                where=self.where,
                fix="save it again with peft's path_initial_model_for_weight_conversion, merge it with peft's "
                "merge_and_unload, or, if the modified base was saved, pass it as --base and set "
                '"init_lora_weights": true in adapter_config.json',
            )


def _is_rank(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_alpha(value: Any) -> bool:
    return type(value) in (int, float) and isfinite(value)


def _wrong_settings(settings: Mapping[str, Any]) -> Iterable[str]:
    for key, pattern, is_valid, wanted in (
        ("r", "rank_pattern", _is_rank, "an integer"),
        ("lora_alpha", "alpha_pattern", _is_alpha, "a finite number"),
    ):
        if settings.get(key) is not None and not is_valid(settings[key]):
            yield f"{key} is {settings[key]!r}, expected {wanted}"
        patterns = settings.get(pattern) or {}
        if not isinstance(patterns, Mapping):
            yield f"{pattern} is {patterns!r}, expected a mapping"
            continue
        for expression, value in patterns.items():
            if not is_valid(value):
                yield f"{pattern} of {expression} is {value!r}, expected {wanted}"
            try:
                re.compile(expression)
            except re.error as error:
                yield f"{pattern} contains {expression!r}, which is not a valid regular expression: {error}"
    if not isinstance(settings.get("peft_type"), str | None):
        yield f"peft_type is {settings['peft_type']!r}, expected a string"


@dataclass(slots=True, kw_only=True, weakref_slot=True)
class Checkpoint:
    """A checkpoint of any layout. Tensors are described, not loaded."""

    layout: str
    folder: Path
    tensors: dict[str, Tensor]
    companions: list[Path]
    """Folders with config, tokenizer and similar files; each file is taken from the first folder that has it."""
    inputs: list[Path]
    """Files that contain the tensors."""
    buffers: frozenset[str] = frozenset()
    """Names of tensors that are known to be buffers: they keep their dtype."""
    adapter: Adapter | None = None
    identity: dict[str, str] = field(default_factory=dict)
    """A digest for each input file that changes with its content."""
    notes: list[str] = field(default_factory=list)
    changes: dict[str, Any] = field(default_factory=dict)
    """Keys of config.json to change in the output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Options for reading a layout, in addition to its folder."""

    base: Path | None = None
    alpha: float | None = None
    """``lora_alpha`` for a checkpoint that does not record it."""


def plain_names(names: Iterable[str], where: str) -> dict[str, str]:
    """The name in the model's modules for each name: without the prefixes of wrapper classes.

    Raises:
        UserError: two tensors have the same name, or a name cannot be written.
    """
    plain = {name: _WRAPPERS.sub("", _checked(name, where)) for name in names}
    if plain and all(name.startswith("module.") for name in plain.values()):
        plain = {name: short.removeprefix("module.") for name, short in plain.items()}
    seen: dict[str, str] = {}
    for name, short in plain.items():
        if short in seen:
            raise UserError("two tensors have the same name", found=f"{seen[short]} and {name}", where=where)
        seen[short] = name
    return plain


def _checked(name: object, where: str) -> str:
    """The name, unless a safetensors file cannot contain it."""
    if not isinstance(name, str) or name in {"", "__metadata__"} or name != name.encode("utf-8", "ignore").decode():
        raise UserError("a tensor has an invalid name", found=ascii(name)[:100], where=where)
    return name


def published_names(names: Iterable[str], config: Mapping[str, Any]) -> dict[str, str]:
    """The name that ``save_pretrained`` writes for each name of a module; the same if there is no translation.

    Trainers save the names of the modules. For some models, ``save_pretrained`` translates them to the names of the
    published checkpoints, which all versions of transformers and vLLM can read.
    """
    kind = config.get("model_type")
    prefixes = _PUBLISHED.get(kind, ()) if isinstance(kind, str) else ()
    found = {}
    for name in names:
        prefix, other = next((pair for pair in prefixes if name.startswith(pair[0])), ("", ""))
        found[name] = other + name.removeprefix(prefix)
    return found


def names_note(names: Iterable[str], config: Mapping[str, Any]) -> list[str]:
    """A note if tensors keep names that the published checkpoints of the model may not have."""
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind in _SAME or kind in _PUBLISHED:
        return []
    found = next(filter(_MODULES.match, sorted(names)), None)
    if found is None:
        return []
    return [
        f"the tensors keep the names of modules, such as {found}: transformers of the version that trained the model "
        f"reads them, but other versions and vLLM may need the published names of {kind}; load and save the output "
        "with transformers to get them"
    ]


def is_adapter_name(name: str) -> bool:
    """Whether the name is that of an adapter's tensor."""
    return PART.match(name) is not None or _SAVED.search(name) is not None


def plain(name: str) -> str:
    """A name without the prefixes and infixes that peft adds."""
    name = re.sub(r"^(base_model\.model\.|base_model\.)", "", name)
    name = _SAVED.sub(".", name).replace(".base_layer.", ".")
    if match := PART.match(name):
        rest = (match["rest"] or "").split(".")[1:]
        last = [rest[-1]] if rest and rest[-1] in {"weight", "bias"} else []
        if match["part"] in {"lora_A", "lora_B"} and not last:
            last = ["weight"]
        if match["part"] == "lora_magnitude_vector":
            last = []
        return ".".join([match["module"], match["part"], *last])
    return name


def separate(tensors: Mapping[str, Tensor], where: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Split a state dict into the tensors of the base and those of the adapter.

    Raises:
        UserError: the state dict holds more than one adapter.
    """
    base: dict[str, Tensor] = {}
    adapter: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        into = adapter if is_adapter_name(name) else base
        short = plain(name)
        if ".original_module." in short:
            into, short = base, short.replace(".original_module.", ".")
        if short in into:
            found = f"{short} twice"
            fix = "save one adapter, or merge them with peft first"
            raise UserError("the checkpoint contains more than one adapter", found=found, where=where, fix=fix)
        into[short] = tensor
    return base, adapter


def extract(checkpoint: Checkpoint, alpha: float | None) -> Checkpoint:
    """Name the tensors as the modules of the model, and move low-rank matrices into ``adapter``.

    Raises:
        UserError: α is unknown, two tensors have the same name, or there is more than one adapter.
    """
    where = str(checkpoint.folder)
    named = plain_names(checkpoint.tensors, where)
    checkpoint.tensors = {named[name]: tensor for name, tensor in checkpoint.tensors.items()}
    checkpoint.buffers = frozenset(named[name] for name in checkpoint.buffers & named.keys())
    if any(is_adapter_name(name) for name in checkpoint.tensors):
        checkpoint.tensors, adapter = separate(checkpoint.tensors, where)
        checkpoint.buffers = frozenset(checkpoint.buffers & checkpoint.tensors.keys())
        settings = _settings(checkpoint.folder, adapter, alpha)
        checkpoint.adapter = Adapter(settings=settings, tensors=adapter, where=where)
    return checkpoint


def _settings(folder: Path, tensors: Mapping[str, Tensor], alpha: float | None) -> dict[str, Any]:
    """The settings of an adapter inside a training checkpoint, next to the weights or in ``lora_adapter/``."""
    places = ("adapter_config.json", "lora_adapter/adapter_config.json", "lora_train_meta.json")
    path = next((folder / place for place in places if (folder / place).is_file()), None)
    settings = {} if path is None else read_object(path, folder)
    if alpha is not None:
        settings["lora_alpha"] = alpha
    if not settings.get("lora_alpha"):
        found = "no lora_alpha: neither lora_train_meta.json nor adapter_config.json sets it"
        raise UserError("the scale of the adapter is unknown", found=found, where=str(folder), fix=ALPHA)
    ranks = sorted(
        tensor.shape[0] for name, tensor in tensors.items() if ".lora_A." in name or name.endswith("lora_embedding_A")
    )
    settings.setdefault("r", max(set(ranks), key=ranks.count) if ranks else 0)
    return settings


def root_of(folder: Path) -> Path:
    """The folder that links of ``folder`` may refer to: itself or, for a snapshot in the Hub cache, its repository.

    The files of a snapshot are links to ``blobs/`` in the folder of the repository.
    """
    resolved = folder.resolve()
    inner = resolved
    for outer in resolved.parents:
        if inner.name == "snapshots" and outer.name.startswith("models--"):
            return outer
        inner = outer
    return resolved


def inside(path: Path, folder: Path) -> Path:
    """The path itself, which may be a link to another place in the folder.

    Raises:
        UserError: the path is outside of the folder after all links are followed.
    """
    root = root_of(folder)
    try:
        target = path.resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise UserError("a file cannot be read", found=str(error), where=str(path)) from None
    if target != root and root not in target.parents:
        found = f"{path.name} refers to {target}"
        fix = f"replace the link with a copy, or pass a folder that contains {target}"
        raise UserError("a link leads out of the source folder", found=found, where=str(path), fix=fix)
    return path


def read_object(path: Path, folder: Path) -> dict[str, Any]:
    """The JSON object in a file of a folder.

    Raises:
        UserError: the file cannot be read, is outside of the folder, or holds another type.
    """
    fix = "restore the file, or save the checkpoint again"
    try:
        content = read_json(inside(path, folder))
    except (OSError, ValueError) as error:
        raise UserError(f"{path.name} cannot be read", found=str(error), where=str(path), fix=fix) from None
    if not isinstance(content, dict):
        raise UserError(f"{path.name} is not a JSON object", found=type(content).__name__, where=str(path), fix=fix)
    return content


def read_config(folders: Iterable[Path]) -> dict[str, Any] | None:
    """The ``config.json`` of the first folder that has one. Raises `UserError` if it is not a JSON object."""
    found = next((folder for folder in folders if (folder / "config.json").is_file()), None)
    return None if found is None else read_object(found / "config.json", found)


def config_folders(folder: Path, base: Path | None, *names: str) -> list[Path]:
    """Folders with config and tokenizer: the named subfolders, the folder of the weights, its parents, and the base."""
    places = [
        *((folder / name, folder) for name in names),
        (folder, folder),
        (folder.parent / "huggingface", folder.parent),
        (folder.parent, folder.parent),
        (folder.parent.parent, folder.parent.parent),
    ]
    found = next(((place, outer) for place, outer in places if (place / "config.json").is_file()), None)
    return [*([inside(*found)] if found is not None else []), *([base] if base is not None else [])]
