"""The hook implementations of this plugin."""

from __future__ import annotations

from collections.abc import Iterable

from rlcore.hookspecs import hookimpl
from rlcore.specs import DatasetSpec, RewardSpec

_PACKAGE = "rl_plugin_mind2web"


@hookimpl
def rlcore_rewards() -> Iterable[RewardSpec]:
    """The rewards."""
    return []


@hookimpl
def rlcore_datasets() -> Iterable[DatasetSpec]:
    """Recorded episodes."""
    yield DatasetSpec(
        id="mind2web",
        target=f"{_PACKAGE}.dataset:Mind2WebData",
        config=f"{_PACKAGE}.dataset:Mind2WebDataConfig",
        prepare=f"{_PACKAGE}.prepare:prepare",
        prepare_config=f"{_PACKAGE}.prepare:Mind2WebPrepareConfig",
        label=f"{_PACKAGE}.label:label",
        label_config=f"{_PACKAGE}.label:Mind2WebLabelConfig",
        summary="Recorded episodes on web pages (Mind2Web), from prepared files.",
    )
