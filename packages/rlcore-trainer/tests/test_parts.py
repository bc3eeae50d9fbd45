"""The parts of a run without a session of a run, and calls in several processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from bandit_sampler import BAD, GOOD, BanditSampler
from rlcore.errors import EngineError
from rlcore.plugins.registry import Registry
from rlcore.runs.machine import PhaseMemory
from rlcore.runs.progress import Meter
from rlcore.types import Group, Message, RolloutRequest, Task
from rlcore_trainer.algorithms.config import AlgorithmConfig
from rlcore_trainer.algorithms.configured import configured
from rlcore_trainer.config import PolicyGradientConfig
from rlcore_trainer.controller.collection import Collector
from rlcore_trainer.controller.controller import Controller
from rlcore_trainer.controller.rollouts import Rollouts
from rlcore_trainer.controller.schedule import Schedule
from rlcore_trainer.controller.session import TrainingSession
from rlcore_trainer.controller.updates import PolicyUpdate
from rlcore_trainer.distributed.config import SingleProcessConfig
from rlcore_trainer.distributed.ranks import Ranks
from rlcore_trainer.distributed.strategies.single import SingleProcess
from rlcore_trainer.learner.learner import Learner, offer_reinforcement
from rlcore_trainer.learner.objective import Objective
from rlcore_trainer.learner.policy_learner import PolicyLearner
from rlcore_trainer.learner.trained_policy import TrainedPolicy, unshown
from rlcore_trainer.policy.causal_lm import CausalLanguageModel
from two_processes import two_processes

CONFIG = PolicyGradientConfig(steps=12, tasks_per_step=4, learning_rate=0.01)
ALGORITHM = AlgorithmConfig(rollout_importance_sampling={"mode": "none"})
REGISTRY = Registry()
ADVANTAGE, LOSS = (
    configured(id, REGISTRY.load(kind, id), (REGISTRY.config_model(kind, id) or dict)())
    for kind, id in (("advantage", "grpo"), ("loss", "clip"))
)
TASKS = [Task(id=str(i), messages=(Message(role="user", content=f"w{i}"),)) for i in range(10)]


class Shown:
    """A report that stores what happens."""

    def __init__(self) -> None:
        self.logged: dict[int, Mapping[str, float]] = {}
        self.recorded: list[tuple[int, str]] = []

    def say(self, *lines: str) -> None: ...

    def update(self, line: str) -> None: ...

    def progress(self, phase: str, total: int, unit: str) -> Meter:
        return unshown(phase, total, unit)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.logged[step] = metrics

    def record(self, step: int, purpose: str, groups: Sequence[Group]) -> None:
        self.recorded.append((step, purpose))

    def checkpoint_saved(self, step: int, path: Path) -> None: ...


class Parts:
    """A learner, a sampler and a report, without a plan."""

    def __init__(self, folder: Path, *, engine_fails: Callable[[int], bool] = lambda request: False) -> None:
        strategy = SingleProcess(SingleProcessConfig())
        policy = CausalLanguageModel.load(folder, dtype="float32", device=torch.device("cpu"))
        trained = TrainedPolicy(policy, strategy, CONFIG)
        ranks = Ranks(strategy.processes)
        objective = Objective(LOSS, ALGORITHM, comparable=True)
        offer_reinforcement(ranks, PolicyLearner(trained, None, None, objective, CONFIG))
        self.learner, self.report = Learner(ranks, CONFIG.max_tokens_per_batch), Shown()
        self.session = TrainingSession(trained, ranks, self.report)
        told = SimpleNamespace(
            engine_fails=engine_fails, fails=lambda *_: False, sync_fails=lambda _: False, forgotten="", stop_after=None
        )
        self.bandit = BanditSampler(told, trained.policy)
        self.rollouts = Rollouts(
            self.bandit,
            self.session,
            self.report,
            evaluation=lambda tasks: RolloutRequest(tasks=tasks, group_size=4, seed=0, step=0, purpose="evaluation"),
        )


def test_controller_learns_without_a_session_of_a_run(model_folder: Path) -> None:
    parts = Parts(model_folder)
    collector = Collector(TASKS, trainer=CONFIG, filter=ALGORITHM.filter, group_size=4, seed=0, success=1.0)
    controller = Controller(
        collector=collector,
        rollouts=parts.rollouts,
        update=PolicyUpdate(parts.learner, ADVANTAGE, LOSS, CONFIG, ALGORITHM),
        session=parts.session,
        report=parts.report,
        memory=PhaseMemory("cpu"),
        schedule=Schedule(steps=12, learning_rate=lambda step: 0.01, evaluate_every=6, evaluation_tasks=TASKS[:3]),
    )
    metrics = controller.train()
    assert parts.session.progress.step == 12
    assert parts.report.logged[1]["accuracy"] < metrics["accuracy"]
    assert metrics["evaluation/accuracy"] > 0.8
    assert parts.report.recorded[:2] == [(0, "evaluation"), (1, "train")]


def test_sampler_retries_a_failed_engine_once(model_folder: Path) -> None:
    parts = Parts(model_folder, engine_fails=lambda request: request == 1)
    parts.rollouts.sync(0)
    request = RolloutRequest(tasks=TASKS[:3], group_size=2, seed=0, step=1)
    groups = parts.rollouts.collect(request)
    assert groups is not None
    assert [group.task.id for group in groups] == ["0", "1", "2"]
    assert {only for group in groups for t in group.trajectories for only in t.segments[0].token_ids[2:]} <= {GOOD, BAD}
    parts = Parts(model_folder, engine_fails=lambda request: True)
    parts.rollouts.sync(0)
    with pytest.raises(EngineError):
        parts.rollouts.collect(request)


CALLS = """
import sys
from rlcore.errors import EngineError, UserError
from rlcore_trainer.distributed.processes import JoinedProcesses
from rlcore_trainer.distributed.ranks import Ranks

processes = JoinedProcesses(cpu=True)
rank = processes.rank.index
ranks = Ranks(processes, lambda: rank == 1)

def fails(where):
    if rank == where:
        raise EngineError("the engine died")
    return rank

ranks.offer(double=lambda number: 2 * number, total=lambda: processes.sum({"rank": rank})["rank"], fails=fails)
with ranks:
    if not ranks.is_main:
        ranks.serve()
    else:
        said = [ranks.stopping(), ranks.call("double", [(3,), (4,)]), ranks.call_all("total"), ranks.stopping()]
        for where in (0, 1):
            try:
                ranks.call_all("fails", where, separate=True)
            except EngineError as error:
                said.append(str(error))
        said.append(ranks.call_all("fails", 2, separate=True))
        print(said)
processes.end(None)
"""


@pytest.mark.slow
def test_calls_in_two_processes() -> None:
    with two_processes(CALLS) as started:
        (said, errors), (other, other_errors) = (process.communicate(timeout=120) for process in started)
        died = "'the engine died', 'rank 1 of 2 failed: the engine died'"
        assert said == f"[False, [6, 8], [1, 1], True, {died}, [0, 1]]\n", said + errors
        assert (other, [process.returncode for process in started]) == ("", [0, 0]), other_errors
