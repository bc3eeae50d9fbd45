"""The weights of a module in this process, as a source for an engine."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlcore.contracts import NamedTensor
from rlcore_models.lora import settings_of
from rlcore_models.streaming import named_tensors


class LiveWeights:
    """Weights of a model of transformers, with its configuration in a temporary folder unless a folder is given."""

    def __init__(self, module: Any, folder: Path | None = None, version: int = 3) -> None:
        self.module, self.version, self.adapter = module, version, settings_of(module)
        self.folder = folder or Path(tempfile.mkdtemp())
        if folder is None:
            weakref.finalize(self, shutil.rmtree, self.folder)
            module.config.save_pretrained(self.folder)

    def weights(self, *, adapter_only: bool = False) -> Iterator[NamedTensor]:
        """All tensors of the module."""
        return named_tensors(self.module)
