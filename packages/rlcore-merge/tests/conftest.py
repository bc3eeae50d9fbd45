from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from real_model import smollm2_gguf as smollm2_gguf

if TYPE_CHECKING:
    import torch

HERE = Path(__file__).parent
ALONE = "test_without_torch.py"
"""The module that runs without torch. The other modules read files written by torch."""
collect_ignore = [] if find_spec("torch") else [path.name for path in HERE.glob("test_*.py") if path.name != ALONE]
collect_ignore += [] if find_spec("gguf") else [path.name for path in HERE.glob("test_gguf*.py")]


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints written by four gloo processes."""
    folder = tmp_path_factory.mktemp("processes")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(HERE / "writers.py"), str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture
def huggingface(tmp_path: Path) -> Callable[..., Path]:
    """Write a Hugging Face folder with the given tensors."""

    from safetensors.torch import save_file

    def write(tensors: Mapping[str, torch.Tensor], config: Mapping[str, Any] | None = None, name: str = "base") -> Path:
        folder = tmp_path / name
        folder.mkdir()
        save_file({key: value.contiguous() for key, value in tensors.items()}, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(config or {}))
        return folder

    return write


@pytest.fixture
def peft_adapter(tmp_path: Path) -> Callable[..., Path]:
    """Write an adapter folder in peft's documented format."""

    from safetensors.torch import save_file

    def write(tensors: Mapping[str, torch.Tensor], settings: Mapping[str, Any], name: str = "adapter") -> Path:
        folder = tmp_path / name
        folder.mkdir()
        prefixed = {f"base_model.model.{key}": value.contiguous() for key, value in tensors.items()}
        save_file(prefixed, folder / "adapter_model.safetensors")
        (folder / "adapter_config.json").write_text(
            json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 6, **settings})
        )
        return folder

    return write
