"""``builtin:tiny-vla``: a compact vision-language-action model for an environment, with random weights from a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from rlcore.errors import ConfigError
from rlcore_models.builtin.config import MOST_PARAMETERS

from rlcore_control.config import inputs_of
from rlcore_control.models.config import TinyVLAConfig
from rlcore_control.models.observations import View
from rlcore_control.models.spaces import Spaces
from rlcore_control.models.vla import create


def build(
    folder: Path, texts: Iterable[str], seed: int, config: TinyVLAConfig, *, spaces: Spaces | None = None
) -> None:
    """Write the folder of a policy.

    Args:
        folder: is created
        texts: not needed, because words are hashed
        seed: of the weights
        config: the options of the model
        spaces: what the environment gives and takes

    Raises:
        ConfigError: there are no spaces, because the environment is not one that is controlled, or the model would
            be too large.
    """
    if spaces is None:
        raise ConfigError(
            "builtin:tiny-vla needs an environment with continuous actions",
            found="an environment with messages",
            where="model.path",
            fix="model.path=builtin:tiny-qwen2",
        )
    with torch.device("meta"):
        parameters = sum(one.numel() for one in create(spaces, config, seed).parameters())
    if parameters > MOST_PARAMETERS:
        raise ConfigError(
            f"builtin:tiny-vla needs at most {MOST_PARAMETERS:,} parameters",
            found=f"{parameters:,}",
            where="model.builder",
            fix="reduce model.builder.width or model.builder.chunk",
        )
    create(spaces, config, seed).save(folder)


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
    try:
        spaces = View.of(made.observation_space, made.action_space, inputs_of(sampler)).spaces
    finally:
        made.close()
    build(folder, texts, seed, config, spaces=spaces)
