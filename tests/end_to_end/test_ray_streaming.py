"""Groups that the sampler ``ray`` samples while weights change and workers are lost."""

from __future__ import annotations

import itertools
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from live_weights import LiveWeights
from ray_cluster import MARK, until, worker_processes
from rlcore.errors import EngineError
from rlcore.runs.progress import Meter, silent
from rlcore.session.components import RunComponents
from rlcore.session.plan import RunPlan
from rlcore.types import Group, Message, Prompt, RolloutKey, Sampling, Task
from rlcore_rollout.sampler.ray.sampler import RaySampler
from transformers import AutoModelForCausalLM

KEY = RolloutKey(group_size=2, seed=0, step=1)
REWARD = '''
import os, signal

def reward(trajectory, task):
    """Ends the process for one task."""
    if task.fields["answer"] == "the end":
        os.kill(os.getpid(), signal.SIGKILL)
    return 1.0
'''


class Lines:
    """A report that keeps lines with the times at which they were said."""

    def __init__(self) -> None:
        self.lines: list[tuple[float, str]] = []

    def say(self, *lines: str) -> None:
        self.lines += [(time.monotonic(), line) for line in lines]

    def progress(self, phase: str, total: int, unit: str) -> Meter:
        return Meter(phase, total, unit, silent)

    def said(self, text: str) -> list[float]:
        """When lines with a text were said."""
        return [at for at, line in self.lines if text in line]


class Streaming:
    """A sampler with the weights of a module, which change at every update."""

    def __init__(self, folder: Path, reward: Path) -> None:
        self.lines = Lines()
        self.weights = LiveWeights(AutoModelForCausalLM.from_pretrained(folder), folder, version=0)
        plan = RunPlan.of(
            {
                "model": {"path": str(folder), "device": "cpu"},
                "environment": {"id": "gsm8k-tools"},
                "data": {"train": "generated", "evaluation": "generated"},
                "reward": [{"id": f"{reward}:reward"}],
                "rollout": {"max_new_tokens": 64, "concurrency": 8},
                "sampler": {"id": "ray", "address": "local", "workers": 2},
                "schedule": {"ahead": 1},
            }
        )
        self.sampler = RaySampler(RunComponents(plan), self.weights, self.lines)
        self._numbers = itertools.count()

    def submit(self, answer: str = "2") -> tuple[Task, Future[Group]]:
        number = next(self._numbers)
        message = Message(role="user", content=f"{number} + 1")
        task = Task(id=f"{number}", messages=(message,), fields={"answer": answer})
        return task, self.sampler.submit(task, KEY, place=number)

    def update(self) -> None:
        with torch.no_grad():
            for parameter in self.weights.module.parameters():
                parameter.mul_(1.001)
        self.weights.version += 1
        assert self.sampler.update_weights(self.weights) == self.weights.version

    def workers(self) -> list[int]:
        """The processes that sample."""
        return worker_processes(os.environ[MARK])

    def versions(self) -> list[int]:
        """The version of the weights in each worker."""
        prompt, sampling = Prompt(token_ids=[1, 2, 3]), Sampling(max_new_tokens=1)
        return [one.policy_version for one in self.sampler.completions(prompt, sampling)]


@pytest.fixture(scope="module")
def streaming(untrained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Streaming]:
    reward = tmp_path_factory.mktemp("reward") / "reward.py"
    reward.write_text(REWARD, encoding="utf-8")
    with patch.dict(os.environ, {MARK: secrets.token_hex(8)}):  # Ray's own variables are removed afterwards
        streaming = Streaming(untrained, reward)
        try:
            yield streaming
        finally:
            streaming.sampler.close()
            assert until(lambda: not streaming.workers(), 30), "workers outlive the sampler"


def versions_of(group: Group) -> list[int]:
    return [
        turn.policy_version
        for trajectory in group.trajectories
        for turn in trajectory.segments[0].turns
        if turn.kind == "policy"
    ]


STARTS = """
import ray
from rlcore_rollout.sampler.ray.cluster import SamplerCluster
from rlcore_rollout.sampler.ray.config import RaySamplerConfig
SamplerCluster(RaySamplerConfig(address="local", workers=1)).close()
"""


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_cluster_starts_where_ray_was_imported_before() -> None:
    """As by a notebook or by vLLM: Ray reads its variables at its import."""
    subprocess.run([sys.executable, "-c", STARTS], check=True)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_workers_are_attended_to_at_any_time(streaming: Streaming, capfd: pytest.CaptureFixture[str]) -> None:
    """Groups end although a worker is killed while weights change, and its end is noticed with nothing in flight."""
    submitted = [streaming.submit() for _ in range(24)]
    streaming.update()
    os.kill(streaming.workers()[0], signal.SIGKILL)
    streaming.update()
    groups = [future.result(timeout=120) for _, future in submitted]
    assert [group.task for group in groups] == [task for task, _ in submitted]
    assert all(trajectory.reward is not None for group in groups for trajectory in group.trajectories)
    assert set(itertools.chain(*map(versions_of, groups))) <= {0, 1, 2}
    assert until(lambda: bool(streaming.lines.said("has been started")), 60)
    assert streaming.versions() == [2, 2], "a new worker has other weights than the newest"

    killed = time.monotonic()
    os.kill(streaming.workers()[1], signal.SIGKILL)
    assert until(lambda: len(streaming.lines.said("is lost and will be replaced")) == 2, 10)
    assert streaming.lines.said("is lost and will be replaced")[1] - killed < 1
    assert "raylet" not in capfd.readouterr().out, "Ray prints its own messages"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_every_group_ends_once_although_workers_are_killed_and_stopped(streaming: Streaming) -> None:
    """A stream of groups with an update every second, and a fault whenever both workers sample."""
    tasks, groups = dict[Future[Group], Task](), list[tuple[Task, Group]]()
    lost, again = (partial(streaming.lines.said, text) for text in ("is lost and will be replaced", "has been started"))
    before, updated, stopped, left = len(lost()), 0.0, list[int](), [*2 * (signal.SIGKILL, signal.SIGSTOP)]
    try:
        while left or tasks:
            while left and len(tasks) < 24:
                task, future = streaming.submit()
                tasks[future] = task
            ended, _ = wait(tasks, timeout=1, return_when=FIRST_COMPLETED)
            groups += [(tasks.pop(future), future.result()) for future in ended]
            if time.monotonic() - updated > 1:
                updated = time.monotonic()
                streaming.update()
            if left and len(lost()) == len(again()) == before + 4 - len(left):
                pids = [pid for pid in streaming.workers() if pid not in stopped]
                number = left.pop()
                os.kill(pids[len(left) % 2], number)
                stopped += [pids[len(left) % 2]] if number == signal.SIGSTOP else []
        assert all(task == group.task for task, group in groups)
        assert len({task.id for task, _ in groups}) == len(groups)
        assert all(len(group.trajectories) == KEY.group_size for _, group in groups)
        assert len(lost()) == before + 4
        assert len(streaming.lines.said("no answer within 10 s")) == len(stopped)
    finally:
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # Ray does not end a stopped process


@pytest.mark.long
@pytest.mark.timeout(600)
def test_group_that_ends_its_workers_fails_after_three(streaming: Streaming) -> None:
    before = len(streaming.lines.said("is lost and will be replaced"))
    _, ending = streaming.submit("the end")
    with pytest.raises(EngineError, match="3 workers were lost with the same group"):
        ending.result(timeout=300)
    assert len(streaming.lines.said("is lost and will be replaced")) == before + 3
    _, following = streaming.submit()
    assert [trajectory.reward for trajectory in following.result(timeout=300).trajectories] == [1.0, 1.0]
