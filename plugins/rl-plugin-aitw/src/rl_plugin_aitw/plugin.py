"""The hook implementations of this plugin."""

from __future__ import annotations

from collections.abc import Iterable

from rlcore.hookspecs import hookimpl
from rlcore.specs import RewardSpec

_PACKAGE = "rl_plugin_aitw"


@hookimpl
def rlcore_rewards() -> Iterable[RewardSpec]:
    """The rewards."""
    yield RewardSpec(
        id="aitw",
        target=f"{_PACKAGE}.scoring:Aitw",
        config="rlcore_gui.rewards:FormConfig",
        summary="The strict match of the action, and the grammar of the answer.",
    )
    yield RewardSpec(
        id="aitw-action",
        target=f"{_PACKAGE}.scoring:action_reward",
        summary="1 if the action matches officially, else 0.",
    )
    yield RewardSpec(
        id="aitw-format",
        target=f"{_PACKAGE}.scoring:format_reward",
        summary="1 if the answer follows the strict grammar, else 0.",
    )
    yield RewardSpec(
        id="aitw-legacy",
        target=f"{_PACKAGE}.legacy:legacy_reward",
        summary="GUI-Rise's published reward, including its errors.",
        maximum=1.3125,
    )
