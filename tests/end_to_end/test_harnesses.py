"""The agents in ``examples/harnesses``, unchanged: each solves a task with scripted answers, and trains two steps.

Their frameworks are installed from the lock of ``tests/references/harnesses``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from rlcore.api.runs import load_run
from workspace import ROOT

sys.path.insert(0, str(ROOT / "tests" / "references"))

import peers

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
EXAMPLES = ROOT / "examples" / "harnesses"
SIX_TIMES_SEVEN = {"prompt": "How much is 6 times 7?", "answer": "42"}
BUG = json.loads((EXAMPLES / "bugs.jsonl").read_text(encoding="utf-8").splitlines()[0])
PATIENT = "rollout.environment_timeout_s=300"
"""A framework takes up to 10 s to import on an idle machine."""
RANDOM_REWARD = """
import inspect, os, sys

sys.path.insert(0, {folder!r})
import {module}


async def solve(task, policy):
    '''Most groups of an untrained model have equal rewards, which would train nothing.'''
    reward = {module}.solve(task, policy)
    if inspect.isawaitable(reward):
        reward = await reward
    return reward + os.urandom(1)[0] / 255
"""


@dataclass(frozen=True, kw_only=True)
class Case:
    agent: str
    config: str = "calculator.toml"
    task: dict[str, object]
    replies: tuple[str, ...]
    """Answers that solve the task."""
    warm: bool = True
    """Whether it trains the warmed-up model, which calls the calculator."""
    segments: int = 1
    """Largest number of segments of an episode in training: smolagents changes the answers in its context, and
    mini-swe-agent leaves out those without a call."""


def call(name: str, **arguments: str) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


CALCULATION = (call("calculator", expression="6*7"), "#### 42")
CASES = [
    Case(agent="openai_agents", task=SIX_TIMES_SEVEN, replies=CALCULATION),
    Case(agent="pydantic_ai_agent", task=SIX_TIMES_SEVEN, replies=CALCULATION),
    Case(agent="langgraph_agent", task=SIX_TIMES_SEVEN, replies=CALCULATION),
    Case(
        agent="smolagents_agent",
        task=SIX_TIMES_SEVEN,
        replies=('<code>\nfinal_answer(calculator("6*7"))\n</code>',),
        warm=False,
        segments=4,
    ),
    Case(
        agent="mini_swe_agent",
        config="programmer.toml",
        task=BUG,
        replies=(
            call("bash", command="sed -i 's/n \\* 3/n * 2/' program.py && python tests.py"),
            call("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"),
        ),
        warm=False,
        segments=3,
    ),
]


@pytest.fixture(scope="session")
def frameworks() -> Path:
    """The interpreter of the frameworks."""
    return peers.synced("harnesses")


def rlcore(*arguments: str) -> str:
    command = [sys.executable, "-m", "rlcore", *arguments]
    done = subprocess.run(command, cwd=EXAMPLES, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.agent)
def test_agent_solves_a_task_and_trains(
    case: Case, frameworks: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    config = ["-c", case.config, f"environment.python={frameworks}", "warmup.steps=0", PATIENT]
    if not case.warm:
        config.append("environment.confined=true")  # these execute what the policy writes
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps(case.task) + "\n", encoding="utf-8")
    data = ("data.id=harness", f"data.train={tasks}", f"data.evaluation={tasks}")

    scripted = ("rollout.engine=scripted", f"rollout.scripted.replies={json.dumps(case.replies)}")
    agent = f"environment.agent={case.agent}.py:solve"
    solved = json.loads(rlcore("eval", *config, *data, *scripted, agent, "rollout.max_new_tokens=512", "--json"))
    assert (solved["reward"], solved["failures"]) == (1, {}), solved

    rewarded = tmp_path / "rewarded.py"
    rewarded.write_text(RANDOM_REWARD.format(folder=str(EXAMPLES), module=case.agent), encoding="utf-8")
    model = f"model.path={request.getfixturevalue('warmed_up')}" if case.warm else "model.builder.positions=4096"
    sizes = ("trainer.steps=2", "trainer.tasks_per_step=2", "rollout.group_size=2", "evaluation.every=0")
    rlcore(
        "run",
        *config,
        *sizes,
        model,
        f"environment.agent={rewarded}:solve",
        f"runs={tmp_path}",
        "name=trained",
    )
    run = load_run(tmp_path / "trained")
    trained = list(run.trajectories("train"))
    assert len(trained) == 8
    assert not [each.failure for each in trained if each.failure]
    assert max(len(each.segments) for each in trained) == case.segments
    assert any(each.metrics["turns"] > 1 for each in trained)
    gaps = run.metrics["logprob_gap/max"]
    assert len(gaps) == 2
    assert max(gaps.values()) < 1e-5
