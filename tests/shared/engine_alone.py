"""A sampler without rollouts, for checks of weight transfers: an engine with its event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from rlcore.types import Completion, Prompt, Sampling

GREEDY = Sampling(max_new_tokens=8, temperature=0.0)


class EngineAlone:
    """An engine with its event loop. Each generation is a session of its own, unless it names one."""

    def __init__(self, engine: Any) -> None:
        self._runner = asyncio.Runner()
        self._calls = 0
        self.engine = engine

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    def generate(self, prompt: Prompt, sampling: Sampling = GREEDY, session: str = "") -> Completion:
        self._calls += 1
        return self.run(self.engine.generate(prompt, sampling, session=session or f"{self._calls}"))

    def completions(self, prompt: Prompt, sampling: Sampling) -> list[Completion]:
        return [self.generate(prompt, sampling)]

    def update_weights(self, source: Any) -> None:
        self.run(self.engine.load_weights(source))

    def close(self) -> None:
        self.run(self.engine.close())
        self._runner.close()
