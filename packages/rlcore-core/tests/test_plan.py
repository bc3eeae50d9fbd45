"""A plan is a value: it survives pickling, copying and the way into another process."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rlcore.session.plan import RunPlan
from rlcore.session.session import RunSession

VALUES: dict[str, Any] = {
    "model": {"path": "builtin:tiny"},
    "environment": {"id": "toy", "max_turns": 2},
    "reward": [{"id": "length", "weight": 0.5}],
    "rollout": {"temperature": 0.1 + 0.2},
}
IN_A_FILE = """
from rlcore import Observation, Step, Table

class Echo:
    class Config(Table):
        loud: bool = False
    def __init__(self, config): self.config = config
    def reset(self, task, *, seed): return Observation(messages=task.messages)
    def step(self, action): return Step(terminated=True)
    def close(self): ...
"""


CHILD = """
import pickle
from pathlib import Path
from rlcore.session.session import RunSession

plan = pickle.loads(Path("plan.pickle").read_bytes())
run = RunSession(plan, is_main=False)
found = plan, plan.resolved.text(), repr(run.environment().config), len(run.dataset.tasks("train"))
Path("found.pickle").write_bytes(pickle.dumps(found))
"""


def test_pickled_or_copied_plan_is_equal(toy: Any) -> None:
    plan = RunPlan.of(VALUES).resuming(Path("runs/one/checkpoints/000020"))
    for other in (pickle.loads(pickle.dumps(plan)), copy.deepcopy(plan), copy.copy(plan)):
        assert other == plan
        assert other.resolved.text() == plan.resolved.text()
        assert other.resume_from == plan.resume_from
        assert other.config.rollout.temperature.hex() == (0.1 + 0.2).hex()
    assert copy.deepcopy(plan).config is not plan.config
    assert pickle.loads(pickle.dumps(RunPlan.of(VALUES, purpose="evaluation"))).purpose == "evaluation"


def test_plan_is_immutable(toy: Any) -> None:
    plan = RunPlan.of(VALUES)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.purpose = "evaluation"  # type: ignore[misc]
    assert not hasattr(plan, "__dict__")


@pytest.mark.parametrize("environment", ["toy", "mine.py:Echo"])
def test_another_process_can_start_from_a_plan(toy: Any, environment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (toy.work / "mine.py").write_text(IN_A_FILE, encoding="utf-8")
    table = {"id": environment, "loud": True} if environment != "toy" else VALUES["environment"]
    plan = RunPlan.of({**VALUES, "environment": table, "data": {"id": "toy"}})
    for name, value in toy.environment().items():
        monkeypatch.setenv(name, value)
    (toy.work / "plan.pickle").write_bytes(pickle.dumps(plan))
    subprocess.run([sys.executable, "-c", CHILD], cwd=toy.work, check=True, timeout=120)
    there, text, options, tasks = pickle.loads((toy.work / "found.pickle").read_bytes())
    run = RunSession(plan, is_main=False)
    made: Any = run.environment()
    assert there == plan
    assert (text, options, tasks) == (plan.resolved.text(), repr(made.config), len(run.dataset.tasks("train")))
