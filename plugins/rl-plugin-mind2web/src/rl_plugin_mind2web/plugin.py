"""The hook implementations of this plugin."""

from __future__ import annotations

from collections.abc import Iterable

from rlcore.hookspecs import hookimpl
from rlcore.specs import RewardSpec

_PACKAGE = "rl_plugin_mind2web"


@hookimpl
def rlcore_rewards() -> Iterable[RewardSpec]:
    """The rewards."""
    yield RewardSpec(
        id="mind2web",
        target=f"{_PACKAGE}.scoring:Mind2Web",
        config="rlcore_gui.rewards:FormConfig",
        summary="The right element times the F1 of the operation, and the grammar of the answer.",
    )
    yield RewardSpec(
        id="mind2web-action",
        target=f"{_PACKAGE}.scoring:action_reward",
        summary="1 if element and operation are right, else 0.",
    )
    yield RewardSpec(
        id="mind2web-format",
        target=f"{_PACKAGE}.scoring:format_reward",
        summary="1 if the answer follows the strict grammar, else 0.",
    )
    yield RewardSpec(
        id="mind2web-legacy",
        target=f"{_PACKAGE}.legacy:legacy_reward",
        summary="GUI-Rise's published reward, including its errors.",
        maximum=1.7,
    )
