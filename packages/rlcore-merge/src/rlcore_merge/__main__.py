"""``python -m rlcore_merge`` runs ``rlcore merge``."""

from __future__ import annotations

import sys

from rlcore.cli import exit_status
from rlcore.console.terminal import open_standard_streams

from rlcore_merge.cli import merge

if __name__ == "__main__":
    open_standard_streams()
    sys.exit(exit_status(merge, "rlcore merge"))
