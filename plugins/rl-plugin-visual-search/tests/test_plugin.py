from __future__ import annotations

import pytest
from rl_plugin_visual_search.config import DataConfig
from rlcore.abilities import RunsCodeConfig
from rlcore.testing import check_plugin


@pytest.mark.parametrize(("tools", "runs_code"), [("code", True), ("zoom", False), ("none", False)])
def test_only_runs_with_code_need_a_sandbox(tools: str, runs_code: bool) -> None:
    options = DataConfig.model_validate({"tools": tools})
    assert isinstance(options, RunsCodeConfig)
    assert options.runs_code is runs_code


def test_plugin_conforms() -> None:
    check_plugin("visual-search")
