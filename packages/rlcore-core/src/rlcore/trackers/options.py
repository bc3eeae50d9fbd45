"""Options of the built-in trackers."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from rlcore.config.schema import Table

Samples = Annotated[int, Field(ge=0, le=1000)]


def _address(url: SecretStr) -> SecretStr:
    text = url.get_secret_value()
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or "@" in parts.netloc or not re.fullmatch("[!-~]+", text):
        raise ValueError("needs a URL such as https://example.org/hooks/42, in ASCII and without a user")
    return url


class TensorboardOptions(Table):
    """``[trackers.tensorboard]``."""

    samples: Samples = 8
    """Number of trajectories in a table of samples; 0 writes none."""


class WandbOptions(Table):
    """``[trackers.wandb]``. The API key is read from ``WANDB_API_KEY`` or ``wandb login``, never from this table."""

    project: str = "rlcore"
    """Project to log to."""
    entity: str | None = None
    """User or team; None uses the default of wandb."""
    mode: Literal["online", "offline", "disabled"] | None = None
    """``offline`` only writes files; None follows ``WANDB_MODE``."""
    samples: Samples = 8
    """Number of trajectories in a table of samples; 0 logs none."""


class TrackioOptions(Table):
    """``[trackers.trackio]``."""

    project: str = "rlcore"
    """Project to log to."""
    samples: Samples = 8
    """Number of trajectories in a table of samples; 0 logs none."""


class WebhookOptions(Table):
    """``[trackers.webhook]``."""

    url: Annotated[SecretStr, AfterValidator(_address)]
    """Alerts are posted to this URL as JSON. It is a secret."""
