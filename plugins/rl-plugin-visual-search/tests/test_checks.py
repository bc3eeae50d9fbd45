"""Warnings before a run starts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from rl_plugin_visual_search.checks import check
from rl_plugin_visual_search.config import DataConfig, EnvironmentConfig
from rlcore.config.schema import RolloutTable


def notes(turns: int, stop: list[str], **data: Any) -> str:
    """The warnings, as one text."""
    run = SimpleNamespace(config=SimpleNamespace(rollout=RolloutTable(stop=stop)))
    environment = SimpleNamespace(data=DataConfig(**data), options=EnvironmentConfig(max_turns=turns))
    return "\n".join(one.text for one in check(run, environment))


@pytest.mark.parametrize(("tools", "warns"), [("code", True), ("zoom", True), ("none", False)])
def test_single_turn_leaves_none_for_a_tool(tools: str, warns: bool) -> None:
    assert ("environment.max_turns" in notes(1, ["</code>"], tools=tools)) == warns
    assert notes(2, ["</code>"], tools=tools) == ""


def test_generation_that_goes_on_after_code_is_named() -> None:
    assert "rollout.stop" in notes(5, [])
    assert notes(5, [], tools="zoom") == ""
