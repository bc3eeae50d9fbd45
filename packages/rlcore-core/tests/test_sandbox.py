"""The sandbox session of an episode."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import Sequence
from typing import Any

import pytest
from rlcore.contracts import SandboxSession
from rlcore.episodes.context import EpisodeContext
from rlcore.errors import SandboxFailure
from rlcore.types import CodeResult, Task

TASK = Task(id="t", messages=())
PICTURE = b"\x89PNG"


class Interpreter:
    """Runs cells in this process. Only for code of these tests."""

    def __init__(self, images: Sequence[bytes]) -> None:
        self.names: dict[str, Any] = {f"image_clue_{index}": image for index, image in enumerate(images)}
        self.running = self.closed = 0

    async def run(self, code: str) -> CodeResult:
        self.running += 1
        assert self.running == 1
        await asyncio.sleep(0.001)
        self.running -= 1
        if code == "gone":
            raise ConnectionError("the sandbox is gone")
        if code == "wrong":
            return CodeResult(status="fine")  # type: ignore[arg-type]
        if code == "none":
            return None  # type: ignore[return-value]
        with contextlib.redirect_stdout(io.StringIO()) as out:
            try:
                exec(code, self.names)
            except Exception as error:
                return CodeResult(status="error", error=f"{type(error).__name__}: {error}")
        return CodeResult(status="ok", stdout=out.getvalue())

    async def close(self) -> None:
        self.closed += 1


class Interpreters:
    def __init__(self) -> None:
        self.sessions: list[Interpreter] = []

    async def open(self, images: Sequence[bytes]) -> SandboxSession:
        await asyncio.sleep(0.001)
        self.sessions.append(Interpreter(images))
        return self.sessions[-1]


def test_cells_of_an_episode_share_one_session_that_ends_with_it() -> None:
    interpreters = Interpreters()

    async def episode() -> None:
        context = EpisodeContext(TASK, open_sandbox=interpreters.open)
        first, second = await asyncio.gather(context.sandbox([PICTURE]), context.sandbox())
        assert first is second
        await asyncio.gather(*(first.run(f"x{n} = {n}") for n in range(3)))
        answers = [await second.run("print(x0 + x1 + x2, image_clue_0)"), await first.run("1 / 0")]
        assert [answer.stdout for answer in answers] == [f"3 {PICTURE!r}\n", ""]
        assert [answer.ok for answer in answers] == [True, False]
        await context.aclose()
        await context.aclose()
        with pytest.raises(SandboxFailure, match="closed"):
            await first.run("1")
        with pytest.raises(SandboxFailure, match="ended"):
            await context.sandbox()

    asyncio.run(episode())
    assert [session.closed for session in interpreters.sessions] == [1]


def test_a_session_is_not_started_before_its_first_use() -> None:
    interpreters = Interpreters()
    asyncio.run(EpisodeContext(TASK, open_sandbox=interpreters.open).aclose())
    assert interpreters.sessions == []


def test_a_context_without_a_run_has_no_sandbox() -> None:
    with pytest.raises(SandboxFailure, match="stored trajectories"):
        asyncio.run(EpisodeContext(TASK).sandbox())


def test_a_session_cannot_be_started_again_with_other_images() -> None:
    async def episode() -> None:
        context = EpisodeContext(TASK, open_sandbox=Interpreters().open)
        await context.sandbox([PICTURE])
        await context.sandbox([PICTURE])
        with pytest.raises(ValueError, match="other images"):
            await context.sandbox([b"other"])

    asyncio.run(episode())


@pytest.mark.parametrize("code", ["gone", "wrong", "none"])
def test_every_failure_of_a_backend_is_a_sandbox_failure(code: str) -> None:
    async def episode() -> None:
        session = await EpisodeContext(TASK, open_sandbox=Interpreters().open).sandbox()
        with pytest.raises(SandboxFailure, match="sandbox"):
            await session.run(code)
        assert (await session.run("print(1)")).stdout == "1\n"

    asyncio.run(episode())


def test_a_session_that_starts_after_the_end_of_the_episode_is_closed() -> None:
    interpreters = Interpreters()

    async def episode() -> None:
        context = EpisodeContext(TASK, open_sandbox=interpreters.open)
        late = asyncio.ensure_future(context.sandbox())
        await asyncio.sleep(0)
        await context.aclose()
        with pytest.raises(SandboxFailure, match="ended"):
            await late

    asyncio.run(episode())
    assert [session.closed for session in interpreters.sessions] == [1]
