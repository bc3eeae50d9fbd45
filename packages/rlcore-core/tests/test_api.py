"""``rlcore.train``, ``evaluate`` and ``load_run`` in a process that goes on, on a throwaway plugin."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import sys
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rlcore
from rlcore.errors import ComponentExitError
from rlcore.report.notebook import page
from rlcore.session.exits import exits_with

pytestmark = pytest.mark.usefixtures("toy")


def recorded(run: rlcore.Run) -> str:
    return (run.path / "config.toml").read_text(encoding="utf-8")


def write_trainer(*lines: str) -> str:
    """A trainer that runs some lines before it trains, as an import path."""
    head = ["import logging, os, signal, sys, threading, toy_rl", "class Mine(toy_rl.Trainer):"]
    head += ["    Config = toy_rl.TrainerConfig"]
    head += ["    tables = (('algorithm', 'toy_rl:AlgorithmConfig'), ('warmup', 'toy_rl:WarmupConfig'))"]
    body = ["    def train(self):", *(f"        {line}" for line in lines), "        return super().train()"]
    Path("mine.py").write_text("\n".join([*head, *body]) + "\n", encoding="utf-8")
    return "mine.py:Mine"


def after(seconds: float, *numbers: signal.Signals) -> None:
    """Send signals to this process, so far apart that they are not the same one."""
    for place, number in enumerate(numbers):
        timer = threading.Timer(seconds + 1.2 * place, os.kill, [os.getpid(), number])
        timer.daemon = True
        timer.start()


def test_run_has_metrics_trajectories_and_checkpoints() -> None:
    run = rlcore.train("toy", seed=4)
    assert run == rlcore.load_run(run.path) == rlcore.load_run(f"{run.path}/checkpoints/000002")
    assert run.config["seed"] == 4
    assert run.metrics["reward/mean"] == {1: 0.1, 2: 0.2, 3: 0.3}
    assert [row["step"] for row in run.metrics.rows] == [1, 2, 3]
    assert "time" not in run.metrics
    assert len(list(run.trajectories())) == 12
    assert {group.task.id for group in run.trajectories("train", step=2).groups()} == {"train-0", "train-1"}
    assert list(run.trajectories("evaluation")) == []
    assert [path.name for path in run.checkpoints] == ["000001", "000002", "000003"]
    assert run.best_checkpoint == run.last_checkpoint == run.path / "checkpoints" / "000003"
    assert "reward  0.300" in run.log.read_text(encoding="utf-8")


def test_keyword_arguments_are_tables_or_dotted_keys() -> None:
    overrides: dict[str, Any] = {"trainer": {"steps": 1}, "reward.length.weight": 0.5, "runs": Path("elsewhere")}
    run = rlcore.train("toy", **overrides, environment={"tools": ("adder",)}, name="3", trackers={"use": ["jsonl"]})
    assert run.path == Path("elsewhere/3")
    tree = tomllib.loads(recorded(run))
    assert tree["trainer"]["steps"] == 1
    assert [reward["weight"] for reward in tree["reward"]] == [1.0, 0.5]
    assert "# Python: trainer.steps=1" in recorded(run)
    asked = tomllib.loads((run.path / "asked.toml").read_text(encoding="utf-8"))
    assert "trainer.steps=1" in asked["overrides"]
    command = json.loads((run.path / "environment.json").read_text(encoding="utf-8"))["argv"]
    assert command[:4] == ["rlcore", "run", "-p", "toy"]


def test_recorded_command_starts_the_same_run(rlcore: Callable[..., Any]) -> None:
    from rlcore import load_run, train  # the fixture has the name of the module

    run = train("toy", recipe="other", trainer={"steps": 2}, environment={"max_turns": 5}, name="first")
    command = json.loads((run.path / "environment.json").read_text(encoding="utf-8"))["argv"]
    again = rlcore(*command[1:], "name=again")
    assert again.status == 0, again.err
    assert load_run("runs/again").config == {**run.config, "name": "again"}


def test_all_mistakes_are_reported_with_their_origin() -> None:
    with pytest.raises(rlcore.ConfigError) as caught:
        rlcore.train("toy", trainer={"stepz": 1, "learning_rate": "high"})
    message = str(caught.value)
    assert "from Python: trainer.stepz=1" in message
    assert "trainer.steps" in message
    assert 'from Python: trainer.learning_rate="high"' in message
    assert not Path("runs").exists()


def test_values_that_are_no_data_are_reported() -> None:
    with pytest.raises(rlcore.ConfigError) as caught:
        rlcore.train("toy", reward=test_values_that_are_no_data_are_reported, trainer={"ste=ps": 1, "steps": {1}})
    assert [line.split()[2] for line in str(caught.value).splitlines() if "bad override" in line] == [
        "reward",
        "trainer.ste=ps",
        "trainer.steps",
    ]


def test_images_in_memory_are_refused_with_the_way_to_give_them() -> None:
    image = pytest.importorskip("PIL.Image").new("RGB", (4, 4))
    with pytest.raises(rlcore.ConfigError, match=r"(?s)data\.train.*data\.id=file\.py:Class"):
        rlcore.train("toy", data={"train": [{"prompt": "Which colour?", "images": [image]}]})


def test_secret_is_masked_in_what_is_recorded() -> None:
    run = rlcore.train("toy", trainer={"steps": 1}, **{"reward.exact.api_key": "swordfish-9000"})
    assert not [path for path in run.path.rglob("*") if path.is_file() and b"swordfish" in path.read_bytes()]


def test_missing_plugin_and_conflicting_arguments_are_user_errors() -> None:
    with pytest.raises(rlcore.UserError):
        rlcore.train("toyy")
    with pytest.raises(rlcore.UserError):
        rlcore.train("toy", resume="runs/x")
    with pytest.raises(rlcore.UserError):
        rlcore.train()


def test_failed_training_raises_and_keeps_the_run() -> None:
    with pytest.raises(ZeroDivisionError):
        rlcore.train("toy", trainer={"fail": "bug"}, name="it")
    assert "ZeroDivisionError" in rlcore.load_run("runs/it").log.read_text(encoding="utf-8")


def test_interrupt_stops_after_the_step_and_the_run_continues(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    after(0.7, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match="resume='runs/it'"):
        rlcore.train("toy", trainer={"steps": 9, "slow_s": 0.5}, name="it")
    assert signal.getsignal(signal.SIGINT) is before
    done = len(rlcore.load_run("runs/it").metrics.rows)
    assert 0 < done < 9
    run = rlcore.train(resume="runs/it", trainer={"steps": 9, "slow_s": 0})
    assert list(run.metrics["reward/mean"]) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert f"from step {done}" in capsys.readouterr().out
    assert rlcore.train(resume=run, trainer={"steps": 10}).metrics["accuracy"][10] == 1.0


def test_second_interrupt_stops_within_the_step() -> None:
    after(1.0, signal.SIGINT, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        rlcore.train("toy", trainer={"steps": 1, "slow_s": 30}, name="it")
    assert rlcore.train(resume="runs/it", trainer={"steps": 2, "slow_s": 0}).last_checkpoint is not None


def test_other_signals_and_exits_stay_those_of_the_process() -> None:
    exit_before, term_before = os._exit, signal.getsignal(signal.SIGTERM)
    id = write_trainer("self.run.say(f'{os._exit is sys.EXIT} {signal.getsignal(signal.SIGTERM) is sys.TERM}')")
    sys.EXIT, sys.TERM = exit_before, term_before  # type: ignore[attr-defined]
    assert "True True" in rlcore.train("toy", trainer={"id": id}).log.read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_component_that_exits_does_not_end_the_process() -> None:
    with pytest.raises(ComponentExitError, match=r"mine\.py"):
        rlcore.train("toy", trainer={"id": write_trainer("sys.exit(3)")})


def test_calling_process_is_left_as_it_was() -> None:
    def state() -> dict[str, object]:
        return {
            "variables": dict(os.environ),
            "logging": (list(logging.root.handlers), logging.lastResort, logging.root.manager.disable),
            "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)],
            "streams": (sys.stdout, sys.stderr, sys.excepthook, os._exit),
            "folder": os.getcwd(),
            "arguments": list(sys.argv),
            "threads": {thread for thread in threading.enumerate() if thread.name != "rlcore-slow-plugins"},
        }

    rlcore.train("toy")
    before = state()
    exits_with(130)  # as the command does in this process when its run is stopped
    run = rlcore.train("toy")
    rlcore.evaluate(run)
    with pytest.raises(rlcore.UserError):
        rlcore.train("toy", trainer={"fail": "input"})
    assert state() == before


@pytest.mark.parametrize("how", ["loop", "thread"])
def test_training_and_evaluation_work_in_a_loop_and_in_a_thread(how: str) -> None:
    async def both() -> tuple[rlcore.Run, rlcore.Evaluation]:
        if how == "thread":
            run = await asyncio.to_thread(rlcore.train, "toy", trainer={"steps": 1})
            return run, await asyncio.to_thread(rlcore.evaluate, run)
        run = rlcore.train("toy", trainer={"steps": 1})
        return run, rlcore.evaluate(run)

    run, evaluation = asyncio.run(both())
    assert run.metrics["accuracy"] == {1: 0.1}
    assert evaluation.accuracy == 0.5


def test_evaluation_of_a_run_a_path_and_a_plugin() -> None:
    run = rlcore.train("toy", trainer={"steps": 1}, name="it")
    of_run = rlcore.evaluate(run, evaluation={"tasks": 2})
    assert (of_run.accuracy, of_run.summary.tasks) == (0.5, 2)
    assert of_run.interval is not None
    assert Path(of_run.model).resolve() == (run.path / "checkpoints" / "000001" / "model").resolve()
    assert [trajectory.reward for trajectory in of_run.trajectories] == [0.0, 1.0]
    assert next(of_run.trajectories.rows())["purpose"] == "evaluation"
    for policy in ("runs/it", Path("runs/it"), run.best_checkpoint):
        assert rlcore.evaluate(policy).accuracy == 0.5
    assert rlcore.evaluate("toy", model=run.best_checkpoint / "model", split="train").accuracy == 0.5  # type: ignore[operator]
    with pytest.raises(rlcore.UserError):
        rlcore.evaluate("runs/missing")


def test_run_with_deleted_rollouts_has_no_trajectories() -> None:
    run = rlcore.train("toy", trainer={"steps": 1})
    shutil.rmtree(run.path / "rollouts")
    assert list(run.trajectories()) == []


def test_concurrent_calls_leave_the_logging_as_it_was() -> None:
    before = logging.lastResort
    names = ("a", "b", "c")
    threads = [
        threading.Thread(target=rlcore.train, args=("toy",), kwargs={"name": name, "trainer": {"slow_s": 0.05}})
        for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert logging.lastResort is before
    assert [len(rlcore.load_run(f"runs/{name}").metrics.rows) for name in names] == [3, 3, 3]


def test_folder_without_a_run_is_reported(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(rlcore.UserError, match="not a run directory"):
            rlcore.load_run(path)


def test_strategy_with_several_processes_names_the_command() -> None:
    with pytest.raises(rlcore.UserError, match="rlcore run -p toy"):
        rlcore.train("toy", strategy="many")


def test_missing_data_frame_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    run = rlcore.train("toy", trainer={"steps": 1})
    for name in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, name, None)
        for table in (run.metrics, run.trajectories()):
            with pytest.raises(rlcore.NotInstalledError, match=name):
                getattr(table, f"to_{name}")()


def test_notebook_shows_tables_without_markup_from_data() -> None:
    assert "&lt;script&gt;" in page("a", [("<script>", "\x1b[31m")])
    assert "\x1b" not in page("a", [("b", "\x1b[31m")])
    run = rlcore.train("toy", name="it")
    shown = run._repr_html_()
    assert "runs/it/checkpoints/000003" in shown
    assert shown.count("<svg") == 2
    assert "0.500" in rlcore.evaluate(run)._repr_html_()
