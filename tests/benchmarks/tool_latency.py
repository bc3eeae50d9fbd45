"""64 trajectories with three tool calls of 50 ms each, against the 0.15 s of the tools alone."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from comparison import Comparison
from rlcore.episodes.tool import tool
from rlcore.episodes.tool_environment import ToolEnvironment
from rlcore.models.weights import FolderWeights
from rlcore.session.session import RunSession
from rlcore.types import Message, RolloutRequest, Task, Trajectory
from rlcore_rollout.sampler.local import LocalSampler
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


class SyncEnvironment(ToolEnvironment):
    """With a blocking tool."""

    def __init__(self) -> None:
        super().__init__([look_up], max_turns=CALLS + 1)


class AsyncEnvironment(ToolEnvironment):
    """With an asynchronous tool."""

    def __init__(self) -> None:
        super().__init__([look_up_async], max_turns=CALLS + 1)


class Tasks:
    """A dataset with one task per trajectory."""

    def tasks(self, split: str) -> list[Task]:
        """The same tasks for every split."""
        return TASKS


def called_the_tool(trajectory: Trajectory, task: Task) -> float:
    """1 if there are three tool results."""
    return float(sum(message.role == "tool" for message in trajectory.messages) == CALLS)


def model_folder() -> Path:
    """A folder with a byte-level tokenizer."""
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


def sampler_of(environment: str) -> LocalSampler:
    """A sampler with the scripted engine: three tool calls, then an answer."""
    folder = model_folder()
    values = {
        "model": {"path": str(folder)},
        "environment": {"id": f"{__file__}:{environment}"},
        "data": {"id": f"{__file__}:Tasks"},
        "reward": [{"id": f"{__file__}:called_the_tool"}],
        "rollout": {"engine": "scripted", "scripted": {"replies": [CALL] * CALLS + ["It is 3."]}},
    }
    run = RunSession.create(values, purpose="evaluation")
    return LocalSampler(run, FolderWeights(folder=folder), run)


def measured(sampler: LocalSampler) -> Callable[[], float]:
    """One call of ``collect``: loop, tools and rewards."""

    def once() -> float:
        request = RolloutRequest(tasks=TASKS, group_size=1, seed=0, step=0)
        start = time.perf_counter()
        groups = sampler.collect(request)
        elapsed = time.perf_counter() - start
        assert all(group.rewards_G == (1.0,) for group in groups), groups[0].trajectories[0].failure
        return elapsed

    return once


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """Async and sync tools against the ideal time, with a factor of 1.15."""
    ideal, floor = CALLS * TOOL_S, 1 / 1.15
    return [
        Comparison(name="async", ours=measured(sampler_of("AsyncEnvironment")), peer=ideal, floor=floor),
        Comparison(name="sync", ours=measured(sampler_of("SyncEnvironment")), peer=ideal, floor=floor),
    ]
