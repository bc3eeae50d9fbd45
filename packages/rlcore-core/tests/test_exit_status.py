"""The exit status: 0 only when everything that was asked for is done."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from rlcore.cli import EXIT_STATUS, exit_status
from rlcore.episodes.rewards import SelectedReward
from rlcore.episodes.scoring import Scorer
from rlcore.errors import ComponentExitError, EngineError, NotScoredError, ProcessError, UserError
from rlcore.session.exits import exits_reported
from rlcore.types import Message, Segment, Task, Trajectory, Turn

Call = Callable[..., Any]

NOT_SCORED = """
import toy_rl
from rlcore.types import Boundary, Failure, Group
class Sampler(toy_rl.Sampler):
    def collect(self, request):
        lost = Failure(boundary=Boundary.REWARD, message="the judge is offline")
        return [Group(task=group.task, trajectories=tuple(one.replace(reward=None, failure=lost)
                for one in group.trajectories)) for group in super().collect(request)]
"""
EXITS = """
import os, sys, toy_rl
class Data(toy_rl.Dataset):
    Config = toy_rl.DataConfig
    def tasks(self, split):
        {call}
        return super().tasks(split)
"""


@pytest.fixture(autouse=True)
def hangup_not_ignored() -> Iterator[None]:
    """Children inherit an ignored signal, as under nohup and in the jobs of a shell."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def start(toy: Any, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rlcore", *arguments]
    return subprocess.Popen(
        command, env=toy.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)])
def test_stopped_run_reports_the_signal_and_is_not_finished(toy: Any, number: int, status: int) -> None:
    process = start(toy, "run", "-p", "toy", "trainer.steps=50", "trainer.slow_s=0.3", "name=mine", "--json")
    assert process.stderr is not None
    for line in process.stderr:
        if line == "STEP\n":
            process.send_signal(number)
            break
    out, err = process.communicate(timeout=60)
    assert process.returncode == status, err
    (line,) = [line for line in out.splitlines() if line.startswith("{")]
    found = json.loads(line)
    assert (found["finished"], found["directory"]) == (False, "runs/mine")
    assert list(Path("runs/mine/checkpoints").iterdir())


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_run_with_closed_standard_streams_works_and_has_a_log(toy: Any, closed: tuple[int, ...]) -> None:
    without = [sys.executable, "-m", "rlcore"]
    redirections = " ".join(f"{number}>&-" for number in closed)
    for arguments in (["run", "-p", "toy", "name=mine"], ["config", "show", "-p", "toy"]):
        done = subprocess.run(
            ["sh", "-c", f'exec "$@" {redirections}', "sh", *without, *arguments],
            env=toy.environment(), capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr if 1 in closed else "") == (0, "")
    assert "best " in Path("runs/mine/output.log").read_text(encoding="utf-8")


def test_run_whose_terminal_is_closed_writes_a_checkpoint(toy: Any) -> None:
    options = ["trainer.steps=50", "trainer.slow_s=0.5", "name=mine"]
    command = [sys.executable, "-m", "rlcore", "run", "-p", "toy", *options]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, command, toy.environment())
    seen = b""
    while b"STEP" not in seen:
        seen += os.read(terminal, 1000)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 143
    assert list(Path("runs/mine/checkpoints").iterdir())


def test_run_ignores_a_closed_terminal_if_it_is_told_to(toy: Any) -> None:
    process = subprocess.Popen(
        ["nohup", sys.executable, "-m", "rlcore", "run", "-p", "toy", "trainer.slow_s=0.3", "--json"],
        env=toy.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    assert any(line == "STEP\n" for line in process.stderr)
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_that_is_interrupted_twice_is_not_finished(toy: Any, number: int) -> None:
    process = start(toy, "run", "-p", "toy", "trainer.slow_s=60", "name=mine", "--json")
    assert process.stderr is not None
    assert any(line == "STEP\n" for line in process.stderr)
    process.send_signal(number)
    assert any(line.startswith("stopping") for line in process.stderr)
    process.send_signal(signal.SIGTERM)  # again changes nothing
    time.sleep(1.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=15)
    assert process.returncode == 130, err
    assert json.loads(out)["finished"] is False
    assert "Traceback" not in err


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_evaluation_is_not_finished(toy: Any, number: int, status: int) -> None:
    call = 'import time; print("WAITING", flush=True); time.sleep(60)'
    sampler = f"import toy_rl\nclass Sampler(toy_rl.Sampler):\n    def collect(self, request):\n        {call}\n"
    Path("mine.py").write_text(sampler, encoding="utf-8")
    process = start(toy, "eval", "-p", "toy", "sampler.id=mine.py:Sampler", "--json")
    assert process.stderr is not None
    assert any(line == "WAITING\n" for line in process.stderr)
    process.send_signal(number)
    out, err = process.communicate(timeout=15)
    assert process.returncode == status, err
    assert json.loads(out) == {"finished": False}


def test_finished_run_says_so(rlcore: Call) -> None:
    done = rlcore("run", "-p", "toy", "--json")
    assert (done.status, json.loads(done.out)["finished"]) == (0, True)


def test_stop_after_the_last_step_changes_nothing(rlcore: Call) -> None:
    source = "import os, signal, toy_rl\nclass Trainer(toy_rl.Trainer):\n    Config = toy_rl.TrainerConfig\n"
    source += "    tables = (('algorithm', 'toy_rl:AlgorithmConfig'), ('warmup', 'toy_rl:WarmupConfig'))\n"
    source += "    def train(self):\n        found = super().train()\n        os.kill(os.getpid(), signal.SIGTERM)\n"
    Path("mine.py").write_text(source + "        return found\n", encoding="utf-8")
    done = rlcore("run", "-p", "toy", "trainer.id=mine.py:Trainer", "--json")
    assert (done.status, json.loads(done.out)["finished"]) == (0, True)


REPEATED = """
import os, signal, threading, time, toy_rl
def repeat():
    while True:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.001)
class Trainer(toy_rl.Trainer):
    Config = toy_rl.TrainerConfig
    tables = (('algorithm', 'toy_rl:AlgorithmConfig'), ('warmup', 'toy_rl:WarmupConfig'))
    def train(self):
        threading.Thread(target=repeat, daemon=True).start()
        return super().train()
"""


def test_repeated_signals_until_the_end_of_the_process_change_nothing(toy: Any) -> None:
    Path("mine.py").write_text(REPEATED, encoding="utf-8")
    process = start(toy, "run", "-p", "toy", "trainer.id=mine.py:Trainer", "trainer.steps=50", "name=mine")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 143, err
    assert "stopped   resume with: " in out
    assert "terminated" not in err


def test_evaluation_without_a_score_fails(rlcore: Call) -> None:
    Path("mine.py").write_text(NOT_SCORED, encoding="utf-8")
    done = rlcore("eval", "-p", "toy", "sampler.id=mine.py:Sampler", "--json")
    assert done.status == 1
    found = json.loads(done.out)
    assert (found["finished"], found["scored"]) == (False, 0)
    assert "the judge is offline" in done.err
    done = rlcore("eval", "-p", "toy", "sampler.id=mine.py:Sampler")
    assert done.status == 1
    assert "no trajectory was scored" in done.out


def test_rescoring_without_a_score_fails(rlcore: Call) -> None:
    assert rlcore("run", "-p", "toy", "name=mine").status == 0
    Path("mine.py").write_text("def broken(trajectory, task):\n    raise OSError('offline')\n", encoding="utf-8")
    done = rlcore("data", "rescore", "runs/mine", "reward.0.id=mine.py:broken")
    assert done.status == 1
    assert "offline" in done.err
    assert rlcore("data", "rescore", "runs/mine").status == 0


@pytest.mark.parametrize("call", ["sys.exit(0)", "sys.exit()", "exit(0)", "sys.exit('bye')"])
@pytest.mark.parametrize("command", ["run", "eval"])
def test_component_that_ends_the_process_is_reported(toy: Any, command: str, call: str) -> None:
    Path("mine.py").write_text(EXITS.format(call=call), encoding="utf-8")
    process = start(toy, command, "-p", "toy", "data.id=mine.py:Data")
    out, err = process.communicate(timeout=60)
    assert process.returncode in (1, 2), out + err
    assert "error: a component tried to end the process" in err or "found  SystemExit" in err
    assert "mine.py:6" in err or "_sitebuiltins" in err
    assert "Traceback" not in err


def test_reward_that_ends_the_process_is_not_scored() -> None:
    def reward(trajectory: Trajectory, task: Task) -> float:
        sys.exit(0)

    turn = Turn(kind="policy", start=0, end=1, messages=(Message(role="assistant", content="x"),))
    segment = Segment(token_ids=(1,), loss_mask=(True,), logprobs=(0.0,), turns=(turn,))  # type: ignore[arg-type]
    trajectory = Trajectory(task_id="t", sibling=0, segments=(segment,))
    selected = SelectedReward(id="r", weight=1.0, scope="trajectory", function=reward, minimum=0.0, maximum=1.0)
    scorer = Scorer([selected], timeout_s=5)
    with exits_reported():
        scored = asyncio.run(scorer.score(trajectory, Task(id="t", messages=())))
    assert scored.rewards["r"].value is None
    assert "test_exit_status.py" in (scored.rewards["r"].error or "")


@pytest.mark.parametrize("answer", ["None", "3", "[1]", "{'a': 'x'}", "{'a': 10**400}", "iter([])", "{1: 2}", "object"])
def test_wrong_answer_of_a_trainer_does_not_fail_a_complete_run(rlcore: Call, answer: str) -> None:
    source = "import toy_rl\nclass Mine(toy_rl.Trainer):\n    Config = toy_rl.TrainerConfig\n"
    source += "    tables = (('algorithm', 'toy_rl:AlgorithmConfig'), ('warmup', 'toy_rl:WarmupConfig'))\n"
    source += f"    def train(self):\n        super().train()\n        return {answer}\n"
    Path("mine.py").write_text(source, encoding="utf-8")
    done = rlcore("run", "-p", "toy", "trainer.id=mine.py:Mine", "--json")
    assert done.status == 0, done.err
    assert json.loads(done.out)["metrics"] == {}
    assert ("train of trainer 'mine.py:Mine' must return" in done.err) == (answer != "{1: 2}")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UserError("bad"), 2),
        (NotScoredError("nothing"), 1),
        (EngineError("dead"), 1),
        (ProcessError("gone"), 1),
        (ComponentExitError("exit"), 1),
        (KeyboardInterrupt(), 130),
        (click.UsageError("no"), 2),
    ],
)
def test_status_of_each_error(error: BaseException, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def fail() -> None:
        raise error

    monkeypatch.setattr(sys, "argv", ["fail"])
    assert exit_status(fail, "fail") == status


def test_help_lists_the_exit_statuses(rlcore: Call) -> None:
    shown = rlcore("--help").out
    assert all(line.strip() in shown for line in EXIT_STATUS.splitlines()[1:])
