"""The contract of agents that have their own loop, and ask the policy for each answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from rlcore.types import FrozenDict, Message, Response, Step, Task, ToolSchema

if TYPE_CHECKING:
    from rlcore.episodes.context import EpisodeContext


class EpisodePolicy(Protocol):
    """The policy as a `Harness` sees it in one episode: an assistant that continues conversations."""

    max_turns: int | None
    """The number of turns after which it no longer answers; None for no limit. The harness may set it."""

    @property
    def turns(self) -> int:
        """The number of turns so far, without those that were withdrawn."""
        ...

    async def respond(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSchema] = (),
        images: Iterable[bytes] = (),
        sampling: Mapping[str, Any] = FrozenDict(),
    ) -> Response:
        """Sample the next message of the assistant, which is trained on.

        Messages that extend an earlier conversation of the episode continue its tokens, also if its tool calls are
        written in another way. Other messages begin a new segment, such as those of a sub-agent, or a context that the
        harness has rewritten. Calls may run concurrently. A call that is cancelled leaves no turn.

        Args:
            messages: the whole conversation
            tools: those that the assistant may call
            images: encoded images that the messages refer to, unless they were given before
            sampling: fields of `Sampling` that override those of the run. ``max_new_tokens`` can only be reduced, and
                the texts of ``stop`` are removed from the message

        Raises:
            EpisodeEnded: the turns or the context are used up, or the episode is over.
            ValueError: the messages cannot be rendered.
            EngineError: the engine failed, and so has the episode.
        """
        ...

    def withdraw(self, turn: int) -> None:
        """Remove a turn whose message did not reach the harness. A turn that was continued stays."""
        ...

    def reward(self, value: float, *, turn: int | None = None) -> None:
        """Add to the reward of a turn, by default of the last one.

        Raises:
            ValueError: there is no such turn, or the value is not finite.
        """
        ...

    def role(self, name: str) -> EpisodePolicy:
        """The policy in a role, such as a player of a game or an agent of a team. Equal names give the same object.

        The conversations of a role become a separate trajectory with its own rewards, which is compared with those of
        the same role in other episodes of the task. A role begins with the present ``max_turns``, and counts its own
        turns. A role of a role is one of the episode.

        Raises:
            ValueError: the name has other characters than letters, digits, ``-`` and ``_``, or more than 40.
        """
        ...


@runtime_checkable
class Harness(Protocol):
    """An environment that runs an agent with its own loop, which asks the policy, in place of ``reset`` and ``step``.

    An object is created for each episode, used once and always closed.
    """

    async def run(self, task: Task, *, policy: EpisodePolicy, seed: int, context: EpisodeContext) -> Step:
        """Run the agent, and return how the episode ended. A reward is added to that of the last turn.

        If the policy has roles, the numbers of ``info`` and the messages belong to each of them, and a reward only to
        the policy without a role.

        An exception is a failure of the environment, as for `rlcore.contracts.Environment`, unless the policy had
        stopped to answer: then the episode ended for that reason. So is an agent that never asks the policy.
        """
        ...

    async def close(self) -> None:
        """As `rlcore.contracts.Environment.close`."""
        ...


__all__ = ["EpisodePolicy", "Harness"]
