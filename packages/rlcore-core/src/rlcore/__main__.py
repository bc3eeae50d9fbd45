"""``python -m rlcore`` is the command ``rlcore``."""

from __future__ import annotations

import sys

from rlcore.cli import main

if __name__ == "__main__":
    sys.exit(main())
