"""The options of rlcore's own trackers."""

from __future__ import annotations

from typing import Literal

from rlcore.config.schema import Table


class WandbOptions(Table):
    """``[trackers.wandb]``. The key is read from ``WANDB_API_KEY`` or ``wandb login``, never from here."""

    project: str = "rlcore"
    """Project to log to."""
    entity: str | None = None
    """User or team; None is wandb's default."""
    mode: Literal["online", "offline", "disabled"] = "online"
    """``offline`` writes files only."""


class TrackioOptions(Table):
    """``[trackers.trackio]``."""

    project: str = "rlcore"
    """Project to log to."""
