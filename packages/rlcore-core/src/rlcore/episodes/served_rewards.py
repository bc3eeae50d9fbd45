"""Rewards on other machines: what a server of a reward offers, and the reward of a run that asks servers.

The server has the options of the reward, which all runs share. A request has what is scored, and the answer has the
results. A request whose server is lost is sent to another one, but only once: it may be what ends the servers.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rlcore.episodes.scoring import TIMED_OUT, Scorer
from rlcore.errors import EnvironmentFailure, UserError
from rlcore.event_loop import EventLoop
from rlcore.transport.hosting import WAIT_S
from rlcore.transport.inside.messages import BrokenMessage
from rlcore.transport.remote import NoPlace, Unavailable
from rlcore.transport.served import ServedObject, Servers
from rlcore.transport.typed import received, sent
from rlcore.types import Group, RewardResult, Task, Trajectory

if TYPE_CHECKING:
    from rlcore.episodes.rewards import SelectedReward

SCORED = {"trajectory": (Trajectory, Task), "group": (Group,)}
"""What a request has, by the scope of the reward."""
LONGEST_S = 86_400.0
"""Limit of a call on the server. The run has its own, which is shorter."""
PLACE_S = 3600.0
"""Limit of the time without a place, which does not count as time of a call."""
GRACE_S = 2.0
"""Time in which the last request ends after its deadline."""


class RewardOffer:
    """An `rlcore.transport.server.Offer` of one reward, which all connections share.

    Args:
        reward: the reward
        most: calls at a time
        options: its options, for the first lines of a run
    """

    def __init__(self, reward: SelectedReward, *, most: int, options: str) -> None:
        self.reward, self.offered = reward, ("reward", reward.id)
        self.greeting = {"options": options}
        self.loop = EventLoop()
        self._scorer = Scorer((reward,), timeout_s=LONGEST_S, concurrency=most)

    def take(self) -> RewardPlace:
        """A place for the calls of one connection."""
        return RewardPlace(self)

    def close(self) -> None:
        """Cancel all calls, and close the connections of the reward."""
        self.loop.cancel()
        self.loop.run(self.reward.close())
        self.loop.close()

    async def results(self, scored: Sequence[Any]) -> list[RewardResult]:
        """The result of a trajectory, or those of a group.

        Raises:
            UserError: the reward can answer no further call.
        """
        if self.reward.scope == "group":
            trajectories = (await self._scorer.settle(scored[0])).trajectories
        else:
            trajectories = (await self._scorer.score(*scored),)
        missing = RewardResult(value=None, error="the trajectory has a failure")
        found = [trajectory.rewards.get(self.reward.id, missing) for trajectory in trajectories]
        if self.reward.refusal is not None and any(one.value is None for one in found):
            raise self.reward.refusal
        return found


class RewardPlace:
    """The calls of one connection."""

    def __init__(self, offer: RewardOffer) -> None:
        self._offer = offer
        self._task: asyncio.Task[Any] | None = None
        self.greeting: Mapping[str, Any] = offer.greeting
        self.usable = True

    def answer(self, action: str, given: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        """The results of what was given; see `rlcore.transport.server.Place`."""
        if action != "ask" or given.get("name") != "score":
            raise BrokenMessage("something else than a request for a score")
        kinds: tuple[type[Any], ...] = SCORED[self._offer.reward.scope]
        try:
            scored = [received(kind, one) for kind, one in zip(kinds, given["positional"], strict=True)]
        except (LookupError, TypeError, ValueError) as error:
            raise BrokenMessage(f"nothing that can be scored: {str(error)[:200]}") from None
        future = self._offer.loop.submit(self._results(scored))
        try:
            return {"value": [sent(one) for one in future.result(timeout_s)]}
        except (TimeoutError, CancelledError):
            self.kill()
            raise EnvironmentFailure(f"the reward did not answer within {timeout_s:g} s") from None

    async def _results(self, scored: Sequence[Any]) -> list[RewardResult]:
        self._task = asyncio.current_task()
        return await self._offer.results(scored)

    def kill(self) -> None:
        """Cancel the call."""
        self.usable = False
        if (task := self._task) is not None:
            with suppress(RuntimeError):  # the loop is closed
                task.get_loop().call_soon_threadsafe(task.cancel)

    def leave(self) -> None:
        """Nothing: a connection leaves nothing."""


class ServedReward:
    """A `Reward` or a `GroupReward` on servers, and an `rlcore.abilities.RemoteReward`.

    Args:
        id: of the reward
        addresses: ``HOST:PORT`` of each server
        timeout_s: time of a call in seconds, in which a request may be sent to a second server
    """

    def __init__(self, id: str, addresses: Sequence[str], *, timeout_s: float) -> None:
        self._servers, self._timeout_s = Servers(addresses, id, "reward"), timeout_s
        self.reward_timeout_s = timeout_s + PLACE_S + GRACE_S
        self.refusal: UserError | None = None
        self._open: set[ServedObject] = set()
        self._closed = threading.Event()

    def __call__(self, *scored: Any) -> RewardResult | list[RewardResult]:
        """The result of a trajectory and its task, or those of a group."""
        count = len(scored[0].trajectories) if isinstance(scored[0], Group) else 1
        try:
            found = self._asked([sent(one) for one in scored])
            results = [received(RewardResult, one) for one in found]
        except UserError as error:
            self.refusal = error
            results = [RewardResult(value=None, error=str(error), error_kind="refused")] * count
        except TimeoutError as error:
            results = [RewardResult(value=None, error=str(error), error_kind=TIMED_OUT)] * count
        return results if isinstance(scored[0], Group) else results[0]

    async def close(self) -> None:
        """End the calls that still run. Later ones open new connections."""
        self._closed.set()
        self._closed = threading.Event()
        for served in list(self._open):
            served.kill()

    def _asked(self, scored: list[dict[str, Any]]) -> list[Any]:
        """The answer of a server, which another one gives if it is lost.

        Raises:
            UserError: no server can answer a further call.
            EnvironmentFailure: what is scored cannot be sent, or two servers were lost that had received it.
            TimeoutError: no server has answered in time.
        """
        closed, until, losses = self._closed, time.monotonic() + self._timeout_s, 0
        latest = until + PLACE_S
        while True:
            served, began = None, time.monotonic()
            try:
                served = self._servers()
                self._open.add(served)
                return list(served.ask("score", *scored, timeout_s=max(0.1, until - time.monotonic())))
            except EnvironmentFailure as failure:
                if served is not None and served.usable:
                    raise
                if isinstance(failure, NoPlace):
                    until = min(latest, until + time.monotonic() - began + WAIT_S)
                losses += not isinstance(failure, Unavailable)
                late = time.monotonic() >= until
                if losses > 1 and not late:
                    raise EnvironmentFailure(f"two servers were lost that had received it: {failure}") from None
                if late or closed.wait(WAIT_S):
                    raise TimeoutError(f"no server has answered within {self._timeout_s:g} s: {failure}") from None
            finally:
                if served is not None:
                    self._open.discard(served)
                    served.close()


__all__ = ["RewardOffer", "RewardPlace", "ServedReward"]
