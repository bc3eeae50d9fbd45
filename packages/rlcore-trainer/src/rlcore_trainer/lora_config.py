"""The table of adapters of low rank. Imports no torch: a configuration is checked before anything loads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from rlcore.config.schema import Table

from rlcore_trainer.config import Positive

if TYPE_CHECKING:
    from rlcore.run import Run

ALL = "all-linear"
"""The word for every linear layer but the output layer."""
SETTINGS = {
    "rank": "r",
    "alpha": "lora_alpha",
    "targets": "target_modules",
    "rslora": "use_rslora",
    "dora": "use_dora",
    "modules_to_save": "modules_to_save",
}
"""What decides the form of an adapter, and peft's word for it in ``adapter_config.json``."""


class LoraTable(Table):
    """``[lora]``: an adapter of low rank is trained on a base that stays as it is; none without rank or adapter.

    The base is the model of ``model.path``. It stands in memory once: the policy is the base with its adapter, the
    reference the base with the adapter off, and the torch engine reads the same weights.
    """

    rank: Positive | None = None
    """Rank of the adapter's matrices; None trains all weights."""
    alpha: Annotated[float, Field(gt=0)] | None = None
    """What the adapter adds is scaled by alpha / rank; None is the rank, a scale of 1."""
    targets: str | Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)] = ALL
    """Names of the linear layers that get one, such as ``["q_proj", "v_proj"]``, or one regular expression of whole
    paths; ``all-linear`` is every one but the output layer."""
    rslora: bool = False
    """Scale by alpha / sqrt(rank) instead (arXiv:2312.03732)."""
    dora: bool = False
    """Learn the length of each output's weights apart from their direction (arXiv:2402.09353)."""
    modules_to_save: list[Annotated[str, Field(min_length=1)]] = []
    """Names of layers that are trained whole beside the adapter and saved with it, such as ``lm_head``."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the adapter's inputs that are left out at random; only in supervised training."""
    adapter: str | None = None
    """Folder of an adapter to go on from, which brings its own rank, alpha, targets and the like."""

    @property
    def wanted(self) -> bool:
        """Whether there is an adapter."""
        return self.rank is not None or self.adapter is not None

    def differences(self, settings: dict[str, Any], *, made_here: bool = False) -> list[tuple[str, Any, Any]]:
        """The keys of this table that are otherwise in the settings of an adapter: asked and found.

        A key that was not set asks for nothing, unless the adapter was made of this very table. Which layers
        ``all-linear`` was can no longer be told.
        """
        found = []
        for key, word in SETTINGS.items():
            asked, there = getattr(self, key), settings.get(word)
            chosen = made_here or asked != type(self).model_fields[key].get_default()
            if not chosen or (key == "targets" and asked == ALL):
                continue
            if key == "alpha" and asked is None:
                asked = settings.get(SETTINGS["rank"])  # a rank of its own is told for itself
            if key in ("targets", "modules_to_save"):
                asked, there = (value if isinstance(value, str) else sorted(value or ()) for value in (asked, there))
            elif not there and not asked:
                continue
            if asked != there:
                found.append((key, asked, there))
        return found


def lora_table(run: Run) -> LoraTable:
    """The table of a run; that of no adapter where a trainer of somebody else does not read it."""
    found = run.resolved.options.get("lora")
    return found if isinstance(found, LoraTable) else LoraTable()
