"""The ``[preference]`` table. Does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, cast

from rlcore.config.schema import ComponentTable, Table

from rlcore_trainer.algorithms.config import NonNegative, id_of
from rlcore_trainer.algorithms.configured import configured
from rlcore_trainer.algorithms.preferences.interface import PreferenceLoss, traits_of

if TYPE_CHECKING:
    from rlcore.session.session import RunSession


class PreferenceConfig(Table):
    """``[preference]``: the objective of preference training."""

    COMPONENTS: ClassVar[Mapping[str, str]] = {"loss": "preference_loss"}
    """Component tables and their kinds; see `rlcore.config.resolve`."""
    loss: Annotated[ComponentTable, id_of("dpo")] = ComponentTable(id="dpo")
    """The loss of preferences: an id, or a table with ``id`` and the loss's own keys."""
    sft: NonNegative | None = None
    """Weight of the mean negative log-likelihood of the tokens of chosen answers, which is added to the loss (as by
    Pang et al. 2024, arXiv 2404.19733). None uses the loss's default: 1 for ``orpo`` and ``cpo``, and 0 for others."""


def selected_loss(run: RunSession) -> tuple[PreferenceLoss, float, float]:
    """Create the loss of a run from its configuration table.

    Returns:
        The loss, the weight of the likelihood of chosen answers, and the scale of the implicit rewards.
    """
    table: PreferenceConfig = run.options("preference")
    options = run.options("preference.loss")
    loss = run.load("preference_loss", table.loss.id)
    made = cast(PreferenceLoss, configured(f"preference loss {table.loss.id!r}", loss, options))
    sft = traits_of(loss).sft if table.sft is None else table.sft
    return made, sft, float(getattr(options, "beta", 1.0))
