"""How this process was started, so that printed commands work as they are typed."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

_OWN = re.compile(r"(?<![\w./'-])rlcore (?=(?:run|eval|data|config|plugins|doctor|merge)\b)")
_UV = "UV_RUN_RECURSION_DEPTH"
"""Environment variable that ``uv run`` sets."""
_LAUNCHER = "RLCORE_LAUNCHER"
"""Environment variable of processes that ``rlcore run`` starts; see `rlcore.session.processes`."""


def started_by_uv() -> bool:
    """Whether ``uv run`` started this process."""
    return _UV in os.environ


def as_typed(text: str) -> str:
    """A text whose ``rlcore …`` commands begin as the command of this process did, such as ``uv run rlcore …``."""
    prefix = "uv run " if started_by_uv() else ""
    if Path(sys.argv[0]).name == "__main__.py" and _LAUNCHER not in os.environ:
        prefix += "python -m "
    return text if not prefix or "uv run" in text else _OWN.sub(f"{prefix}rlcore ", text)
