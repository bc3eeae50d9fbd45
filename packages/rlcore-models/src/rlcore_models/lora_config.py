"""The ``[lora]`` table. Does not import torch."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from rlcore.config.schema import Count, Table

if TYPE_CHECKING:
    from rlcore.session.session import RunSession

ALL = "all-linear"
"""Value of ``targets`` that selects every linear layer except the output layer."""
SETTINGS = {
    "rank": "r",
    "alpha": "lora_alpha",
    "targets": "target_modules",
    "rslora": "use_rslora",
    "dora": "use_dora",
    "modules_to_save": "modules_to_save",
}
"""Keys that determine the structure of an adapter, with peft's names for them in ``adapter_config.json``."""


class LoraTable(Table):
    """``[lora]``: train a LoRA adapter on a frozen base model. Disabled unless ``rank`` or ``adapter`` is set.

    The base is the model at ``model.path``. It is held in memory once: the policy is the base with the adapter, the
    reference is the base with the adapter disabled, and the torch engine reads the same weights.
    """

    rank: Count | None = None
    """Rank of the adapter matrices; None trains all weights."""
    alpha: Annotated[float, Field(gt=0)] | None = None
    """The adapter's output is scaled by alpha / rank; None uses the rank, which gives a scale of 1."""
    targets: str | Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)] = ALL
    """Names of the linear layers to adapt, such as ``["q_proj", "v_proj"]``, or one regular expression that matches
    full paths; ``all-linear`` selects every linear layer except the output layer. Only a regular expression selects
    layers of a vision tower, with which vLLM cannot serve the adapter."""
    rslora: bool = False
    """Scale by alpha / sqrt(rank) instead of alpha / rank (arXiv:2312.03732)."""
    dora: bool = False
    """Train the magnitude and direction of the weights separately (arXiv:2402.09353)."""
    modules_to_save: list[Annotated[str, Field(min_length=1)]] = []
    """Names of layers that are fully trained and saved with the adapter, such as ``lm_head``. In a vision-language
    model, a name selects layers of the vision tower only if no layer of the text model ends with it."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout probability of the adapter's inputs; only for supervised training."""
    adapter: str | None = None
    """Folder of an adapter to continue from; it provides rank, alpha, targets and the other settings."""

    @property
    def wanted(self) -> bool:
        """Whether the run trains an adapter."""
        return self.rank is not None or self.adapter is not None

    def differences(self, settings: dict[str, Any], *, made_here: bool = False) -> list[tuple[str, Any, Any]]:
        """Return the keys that differ from the settings of an adapter, each with its value here and in the adapter.

        Keys that are not set are skipped, unless this table created the adapter (``made_here``). ``all-linear`` is
        never compared, because the settings do not record it.
        """
        found = []
        for key, word in SETTINGS.items():
            asked, there = getattr(self, key), settings.get(word)
            chosen = made_here or asked != type(self).model_fields[key].get_default()
            if not chosen or (key == "targets" and asked == ALL):
                continue
            if key == "alpha" and asked is None:
                asked = settings.get(SETTINGS["rank"])  # a different rank is reported separately
            if key in ("targets", "modules_to_save"):
                asked, there = (value if isinstance(value, str) else sorted(value or ()) for value in (asked, there))
            elif not there and not asked:
                continue
            if key == "modules_to_save" and _selects(asked, list(there or ())):
                continue
            if asked != there:
                found.append((key, asked, there))
        return found


def _selects(names: list[str], stored: list[str]) -> bool:
    """Whether the names select all stored layers, which can be paths, and each name selects one."""
    chosen = [[path for path in stored if path.endswith(name)] for name in names]
    return all(chosen) and set(chain.from_iterable(chosen)) == set(stored)


def lora_table(run: RunSession) -> LoraTable:
    """Return the ``[lora]`` table of a run, or a table without an adapter if the trainer does not define one."""
    found = run.resolved.options.get("lora")
    return found if isinstance(found, LoraTable) else LoraTable()
