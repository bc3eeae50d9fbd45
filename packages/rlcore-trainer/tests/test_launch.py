"""What is refused before any process is started, and how the processes of a run are started and end."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rlcore.config.schema import RunConfig
from rlcore.session.processes import LAUNCHER, Alone
from rlcore_trainer.distributed import failures, launch
from rlcore_trainer.distributed.config import DataParallelConfig
from torch.distributed import TCPStore  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _nobody_has_launched_us(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", LAUNCHER):
        monkeypatch.delenv(name, raising=False)


def run(processes: int | None = None, device: str = "cpu") -> Any:
    values = {"model": {"path": "m", "device": device}, "environment": {"id": "e"}, "reward": [{"id": "r"}]}
    config = RunConfig(**values, strategy={"id": "ddp"})
    return SimpleNamespace(
        config=config,
        options=lambda table: {"strategy": DataParallelConfig(processes=processes)}[table],
    )


def problems(**wanted: Any) -> dict[str, str]:
    return {one.key: one.text for one in launch.check(run(**wanted)) if one.status == "fail"}


def notes(**wanted: Any) -> list[str]:
    return [one.text for one in launch.check(run(**wanted))]


@pytest.mark.parametrize("wanted", [{}, {"processes": 1}, {"processes": 8}, {"processes": 1, "device": "cuda:1"}])
def test_available_processes_and_devices_are_accepted(wanted: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert problems(**wanted) == {}


def test_unavailable_processes_and_devices_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "2 processes" in problems(processes=2, device="cuda:0")["model.device"]
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert problems(processes=2, device="auto") == {}
    assert "this machine has 2" in problems(processes=3, device="auto")["strategy.processes"]
    assert problems(processes=3, device="cpu") == {}
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert problems(processes=3, device="auto") == {}
    assert "this machine has 0" in problems(processes=3, device="cuda")["strategy.processes"]


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:2"])
def test_missing_gpu_is_rejected(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there = 2 if device == "cuda:2" else 0
    monkeypatch.setattr("torch.cuda.device_count", lambda: there)
    for check in (launch.check, launch.check_device):
        (found,) = check(run(processes=1, device=device))
        assert found.key == "model.device"
        assert f"this machine has {there} GPUs" in found.text
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    assert notes(processes=1, device=device) == []


def test_more_processes_than_cores_give_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "usable_cores", lambda: 2)
    assert notes() == notes(processes=2) == []
    (note,) = notes(processes=1000)
    assert "1,000 processes share 2 cores" in note
    assert "strategy.processes=2" in note
    monkeypatch.setenv("WORLD_SIZE", "6")
    assert "6 processes" in notes()[0]
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")  # the others are on other machines
    assert notes() == []
    monkeypatch.setattr("torch.cuda.device_count", lambda: 8)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "6")
    assert notes(device="auto") == []


def test_processes_of_a_launcher_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert problems() == problems(processes=2) == {}
    assert "WORLD_SIZE=2" in problems(processes=3)["strategy.processes"]
    # On several machines it is this machine's processes that need its GPUs.
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert "needs a GPU" in problems(device="auto")["strategy.processes"]
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert problems(device="auto") == {}


def test_only_several_processes_are_started(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(launch.launch(run(), ()), Alone)
    assert isinstance(launch.launch(run(processes=1), ()), Alone)
    assert callable(launch.launch(run(processes=2), ()))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert callable(launch.launch(run(device="auto"), ()))
    assert isinstance(launch.launch(run(device="cuda:1"), ()), Alone)


PROGRAM = """
import os, sys, time
rank = int(os.environ["RANK"])
print("rank", rank, "of", os.environ["WORLD_SIZE"], *sys.argv[1:])
{then}
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes ``python -m rlcore`` a program of the test."""

    def make(then: str, *, grace_s: float = 60.0) -> None:
        (tmp_path / "rlcore.py").write_text(PROGRAM.format(then=then), encoding="utf-8")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(launch, "GRACE_S", grace_s)

    return make


def test_processes_get_their_rank_and_only_the_main_one_prints(program: Any, capfd: Any) -> None:
    program("assert os.environ['RLCORE_LAUNCHER'] == str(os.getppid())\nsys.exit(7 if rank == 0 else 0)")
    assert launch.start(("run", "-p", "x"), 3) == 7
    assert capfd.readouterr() == ("rank 0 of 3 run -p x\n", "")


def test_killed_process_ends_the_others(program: Any, capfd: Any) -> None:
    program("os.kill(os.getpid(), 9) if rank == 1 else time.sleep(60)", grace_s=0.5)
    assert launch.start((), 2) == 1
    assert capfd.readouterr().err == "error: rank 1 of 2 was ended by SIGKILL; the machine may have run out of memory\n"


def test_main_process_reports_its_own_error(program: Any, capfd: Any) -> None:
    program("sys.stderr.write('error: so it is\\n') if rank == 0 else None\nsys.exit(2)")
    assert launch.start((), 2) == 2
    assert capfd.readouterr().err == "error: so it is\n"


def test_unresponsive_processes_are_killed(program: Any, capfd: Any) -> None:
    program(
        "import signal\nfor number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, signal.SIG_IGN)\n"
        "sys.exit(3) if rank == 1 else time.sleep(60)",
        grace_s=0.5,
    )
    assert launch.start((), 2) == 1
    assert capfd.readouterr().err == "error: rank 1 of 2 ended with status 3\n"


class Elsewhere:
    """A process that gets its signals when it is polled, and ends at SIGKILL."""

    def __init__(self, returncode: int | None = None) -> None:
        self.returncode = returncode
        self.asked: list[int] = []
        self.got: list[int] = []

    def poll(self) -> int | None:
        self.got += self.asked
        self.asked.clear()
        if signal.SIGKILL in self.got and self.returncode is None:
            self.returncode = -signal.SIGKILL
        return self.returncode

    def send_signal(self, number: int) -> None:
        self.asked.append(number)


def test_processes_elsewhere_get_their_signals_while_the_main_one_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "GRACE_S", 0.2)
    monkeypatch.setattr(launch, "WRITTEN_S", 0.1)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    main, failed, far = Elsewhere(), Elsewhere(3), Elsewhere()
    main.poll = lambda: 0 if signal.SIGKILL in far.got else None  # type: ignore[method-assign]
    assert launch._wait([main, failed, far], store) == "rank 1 of 3 ended with status 3"  # type: ignore[list-item]
    assert far.got == [signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGKILL]


def test_machine_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "GRACE_S", 0.1)
    monkeypatch.setattr(launch, "WRITTEN_S", 0.1)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    failed, cut = Elsewhere(1), Elsewhere()
    cut.poll = lambda: None  # type: ignore[method-assign]
    assert launch._wait([failed, cut], store) is not None  # type: ignore[list-item]


def test_signals_are_forwarded_to_all_processes(program: Any) -> None:
    program(
        "import signal, pathlib\ndef end(*_): sys.exit(5)\nsignal.signal(signal.SIGINT, end)\n"
        "pathlib.Path(str(rank)).touch()\n"
        "while not (pathlib.Path('0').exists() and pathlib.Path('1').exists()): time.sleep(0.01)\n"
        "os.kill(os.getppid(), signal.SIGINT) if rank == 1 else None\ntime.sleep(60)"
    )
    before = signal.getsignal(signal.SIGINT)
    assert launch.start((), 2) == 5
    assert signal.getsignal(signal.SIGINT) == before


def test_process_detects_that_its_launcher_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not failures.is_abandoned()
    monkeypatch.setenv(LAUNCHER, str(os.getppid()))
    assert not failures.is_abandoned()
    monkeypatch.setenv(LAUNCHER, "1")
    assert failures.is_abandoned()
