"""Options of the built-in trackers."""

from __future__ import annotations

from typing import Literal

from rlcore.config.schema import Table


class WandbOptions(Table):
    """``[trackers.wandb]``. The API key is read from ``WANDB_API_KEY`` or ``wandb login``, never from this table."""

    project: str = "rlcore"
    """Project to log to."""
    entity: str | None = None
    """User or team; None uses the default of wandb."""
    mode: Literal["online", "offline", "disabled"] = "online"
    """``offline`` only writes files."""


class TrackioOptions(Table):
    """``[trackers.trackio]``."""

    project: str = "rlcore"
    """Project to log to."""
