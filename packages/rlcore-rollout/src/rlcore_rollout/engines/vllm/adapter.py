"""Low-rank adapters in vLLM: which adapters it can serve, and how it receives the trainer's current one.

vLLM reads an adapter from a folder in peft's format and applies it to the loaded base model. After an update only the
adapter is sent, never the base.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rlcore.errors import UserError
from rlcore.models.adapter import SETTINGS, WEIGHTS, is_adapter, read_settings
from rlcore.models.fingerprint import safetensors_header

from rlcore_rollout.engines.vllm.shared_memory import SHARED_MEMORY

if TYPE_CHECKING:
    from rlcore.contracts import WeightSource
    from vllm.lora.request import LoRARequest

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The values that vLLM accepts as the maximum rank."""
NAME = "default"
"""The name that peft gives to an unnamed adapter."""
PREFIX = "base_model.model."
ENCODER = ".visual."
"""Part of the names of an image encoder's layers. vLLM applies adapters to them only if asked."""


class Adapter:
    """The adapter of a source, in the form that vLLM accepts."""

    def __init__(self, settings: Mapping[str, Any], folder: Path | None, names: Iterable[str]) -> None:
        """Read peft's settings, the folder that holds the adapter unless it is live, and the names of its tensors.

        Raises:
            UserError: vLLM cannot serve the adapter.
        """
        self._settings, self.folder = settings, folder
        self._place: tempfile.TemporaryDirectory[str] | None = None
        self._number = 0
        where = str(folder) if folder is not None else "[lora]"
        for word, reason in (
            ("use_dora", "vLLM does not support DoRA"),
            ("modules_to_save", "vLLM cannot replace layers of the base model"),
            ("lora_bias", "vLLM does not read biases of an adapter"),
        ):
            if settings.get(word):
                raise UserError(
                    f"vLLM cannot serve an adapter with {word}",
                    found=reason,
                    where=where,
                    fix="rollout.engine=torch, or rlcore merge ADAPTER --out FOLDER",
                )
        rank = max([int(settings["r"]), *map(int, (settings.get("rank_pattern") or {}).values())])
        if rank > RANKS[-1]:
            raise UserError(f"vLLM serves adapters up to rank {RANKS[-1]}", found=f"rank {rank}", where=where)
        self.arguments: dict[str, Any] = {
            "enable_lora": True,
            "max_loras": 1,
            "max_lora_rank": next(size for size in RANKS if size >= rank),
        }
        if any(ENCODER in name for name in names):
            self.arguments["enable_tower_connector_lora"] = True
        """Arguments with which vLLM must start."""

    @classmethod
    def of(cls, source: WeightSource) -> Adapter | None:
        """Return the adapter of a live module or a folder; None where all weights belong to the policy."""
        if source.module is not None:
            module: Any = source.module
            settings = getattr(module, "peft_config", {}).get(NAME)
            names = (name for name, _ in module.named_parameters() if "lora_" in name)
            return None if settings is None else cls(_plain(settings), None, names)
        if source.folder is not None and is_adapter(source.folder):
            header, _ = safetensors_header(source.folder / WEIGHTS)
            return cls(read_settings(source.folder), source.folder, header)
        return None

    def request(self, module: object | None) -> LoRARequest:
        """Return the adapter's current values under a new number, which tells vLLM that they are new."""
        from vllm.lora.request import LoRARequest

        folder = self.folder
        if folder is None:
            assert isinstance(module, torch.nn.Module)
            folder = self._write(module)
        self._number += 1
        return LoRARequest(f"rlcore-{self._number}", self._number, str(folder))

    def close(self) -> None:
        """Remove the files written for the adapter."""
        if self._place is not None:
            self._place.cleanup()
            self._place = None

    def _write(self, module: torch.nn.Module) -> Path:
        from peft import get_peft_model_state_dict
        from safetensors.torch import save_file

        if self._place is None:
            shared = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
            self._place = tempfile.TemporaryDirectory(prefix="rlcore-adapter-", dir=shared)
        folder = Path(self._place.name)
        everything: Any = dict(module.named_parameters())
        tensors: dict[str, torch.Tensor] = get_peft_model_state_dict(
            module, state_dict=everything, adapter_name=NAME, save_embedding_layers=False
        )
        (folder / SETTINGS).write_text(json.dumps(self._settings), encoding="utf-8")
        kept = {PREFIX + name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        save_file(kept, folder / WEIGHTS)
        return folder


def _plain(settings: Any) -> dict[str, Any]:
    """Return peft's settings as plain JSON values."""
    words = settings.to_dict()
    return {
        key: sorted(value) if isinstance(value, set) else value
        for key, value in words.items()
        if isinstance(value, (str, int, float, bool, list, dict, set, type(None)))
    }
