"""The options. They are checked before torch is imported."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from rlcore import Table


class SmallNetworkConfig(Table):
    """``[model.builder]``. The text below a key is shown with errors and by ``rlcore config show``."""

    width: Annotated[int, Field(ge=1, le=4096)] = 64
    """Number of features of the hidden layers."""
