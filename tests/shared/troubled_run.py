"""A short run in which trajectories are not scored and groups are dropped, for tests of what explains runs."""

from __future__ import annotations

from pathlib import Path

from killed_runs import ENVIRONMENT
from preloaded import rlcore_command

REWARDS = '''
from rlcore.types import RewardResult


class Parity:
    """Splits groups of even tasks, and fails for one answer of every fifth task."""

    def __call__(self, trajectory, task):
        number = int(task.id.rpartition(":")[2])
        if number % 5 == 0 and trajectory.sibling == 1:
            return RewardResult(value=None, error="the judge is overloaded", error_kind="overloaded")
        value = float(number % 2 == 0 and trajectory.sibling % 2 == 0)
        return RewardResult(value=value, text=f"I read {len(trajectory.final_response)} characters of {task.id}.")
'''
SETTINGS = (
    *("run", "-p", "gsm8k-tools", "name=wrong", f"environment.id={ENVIRONMENT}:Delayed", "data.id=gsm8k-tools"),
    *("reward.0.id=rewards.py:Parity", "warmup.steps=70", "warmup.demonstrations_per_step=16", "trainer.steps=3"),
    *("trainer.tasks_per_step=3", "rollout.group_size=4", "trainer.updates_per_rollout=2", "rollout.max_new_tokens=28"),
    *("algorithm.filter.metric=reward", "algorithm.filter.oversample=3", "algorithm.kl.coefficient=0.01"),
    *("trainer.learning_rate=1e-3", "evaluation.every=3", "evaluation.tasks=4"),
)


def troubled_run(folder: Path) -> Path:
    """Train the run ``wrong`` in a folder, and return its directory."""
    (folder / "rewards.py").write_text(REWARDS, encoding="utf-8")
    done = rlcore_command(SETTINGS, folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "runs" / "wrong"
