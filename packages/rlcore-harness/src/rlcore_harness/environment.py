"""The environment: runs the agent of a user in a process, which asks the policy through the server."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
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

REFUSED = "refused_requests"
"""The name of their number in the metrics of a trajectory."""
SETTLING_S = 1.0
"""Time for the server to notice that the agent has received the last answer."""
LATE_S = 10.0
"""Time in which the agent loop ends an episode at its deadline, before the process counts as hanging."""


class AgentHarness:
    """Runs the agent for one episode, in a folder that is deleted with it.

    A process is used for the next episode only if the agent left nothing running in it.
    """

    def __init__(self, config: HarnessConfig) -> None:
        self._config = config

    async def run(self, task: Task, *, policy: EpisodePolicy, seed: int, context: EpisodeContext) -> Step:
        """Run the agent. Raises `EnvironmentFailure` if it raises an exception, or its process fails."""
        policy.max_turns = self._config.max_turns
        asked = AskedPolicy(policy, self._config)
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
                    step = await self._command(self._config.command[0], process, place, given, context)
                    return replace(step, info={REFUSED: float(session.refused)})
                outcome = await run_in_thread(
                    process.solve, place, given, scratch=context.scratch, timeout_s=context.remaining_s + LATE_S
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
            return Step(terminated=True, reward=outcome.reward, info={REFUSED: float(session.refused)})
        finally:
            if reusable:
                processes.put_back(process)
            else:
                await run_in_thread(process.kill)  # it may have to delete many files

    async def _command(
        self, program: str, process: AgentProcess, place: Place, given: Mapping[str, Any], context: EpisodeContext
    ) -> Step:
        timeout_s = context.remaining_s + LATE_S
        status, printed = await run_in_thread(process.run, place, given, scratch=context.scratch, timeout_s=timeout_s)
        scored = self._config.score == "exit-status"
        if status == 0 or (scored and status == 1):
            return Step(terminated=True, reward=1.0 - status if scored else None)
        names = {number.value: number.name for number in signal.Signals}
        end = f"ended with exit status {status}" if status > 0 else f"was ended by {names.get(-status, -status)}"
        raise EnvironmentFailure(f"the command {program!r} {end}{printed}")

    async def close(self) -> None:
        """Nothing is left to free: `run` has ended the process, or put it back."""


class AskedPolicy:
    """The policy as the configuration lets an agent ask and reward it.

    Args:
        policy: that of the episode
        config: with ``sampling = "run"``, parameters of requests are ignored, except for those that end an answer
    """

    def __init__(self, policy: EpisodePolicy, config: HarnessConfig) -> None:
        self._policy, self._config = policy, config
        self.max_turns, self.withdraw = policy.max_turns, policy.withdraw

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
        if self._config.sampling == "run":
            sampling = {name: sampling[name] for name in ("max_new_tokens", "stop") if name in sampling}
        return await self._policy.respond(messages, tools=tools, images=images, sampling=sampling)

    def reward(self, value: float, *, turn: int | None = None) -> None:
        """As `EpisodePolicy.reward`. Raises `ValueError` for a confined agent."""
        if self._config.confined:  # code that the policy writes knows the key
            raise ValueError("a confined agent returns its reward, or its exit status is the reward")
        self._policy.reward(value, turn=turn)

    def role(self, name: str) -> AskedPolicy:
        """As `EpisodePolicy.role`."""
        return AskedPolicy(self._policy.role(name), self._config)
