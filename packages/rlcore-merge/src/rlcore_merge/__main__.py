"""``python -m rlcore_merge`` is the command ``rlcore merge``."""

from __future__ import annotations

import sys

from rlcore_merge.cli import main

if __name__ == "__main__":
    sys.exit(main())
