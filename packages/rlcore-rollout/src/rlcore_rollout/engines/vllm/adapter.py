"""Low-rank adapters in vLLM: which adapters it can serve, and how it receives the trainer's current one.

vLLM reads an adapter from a folder in peft's format and applies it to the loaded base model. After an update only the
adapter is sent, never the base.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.errors import UserError
from rlcore.models.adapter import SETTINGS, WEIGHTS, is_adapter, read_settings
from rlcore.models.fingerprint import safetensors_header

from rlcore_rollout.engines.vllm.shared_memory import SHARED_MEMORY

if TYPE_CHECKING:
    from rlcore.contracts import NamedTensor, WeightSource
    from vllm.lora.request import LoRARequest

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The values that vLLM accepts as the maximum rank."""
VERSIONS, VERSIONS_IN_FLIGHT = 2, 4
"""Versions of an adapter with which vLLM computes at a time: the current one, and those of completions in flight, of
which there are more if the weights change while groups are sampled. With further ones, new requests wait."""
ENCODER = ".visual."
"""Part of the names of an image encoder's layers. vLLM applies adapters to them only if asked."""


class Adapter:
    """The adapter of a source, in the form that vLLM accepts."""

    def __init__(self, settings: Mapping[str, Any], folder: Path | None, names: Iterable[str], *, most: int) -> None:
        """Check an adapter.

        Args:
            settings: peft's settings
            folder: holds the adapter; None if it is live
            names: the names of its tensors
            most: number of its versions with which vLLM computes at a time

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
            "max_loras": most,
            "max_lora_rank": next(size for size in RANKS if size >= rank),
        }
        if any(ENCODER in name for name in names):
            self.arguments["enable_tower_connector_lora"] = True
        """Arguments with which vLLM must start."""

    @classmethod
    def of(cls, source: WeightSource, *, sampled_during_updates: bool = False) -> Adapter | None:
        """Return the adapter of streamed weights or of a folder; None where all weights belong to the policy."""
        most = VERSIONS_IN_FLIGHT if sampled_during_updates else VERSIONS
        if source.adapter is not None and (weights := source.weights(adapter_only=True)) is not None:
            return cls(source.adapter, None, (one.name for one in weights), most=most)
        if source.weights() is None and source.folder is not None and is_adapter(source.folder):
            header, _ = safetensors_header(source.folder / WEIGHTS)
            return cls(read_settings(source.folder), source.folder, header, most=most)
        return None

    def request(self, weights: Iterable[NamedTensor] | None) -> LoRARequest:
        """Return the adapter's current values under a new number, which tells vLLM that they are new."""
        from vllm.lora.request import LoRARequest

        self._number += 1
        folder = self.folder
        if folder is None:
            assert weights is not None
            folder = self._write(weights)
        return LoRARequest(f"rlcore-{self._number}", self._number, str(folder))

    def forget(self, request: LoRARequest) -> None:
        """Remove the files of values that are no longer used. Until then, vLLM may read them again."""
        if self.folder is None:
            shutil.rmtree(request.lora_path)

    def close(self) -> None:
        """Remove the files written for the adapter."""
        if self._place is not None:
            self._place.cleanup()
            self._place = None

    def _write(self, weights: Iterable[NamedTensor]) -> Path:
        from safetensors.torch import save_file

        if self._place is None:
            shared = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
            self._place = tempfile.TemporaryDirectory(prefix="rlcore-adapter-", dir=shared)
        folder = Path(self._place.name, str(self._number))
        folder.mkdir()
        (folder / SETTINGS).write_text(json.dumps(dict(self._settings)), encoding="utf-8")
        save_file({one.name: one.tensor.cpu().contiguous() for one in weights}, folder / WEIGHTS)
        return folder
