"""Built-in policies for the environment of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rlcore_control.config import inputs_of
from rlcore_control.models.builder import build
from rlcore_control.models.config import TinyVLAConfig


def build_tiny_vla(
    folder: Path,
    texts: Iterable[str],
    seed: int,
    config: TinyVLAConfig,
    *,
    environment: Callable[[], Any] | None = None,
    sampler: object = None,
) -> None:
    """Write a policy with the sizes of an environment, which is made and closed; see `build`.

    ``sampler`` is the options of the run's sampler, whose inputs the policy sees.

    Raises:
        UserError: there is no environment, or a policy cannot control it.
    """
    made: Any = environment() if environment is not None else None
    if not hasattr(made, "action_space"):
        build(folder, texts, seed, config, spaces=None)
        return
    from rlcore_control.observations import View

    try:
        spaces = View.of(made.observation_space, made.action_space, inputs_of(sampler)).spaces
    finally:
        made.close()
    build(folder, texts, seed, config, spaces=spaces)
