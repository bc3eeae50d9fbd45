"""Tiny Qwen2.5-VL models with random weights and the published tokenizer, chat template and processor settings."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

from workspace import ROOT

BUILDER = ROOT / "examples" / "visual-cot" / "random_model.py"


def qwen_folder(folder: Path, data: Path, *, layers: int = 2) -> Path:
    """Write such a model.

    Args:
        folder: of the model, which is created
        data: the folder of real data, ``RLCORE_DATA``
        layers: of the text model and of the image encoder
    """
    tokenizer = folder.with_name(f"{folder.name}-tokenizer")
    shutil.copytree(data / "tokenizers" / "qwen2.5-vl", tokenizer)
    os.chmod(tokenizer, 0o755)
    shutil.copyfile(data / "chat_templates" / "qwen2_5_vl.jinja", tokenizer / "chat_template.jinja")
    assemble = data / "tokenizers" / "assemble.py"
    subprocess.run([sys.executable, str(assemble), "qwen2.5-vl", str(tokenizer / "tokenizer.json")], check=True)
    runpy.run_path(str(BUILDER))["build"](folder, tokenizer, size="tiny", layers=layers)
    return folder
