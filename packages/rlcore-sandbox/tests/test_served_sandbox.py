"""The sandbox ``served``: the contract, servers that are lost, other limits, and answers of another form."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import pytest
from rlcore.errors import SandboxFailure
from rlcore.session.sandboxes import SandboxChoice
from rlcore.specs import SandboxSpec
from rlcore.testing import check_sandbox
from rlcore.testing.sandboxes import LIMITS
from rlcore.transport import server
from rlcore.transport.network import TOKEN
from rlcore.types import CodeResult, SandboxLimits, SandboxSupport
from rlcore_sandbox import served as served_sandbox
from rlcore_sandbox.served import ServedSandbox, ServedSandboxConfig, available, checked_result
from rlcore_sandbox.serving import SandboxOffer
from running_servers import RunningServer, serving

KNOWN = "a token of the tests"


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, KNOWN)


class Echo:
    """A sandbox whose cells return their number and their code."""

    def __init__(self) -> None:
        self.opened = self.ended = 0
        self.end: Callable[[], object] = lambda: None

    async def open(self, images: Sequence[bytes]) -> EchoSession:
        self.opened += 1
        return EchoSession(self)

    async def close(self) -> None:
        pass


class EchoSession:
    def __init__(self, echo: Echo) -> None:
        self.echo, self.count = echo, 0

    async def run(self, code: str) -> CodeResult:
        if code == "end":
            self.echo.ended += 1
            self.echo.end()
        if code == "wait":
            await asyncio.sleep(60)
        self.count += 1
        return CodeResult(status="ok", stdout=f"{self.count} {code}")

    async def close(self) -> None:
        pass


class Running(RunningServer):
    """A server of `Echo`."""

    def __init__(self, limits: SandboxLimits = LIMITS, most: int = 4) -> None:
        self.echo = Echo()
        choice = SandboxChoice(spec=SandboxSpec(id="echo", target="a:b"), support=SandboxSupport())
        offer = SandboxOffer(self.echo, choice, limits)
        super().__init__(offer, named="the sandbox 'echo'", token=KNOWN, port=0, most=most, timeout_s=60)
        self.echo.end = lambda: [each.kill() for each in list(self.server._connections)]


@contextmanager
def running(*limits: SandboxLimits, most: int = 4) -> Iterator[list[Running]]:
    servers = [Running(each, most) for each in limits]
    try:
        yield servers
    finally:
        for server in servers:
            server.stop()


def served(*servers: Running) -> ServedSandbox:
    return ServedSandbox(ServedSandboxConfig(servers=[server.address for server in servers]), LIMITS)


def test_session_moves_only_until_its_first_cell() -> None:
    async def use(sandbox: ServedSandbox, first: Running, second: Running) -> None:
        session = await sandbox.open(())
        lost, left = (first, second) if first.echo.opened else (second, first)
        await asyncio.to_thread(lost.stop)
        assert (await session.run("a")).stdout == "1 a"
        result = await session.run("b")
        assert (result.stdout, result.reset) == ("2 b", False)
        await asyncio.to_thread(left.stop)
        with pytest.raises(SandboxFailure, match="is lost"):
            await session.run("c")
        await sandbox.close()

    with running(LIMITS, LIMITS) as (first, second):
        asyncio.run(use(served(first, second), first, second))


def test_cell_that_ends_servers_is_sent_to_two_of_them() -> None:
    async def use(sandbox: ServedSandbox) -> None:
        session = await sandbox.open(())
        with pytest.raises(SandboxFailure, match="is lost"):
            await session.run("end")
        await sandbox.close()

    with running(LIMITS, LIMITS, LIMITS) as servers:
        asyncio.run(use(served(*servers)))
        assert sum(each.echo.ended for each in servers) == 2


def test_session_waits_for_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_sandbox, "SERVER_S", 0.3)
    monkeypatch.setattr(server, "ROOM_S", 0.1)

    async def use(sandbox: ServedSandbox) -> str:
        first = await sandbox.open(())
        asyncio.get_running_loop().call_later(0.5, lambda: asyncio.ensure_future(first.close()))
        session = await sandbox.open(())
        text = (await session.run("a")).stdout
        await sandbox.close()
        return text

    with running(LIMITS, most=1) as servers:
        assert asyncio.run(use(served(*servers))) == "1 a"


def test_cancelled_cell_leaves_a_session_that_says_what_is_lost() -> None:
    async def use(sandbox: ServedSandbox) -> CodeResult:
        session = await sandbox.open(())
        task = asyncio.ensure_future(session.run("wait"))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        result = await session.run("a")
        await sandbox.close()
        return result

    with running(LIMITS) as (server,):
        result = asyncio.run(use(served(server)))
    assert (result.stdout, result.reset) == ("1 a", True)


def test_other_limits_are_named_before_the_run() -> None:
    with running(replace(LIMITS, memory_mb=64)) as (server,):
        config = ServedSandboxConfig(servers=[server.address])
        reason = available(config, LIMITS).reason
        with pytest.raises(SandboxFailure, match="the limits of sessions differ"):
            asyncio.run(served(server).open(()))
    assert f"{server.address}: the limits of sessions differ: memory_mb is 2048 here and 64 on the server" == reason
    assert "Connection refused" in available(config, LIMITS).reason


OK = {"status": "ok"}
ANSWERS: list[Any] = [
    None,
    {"value": {}, "images": []},
    {"value": {"status": "fine"}, "images": []},
    {"value": {**OK, "images": ["0"] * 3}, "images": [b"", b"", b""]},
    {"value": {**OK, "images": ["0"], "image_names": ["a"]}, "images": [b"GIF89a"]},
    {"value": {**OK, "images": ["7"]}, "images": []},
]


@pytest.mark.parametrize("answer", ANSWERS)
def test_answer_of_another_form_is_a_failure_of_the_sandbox(answer: Any) -> None:
    with pytest.raises(SandboxFailure):
        checked_result(answer, LIMITS)
    assert len(checked_result({"value": {**OK, "stdout": "a" * 10**6}, "images": []}, LIMITS).stdout) < 2000


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the local sandboxes need Linux")
def test_command_offers_the_contract_of_a_sandbox() -> None:
    limits = [f"{name}={value}" for name, value in asdict(LIMITS).items()]
    with serving("sandbox", *limits, token=KNOWN) as (process, address):
        check_sandbox("served", options={"servers": [address]})
        process.terminate()
        assert process.wait(timeout=20) == 0
