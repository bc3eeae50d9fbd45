"""Real data of the published programs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def real() -> Path:
    """The root of the real data, which the paths of its pictures are relative to."""
    folder = Path(os.environ.get("RLCORE_DATA", ""))
    if not os.environ.get("RLCORE_DATA") or not (folder / "visual_search").is_dir():
        pytest.skip("set RLCORE_DATA to the folder of real data")
    return folder
