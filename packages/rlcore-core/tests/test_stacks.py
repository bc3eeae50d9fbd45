from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rlcore.runs.stacks import SIGNAL, stacks_written


def test_stacks_are_written_at_the_signal_and_an_empty_file_is_removed(tmp_path: Path) -> None:
    with stacks_written(tmp_path, 0):
        os.kill(os.getpid(), SIGNAL)
    assert "in test_stacks_are_written" in (tmp_path / "stacks.txt").read_text(encoding="utf-8")
    with stacks_written(tmp_path, 3):
        assert (tmp_path / "stacks-3.txt").exists()
    assert not (tmp_path / "stacks-3.txt").exists()


def test_stacks_of_a_crash_are_kept(tmp_path: Path) -> None:
    code = (
        "import ctypes, pathlib\nfrom rlcore.runs.stacks import stacks_written\n"
        "with stacks_written(pathlib.Path(), 0): ctypes.string_at(0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode < 0
    stacks = (tmp_path / "stacks.txt").read_text(encoding="utf-8")
    assert "Segmentation fault" in stacks
    assert "string_at" in stacks
