"""One sampler for all processes of a run, in the main process: for an engine of which a machine starts one.

The other processes take part where the main process cannot act alone: they gather divided weights with it, and compute
with the completions of its engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar, cast

from rlcore.contracts import ChatFormat, NamedTensor, Sampler, TokenSampler, WeightSource
from rlcore.types import Completion, Group, Prompt, RolloutKey, RolloutRequest, Sampling, Task

from rlcore_trainer.distributed.collectives import Processes

Value = TypeVar("Value")


class SharedSampler:
    """A sampler whose methods all processes call together, except `submit`, `collect` and `close`.

    Args:
        make: creates the sampler of the main process from the weights of the policy
        source: the policy
        processes: the processes of the run
        divided: whether each process holds a part of the weights
    """

    def __init__(
        self, make: Callable[[WeightSource], Sampler], source: WeightSource, processes: Processes, *, divided: bool
    ) -> None:
        self._processes, self._divided = processes, divided
        self._sampler: Sampler | None = None

        def start(weights: WeightSource) -> None:
            self._sampler = make(weights)

        self._with_weights(start, source)

    @property
    def chat_format(self) -> ChatFormat:
        """The chat format of the rollouts, in the main process."""
        return cast(TokenSampler, self._here).chat_format

    def update_weights(self, source: WeightSource) -> int:
        """Load the current weights into the engine, and return their version."""
        return self._with_weights(lambda weights: self._here.update_weights(weights), source)

    def completions(self, prompt: Prompt, sampling: Sampling) -> Sequence[Completion]:
        """Return a completion of each engine, in all processes."""
        return self._processes.from_main(lambda: cast(TokenSampler, self._here).completions(prompt, sampling))

    def collect(self, request: RolloutRequest) -> Sequence[Group]:
        """Return the scored groups of a request. Only the main process calls it, with all tasks."""
        return self._here.collect(request)

    def submit(self, task: Task, key: RolloutKey, *, place: int) -> Future[Group]:
        """Return the future group of a task. Only the main process calls it, for all."""
        return cast(TokenSampler, self._here).submit(task, key, place=place)

    def close(self) -> None:
        """Close the sampler."""
        if self._sampler is not None:
            self._sampler.close()

    @property
    def _here(self) -> Sampler:
        assert self._sampler is not None, "only the main process has a sampler"
        return self._sampler

    def _with_weights(self, act: Callable[[WeightSource], Value], source: WeightSource) -> Value:
        """Let the main process read weights, with which the others gather them; return what it returns to all.

        An error of the main process is raised in all.
        """
        if not self._divided:
            return self._processes.from_main(lambda: act(source))
        if self._processes.rank.index:
            reading: bool | None
            while (reading := self._processes.scatter(None)) is not None:
                _exhaust(source.weights(adapter_only=reading))
            return self._processes.from_main(lambda: act(source))  # only the main process acts
        gathered = GatheredWeights(source, self._processes)

        def acted() -> Value:
            try:
                return act(gathered)
            finally:
                gathered.end()

        return self._processes.from_main(acted)


class GatheredWeights:
    """The weights of a divided policy, for a reader in the main process.

    The other processes gather all weights whenever the reader begins to read, so those that it leaves out are gathered
    for it.
    """

    def __init__(self, source: WeightSource, processes: Processes) -> None:
        self._source, self._processes = source, processes
        self._unread: Iterator[NamedTensor] | None = None

    @property
    def version(self) -> int:
        """See `rlcore.contracts.WeightSource`."""
        return self._source.version

    @property
    def folder(self) -> Path | None:
        """See `rlcore.contracts.WeightSource`."""
        return self._source.folder

    @property
    def adapter(self) -> Mapping[str, Any] | None:
        """See `rlcore.contracts.WeightSource`."""
        return self._source.adapter

    def weights(self, *, adapter_only: bool = False) -> Iterator[NamedTensor]:
        """Yield the weights, gathered one at a time. Earlier weights end."""
        self._finish()
        self._tell(adapter_only)
        self._unread = reading = self._source.weights(adapter_only=adapter_only)
        assert reading is not None, "a divided policy has weights in memory"
        # "yield from" would close it when the reader ends early.
        for one in reading:  # noqa: UP028
            yield one

    def end(self) -> None:
        """Release the other processes."""
        self._finish()
        self._tell(None)

    def _finish(self) -> None:
        _exhaust(self._unread)
        self._unread = None

    def _tell(self, adapter_only: bool | None) -> None:
        self._processes.scatter([adapter_only] * self._processes.rank.world_size)


def _exhaust(weights: Iterator[NamedTensor] | None) -> None:
    deque(weights or (), maxlen=0)
