"""Single GRPO steps of rlcore: ``python _grpo_step_ours.py MODEL_FOLDER SIZE ROLLOUTS kept|returned [KEY=VALUE...]``.

The run is that of ``rlcore run``, with its folder, records and metrics. A micro-batch holds ROLLOUTS rollouts. Freed
memory is kept up to the estimate, or returned as in a run that needs most of the machine's memory. The run waits after
each step, with ``worker.Gate``.
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
import rlcore_trainer.controller.policy_gradient  # noqa: F401, memory is measured above the imported libraries
from grpo_step_task import KL_COEFFICIENT, LEARNING_RATE, SIZES, prompts, score
from rlcore.config.layers import override_layers, values_layer
from rlcore.config.resolve import resolve
from rlcore.models.freed_memory import choose_allocation
from rlcore.plugins.registry import Registry
from rlcore.runs.directory import Asked, RunDirectory
from rlcore.session.memory import estimate_memory
from rlcore.session.plan import RunPlan
from rlcore.session.session import RunSession
from rlcore.types import Group, Message, Observation, Step, Task, Trajectory
from worker import Gate

GATE = Gate()
SIZE = SIZES[sys.argv[2]]
LONGEST_PROMPT = 200
"""Upper limit in tokens."""
GROUPS = -(-int(sys.argv[3]) // SIZE.group_size)
"""Groups per micro-batch. The rollouts of a group share their prompt."""


class OneTurn:
    """Shows the prompt. Each completion reaches its token limit, so there is no second turn."""

    def reset(self, task: Task, *, seed: int) -> Observation:
        """The user's message."""
        return Observation(messages=task.messages)

    def step(self, action: Message) -> Step:
        """Ends the episode if the end token is sampled, which is very unlikely."""
        return Step(terminated=True)

    def close(self) -> None:
        """Nothing to close."""


class Prompts:
    """The tasks."""

    def tasks(self, split: str) -> Sequence[Task]:
        """The same prompts as for the peer."""
        texts = enumerate(prompts(512, SIZE))
        return [Task(id=str(index), messages=(Message(role="user", content=text),)) for index, text in texts]


async def even(trajectory: Trajectory, task: Task) -> float:
    """The reward of the peer, on the generated tokens."""
    (segment,) = trajectory.segments
    written = zip(segment.token_ids, segment.loss_mask, strict=True)
    return score([token for token, mask in written if mask])


class Turnstile(RunSession):
    """A run that waits after each step."""

    seen: Mapping[str, Any] = {}

    def record(self, step: int, purpose: str, groups: Sequence[Group]) -> None:
        """Count the sampled tokens."""
        super().record(step, purpose, groups)
        trajectories = [trajectory for group in groups for trajectory in group.trajectories]
        written = [trajectory.sampled_tokens for trajectory in trajectories]
        self.seen = {
            "new_tokens": sum(written),
            "prompt_tokens": (sum(len(segment) for t in trajectories for segment in t.segments) - sum(written))
            / len(trajectories),
            "reward": sum(t.reward or 0.0 for t in trajectories) / len(trajectories),
        }

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Report the step and wait."""
        super().log(step, metrics)
        times = {name: value for name, value in metrics.items() if name.startswith("time/")}
        if not GATE.wait(step=step, **self.seen, **times):
            self.request_stop()


def main(folder: str) -> None:
    """Train until the gate closes."""
    GATE.wait(pid=os.getpid())
    with tempfile.TemporaryDirectory() as runs:
        values = {
            "runs": runs,
            "model": {"path": folder},
            "environment": {"id": f"{__file__}:OneTurn"},
            "data": {"id": f"{__file__}:Prompts"},
            "reward": [{"id": f"{__file__}:even"}],
            "rollout": {"engine": "torch", "group_size": SIZE.group_size, "max_new_tokens": SIZE.new_tokens},
            "algorithm": {"kl": {"estimator": "k3", "coefficient": KL_COEFFICIENT}},
            "trainer": {
                "id": "policy-gradient",
                "steps": 10**6,
                "tasks_per_step": SIZE.tasks,
                "learning_rate": LEARNING_RATE,
                "max_tokens_per_batch": GROUPS * (LONGEST_PROMPT + SIZE.group_size * SIZE.new_tokens),
            },
            "evaluation": {"every": 0},
            "checkpoint": {"every": 0},
            "trackers": {"use": ["jsonl"]},
        }
        registry = Registry()
        resolved = resolve([values_layer(values, "grpo-step"), *override_layers(sys.argv[5:])], registry, purpose="run")
        directory = RunDirectory.create(resolved, Asked())
        run = Turnstile(RunPlan(resolved=resolved), registry, directory=directory)
        run.open_trackers()
        run.started()
        estimate = estimate_memory(run, Path(folder))
        assert estimate is not None
        choose_allocation(keep_up_to=estimate.main if sys.argv[4] == "kept" else 0)
        run.load("trainer", "policy-gradient")(run).train()
        run.finished()


if __name__ == "__main__":
    main(sys.argv[1])
