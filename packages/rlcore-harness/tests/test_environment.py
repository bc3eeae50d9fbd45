from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError
from rlcore.config.resolved import ResolvedEnvironment
from rlcore.episodes.context import EpisodeContext
from rlcore.errors import EnvironmentFailure
from rlcore.testing import check_plugin, check_reward, make_trajectory
from rlcore.testing.harnesses import SilentPolicy
from rlcore.testing.rewards import RewardCase
from rlcore.types import Message, Response, Step, Stop, Task
from rlcore_harness import homes
from rlcore_harness.checks import check
from rlcore_harness.config import HarnessConfig
from rlcore_harness.environment import AgentHarness

AGENTS = Path(__file__).parent / "agents.py"
ESCAPES = Path(__file__).parent / "escapes.py"
NUMBER = random.randrange(10_000)
"""Marks the processes of this test run."""
TASK = Task(id="t", messages=(Message(role="user", content="Well?"),), fields={"number": NUMBER})


class Policy(SilentPolicy):
    """Says one text, and keeps the sampling parameters of requests."""

    def __init__(self, text: str = "yes") -> None:
        super().__init__(64)
        self.text, self.seen, self.rewards = text, list[Mapping[str, Any]](), list[float]()

    async def respond(self, messages: Sequence[Message], **options: Any) -> Response:
        self.seen.append(options["sampling"])
        turn, completion = await super().respond(messages, **options)
        return Response(turn, replace(completion, message=replace(completion.message, content=self.text)))

    def reward(self, value: float, *, turn: int | None = None) -> None:
        self.rewards.append(value)


def configured(agent: str = "", **options: Any) -> HarnessConfig:
    return HarnessConfig(**({"agent": f"{AGENTS}:{agent}"} if agent else {}), **options)


def command(**options: Any) -> HarnessConfig:
    return configured(command=[sys.executable, str(AGENTS), "{task}"], score="exit-status", **options)


def play(
    config: HarnessConfig, policy: SilentPolicy | None = None, *, task: Task = TASK, timeout_s: float = 60
) -> Step:
    """One episode, as the agent loop runs it."""

    async def episode() -> Step:
        context = EpisodeContext(task, timeout_s=timeout_s)
        harness = AgentHarness(config)
        try:
            async with asyncio.timeout(context.remaining_s):
                return await harness.run(task, policy=policy or Policy(), seed=1, context=context)
        finally:
            await harness.close()
            await context.aclose()

    return asyncio.run(episode())


def left() -> str:
    """The processes of these tests that still run."""
    found = subprocess.run(["pgrep", "-f", f"sleep {600 + NUMBER}"], capture_output=True, text=True, check=False)
    return found.stdout


@pytest.mark.parametrize("agent", ["counts", "waits", "forks"])
def test_process_stays_warm_and_keeps_its_key(agent: str) -> None:
    config = configured(agent)
    assert [play(config).reward for _ in range(3)] == [1, 2, 3]


def test_reward_reaches_the_policy_and_refused_requests_are_counted() -> None:
    policy = Policy()
    step = play(configured("reports"), policy)
    assert (step.reward, dict(step.info)) == (None, {"refused_requests": 1.0})
    assert (policy.rewards, policy.turns) == ([0.5], 1)


@pytest.mark.parametrize(
    ("agent", "reason"),
    [
        ("raises", "raised ValueError: no luck (agents.py:.* in raises); it printed last: the output before"),
        ("exits", "raised SystemExit: 3"),
        ("returns_text", "must return its reward as a finite number, or None, not 'good'"),
        ("ends", "was ended by SIGKILL; it printed last: the output before"),
        ("asks_on", "HTTP Error 400: Bad Request (agents.py:.* in ask)"),
    ],
)
def test_failing_agent_is_a_failure_with_its_reason(agent: str, reason: str) -> None:
    config = configured(agent, max_turns=2)
    for _ in range(2):
        with pytest.raises(EnvironmentFailure, match=reason.replace("(", r"\(").replace(")", r"\)")):
            play(config)


@pytest.mark.parametrize("agent", ["leaves_thread", "leaves_process", "leaves_daemon"])
def test_process_with_leftovers_is_not_used_again(agent: str, caplog: pytest.LogCaptureFixture) -> None:
    config = configured(agent)
    assert [play(config).reward for _ in range(2)] == [1, 1]
    assert len([record for record in caplog.records if "each episode starts a new process" in record.message]) == 1
    assert not left()


@pytest.mark.parametrize("config", [configured("hangs"), command()], ids=["agent", "command"])
def test_hanging_agent_is_killed_at_the_deadline(config: HarnessConfig) -> None:
    with pytest.raises(TimeoutError):
        play(config, Policy("wait"), timeout_s=1.5)
    time.sleep(0.1)
    assert not left()


def test_exit_status_of_a_command_is_its_reward() -> None:
    assert [play(command(), Policy(text)).reward for text in ("0", "1")] == [1.0, 0.0]
    for text, end in {"7": "ended with exit status 7", "die": "was ended by SIGABRT"}.items():
        with pytest.raises(EnvironmentFailure, match=f"{end}; it printed last: the output before"):
            play(command(), Policy(text))


def test_sampling_of_requests_can_be_ignored() -> None:
    policies = Policy(), Policy()
    play(configured("counts"), policies[0])
    play(configured("counts", sampling="run"), policies[1])
    assert [policy.seen[0].get("temperature") for policy in policies] == [0.25, None]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "found neither"),
        ({"agent": "a.py:f", "command": ["x"]}, "found both"),
        ({"agent": "a.py"}, "must be file.py:FUNCTION or module:FUNCTION"),
        ({"command": ["x"], "python": "/usr/bin/python3"}, "name the interpreter in command"),
        ({"agent": "a.py:f", "score": "exit-status"}, "a function returns its reward"),
        ({"agent": "a.py:f", "servers": ["127.0.0.1:7070"]}, "cannot run on servers"),
    ],
)
def test_contradictory_keys_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        HarnessConfig(**options)


@pytest.mark.parametrize(
    ("options", "key", "reason"),
    [
        ({"agent": "no.py:solve"}, "environment.agent", "there is no file"),
        ({"agent": "no_such_module:solve"}, "environment.agent", "no_such_module"),
        ({"agent": f"{AGENTS}:nothing"}, "environment.agent", "has no attribute 'nothing'"),
        ({"agent": f"{AGENTS}:program"}, "environment.agent", "cannot be called with a task and a policy: too many"),
        ({"agent": f"{AGENTS}:counts", "python": "/no/python"}, "environment.python", "no interpreter"),
        ({"command": ["no-such-program"]}, "environment.command", "there is no program 'no-such-program'"),
    ],
)
def test_missing_agent_is_found_before_the_run(options: dict[str, Any], key: str, reason: str) -> None:
    (found,) = findings(HarnessConfig(**options))
    assert (found.status, found.key) == ("fail", key)
    assert reason in found.text


def test_script_of_a_command_that_is_no_file_is_noted() -> None:
    (found,) = findings(configured(command=[sys.executable, str(AGENTS), "missing.sh", "{task}"]))
    assert (found.status, "'missing.sh'" in found.text) == ("warn", True)


def test_check_warms_the_process() -> None:
    config = configured("counts")
    assert [found.status for found in findings(config)] == ["ok"]
    assert play(config).reward == 1


def findings(config: HarnessConfig) -> list[Any]:
    run = SimpleNamespace(config=SimpleNamespace(rollout=SimpleNamespace(environment_timeout_s=30.0)))
    environment = ResolvedEnvironment(
        name="", id="harness", options=config, data_id="", data=None, rewards=(), reward_options=()
    )
    return list(check(run, environment))


def test_return_is_what_the_agent_reported() -> None:
    check_reward(
        "harness-return",
        [
            RewardCase(task=TASK, trajectory=make_trajectory("Hi", "yes", metrics={"step_reward": 0.75}), value=0.75),
            RewardCase(task=TASK, trajectory=make_trajectory("Hi", "yes", stop=Stop.MAX_TURNS), value=0.0),
            RewardCase(task=TASK, trajectory=make_trajectory("Hi", "yes"), value=None),
        ],
    )


def test_plugin_conforms() -> None:
    check_plugin("harness")


def confined(agent: str) -> HarnessConfig:
    return HarnessConfig(agent=f"{ESCAPES}:{agent}", confined=True)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("the answers")
    return path


def test_confined_agent_cannot_escape(secret: Path) -> None:
    before = secret.stat()
    with socket.create_server(("127.0.0.1", 0)) as other, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(secret.with_name("unix")))
        unix.listen()
        fields = {"secret": str(secret), "unix": unix.getsockname(), "port": other.getsockname()[1]}
        assert play(confined("tries"), task=replace(TASK, fields=fields)).reward == 43
        after = secret.stat()
        assert (after.st_mode, after.st_mtime, after.st_size) == (before.st_mode, before.st_mtime, before.st_size)
        assert sorted(path.name for path in secret.parent.iterdir()) == ["secret", "unix"]
        done = ["read", "read by a program", "list", "write", "create", "connect", "connect to a unix socket", "bind"]
        done += ["limits of the parent", "variables of the agent by a program"]
        with pytest.raises(EnvironmentFailure) as failed:  # they work in an agent that is not confined
            play(HarnessConfig(agent=f"{ESCAPES}:tries"), task=replace(TASK, fields={**fields, "only": done}))
        assert all(repr(name) in str(failed.value) for name in done)


class Job(Policy):
    """Stops all processes of the group that a request names, as batch systems do."""

    async def respond(self, messages: Sequence[Message], **options: Any) -> Response:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            os.killpg(int(messages[-1].text), number)
        return await super().respond(messages, **options)


def test_confined_agent_leaves_signals_to_the_run() -> None:
    assert play(confined("is_signalled"), Job()).reward == 1


def test_signal_that_ends_a_confined_agent_is_reported() -> None:
    with pytest.raises(EnvironmentFailure, match="was ended by SIGKILL; it printed last: the output before"):
        play(configured("ends", confined=True))


RUN = """
import sys
from test_environment import NUMBER, TASK, Policy, confined, play, replace
play(confined("leaves_its_group"), task=replace(TASK, fields={"number": int(sys.argv[1])}))
"""


@pytest.mark.slow
def test_what_a_confined_agent_started_ends_with_a_killed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    command = [sys.executable, "-c", RUN, str(NUMBER)]
    with subprocess.Popen(command, cwd=AGENTS.parent) as run:
        until = time.monotonic() + 30
        while left().count("\n") < 2 and time.monotonic() < until:
            time.sleep(0.05)
        assert left().count("\n") == 2
        run.kill()
    while left() and time.monotonic() < until:
        time.sleep(0.05)
    assert not left()
    (folder,) = tmp_path.glob("rlcore-home-*")
    boot = homes.BOOT.read_text().strip()
    names = "rlcore-agent-abcdefgh", f"{folder.name}.kept", folder.name.replace(boot, str(uuid.uuid4()))
    kept = [tmp_path / name for name in names]  # of an earlier version, of the user, of another machine
    for path in kept:
        path.mkdir()
    link = tmp_path / f"rlcore-home-{boot}-abcdefgh"
    link.symlink_to(kept[0])
    for path in (folder, *kept, link):
        os.utime(path, (1, 1), follow_symlinks=False)
    monkeypatch.setattr(homes, "_looked", threading.Lock())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    used = homes.Home()
    os.utime(used.path, (1, 1))
    homes._delete_left()
    assert {*tmp_path.glob("rlcore-home-*"), kept[0]} == {*kept, link, used.path}
    assert kept[0].is_dir()
    used.delete()


def test_confined_agent_works_and_finds_nothing_of_earlier_episodes() -> None:
    config = confined("works")
    assert [play(config).reward for _ in range(2)] == [1, 1]


def test_confined_agent_reads_what_is_named(secret: Path) -> None:
    code = f"import agents; agents.ask('Well?'); open({str(secret)!r})"
    program = [sys.executable, "-c", f"import sys; sys.path.append({str(AGENTS.parent)!r}); {code}"]
    for readable, reward in ([str(AGENTS)], 0), ([str(AGENTS), str(secret.parent)], 1):
        config = HarnessConfig(command=program, score="exit-status", confined=True, readable=readable)
        assert play(config).reward == reward
