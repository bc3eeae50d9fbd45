"""Components may not end the process: an exit would look like success and lose what the run has not saved."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from rlcore.errors import ComponentExitError


@contextmanager
def exits_reported() -> Iterator[None]:
    """Turn ``sys.exit`` of a component into a `ComponentExitError`, which names the place of the call."""
    try:
        yield
    except SystemExit as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise ComponentExitError(
            f"a component tried to end the process: sys.exit({error.code!r}) in {place.filename}:{place.lineno}"
        ) from error


__all__ = ["exits_reported"]
