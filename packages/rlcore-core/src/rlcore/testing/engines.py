"""The conformance checks for engines, with any weights that can change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rlcore import event_loop
from rlcore.contracts import Engine, WeightSource
from rlcore.errors import EngineError
from rlcore.testing.calling import DEADLINE_S, Findings
from rlcore.types import Completion, Prompt, Sampling
from rlcore.types.checking import flaw_in_completion

TOKENS = 64
"""Length of the completions that new weights interrupt."""
CALLS = 4


def check_engine(engine: Engine, source: WeightSource, prompt: Prompt, train: Callable[[], None]) -> None:
    """Raise an `AssertionError` that lists every contract violation of an engine. It is closed afterwards.

    The checks cover:

    - Concurrent calls return valid completions, with the version of the weights.
    - Weights that change during completions leave valid ones, whose `Completion.versions` add up and end with a version
      that was loaded. An engine may refuse them with an `EngineError`, and the completions then continue.
    - Completions that begin later have the new version.

    Args:
        engine: a new engine with the weights of ``source``
        source: its weights
        prompt: a prompt that it can continue
        train: changes the weights of ``source``, and increases its version
    """
    findings = Findings(f"The engine {type(engine).__name__}")
    event_loop.run(_Checks(engine, source, prompt, train, findings).run())
    findings.conclude()


class _Checks:
    def __init__(
        self, engine: Engine, source: WeightSource, prompt: Prompt, train: Callable[[], None], findings: Findings
    ) -> None:
        self.engine, self.source, self.prompt, self.train, self.findings = engine, source, prompt, train, findings

    async def run(self) -> None:
        attempt = self.findings.attempt
        try:
            await attempt("concurrent calls", self.calls_have_the_version("first"))
            await attempt("weights that change during completions", self.weights_change_in_flight())
            self.train()
            await attempt("new weights", self.engine.load_weights(self.source))
            await attempt("calls with new weights", self.calls_have_the_version("second"))
        finally:
            await attempt("close", self.engine.close())

    async def calls_have_the_version(self, name: str) -> None:
        version = self.source.version
        for one in await asyncio.gather(*self.calls(name, 8)):
            found = [span.version for span in one.versions] or [one.policy_version]
            self.findings.expect(found == [version], f"a completion has the versions {found} instead of {version}")

    async def weights_change_in_flight(self) -> None:
        before = self.source.version
        running = asyncio.gather(*self.calls("running", TOKENS))
        await asyncio.sleep(0.02)  # some tokens are sampled meanwhile
        self.train()
        after = self.source.version
        try:
            await self.engine.load_weights(self.source)
        except EngineError:
            after = before
        for one in await running:
            found = [span.version for span in one.versions] or [one.policy_version]
            self.findings.expect(
                found in ([before], [after], [before, after]),
                f"a completion in flight has the versions {found}, but those of the weights are {before} and {after}",
            )

    def calls(self, name: str, tokens: int) -> list[asyncio.Task[Completion]]:
        return [asyncio.create_task(self.completion(f"{name}-{number}", number, tokens)) for number in range(CALLS)]

    async def completion(self, session: str, seed: int, tokens: int) -> Completion:
        """A valid completion of a session that ends with it."""
        async with asyncio.timeout(DEADLINE_S):
            sampling = Sampling(max_new_tokens=tokens, seed=seed)
            found = await self.engine.generate(self.prompt, sampling, session=session)
            await self.engine.release(session)
        if flaw := flaw_in_completion(found):
            raise TypeError(f"generate returned {flaw}")
        return found


__all__ = ["check_engine"]
