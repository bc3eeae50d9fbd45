"""One GRPO step of rlcore at a time: ``python _grpo_step_ours.py MODEL_FOLDER``, driven by ``worker.Gate``.

A whole run as ``rlcore run`` makes it, with its folder, records and metrics; after each step it waits.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "references"))
import rlcore_rollout.engines.torch.engine  # noqa: F401
import rlcore_trainer.policy_gradient  # noqa: F401, memory is counted above the imported libraries
from grpo_step_task import GROUP_SIZE, KL_COEFFICIENT, LEARNING_RATE, NEW_TOKENS, TASKS, prompts, score
from rlcore.config.layers import values_layer
from rlcore.config.resolve import resolve
from rlcore.registry import Registry
from rlcore.run import Run
from rlcore.run_directory import Asked, RunDirectory
from rlcore.types import EndReason, Group, Message, Observation, Step, Task, Trajectory
from worker import Gate

GATE = Gate()


class OneTurn:
    """Shows the prompt; the completion always runs into its limit, so nothing follows."""

    def reset(self, task: Task, *, seed: int) -> Observation:
        """The user's message."""
        return Observation(messages=task.messages)

    def step(self, action: Message) -> Step:
        """Never needed, except when the end token is sampled against all odds."""
        return Step(observation=Observation(), terminated=True, end_reason=EndReason.DONE)

    def close(self) -> None:
        """Nothing is held."""


class Prompts:
    """The tasks."""

    def tasks(self, split: str) -> Sequence[Task]:
        """The same prompts as the peer's."""
        texts = enumerate(prompts(512))
        return [Task(id=str(index), messages=(Message(role="user", content=text),)) for index, text in texts]


async def even(trajectory: Trajectory, task: Task) -> float:
    """The peer's reward, on the written tokens."""
    written = zip(trajectory.token_ids, trajectory.loss_mask, strict=True)
    return score([token for token, mask in written if mask])


class Turnstile(Run):
    """A run that waits after each step."""

    seen: Mapping[str, Any] = {}

    def record(self, step: int, purpose: str, groups: Sequence[Group]) -> None:
        """Counts what was sampled."""
        super().record(step, purpose, groups)
        trajectories = [trajectory for group in groups for trajectory in group.trajectories]
        written = [sum(trajectory.loss_mask) for trajectory in trajectories]
        self.seen = {
            "new_tokens": sum(written),
            "prompt_tokens": (sum(len(t.token_ids) for t in trajectories) - sum(written)) / len(trajectories),
            "reward": sum(t.reward or 0.0 for t in trajectories) / len(trajectories),
        }

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Reports and waits."""
        super().log(step, metrics)
        times = {name: value for name, value in metrics.items() if name.startswith("time/")}
        if not GATE.wait(step=step, **self.seen, **times):
            self.request_stop()


def main(folder: str) -> None:
    """Train until told to end."""
    GATE.wait(pid=os.getpid())
    with tempfile.TemporaryDirectory() as runs:
        values = {
            "runs": runs,
            "model": {"path": folder},
            "environment": {"id": f"{__file__}:OneTurn"},
            "data": {"id": f"{__file__}:Prompts"},
            "reward": [{"id": f"{__file__}:even"}],
            "rollout": {"engine": "torch", "group_size": GROUP_SIZE, "max_new_tokens": NEW_TOKENS},
            "algorithm": {"kl": {"estimator": "k3", "coefficient": KL_COEFFICIENT}},
            "trainer": {
                "id": "policy-gradient",
                "steps": 10**6,
                "tasks_per_step": TASKS,
                "learning_rate": LEARNING_RATE,
            },
            "evaluation": {"every": 0},
            "checkpoint": {"every": 0},
            "trackers": {"use": ["jsonl"]},
        }
        registry = Registry()
        resolved = resolve([values_layer(values, "grpo-step")], registry, purpose="run")
        run = Turnstile(resolved, registry, directory=RunDirectory.create(resolved, Asked()))
        run.open_trackers()
        run.started()
        run.load("trainer", "policy-gradient")(run).train()
        run.finished()


if __name__ == "__main__":
    main(sys.argv[1])
