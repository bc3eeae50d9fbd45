from __future__ import annotations

from rl_plugin_textarena.config import DataConfig
from rl_plugin_textarena.dataset import Seeds
from rlcore.testing import RewardCase, check_plugin, make_trajectory


def test_plugin_conforms() -> None:
    (task,) = Seeds(DataConfig(game="Nim-v0-train", train=1, evaluation=1)).tasks("train")
    results = {"won": 1.0, "lost": -1.0}
    cases = [
        RewardCase(task=task, trajectory=make_trajectory(name, metrics={"step_reward": value}), value=value)
        for name, value in results.items()
    ]
    check_plugin("textarena", cases={"textarena": cases})
