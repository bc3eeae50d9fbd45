"""Read peft adapter folders: ``adapter_config.json`` with ``adapter_model.safetensors`` or ``.bin``."""

from __future__ import annotations

from pathlib import Path

from rlcore.errors import UserError
from rlcore.models.adapter import FINGERPRINT, QUANTIZATION

from rlcore_merge import adapter_settings, lora, safetensors_files
from rlcore_merge.checkpoint import Adapter, Checkpoint, Request
from rlcore_merge.json_files import read_object
from rlcore_merge.mapped_file import MappedFile
from rlcore_merge.provenance import digest, identity
from rlcore_merge.source_files import inside
from rlcore_merge.tensors import Tensor
from rlcore_merge.torch_files import TorchFile


def open_folder(folder: Path, request: Request) -> Checkpoint:
    """Read the settings and the header of the weights.

    Raises:
        UserError: the weights are missing or damaged.
    """
    settings = read_object(inside(folder / "adapter_config.json", folder))
    if request.alpha is not None:
        settings["lora_alpha"] = request.alpha
    adapter_settings.check(settings, str(folder))
    path, tensors, metadata, found = _weights(folder)
    saved, adapter = lora.separate(tensors, str(folder))
    about_base = {key: value for key, value in metadata.items() if key in (FINGERPRINT, QUANTIZATION)}
    return Checkpoint(
        layout="peft",
        folder=folder,
        tensors={},
        # A tokenizer saved with the adapter is the one used for training.
        companions=[folder],
        inputs=[path],
        identity={path.name: found},
        adapter=Adapter(settings=settings, tensors={**adapter, **saved}, where=str(folder), about_base=about_base),
    )


def _weights(folder: Path) -> tuple[Path, dict[str, Tensor], dict[str, str], str]:
    path = folder / "adapter_model.safetensors"
    if path.is_file():
        stored, metadata = safetensors_files.read(inside(path, folder))
        with path.open("rb") as file:
            return path, dict(stored), dict(metadata), digest(file.read(1 << 20))
    path = folder / "adapter_model.bin"
    if path.is_file():
        archive = TorchFile(MappedFile(inside(path, folder)))
        return path, dict(archive.tensors()), {}, identity(archive)
    raise UserError(
        "the adapter has no weights",
        found="only adapter_config.json",
        where=str(folder),
        fix="copy adapter_model.safetensors as well",
    )


def base_folder(adapter: Adapter) -> Path | None:
    """The base that the settings name, if it is on this machine or in the Hub cache."""
    name = adapter.settings.get("base_model_name_or_path")
    if not isinstance(name, str) or not name:
        return None
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    return cached(name)


def cached(name: str) -> Path | None:
    """The cached snapshot of a Hub model; None if it is not cached."""
    import os

    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    folder = Path(os.environ.get("HF_HUB_CACHE", home / "hub")) / f"models--{name.replace('/', '--')}"
    head = folder / "refs" / "main"
    if not head.is_file():
        return None
    snapshot = folder / "snapshots" / head.read_text(encoding="utf-8").strip()
    return snapshot if snapshot.is_dir() else None
