"""64 trajectories with three tool calls of 50 ms each, against the 0.15 s that the tools alone take."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from comparison import Comparison
from rlcore.run import Run
from rlcore.tool import tool
from rlcore.tool_environment import ToolEnvironment
from rlcore.types import Message, RolloutRequest, Task, Trajectory
from rlcore.weights import FolderWeights
from rlcore_rollout.executors.local import LocalExecutor
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

VERSIONS = ("rlcore-core", "rlcore-rollout", "tokenizers")

TRAJECTORIES, CALLS, TOOL_S = 64, 3, 0.05
TASKS = [Task(id=f"t{n}", messages=(Message(role="user", content=f"What is {n}?"),)) for n in range(TRAJECTORIES)]
CALL = '<tool_call>{"name": "look_up", "arguments": {"key": "height"}}</tool_call>'


@tool
def look_up(key: str) -> str:
    """Look a value up.

    Args:
        key: what to look up
    """
    time.sleep(TOOL_S)
    return f"{key} is 3"


@tool(name="look_up")
async def look_up_async(key: str) -> str:
    """Look a value up.

    Args:
        key: what to look up
    """
    await asyncio.sleep(TOOL_S)
    return f"{key} is 3"


def sync_environment() -> ToolEnvironment:
    """Its tool is a plain function that waits."""
    return ToolEnvironment([look_up], max_turns=CALLS + 1)


def async_environment() -> ToolEnvironment:
    """Its tool is a coroutine that waits."""
    return ToolEnvironment([look_up_async], max_turns=CALLS + 1)


class Tasks:
    """A dataset of one task for each trajectory."""

    def tasks(self, split: str) -> list[Task]:
        """The same tasks for every split."""
        return TASKS


def called_the_tool() -> Callable[[Trajectory, Task], float]:
    """A reward of 1 when the tool answered three times."""
    return lambda trajectory, task: float(sum(m.role == "tool" for m in trajectory.messages) == CALLS)


def model_folder() -> Path:
    """A folder with a tokenizer of one token a byte."""
    folder = Path(tempfile.mkdtemp(prefix="rlcore-benchmark-"))
    vocabulary = {character: index for index, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|im_start|>", special=True), AddedToken("<|im_end|>", special=True)])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<|im_end|>", "rlcore_chat_format": "plain"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def executor_of(environment: str) -> LocalExecutor:
    """An executor over the scripted engine: three calls, then an answer."""
    folder = model_folder()
    values = {
        "model": {"path": str(folder)},
        "environment": {"id": f"{__file__}:{environment}"},
        "data": {"id": f"{__file__}:Tasks"},
        "reward": [{"id": f"{__file__}:called_the_tool"}],
        "rollout": {"engine": "scripted", "scripted": {"replies": [CALL] * CALLS + ["It is 3."]}},
    }
    return LocalExecutor(Run.create(values, purpose="evaluation"), FolderWeights(folder=folder))


def measured(executor: LocalExecutor) -> Callable[[], float]:
    """One whole collect: loop, tools, rewards."""

    def once() -> float:
        request = RolloutRequest(tasks=TASKS, group_size=1, seed=0, step=0)
        start = time.perf_counter()
        groups = executor.collect(request)
        elapsed = time.perf_counter() - start
        assert all(group.rewards_G == (1.0,) for group in groups), groups[0].trajectories[0].error
        return elapsed

    return once


def comparisons() -> list[Comparison]:
    """Async and sync tools, against the ideal; ours may be 1.15 times as long."""
    ideal, floor = CALLS * TOOL_S, 1 / 1.15
    return [
        Comparison(name="async", ours=measured(executor_of("async_environment")), peer=ideal, floor=floor),
        Comparison(name="sync", ours=measured(executor_of("sync_environment")), peer=ideal, floor=floor),
    ]
