"""The conformance checks for engines find what is wrong, with an engine that counts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from rlcore.errors import EngineError
from rlcore.testing import check_engine
from rlcore.types import Completion, Logprobs, Prompt, Sampling, TokenIds, VersionSpan


class Source:
    """Weights that are a number."""

    folder = None
    adapter = None

    def __init__(self) -> None:
        self.version = 3

    def weights(self, *, adapter_only: bool = False) -> Iterator[Any]:
        return iter(())


class Counting:
    """Samples a token after another, with the version that it has loaded."""

    def __init__(self, source: Source) -> None:
        self.version = source.version

    async def generate(self, prompt: Prompt, sampling: Sampling, *, session: str) -> Completion:
        versions = []
        for _ in range(sampling.max_new_tokens):
            versions.append(self.version)
            await asyncio.sleep(0.001)
        return self.completion(versions)

    def completion(self, versions: list[int]) -> Completion:
        spans = tuple(VersionSpan(version, versions.count(version)) for version in dict.fromkeys(versions))
        return Completion(
            token_ids=TokenIds(versions),
            logprobs=Logprobs.zeros(len(versions)),
            finish_reason="length",
            policy_version=versions[0],
            versions=spans if len(spans) > 1 else (),
        )

    async def release(self, session: str) -> None: ...

    async def load_weights(self, source: Source) -> int:
        self.version = source.version
        return self.version

    async def close(self) -> None: ...


class Refusing(Counting):
    """Loads no weights while it samples."""

    in_flight = 0

    async def generate(self, prompt: Prompt, sampling: Sampling, *, session: str) -> Completion:
        self.in_flight += 1
        try:
            return await super().generate(prompt, sampling, session=session)
        finally:
            self.in_flight -= 1

    async def load_weights(self, source: Source) -> int:
        if self.in_flight:
            raise EngineError("weights cannot change now")
        return await super().load_weights(source)


class Miscounting(Counting):
    """Forgets the tokens before a change."""

    def completion(self, versions: list[int]) -> Completion:
        spans = (VersionSpan(versions[0], 1), VersionSpan(versions[-1], 1))
        changed = {"versions": spans} if versions[0] != versions[-1] else {}
        return Completion(
            token_ids=TokenIds(versions),
            logprobs=Logprobs.zeros(len(versions)),
            finish_reason="length",
            policy_version=versions[0],
            **changed,
        )


class Forgetful(Counting):
    """Keeps the version with which it began."""

    async def load_weights(self, source: Source) -> int:
        return source.version


def check(kind: type[Counting]) -> None:
    source = Source()

    def train() -> None:
        source.version += 1

    check_engine(kind(source), source, Prompt(token_ids=TokenIds([1])), train)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [Counting, Refusing])
def test_engine_that_keeps_the_contract_passes(kind: type[Counting]) -> None:
    check(kind)


@pytest.mark.parametrize(
    ("kind", "found"),
    [(Miscounting, "versions of 2 tokens for 64 tokens"), (Forgetful, r"has the versions \[3\] instead of 5")],
)
def test_wrong_versions_are_found(kind: type[Counting], found: str) -> None:
    with pytest.raises(AssertionError, match=found):
        check(kind)
