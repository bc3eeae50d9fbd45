"""What every layout is read into: names and tensors, and where the files that are not weights lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.adapter_folder import FINGERPRINT
from rlcore.errors import UserError

if TYPE_CHECKING:
    from rlcore_merge.tensors import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A low-rank adapter: its settings, in the words of ``adapter_config.json``, and its tensors.

    Names are those of the model's modules: no ``base_model.model.`` before and no adapter's name within.
    """

    settings: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    where: str
    about_base: Mapping[str, str] = field(default_factory=dict)
    """What the metadata of its weights say of the base that it was trained on, see `rlcore.adapter_folder`."""

    @property
    def fingerprint(self) -> str | None:
        """Of that base, where something says it."""
        return self.about_base.get(FINGERPRINT) or self.settings.get(FINGERPRINT)


@dataclass(slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint of any layout, described and not loaded."""

    layout: str
    folder: Path
    tensors: dict[str, Tensor]
    companions: list[Path]
    """Folders with config, tokenizer and the like; the first that has a file gives it."""
    inputs: list[Path]
    """Files that the tensors lie in."""
    buffers: frozenset[str] = frozenset()
    """Tensors that are known to be no parameters: they keep their dtype."""
    adapter: Adapter | None = None
    identity: dict[str, str] = field(default_factory=dict)
    """Of each input, something short that changes with its content."""
    notes: list[str] = field(default_factory=list)
    changes: dict[str, Any] = field(default_factory=dict)
    """Keys of config.json that must be others in the output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a layout may need beside its folder."""

    base: Path | None = None
    alpha: float | None = None
    """``lora_alpha`` of an adapter whose checkpoint does not say it."""
    adapter_only: bool = False


WRAPPERS = ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod.", "_flat_param.")


def plain_names(tensors: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    """The tensors under the names of the model's own modules, without those of the wrappers around them.

    Raises:
        UserError: two tensors get one name.
    """
    names = {name: _plain(name) for name in tensors}
    if names and all(name.startswith("module.") for name in names.values()):
        names = {name: plain.removeprefix("module.") for name, plain in names.items()}
    if len(set(names.values())) != len(names):
        seen: dict[str, str] = {}
        for name, plain in names.items():
            if plain in seen:
                raise UserError("two tensors have one name", found=f"{seen[plain]} and {name}", where=where)
            seen[plain] = name
    return {names[name]: tensor for name, tensor in tensors.items()}


def _plain(name: str) -> str:
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def config_folders(folder: Path, base: Path | None, *names: str) -> list[Path]:
    """Where config and tokenizer may stand: beside the weights, in the named subfolders, above, in the base."""
    places = [
        *(folder / name for name in names),
        folder,
        folder.parent / "huggingface",
        folder.parent,
        folder.parent.parent,
    ]
    found = [place for place in places if (place / "config.json").is_file()]
    return [*found[:1], *([base] if base is not None else [])]
