"""The environment: runs the agent of a user in a process, which asks the policy through the server."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcore.episodes.context import EpisodeContext
from rlcore.episodes.threads import run_in_thread
from rlcore.errors import EnvironmentFailure
from rlcore.harnesses import EpisodePolicy
from rlcore.types import FrozenDict, Message, Response, Step, Task, ToolSchema, media_hash, thaw
from rlcore_rollout.engines.openai.wire import to_wire

from rlcore_harness.config import HarnessConfig
from rlcore_harness.inside.given import Place
from rlcore_harness.processes import AgentProcess, processes_of
from rlcore_harness.server import policy_server

SETTLING_S = 1.0
"""Time for the server to notice that the agent has received the last answer."""
LATE_S = 10.0
"""Time in which the agent loop ends an episode at its deadline, before the process counts as hanging."""
TASK_FILE = "task.json"


class AgentHarness:
    """Runs the agent for one episode, in a folder that is deleted with it.

    A process is used for the next episode only if the agent left nothing running in it.
    """

    def __init__(self, config: HarnessConfig) -> None:
        self._config = config

    async def run(self, task: Task, *, policy: EpisodePolicy, seed: int, context: EpisodeContext) -> Step:
        """Run the agent. Raises `EnvironmentFailure` if it raises an exception, or its process fails."""
        policy.max_turns = self._config.max_turns
        asked = policy if self._config.sampling == "request" else SampledAsTheRun(policy)
        given = {
            "id": task.id,
            "messages": to_wire(task.messages, {media_hash(image): image for image in task.images}),
            "fields": thaw(task.fields),
        }
        processes = processes_of(self._config)
        process = processes.take(self._config)
        reusable = False
        try:
            with policy_server().session(asked, loop=asyncio.get_running_loop(), key=process.key) as session:
                place = Place(session.base_url, session.root_url, process.key, seed)
                if self._config.command is not None:
                    return await self._command(self._config.command, process, place, given, context)
                outcome = await run_in_thread(
                    process.solve, place, given, folder=context.scratch, timeout_s=context.remaining_s + LATE_S
                )
                left = outcome.left
                try:
                    async with asyncio.timeout(SETTLING_S):
                        await session.settled()
                except TimeoutError:
                    left = left or "a request"
            reusable = not left
            if left and not processes.told:
                processes.told = True
                context.logger.warning("the agent leaves %s running, so each episode starts a new process", left)
            if outcome.error is not None:
                raise outcome.error
            return Step(terminated=True, reward=outcome.reward)
        finally:
            if reusable:
                processes.put_back(process)
            else:
                process.kill()

    async def _command(
        self, command: list[str], process: AgentProcess, place: Place, given: Mapping[str, Any], context: EpisodeContext
    ) -> Step:
        file = context.scratch / TASK_FILE
        file.write_text(json.dumps(given), encoding="utf-8")
        status, printed = await run_in_thread(
            process.run,
            [_absolute(word.replace("{task}", str(file))) for word in command],
            place,
            variables={"RLCORE_TASK": str(file), "RLCORE_SEED": str(place.seed)},
            folder=context.scratch,
            timeout_s=context.remaining_s + LATE_S,
        )
        scored = self._config.score == "exit-status"
        if status == 0 or (scored and status == 1):
            return Step(terminated=True, reward=1.0 - status if scored else None)
        names = {number.value: number.name for number in signal.Signals}
        end = f"ended with exit status {status}" if status > 0 else f"was ended by {names.get(-status, -status)}"
        raise EnvironmentFailure(f"the command {command[0]!r} {end}{printed}")

    async def close(self) -> None:
        """Nothing is left to free: `run` has ended the process, or put it back."""


class SampledAsTheRun:
    """A policy that ignores the sampling parameters of requests, except for those that end an answer.

    Args:
        policy: that of the episode
    """

    def __init__(self, policy: EpisodePolicy) -> None:
        self._policy = policy
        self.max_turns = policy.max_turns
        self.withdraw, self.reward = policy.withdraw, policy.reward

    @property
    def turns(self) -> int:
        """As `EpisodePolicy.turns`."""
        return self._policy.turns

    async def respond(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSchema] = (),
        images: Iterable[bytes] = (),
        sampling: Mapping[str, Any] = FrozenDict(),
    ) -> Response:
        """As `EpisodePolicy.respond`."""
        kept = {name: sampling[name] for name in ("max_new_tokens", "stop") if name in sampling}
        return await self._policy.respond(messages, tools=tools, images=images, sampling=kept)


def _absolute(word: str) -> str:
    """A word of a command, with the absolute path of a file: the command runs in another folder."""
    return str(Path(word).absolute()) if Path(word).is_file() else word
