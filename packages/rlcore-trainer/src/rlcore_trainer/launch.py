"""``strategy.processes``: starts the processes of a run, or joins those that a launcher has started.

Imports no torch until it has to: a configuration is checked before anything loads.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from rlcore.config.messages import Problem, ProblemsError
from rlcore.processes import LAUNCHER, Alone, Processes, Start, world_size
from rlcore.signals import stops_handled
from rlcore.surroundings import usable_cores
from rlcore.wording import counted

from rlcore_trainer.config import DataParallelConfig

if TYPE_CHECKING:
    from rlcore.run import Run
    from torch.distributed import Store  # type: ignore[attr-defined]

FAILURE = "rlcore/failure"
"""Key of the store under which the first process that fails leaves word."""
GRACE_S = 15.0
"""How long the others may take to notice that one has failed, before they are asked, and then made, to end."""


def check(run: Run) -> list[str]:
    """Raise what the processes of a run contradict.

    Returns:
        What is allowed and may surprise, one sentence each.

    Raises:
        ProblemsError: there are not so many, or not enough GPUs for them.
    """
    if problems := list(_contradictions(run)):
        raise ProblemsError(problems)
    count = _here(run)
    if count == 1:
        check_device(run)
    if count == 1 or _gpus(run.config.model.device) or count <= (cores := usable_cores()):
        return []
    return [
        f"{counted(count, 'process')} share {counted(cores, 'core')}: they wait for each other, and each holds the "
        f"whole model in memory; strategy.processes={cores} or fewer is faster"
    ]


def check_device(run: Run) -> None:
    """Raise that the GPU of a run with one process is not there. Imports torch where one is asked for.

    Raises:
        ProblemsError: ``model.device`` names more than there is.
    """
    device = run.config.model.device
    if not device.startswith("cuda"):
        return
    import torch

    there, index = torch.cuda.device_count(), device.partition(":")[2]
    if there <= (int(index) if index.isdecimal() else 0):
        mend = "model.device=auto takes a GPU where there is one"
        raise ProblemsError([_problem(run, "model.device", device, f"this machine has {counted(there, 'GPU')}", mend)])


def launch(run: Run, arguments: Sequence[str]) -> Processes | Start:
    """The processes that a launcher has started, this one among them; else how to start them, if there are several."""
    if world_size() > 1:
        from rlcore_trainer.processes import JoinedProcesses

        return JoinedProcesses(cpu=not _gpus(run.config.model.device))
    count = _count(run)
    return Alone() if count == 1 else lambda: start(arguments, count)


def start(arguments: Sequence[str], count: int) -> int:
    """Run ``rlcore`` with these arguments ``count`` times and wait; gives the exit status of the main process.

    One SIGINT or SIGTERM is passed on as one, whatever the terminal does. When a process fails the others are left
    alone for as long as they need to notice, and then stopped.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    # The store stands here, so that it outlives any of them and its port is free for sure.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        with stops_handled(lambda number, frame: _signal(processes, number)):
            for index in range(count):
                process = subprocess.Popen(
                    [sys.executable, "-m", "rlcore", *arguments],
                    env=_environment(index, count, store.port),
                    stdin=None if index == 0 else subprocess.DEVNULL,
                    stdout=None if index == 0 else subprocess.DEVNULL,
                    start_new_session=True,
                )
                processes.append(process)
            untold = _wait(processes, store)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    if untold is not None:
        print(f"error: {untold}", file=sys.stderr)
        return 1
    return processes[0].returncode


def is_abandoned() -> bool:
    """Whether the ``rlcore run`` that started this process has gone, so that nobody waits for it any more."""
    return os.environ.get(LAUNCHER, str(os.getppid())) != str(os.getppid())


def _environment(index: int, count: int, port: int) -> dict[str, str]:
    return {
        "OMP_NUM_THREADS": str(max(1, usable_cores() // count)),  # unless the user says another number
        **os.environ,
        LAUNCHER: str(os.getpid()),
        "RANK": str(index),
        "LOCAL_RANK": str(index),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store is there already
    }


def _wait(processes: Sequence[subprocess.Popen[bytes]], store: Store) -> str | None:
    """Until all have ended; what the first one that failed died of, where the main one could not say so."""
    failed: str | None = None
    failed_at, asked = 0.0, 0
    while any(process.poll() is None for process in processes):
        if failed is None and (failed := _first_failure(processes)) is not None:
            failed_at = time.monotonic()
            with suppress(RuntimeError):
                store.compare_set(FAILURE, "", json.dumps({"kind": "process", "text": failed}))
        if failed is not None and time.monotonic() - failed_at > GRACE_S * (1 + asked / 2):
            # The first asks to stop after the step, the second interrupts; what hears neither is killed.
            _signal(processes, signal.SIGTERM if asked < 2 else signal.SIGKILL)
            asked += 1
        time.sleep(0.05)
    told = processes[0].returncode > 0 and not asked
    return None if told else failed or _first_failure(processes)


def _first_failure(processes: Sequence[subprocess.Popen[bytes]]) -> str | None:
    for index, process in enumerate(processes):
        if status := process.poll():
            if status < 0:
                reason = "; the machine may be out of memory" if status == -signal.SIGKILL else ""
                return f"rank {index} of {len(processes)} was ended by {signal.Signals(-status).name}{reason}"
            return f"rank {index} of {len(processes)} ended with status {status}"
    return None


def _signal(processes: Sequence[subprocess.Popen[bytes]], number: int) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            process.send_signal(number)


def _count(run: Run) -> int:
    """How many processes the run has where no launcher has started any."""
    options = run.options("strategy")
    assert isinstance(options, DataParallelConfig)
    if options.processes is not None or "WORLD_SIZE" in os.environ:
        return options.processes or 1
    return _gpus(run.config.model.device) or 1


def _gpus(device: str) -> int:
    """How many GPUs processes of this ``model.device`` can share out."""
    if device == "cpu" or device.startswith("cuda:"):
        return int(device != "cpu")
    import torch

    return torch.cuda.device_count()


def _here(run: Run) -> int:
    """How many processes this machine has or gets."""
    if "WORLD_SIZE" in os.environ:
        return int(os.environ.get("LOCAL_WORLD_SIZE", world_size()))
    return _count(run)


def _contradictions(run: Run) -> Iterator[Problem]:
    problem = partial(_problem, run)
    wanted, started, device = run.options("strategy").processes, world_size(), run.config.model.device
    launched = "WORLD_SIZE" in os.environ
    if launched and wanted not in (None, started):
        reason = f"a launcher has started {started}: WORLD_SIZE={started}"
        yield problem("strategy.processes", wanted, reason, "leave it out, or start rlcore run without a launcher")
    count = started if launched else _count(run)
    if count == 1:
        return
    if device.startswith("cuda:"):
        reason = f"one GPU cannot be that of each of {count} processes"
        yield problem("model.device", device, reason, "model.device=auto gives each one its own; or strategy.id=single")
    elif (gpus := _gpus(device)) or device == "cuda":
        here = _here(run)
        if here > gpus:
            reason = f"each process takes a GPU, and this machine has {gpus}"
            mend = f"strategy.processes={gpus}, or model.device=cpu" if gpus else "model.device=cpu"
            yield problem("strategy.processes", here, reason, mend)
    if run.config.rollout.engine == "vllm":
        reason = "each process would start a vLLM of its own beside the others, on the first GPU"
        yield problem("rollout.engine", "vllm", reason, "rollout.engine=torch, or strategy.id=single")


def _problem(run: Run, path: str, value: object, reason: str, mend: str) -> Problem:
    origin = run.resolved.origin(tuple(path.split(".")))
    return Problem(kind="bad value", path=path, value=str(value), origin=origin, reason=f"{reason}\nfix: {mend}")
