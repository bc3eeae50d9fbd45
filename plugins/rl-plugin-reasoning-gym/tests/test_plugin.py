from __future__ import annotations

from rl_plugin_reasoning_gym.config import DataConfig
from rl_plugin_reasoning_gym.dataset import GeneratedTasks
from rlcore.testing import RewardCase, check_plugin, make_trajectory


def test_plugin_conforms() -> None:
    (task,) = GeneratedTasks(DataConfig(generators=["chain_sum"], train=1, evaluation=1)).tasks("train")
    answers = {f"So it is <answer> {task.fields['answer']} </answer>.": 1.0, "<answer>none</answer>": 0.0}
    cases = [RewardCase(task=task, trajectory=make_trajectory(text), value=value) for text, value in answers.items()]
    check_plugin("reasoning-gym", cases={"reasoning-gym": cases})
