"""Completions that a reward requests besides those of its trajectory."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rlcore.episodes.calls import call
from rlcore.errors import ContextFullError, EngineError
from rlcore.plugin_calls import value_text
from rlcore.types import ChatCompletion, FrozenDict, Message, Observation, Sampling, derive_seed

from rlcore_rollout.images import EpisodeImages, ImagePool
from rlcore_rollout.model_client import ModelClient
from rlcore_rollout.trajectory_builder import End, Record


@dataclass(slots=True, kw_only=True)
class Completions:
    """Samples further completions for the rewards of one episode (`rlcore.contracts.Complete`).

    Attributes:
        model_client: the connection to the engine
        sampling: that of the episode
        session: the engine's name for the trajectory, which the names of these sessions extend
        images: shared with the siblings
        slots: limits the concurrent generations of the run
        timeout_s: deadline of one generation
        counts: number of completions and of their tokens, as metrics of the trajectory
    """

    model_client: ModelClient
    sampling: Sampling
    session: str
    images: ImagePool
    slots: asyncio.Semaphore
    timeout_s: float
    counts: dict[str, float] = field(default_factory=dict)
    _sessions: int = 0

    async def __call__(
        self,
        messages: Sequence[Message],
        *,
        images: Iterable[bytes] = (),
        count: int = 1,
        sampling: Mapping[str, Any] = FrozenDict(),
    ) -> Sequence[ChatCompletion]:
        """As `rlcore.episodes.context.EpisodeContext.complete`."""
        if type(count) is not int or count < 1:
            raise ValueError(f"count must be a positive integer, not {value_text(count)}")
        images, messages = tuple(images), tuple(messages)
        seeds = (derive_seed(self.sampling.seed, "completion", repr(messages), index) for index in range(count))
        wanted = (replace(self.sampling, **{"seed": seed, **sampling}) for seed in seeds)
        completions = [self._completion(messages, images, each) for each in wanted]
        answers = await asyncio.gather(*completions, return_exceptions=True)  # none is left behind when one fails
        if failed := next((answer for answer in answers if isinstance(answer, BaseException)), None):
            raise failed
        return [answer for answer in answers if isinstance(answer, ChatCompletion)]

    async def _completion(
        self, messages: tuple[Message, ...], images: tuple[bytes, ...], sampling: Sampling
    ) -> ChatCompletion:
        client, timeout_s = self.model_client, self.timeout_s
        self._sessions += 1
        record = Record(name=f"{self.session}+{self._sessions:04d}", images=EpisodeImages(self.images, images))
        async with self.slots:
            try:
                client.observe(record, await record.enter(Observation(messages=messages)))
                message, reason = await client.generate(record, sampling, timeout_s=timeout_s, until=math.inf)
            except End as end:
                if end.failure is None:
                    raise ContextFullError("the messages leave no room for a completion") from end
                raise EngineError(end.failure.message) from end
            finally:
                release = client.engine.release
                await call("release", release, record.session, timeout_s=timeout_s)
        tokens = record.metrics.get("completion_tokens", float(sum(record.segment.loss_mask)))
        self._count("completions", 1.0)
        self._count("completed_tokens", tokens)
        return ChatCompletion(message=message, finish_reason=reason, completion_tokens=int(tokens))

    def _count(self, name: str, value: float) -> None:
        self.counts[name] = self.counts.get(name, 0.0) + value


__all__ = ["Completions"]
