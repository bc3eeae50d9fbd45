"""The options. They are checked before torch is imported, so this module does not import it."""

from __future__ import annotations

from rlcore import Table


class PlainSamplingConfig(Table):
    """``[rollout.plain-sampling]``. The text below a key is shown with errors and by ``rlcore config show``."""

    cache: bool = True
    """Whether the attention keys and values of earlier tokens are kept. If not, each token takes longer."""
