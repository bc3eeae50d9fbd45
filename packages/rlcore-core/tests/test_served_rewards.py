"""Rewards on a server: results, failures, servers that are lost, and requests and answers that are not what they
should be."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rlcore.abilities import RemoteReward
from rlcore.config.layers import Layer
from rlcore.config.resolve import resolve_rewards
from rlcore.config.schema import Table
from rlcore.episodes.rewards import SelectedReward
from rlcore.episodes.scoring import Scorer
from rlcore.episodes.served_rewards import RewardOffer, ServedReward
from rlcore.errors import UserError
from rlcore.plugins.registry import Registry
from rlcore.session.elsewhere import differences
from rlcore.testing import make_trajectory
from rlcore.transport import server, watching
from rlcore.transport.network import CHALLENGE, HELLO, TOKEN, Connection, accepted
from rlcore.transport.served import ServedObject
from rlcore.transport.server import _send
from rlcore.types import (
    Group,
    Logprobs,
    LossMask,
    Message,
    RewardResult,
    Segment,
    Task,
    TokenIds,
    Trajectory,
)
from running_servers import RunningServer

KNOWN = "a token of the tests"
QUESTION = Message(role="user", content="What is 6 times 7?")
TASK = Task(id="1", messages=(QUESTION,), fields={"answer": "42"}, images=(b"\x89PNG",))


def answered(text: str) -> Trajectory:
    return make_trajectory(QUESTION, text).replace(images={"a": b"\0\xff"})


def selected(function: Any, scope: Any = "trajectory") -> SelectedReward:
    return SelectedReward(id="right", weight=1.0, scope=scope, function=function, minimum=0.0, maximum=1.0)


class Running(RunningServer):
    """A server of a reward in a thread, which ends with `stop`."""

    def __init__(self, reward: SelectedReward, *, port: int = 0, most: int = 4) -> None:
        offer = RewardOffer(reward, most=most, options="its defaults")
        super().__init__(offer, named="reward 'right'", token=KNOWN, port=port, most=most, timeout_s=60)


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, KNOWN)
    monkeypatch.setattr(server, "LOOK_S", 0.02)


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    with ExitStack() as stack:

        def started(function: Any, scope: str = "trajectory", **settings: Any) -> Running:
            running = Running(selected(function, scope), **settings)
            stack.callback(running.stop)
            return running

        yield started


def right(trajectory: Trajectory, task: Task) -> RewardResult:
    if "raise" in trajectory.final_response:
        raise ValueError("the judge is confused")
    seen = len(task.images[0]) + len(trajectory.images["a"])
    value = float(task.fields["answer"] in trajectory.final_response)
    return RewardResult(value=value, components={"bytes": seen}, text="compared")


def scored(reward: ServedReward, *texts: str, scope: str = "trajectory") -> list[RewardResult]:
    """The results of a group as a run has them."""
    scorer = Scorer((selected(reward, scope),), timeout_s=60)

    async def score() -> Group:
        singles = [scorer.score(answered(text), TASK) for text in texts]
        return await scorer.settle(Group(task=TASK, trajectories=tuple(await asyncio.gather(*singles))))

    return [trajectory.rewards["right"] for trajectory in asyncio.run(score()).trajectories]


def test_results_are_those_of_the_reward_and_its_error_is_no_score(start: Callable[..., Running]) -> None:
    reward = ServedReward("right", [start(right).address], timeout_s=20)
    assert isinstance(reward, RemoteReward)
    first, second, third = scored(reward, "42", "43", "raise")
    assert first == RewardResult(value=1.0, components={"bytes": 6}, text="compared")
    assert second.value == 0.0
    assert third.value is None
    assert "the judge is confused" in str(third.error)


def test_group_is_scored_together(start: Callable[..., Running]) -> None:
    def shares(group: Group) -> list[float]:
        return [1 / len(group.trajectories) for _ in group.trajectories]

    reward = ServedReward("right", [start(shares, "group").address], timeout_s=20)
    assert [one.value for one in scored(reward, "a", "b", scope="group")] == [0.5, 0.5]


def test_group_of_long_trajectories_is_scored(start: Callable[..., Running]) -> None:
    count = 16_384
    segment = Segment(
        token_ids=TokenIds(range(count)),
        loss_mask=LossMask(place % 3 == 0 for place in range(count)),
        logprobs=Logprobs([-0.5] * count),
    )
    reward = ServedReward(
        "right",
        [start(lambda group: [float(one.segments == (segment,)) for one in group.trajectories], "group").address],
        timeout_s=20,
    )
    found = reward(Group(task=TASK, trajectories=(answered("42").replace(segments=(segment,)),) * 16))
    assert isinstance(found, list)
    assert [one.value for one in found] == [1.0] * 16


def test_request_that_ends_servers_is_sent_to_two_of_them(start: Callable[..., Running]) -> None:
    called: list[int] = []

    def ends(trajectory: Trajectory, task: Task) -> float:
        called.append(1)
        for each in servers:
            for connection in list(each.server._connections):
                connection.kill()
        return 0.5

    servers = [start(ends) for _ in range(3)]
    (result,) = scored(ServedReward("right", [each.address for each in servers], timeout_s=20), "42")
    assert result.value is None
    assert "two servers were lost that had received it" in str(result.error)
    assert len(called) == 2


def test_server_that_is_lost_during_the_handshake_is_asked_again(start: Callable[..., Running]) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]

    def lose() -> None:
        with listening, listening.accept()[0] as connected:
            connected.sendall(HELLO + bytes(CHALLENGE))
            connected.recv(1000)
        start(right, port=port)

    threading.Thread(target=lose, daemon=True).start()
    reward = ServedReward("right", [f"127.0.0.1:{port}"], timeout_s=20)
    assert scored(reward, "42")[0].value == 1.0
    assert reward.refusal is None


def test_time_without_a_place_does_not_count(start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "ROOM_S", 0.1)
    running = start(right, most=1)
    other = ServedObject(running.address, "right", "reward")
    threading.Timer(0.4, other.close).start()
    (result,) = scored(ServedReward("right", [running.address], timeout_s=0.2), "42")
    assert result.value == 1.0


def test_calls_of_a_lost_server_go_to_another_one_or_wait_for_its_return(start: Callable[..., Running]) -> None:
    called, release = threading.Event(), threading.Event()

    def slow(trajectory: Trajectory, task: Task) -> float:
        called.set()
        release.wait(20)
        return 0.25

    lost, other = start(slow), start(lambda trajectory, task: 0.75)
    reward = ServedReward("right", [other.address, lost.address], timeout_s=20)
    threading.Thread(target=lambda: (called.wait(20), lost.stop(), release.set()), daemon=True).start()
    assert [one.value for one in scored(reward, "a", "b")] == [0.75, 0.75]
    other.stop()
    threading.Timer(0.7, partial(start, lambda trajectory, task: 0.5, port=other.port)).start()
    assert [one.value for one in scored(reward, "a")] == [0.5]


def test_no_server_within_the_time_is_no_score_and_not_zero(start: Callable[..., Running]) -> None:
    running = start(right)
    running.stop()
    (result,) = scored(ServedReward("right", [running.address], timeout_s=0.3), "42")
    assert (result.value, result.error_kind) == (None, "time-out")
    assert "Connection refused" in str(result.error)


def test_refusal_of_the_served_reward_ends_the_run(start: Callable[..., Running]) -> None:
    class Keyless:
        reward_timeout_s = 5.0
        refusal: UserError | None = None

        async def __call__(self, trajectory: Trajectory, task: Task) -> RewardResult:
            self.refusal = UserError("the endpoint refused the key", found="401", fix="set another key")
            return RewardResult(value=None, error="401")

        async def close(self) -> None:
            pass

    reward = ServedReward("right", [start(Keyless()).address], timeout_s=20)
    assert scored(reward, "42")[0].value is None
    assert reward.refusal is not None
    assert reward.refusal.fix == "set another key"
    with pytest.raises(UserError, match="a server of the reward 'other'"):
        ServedObject(start(right).address, "other", "reward")


def test_call_of_a_client_that_leaves_is_cancelled(start: Callable[..., Running]) -> None:
    began, ended = threading.Event(), threading.Event()

    async def endless(trajectory: Trajectory, task: Task) -> float:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return 0.0

    reward = ServedReward("right", [start(endless, most=1).address], timeout_s=20)
    threading.Thread(target=reward, args=(answered("42"), TASK), daemon=True).start()
    assert began.wait(10)
    asyncio.run(reward.close())
    assert ended.wait(10)


def test_other_versions_and_clocks_are_named_before_a_run(start: Callable[..., Running]) -> None:
    with ServedObject(start(right).address, "right", "reward") as served:
        greeting = served.greeting
    assert not list(differences(greeting, "reward.0.servers", "judges:7071", "reward 'right'"))
    late = {**greeting, "clock": str(time.time() - 60)}
    version, clock = differences(late, "reward.0.servers", "judges:7071", "reward 'right' 0.2")
    assert (
        version.text == "the server judges:7071 offers the reward 'right', but this machine has the reward 'right' 0.2"
    )
    assert clock.text.startswith("the clock of the server judges:7071 is 60 s behind that of this machine")


def test_options_belong_to_the_server(tmp_path: Path) -> None:
    (tmp_path / "rewards.py").write_text("def right(trajectory, task):\n    return 0.0\n", encoding="utf-8")
    table = {"id": f"{tmp_path}/rewards.py:right", "servers": ["judges:7071"], "limit": 3}
    with pytest.raises(UserError, match="belongs to the command rlcore serve reward"):
        resolve_rewards([Layer(tree={"reward": [table]}, origins={})], Registry(), Table)
    table = {**table, "servers": ["judges"]}
    with pytest.raises(UserError, match="needs HOST:PORT"):
        resolve_rewards([Layer(tree={"reward": [table]}, origins={})], Registry(), Table)


REQUESTS = {
    "other method": ("refusal", ()),
    "nothing": ("score", ()),
    "texts": ("score", ("a", "b")),
    "images": ("score", ({"value": {"task_id": "1"}, "images": 3}, {"value": {}, "images": []})),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_request_of_another_form_ends_its_connection_alone(start: Callable[..., Running], name: str) -> None:
    running = start(right)
    method, given = REQUESTS[name]
    with ServedObject(running.address, "right", "reward") as served, pytest.raises(Exception, match="closed"):
        served.ask(method, *given, timeout_s=10)
    assert scored(ServedReward("right", [running.address], timeout_s=20), "42")[0].value == 1.0


@pytest.mark.parametrize("value", [[], [{"value": {"value": "1"}, "images": []}], 7, [None], [{"value": {}}] * 3])
def test_answer_of_another_form_is_no_score(value: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection = Connection(listening.accept()[0])
            assert accepted(connection, KNOWN)
            _send(connection, {"id": 0, "value": {"reward": "right"}})
            connection.read_into(memoryview(bytearray(1000)), time.monotonic() + 10)
            _send(connection, {"id": 1, "value": value})

        threading.Thread(target=answer, daemon=True).start()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        (result,) = scored(ServedReward("right", [address], timeout_s=1), "42")
    assert result.value is None
    assert result.error


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="a server is stopped by a signal")
def test_calls_of_a_server_that_hangs_go_to_another_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(watching, "LOOK_S", 0.1)
    monkeypatch.setattr(watching, "ANSWER_S", 1.0)
    rewards = tmp_path / "rewards.py"
    rewards.write_text(
        "import os, signal\n\n\ndef right(trajectory, task):\n"
        "    if os.environ['HANGS'] == '1':\n        os.kill(os.getpid(), signal.SIGSTOP)\n    return 0.5\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-u", "-m", "rlcore", "serve", "reward", f"{rewards}:right", "--port", "0"]
    with ExitStack() as stack:
        addresses = []
        for hanging in ("0", "1"):
            variables = {**os.environ, "HANGS": hanging}
            process = stack.enter_context(
                subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            )
            stack.callback(process.kill)
            assert process.stdout is not None
            line = process.stdout.readline()
            assert " on 127.0.0.1:" in line, line + process.stdout.read()
            addresses.append(line.partition(" on ")[2].partition(",")[0])
        reward = ServedReward(f"{rewards}:right", addresses, timeout_s=60)
        assert reward(answered("42"), TASK) == RewardResult(value=0.5)
        assert reward(answered("42"), TASK) == RewardResult(value=0.5)
