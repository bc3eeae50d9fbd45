"""The hook implementations of this plugin."""

from __future__ import annotations

from collections.abc import Iterable

from rlcore.hookspecs import hookimpl
from rlcore.specs import DatasetSpec, RewardSpec

_PACKAGE = "rl_plugin_aitw"


@hookimpl
def rlcore_rewards() -> Iterable[RewardSpec]:
    """The rewards."""
    return []


@hookimpl
def rlcore_datasets() -> Iterable[DatasetSpec]:
    """Recorded episodes."""
    yield DatasetSpec(
        id="aitw",
        target=f"{_PACKAGE}.dataset:AitwData",
        config=f"{_PACKAGE}.dataset:AitwDataConfig",
        prepare=f"{_PACKAGE}.prepare:prepare",
        prepare_config=f"{_PACKAGE}.prepare:AitwPrepareConfig",
        label=f"{_PACKAGE}.label:label",
        label_config=f"{_PACKAGE}.label:AitwLabelConfig",
        summary="Recorded episodes on Android phones (AITW), from prepared files.",
    )
