"""Options of the built-in trackers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rlcore.config.schema import Table

Samples = Annotated[int, Field(ge=0, le=1000)]


class WandbOptions(Table):
    """``[trackers.wandb]``. The API key is read from ``WANDB_API_KEY`` or ``wandb login``, never from this table."""

    project: str = "rlcore"
    """Project to log to."""
    entity: str | None = None
    """User or team; None uses the default of wandb."""
    mode: Literal["online", "offline", "disabled"] | None = None
    """``offline`` only writes files; None follows ``WANDB_MODE``."""
    samples: Samples = 8
    """Number of trajectories of each evaluation in the table ``samples``; 0 logs none."""


class TrackioOptions(Table):
    """``[trackers.trackio]``."""

    project: str = "rlcore"
    """Project to log to."""
    samples: Samples = 8
    """Number of trajectories of each evaluation in the table ``samples``; 0 logs none."""
