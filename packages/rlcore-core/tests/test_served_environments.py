"""Environments on a server: episodes, failures, and clients that are not what they should be."""

from __future__ import annotations

import os
import secrets
import socket
import struct
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rlcore.errors import EnvironmentFailure, ToolFailure, UserError
from rlcore.specs import EnvironmentSpec
from rlcore.transport import Interpreter, network, server
from rlcore.transport.hosting import HostedEnvironments
from rlcore.transport.inside.messages import HEADER, MAGIC, VERSION, pack
from rlcore.transport.network import HELLO, TOKEN, Connection, accepted, connect
from rlcore.transport.remote import Ended
from rlcore.transport.served import ServedObject, Servers
from rlcore.transport.served_environments import ServedEnvironments
from rlcore.types import Message, Task
from running_servers import RunningServer

KNOWN = "a token of the tests"
CODE = """
    import os, time
    from rlcore import Message, Observation, Step
    from rlcore.errors import ToolFailure

    class Guess:
        def reset(self, task, *, seed):
            self.task = task
            sizes = sum(map(len, task.images))
            return Observation(messages=(Message(role="user", content=f"{task.id} {seed} {sizes} {os.getpid()}"),))

        def step(self, action):
            if action.text == "fail":
                raise ToolFailure("the camera is off")
            if action.text == "end":
                os._exit(7)
            if action.text == "hang":
                time.sleep(60)
            return Step(reward=0.5, terminated=True)
"""
TASK = Task(id="a", messages=(Message(role="user", content="?"),), images=(b"x" * 200_000,))


class Running(RunningServer):
    """A server in a thread, which ends with `stop`."""

    def __init__(self, folder: Path, *, most: int = 4, port: int = 0) -> None:
        path = folder / "guess.py"
        path.write_text(textwrap.dedent(CODE), encoding="utf-8")
        self.spec = EnvironmentSpec(id="guess", target=f"{path}:Guess")
        start = partial(Interpreter, sys.executable)
        self.hosted = HostedEnvironments(start, spec=self.spec, options=None, timeout_s=10)
        offer = ServedEnvironments(self.hosted, validated=lambda values: values)
        super().__init__(offer, named="environment 'guess'", token=KNOWN, port=port, most=most, timeout_s=10)

    def client(self, *others: Running, timeout_s: float = 20) -> HostedEnvironments:
        start = Servers([self.address, *(other.address for other in others)], "guess")
        return HostedEnvironments(start, spec=self.spec, options=None, timeout_s=timeout_s)


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, KNOWN)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    with ExitStack() as stack:

        def started(**settings: Any) -> Running:
            running = Running(tmp_path, **settings)
            stack.callback(running.stop)
            return running

        yield started


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


def seen(episode: Any) -> list[str]:
    """What the environment says of the task: its id, the seed, the bytes of its images and the process."""
    words: list[str] = episode.reset(TASK, seed=7).messages[0].text.split()
    return words


def test_episodes_run_on_the_server_and_later_ones_reuse_its_process(start: Callable[..., Running]) -> None:
    running = start()
    client = running.client()
    first = client.make()
    assert seen(first)[:3] == ["a", "7", "200000"]
    step = first.step(Message(role="assistant", content="3"))
    assert (step.reward, step.terminated) == (0.5, True)
    other = client.make()
    assert seen(other)[3] != (process := seen(first)[3])
    first.close()
    wait_until(lambda: bool(running.hosted._idle))
    memory = running.hosted._idle[0]._channel.memory
    assert memory is not None
    assert os.fstat(memory.descriptor).st_size == 0  # the image was there
    later = client.make()
    assert seen(later)[3] == process
    for one in (other, later):
        one.close()
    client.close()


def test_errors_arrive_and_the_episode_can_continue(start: Callable[..., Running]) -> None:
    episode = start().client().make()
    seen(episode)
    with pytest.raises(ToolFailure, match="the camera is off"):
        episode.step(Message(role="assistant", content="fail"))
    assert episode.step(Message(role="assistant", content="3")).terminated


@pytest.mark.parametrize(
    ("word", "reason"), [("end", "ended with exit status 7"), ("hang", "did not answer within 1 s")]
)
def test_a_process_that_ends_or_hangs_fails_its_episode_alone(
    start: Callable[..., Running], word: str, reason: str
) -> None:
    running = start(most=1)
    client = running.client(timeout_s=1 if word == "hang" else 20)
    episode = client.make()
    seen(episode)
    with pytest.raises(EnvironmentFailure, match=reason):
        episode.step(Message(role="assistant", content=word))
    episode.close()
    later = running.client().make()
    assert seen(later)[0] == "a"  # the only place is free again


def test_client_waits_for_a_place(start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch) -> None:
    running = start(most=1)
    first = running.client()
    episode = first.make()
    seen(episode)
    threading.Timer(0.5, lambda: (episode.close(), first.close())).start()
    last = running.client().make()
    assert seen(last)[0] == "a"
    monkeypatch.setattr(server, "ROOM_S", 0.1)
    with pytest.raises(EnvironmentFailure, match=r"1 connection, its limit \(--most\)"):
        running.client(timeout_s=0.5).make().reset(TASK, seed=1)


def test_other_servers_are_used_while_one_is_gone(start: Callable[..., Running]) -> None:
    one, other = start(), start()
    client = one.client(other)
    episodes = [client.make() for _ in range(4)]
    assert len({seen(episode)[3] for episode in episodes}) == 4
    one.stop()
    results = []
    for episode in episodes:
        with suppress(EnvironmentFailure):
            results.append(episode.step(Message(role="assistant", content="3")).reward)
        with suppress(EnvironmentFailure):
            episode.close()
    assert results == [0.5, 0.5]
    assert [seen(client.make())[0] for _ in range(3)] == ["a"] * 3
    other.stop()
    with pytest.raises(EnvironmentFailure, match="cannot be reached: Connection refused"):
        one.client(other, timeout_s=0.5).make().reset(TASK, seed=1)


def test_client_waits_for_the_restart_of_its_only_server(start: Callable[..., Running]) -> None:
    running = start()
    client = running.client()
    episode = client.make()
    seen(episode)
    episode.close()
    running.stop()
    threading.Timer(1.0, partial(start, port=running.port)).start()
    assert seen(client.make())[0] == "a"


@pytest.fixture
def answering() -> Iterator[Callable[[Callable[[socket.socket], object]], str]]:
    """Starts a server that does what a function says with each connection, and returns its address."""
    with ExitStack() as stack:

        def started(act: Callable[[socket.socket], object]) -> str:
            listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

            def run() -> None:
                with suppress(OSError):
                    while True:
                        with listening.accept()[0] as connected, suppress(OSError, Ended):
                            act(connected)

            threading.Thread(target=run, daemon=True).start()
            return f"127.0.0.1:{listening.getsockname()[1]}"

        yield started


def test_tunnel_to_nothing_cannot_be_reached(start: Callable[..., Running], answering: Any) -> None:
    dead = answering(lambda connected: None)
    servers = Servers([dead, start().address], "guess")
    for _ in range(4):
        servers().close()
    with pytest.raises(EnvironmentFailure, match="cannot be reached: it closed the connection"):
        ServedObject(dead, "guess")


def test_server_that_does_not_answer_is_left_out_afterwards(
    start: Callable[..., Running], answering: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "HANDSHAKE_S", 0.3)
    asked: list[int] = []
    silent = answering(lambda connected: (asked.append(1), connected.recv(1)))
    servers = Servers([silent, start().address], "guess")
    for _ in range(6):
        servers().close()
    assert len(asked) == 1


def test_server_of_another_environment_does_not_stop_the_others(start: Callable[..., Running]) -> None:
    running = start()
    servers = Servers([running.address, running.address], "other")
    with pytest.raises(UserError, match="a server of the environment 'other'"):
        servers()


HOSTILE = {
    "array as id": {"id": b"0", "value": {}},
    "list": [1],
    "greeting": {"id": 0, "value": [1]},
    "environment": {"id": 0, "value": {"environment": b"guess"}},
    "error": {"id": 0, "error": {"kind": b"x", "type": [1], "text": {"a": 1}, "ended": b"", "trace": b"1", "place": 2}},
    "both": {"id": 0, "value": {}, "error": {}},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_greeting_of_another_form_is_an_error(answering: Any, name: str) -> None:
    def act(connected: socket.socket) -> None:
        connection = Connection(connected)
        assert accepted(connection, KNOWN)
        server._send(connection, HOSTILE[name])  # type: ignore[arg-type]

    with pytest.raises((EnvironmentFailure, UserError)):
        ServedObject(answering(act), "guess")


def test_texts_of_a_server_are_shortened(answering: Any) -> None:
    def act(connected: socket.socket) -> None:
        connection = Connection(connected)
        assert accepted(connection, KNOWN)
        greeting = {"environment": "guess", "python": "3" * 10**6, "most": 10**300}
        server._send(connection, {"id": 0, "value": greeting})
        connected.recv(1)

    with ServedObject(answering(act), "guess") as served:
        assert len(served.greeting["python"]) < 10_000
        assert served.greeting["most"] is None


def test_place_of_a_client_that_disconnects_in_a_call_is_free_at_once(start: Callable[..., Running]) -> None:
    running = start(most=1)
    first = running.client()
    episode = first.make()
    seen(episode)
    caller = threading.Thread(target=lambda: suppressed(episode, "hang"), daemon=True)
    caller.start()
    time.sleep(0.3)
    episode.close()  # a call that another thread waits for is ended
    began = time.monotonic()
    assert seen(running.client().make())[0] == "a"
    assert time.monotonic() - began < 5
    caller.join()


def suppressed(episode: Any, word: str) -> None:
    with suppress(EnvironmentFailure):
        episode.step(Message(role="assistant", content=word))


def test_capacity_is_that_of_the_servers_that_can_be_reached(start: Callable[..., Running]) -> None:
    one, other = start(most=3), start(most=2)
    assert Servers([one.address, other.address], "guess").capacity() == 5
    other.stop()
    assert Servers([one.address, other.address], "guess").capacity() == 3


TOKENS = {"another token of 20": "refused", "\udcff" * 20: "refused", "short": "5 characters", "": "not"}


@pytest.mark.parametrize(("value", "reason"), TOKENS.items(), ids=["other", "bytes", "short", "none"])
def test_token_is_needed(
    start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch, value: str, reason: str
) -> None:
    running = start()
    monkeypatch.setenv(TOKEN, value)
    with pytest.raises(UserError, match="token") as refused:
        ServedObject(running.address, "guess")
    assert reason in str(refused.value)
    if reason == "refused":
        wait_until(lambda: bool(running.said))
    assert bool(running.said) == (reason == "refused")


def test_server_of_another_environment_or_of_something_else_is_named(start: Callable[..., Running]) -> None:
    with pytest.raises(UserError, match="a server of the environment 'other'") as refused:
        ServedObject(start().address, "other")
    assert refused.value.found == "a server of the environment 'guess'"
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def greet() -> None:
            with listening.accept()[0] as connected:
                connected.sendall(b"SSH-2.0-OpenSSH_9.6" * 9)
                connected.recv(1)

        threading.Thread(target=greet, daemon=True).start()
        with pytest.raises(UserError, match="expected a server of rlcore"):
            ServedObject(f"127.0.0.1:{listening.getsockname()[1]}", "guess")


def test_process_of_a_request_that_is_done_is_not_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LOOK_S", 0.01)
    ours, theirs = socket.socketpair()
    theirs.close()
    killed: list[int] = []

    class Kept:
        def kill(self) -> None:
            killed.append(1)

    busy, done, lock = threading.Event(), threading.Event(), threading.Lock()
    busy.set()
    watching = threading.Thread(target=server._watch, args=(Connection(ours), Kept(), busy, done, lock), daemon=True)
    with lock:
        watching.start()
        time.sleep(0.1)  # it waits for the lock
        done.set()
    watching.join(timeout=10)
    assert not watching.is_alive()
    assert not killed


def test_silent_server_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "HANDSHAKE_S", 0.2)
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        pytest.raises(EnvironmentFailure, match=r"did not answer within 0\.2 s"),
    ):
        ServedObject(f"127.0.0.1:{listening.getsockname()[1]}", "guess")


def test_proof_of_one_connection_is_of_no_use_in_another(start: Callable[..., Running]) -> None:
    running = start()
    sent = b""
    for _ in range(2):
        with socket.create_connection(("127.0.0.1", running.port)) as raw:
            hello = raw.recv(1000)
            challenge = hello[len(HELLO) :]
            ours = b"\x01" * 32
            sent = sent or ours + network._response(KNOWN, b"client", challenge, ours)
            raw.sendall(sent)
            answer = raw.recv(1000)
    assert answer == network.REFUSAL
    wait_until(lambda: bool(running.said))
    assert running.said == ["refused   127.0.0.1: it does not know the token"]


REQUEST = {"id": 1, "action": "ask", "with": {}, "timeout_s": 1}
BROKEN = {
    "text": b"GET / HTTP/1.1\r\n\r\n" * 10,
    "version": HEADER.pack(MAGIC, VERSION + 1, 0, 0, 0),
    "long": HEADER.pack(MAGIC, VERSION, 2**32 - 1, 0, 0),
    "arrays": HEADER.pack(MAGIC, VERSION, 16, 2**32 - 1, 0),
    "shared": bytes(pack({**REQUEST}, shared=2**20)),
    "json": HEADER.pack(MAGIC, VERSION, 16, 0, 0) + b"{" * 16,
    "list": bytes(pack([1, 2])),
    "part": bytes(pack({"id": 1})),
    "call": bytes(pack({**REQUEST, "action": "call", "with": {"target": "os:getpid", "arguments": {}}})),
    "describe": bytes(pack({**REQUEST, "action": "describe", "with": {"target": "os:environ", "names": ["data"]}})),
    "prepare": bytes(pack({**REQUEST, "action": "prepare", "with": {"paths": ["/tmp"], "packages": {}}})),
    "time": bytes(pack({**REQUEST, "timeout_s": -1})),
    "nan": bytes(pack({**REQUEST, "timeout_s": "nan"})),
    "array": bytes(pack({**REQUEST, "action": {"$": "bytes", "at": 0, "size": 0}})),
    "name": bytes(pack({**REQUEST, "with": {"name": {"$": "bytes", "at": 0, "size": 0}}})),
    "target": bytes(pack({**REQUEST, "action": "create", "with": {"target": "os:getpid", "arguments": {}}})),
    "random": struct.pack("!20s", secrets.token_bytes(20)) * 40,
}


@pytest.mark.parametrize("name", BROKEN)
def test_server_survives_a_client_that_breaks_the_protocol(start: Callable[..., Running], name: str) -> None:
    running = start(most=1)
    connection = connect(running.address, KNOWN)
    with suppress(Ended):
        connection.write(BROKEN[name], time.monotonic() + 5)
        data = memoryview(bytearray(10_000))
        until = time.monotonic() + 20
        while True:  # the greeting, and then the end of the connection
            connection.read_into(data, until)
            assert b"getpid" not in bytes(data)
    assert seen(running.client().make())[0] == "a"
    assert any("sent" in line for line in running.said)


def test_private_methods_and_other_targets_are_refused(start: Callable[..., Running]) -> None:
    running = start()
    with ServedObject(running.address, "guess") as served:
        options = {"$options": {"values": None, "model": "os:system", "free": False}}
        served.create("object", "os:system", arguments=options, timeout_s=20)  # creates what is offered
        with pytest.raises(EnvironmentFailure, match="neither reset, step nor cut"):
            served.ask("__class__", timeout_s=20)
