"""A run among several processes: how it starts them, and what only the main one does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlcore.runs.directory import RunDirectory
from rlcore.session.processes import LAUNCHER, rank, speaks_first, world_size

Call = Callable[..., Any]
MANY = ("run", "-p", "toy", "strategy.id=many")


@pytest.fixture(autouse=True)
def _nobody_has_launched_us(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "ACCELERATE_USE_CPU", LAUNCHER):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def join(rlcore: Call) -> Callable[[bool], Any]:
    """Makes the process of the test one of several."""

    def joined(is_main: bool) -> Any:
        rlcore("run", "-p", "toy", "--dry-run")  # imports the plugin
        toy = sys.modules["toy_rl"]
        toy.JOINED = toy.Joined(is_main)
        return toy.JOINED

    return joined


def test_processes_are_started_with_the_given_arguments(rlcore: Call) -> None:
    done = rlcore(*MANY)
    assert (done.status, done.out, done.err) == (7, "", "")
    assert sys.modules["toy_rl"].STARTED == [MANY]
    assert not Path("runs").exists()


def test_launcher_leaves_the_run_directory_to_the_processes(rlcore: Call) -> None:
    assert rlcore("run", "-p", "toy", "name=one").status == 0
    assert rlcore("run", "--resume", "runs/one", "strategy.id=many", "trainer.steps=5").status == 7
    RunDirectory.open(Path("runs/one")).close()


def test_main_process_works_like_a_single_process(
    rlcore: Call, join: Callable[[bool], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = join(True)
    done = rlcore(*MANY, "name=one")
    assert done.status == 0, done.err
    assert done.out.count("settings  ") == done.out.count("next  ") == 1
    assert "strategy  many, 1 process\n" in done.out
    assert "strategy  many, 1 process\n" in Path("runs/one/output.log").read_text("utf-8")
    join(True)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "strategy  many, 2 processes\n" in rlcore(*MANY, "name=two").out
    monkeypatch.delenv("WORLD_SIZE")
    assert "strategy" not in rlcore("run", "-p", "toy").out
    assert joined.ends == [None]


def test_other_processes_write_and_print_nothing(rlcore: Call, join: Callable[[bool], Any]) -> None:
    joined = join(False)
    done = rlcore(*MANY, "trainer.fail=input")
    assert (done.status, done.out, done.err) == (2, "", "")
    assert not Path("runs").exists()
    assert sys.modules["toy_rl"].TOLD == []
    (error,) = joined.ends
    assert str(error) == "row 3 has no answer"


def test_error_in_another_process_is_reported(rlcore: Call, join: Callable[[bool], Any]) -> None:
    joined = join(False)
    with pytest.raises(ZeroDivisionError):
        rlcore(*MANY, "trainer.fail=bug")
    assert [type(error) for error in joined.ends] == [ZeroDivisionError]


def test_single_process_strategy_rejects_several_processes(rlcore: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    done = rlcore("run", "-p", "toy", "--dry-run")
    assert done.status == 2
    assert "the strategy 'single' supports one process" in done.err
    assert rlcore(*MANY, "--dry-run").status == 0


@pytest.mark.parametrize("wrong", ["strategy.id=single", "trainer.step=3"])
def test_error_of_all_processes_is_printed_once(rlcore: Call, monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for number in ("0", "1"):
        monkeypatch.setenv("RANK", number)
        monkeypatch.setenv("LOCAL_RANK", number)
        done = rlcore("run", "-p", "toy", wrong)
        assert (done.status, bool(done.err)) == (2, number == "0")
    assert (done.out, done.err) == ("", "")


@pytest.mark.parametrize("strategy", ["single", "many"])
def test_unconnected_accelerate_process_is_rejected(
    rlcore: Call, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    given = ("run", "-p", "toy", f"strategy.id={strategy}", "--dry-run")
    monkeypatch.setenv("ACCELERATE_USE_CPU", "True")
    assert rlcore(*given).status == 0
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29500")
    done = rlcore(*given)
    assert done.status == 2
    assert "accelerate launch was asked for several processes" in done.err
    assert "strategy.processes=2" in done.err
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert rlcore(*given).status == 0


def test_process_index_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (rank(), world_size(), speaks_first()) == (0, 1, True)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert (rank(), world_size(), speaks_first()) == (1, 4, False)
    monkeypatch.setenv("RANK", "0")
    assert speaks_first()
    monkeypatch.setenv(LAUNCHER, "17")
    assert not speaks_first()
