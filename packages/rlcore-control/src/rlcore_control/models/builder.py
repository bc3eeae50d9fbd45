"""``builtin:tiny-vla``: a compact vision-language-action model for an environment, with random weights from a seed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from rlcore.errors import ConfigError
from rlcore_models.builtin.config import MOST_PARAMETERS

from rlcore_control.models.config import TinyVLAConfig
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
