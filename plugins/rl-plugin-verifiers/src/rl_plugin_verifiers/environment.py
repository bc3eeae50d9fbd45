"""The environment: verifiers plays a task, and the policy answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rlcore.checks import Finding, failure, failure_of
from rlcore.episodes.context import EpisodeContext
from rlcore.errors import EnvironmentFailure, UserError
from rlcore.harnesses import EpisodePolicy
from rlcore.types import Step, Task, thaw

from rl_plugin_verifiers.config import EnvironmentConfig
from rl_plugin_verifiers.messages import answer
from rl_plugin_verifiers.process import Event, process_of, value_of, world_of

if TYPE_CHECKING:
    from rlcore.config.resolved import ResolvedEnvironment

TOTAL, REWARD, METRIC = "verifiers", "verifiers/reward/", "verifiers/metric/"
"""Names of the scores in the metrics of a trajectory."""


class Verifiers:
    """Plays one task. The scores of the taskset are entries of ``info``.

    Attributes:
        config: the taskset
    """

    def __init__(self, config: EnvironmentConfig) -> None:
        self.config = config

    async def run(self, task: Task, *, policy: EpisodePolicy, seed: int, context: EpisodeContext) -> Step:
        """Play the task. Raises `EnvironmentFailure` if it cannot be scored."""
        policy.max_turns = self.config.max_turns
        process, loop = process_of(self.config), asyncio.get_running_loop()
        events: asyncio.Queue[Event] = asyncio.Queue()

        def receive(event: Event) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(events.put_nowait, event)

        world = world_of(self.config, thaw(task.fields["options"]))
        number = process.begin(receive, "play", world=world, data=thaw(task.fields["data"]))
        try:
            while "ask" in (event := await events.get()):
                process.send(number, answer=await answer(policy, event["ask"]))
        finally:
            process.cancel(number)
        scores = value_of(event, process.python)
        info = {TOTAL: scores["reward"]}
        info |= {f"{REWARD}{name}": value for name, value in scores["rewards"].items()}
        info |= {f"{METRIC}{name}": value for name, value in scores["metrics"].items()}
        truncated = bool(scores["truncated"])
        return Step(terminated=not truncated, truncated=truncated, info=info)

    async def close(self) -> None:
        """Nothing is left to free: `run` has ended the episode."""


def check(run: Any, environment: ResolvedEnvironment) -> Iterator[Finding]:
    """Load the taskset in the process of the episodes."""
    config, started = environment.options, time.monotonic()
    assert isinstance(config, EnvironmentConfig)
    key = ".".join(environment.at("environment", "taskset"))
    try:
        process = process_of(config)
        found = process.ask("describe", world=world_of(config), timeout_s=run.config.rollout.environment_timeout_s)
    except UserError as error:
        yield failure_of(error, ".".join(environment.at(*error.where.split("."))) if error.where else key)
    except EnvironmentFailure as error:
        fix = "correct its name or environment.options, or install it in the interpreter"
        yield failure(key, f"the taskset {config.taskset!r} cannot be loaded: {error}", fix)
    else:
        rewards, took = ", ".join(found["rewards"]) or "of its environment", time.monotonic() - started
        text = f"{found['name']} of verifiers {found['verifiers']} was loaded in {took:.1f} s; rewards: {rewards}"
        yield Finding(status="ok", text=text)


__all__ = ["Verifiers", "check"]
