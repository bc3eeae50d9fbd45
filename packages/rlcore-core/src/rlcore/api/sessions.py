"""``rlcore.open_session``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from typing import Any

from rlcore.api.overrides import override_texts
from rlcore.api.process import calling_process_kept
from rlcore.cli.layering import Request, prepared
from rlcore.config.layers import PYTHON
from rlcore.session.session import RunSession


@contextmanager
def open_session(
    plugin: str | None = None,
    /,
    *,
    recipe: str | PathLike[str] | None = None,
    files: Sequence[str | PathLike[str]] = (),
    **overrides: Any,
) -> Iterator[RunSession]:
    """The parts of a run, for a training loop of your own: dataset, environment, rewards, model folder and sampler.

    The configuration is resolved and checked as in `rlcore.train`, which explains the arguments. No run directory is
    created. A model that is built is removed at the end of the block.

    Raises:
        UserError: the configuration, the data or the model cannot be used.
    """
    request = Request(
        plugin=plugin,
        recipe=fspath(recipe) if recipe is not None else None,
        files=tuple(fspath(file) for file in files),
        overrides=override_texts(overrides),
        place=PYTHON,
    )
    with calling_process_kept(), prepared(request) as start:
        try:
            yield start.trial
        finally:
            start.trial.discard()


__all__ = ["open_session"]
