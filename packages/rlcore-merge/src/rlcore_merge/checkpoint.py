"""The common form that every layout is read into: named tensors and the folders of the other files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.errors import UserError
from rlcore.models.adapter import FINGERPRINT

from rlcore_merge.source_files import inside

if TYPE_CHECKING:
    from rlcore_merge.tensors import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A low-rank adapter: its settings, with the keys of ``adapter_config.json``, and its tensors.

    Tensor names are those of the model's modules, without ``base_model.model.`` and without the adapter's name.
    """

    settings: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    where: str
    about_base: Mapping[str, str] = field(default_factory=dict)
    """The entries about the base model in the metadata of the weights, see `rlcore.models.adapter`."""

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of the base model; None if it was not recorded."""
        return self.about_base.get(FINGERPRINT) or self.settings.get(FINGERPRINT)


@dataclass(slots=True, kw_only=True)
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
    holds: object = None
    """Kept as long as the checkpoint: the owner of a temporary folder in ``companions``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Options for reading a layout, in addition to its folder."""

    base: Path | None = None
    alpha: float | None = None
    """``lora_alpha`` for a checkpoint that does not record it."""
    adapter_only: bool = False


WRAPPERS = ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod.", "_flat_param.")


def plain_names(tensors: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    """The tensors under the names of the model's modules, with the prefixes of wrapper classes removed.

    Raises:
        UserError: two tensors have the same name, or a name cannot be written.
    """
    for name in tensors:
        _check_name(name, where)
    names = {name: _plain(name) for name in tensors}
    if names and all(name.startswith("module.") for name in names.values()):
        names = {name: plain.removeprefix("module.") for name, plain in names.items()}
    if len(set(names.values())) != len(names):
        seen: dict[str, str] = {}
        for name, plain in names.items():
            if plain in seen:
                raise UserError("two tensors have the same name", found=f"{seen[plain]} and {name}", where=where)
            seen[plain] = name
    return {names[name]: tensor for name, tensor in tensors.items()}


def _check_name(name: object, where: str) -> None:
    """Reject names that a safetensors file cannot contain."""
    valid = isinstance(name, str) and name not in {"", "__metadata__"}
    if not valid or name != str(name).encode("utf-8", "ignore").decode("utf-8"):
        raise UserError("a tensor has an invalid name", found=ascii(name)[:100], where=where)


def _plain(name: str) -> str:
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "")
    return name


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
