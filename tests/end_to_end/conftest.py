from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default recipe's model and tokenizer, to be read alone; its output layer is its embedding."""
    from rlcore.run import Run

    run = Run.create(
        {
            "model": {"path": "builtin:tiny-qwen2"},
            "environment": {"id": "gsm8k-tools"},
            "reward": [{"id": "math-numeric-equal"}],
            "data": {"train": "generated", "evaluation": "generated"},
        }
    )
    folder = tmp_path_factory.mktemp("untrained") / "model"
    shutil.copytree(run.model_folder(), folder)
    return folder
