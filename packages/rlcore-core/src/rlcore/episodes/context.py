"""The context shared by the environment, tools and rewards of one episode."""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any

from rlcore.episodes.deletion import delete_folder
from rlcore.episodes.sandbox import EpisodeSession, OpenSession, open_session
from rlcore.errors import EngineError, SandboxFailure
from rlcore.types import ChatCompletion, FrozenDict, Message, Task, derive_seed

if TYPE_CHECKING:
    from rlcore.contracts import Complete, SandboxSession

log = logging.getLogger("rlcore.episode")


class EpisodeContext:
    """The context of one episode. Created by the agent loop, closed after the rewards have scored the episode.

    An environment's ``reset``, a tool or a reward that declares a parameter ``context`` receives it.

    Args:
        task: the task of the episode
        sibling: index among the trajectories of its group
        seed: of `random`; siblings of a group have different seeds
        timeout_s: time limit for the whole episode in seconds, starting at creation
        complete: samples for `complete`; None if there is no model
        open_sandbox: starts the session of `sandbox`; None if there is no sandbox

    Attributes:
        task: as given
        sibling: as given
        random: generator for this episode only; a repeated run draws the same numbers
        deadline: time at which the episode must end, on the clock of ``time.monotonic``
        logger: adds the task and the sibling to each record
    """

    def __init__(
        self,
        task: Task,
        *,
        sibling: int = 0,
        seed: int = 0,
        timeout_s: float = float("inf"),
        complete: Complete | None = None,
        open_sandbox: OpenSession | None = None,
    ) -> None:
        self.task = task
        self.sibling = sibling
        self.deadline = time.monotonic() + timeout_s
        self.logger = logging.LoggerAdapter(log, {"task": task.key, "sibling": sibling})
        self._seed = seed
        self._scratch: Path | None = None
        self._complete = complete
        self._open_sandbox = open_sandbox
        self._sandbox: EpisodeSession | None = None
        self._sandbox_images: tuple[bytes, ...] = ()
        self._opening: asyncio.Lock | None = None
        self._ended = False

    @cached_property
    def random(self) -> random.Random:
        """The generator, created on first access."""
        return random.Random(derive_seed(self._seed, "episode", self.task.key, self.sibling))

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        images: Iterable[bytes] = (),
        count: int = 1,
        sampling: Mapping[str, Any] = FrozenDict(),
    ) -> Sequence[ChatCompletion]:
        """Sample further completions of the run's model, such as for a reward that depends on what the model does next.

        They are not part of the trajectory and not trained on. Each one costs about as much as a turn of an episode;
        the metrics ``completions`` and ``completed_tokens`` of the trajectory count them. Equal calls give equal
        completions.

        Args:
            messages: the conversation to continue, which ends with a user message
            images: encoded images that the messages refer to
            count: number of completions
            sampling: fields of `Sampling` that override those of the episode, such as ``{"temperature": 0.0}``

        Raises:
            EngineError: there is no model, as for a stored trajectory, or it failed.
            ContextFullError: the messages leave no room for a completion.
        """
        if self._complete is None:
            raise EngineError("further completions need the model of a run, which stored trajectories do not have")
        return await self._complete(messages, images=images, count=count, sampling=sampling)

    async def sandbox(self, images: Sequence[bytes] = ()) -> SandboxSession:
        """The Python session of the episode, for code that the model writes.

        It is started at the first call and closed with the episode. Names persist from cell to cell. Environment, tools
        and rewards of the episode share it, and their cells run one after the other. To run model code in a session,
        declare ``runs_code`` in the spec, so that the run checks before its start that a sandbox is available.

        Args:
            images: encoded images of the first call, bound to ``image_clue_0``, ``image_clue_1``, …; a later call
                gives the same ones or none

        Raises:
            SandboxFailure: the session cannot be started, or there is no sandbox, as for a stored trajectory.
            ValueError: the session has other images.
        """
        if self._ended:
            raise SandboxFailure("the episode has ended")
        if self._open_sandbox is None:
            raise SandboxFailure("code needs the sandbox of a run, which stored trajectories do not have")
        given = tuple(images)
        self._opening = self._opening or asyncio.Lock()
        async with self._opening:  # two tools of one turn may both be the first
            if self._sandbox is None:
                session = await open_session(self._open_sandbox, given)
                if self._ended:
                    await session.close()
                    raise SandboxFailure("the episode has ended")
                self._sandbox, self._sandbox_images = session, given
        if given and given != self._sandbox_images:
            raise ValueError("the sandbox of the episode was started with other images")
        return self._sandbox

    @property
    def remaining_s(self) -> float:
        """Seconds until the deadline, at least 0."""
        return max(0.0, self.deadline - time.monotonic())

    @property
    def scratch(self) -> Path:
        """A private folder, created on first access and deleted with the episode."""
        if self._scratch is None:
            self._scratch = Path(tempfile.mkdtemp(prefix="rlcore-episode-"))
        return self._scratch

    async def aclose(self) -> None:
        """Close the sandbox session, and delete the scratch folder. A second call does nothing.

        Raises:
            SandboxFailure: the session cannot be closed. The folder is deleted anyway.
        """
        self._ended = True
        try:
            if self._sandbox is not None:
                await self._sandbox.close()
        finally:
            self.close()

    def close(self) -> None:
        """Delete the scratch folder. A second call does nothing. An open sandbox session needs `aclose`."""
        if self._scratch is not None:
            delete_folder(self._scratch)
            self._scratch = None


def takes_context(function: Callable[..., Any]) -> bool:
    """Return whether a function declares the parameter ``context``."""
    if isinstance(function, MethodType):  # a new object in every episode
        return _method_takes_context(function.__func__)
    return _declares_context(function)


def _declares_context(function: Callable[..., Any]) -> bool:
    try:
        return "context" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # compiled code
        return False


_method_takes_context = lru_cache(maxsize=256)(_declares_context)
