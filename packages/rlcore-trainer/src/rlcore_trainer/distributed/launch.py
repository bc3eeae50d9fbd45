"""Start the processes of a run, or join those started by a launcher.

Imports torch only when needed.
"""

from __future__ import annotations

import json
import math
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, cast

from rlcore.checks import Finding, failure, warning
from rlcore.console.terminal import say
from rlcore.console.wording import counted
from rlcore.runs.ray_cluster import check_address
from rlcore.runs.stacks import SIGNAL, WRITTEN_S
from rlcore.runs.surroundings import usable_cores
from rlcore.session.exits import stops_handled
from rlcore.session.processes import LAUNCHER, Alone, Processes, Start, world_size
from rlcore.specs import TrainerSpec

from rlcore_trainer.distributed.cluster_ranks import KEY, LOST, ClusterRanks, RemoteProcess
from rlcore_trainer.distributed.config import DataParallelConfig
from rlcore_trainer.distributed.failures import FAILURE
from rlcore_trainer.distributed.local_ranks import LocalRanks, RankProcess, rank_variables

if TYPE_CHECKING:
    from rlcore.session.session import RunSession
    from torch.distributed import Store  # type: ignore[attr-defined]

GRACE_S = 15.0
"""Seconds that the other processes get to notice a failure before they are stopped."""


def check(run: RunSession) -> Iterator[Finding]:
    """Find a number of processes that conflicts with the launcher, the GPUs or the engine, or is too large."""
    yield from _conflicts(run)
    if _address(run) is not None:
        return
    count = _here(run)
    if count == 1:
        yield from check_device(run)
    elif not _gpus(run.config.model.device) and count > (cores := usable_cores()):
        yield warning(
            f"{counted(count, 'process')} share {counted(cores, 'core')} and compete for them; "
            f"strategy.processes={cores} or fewer is faster"
        )


def check_sharded(run: RunSession) -> Iterator[Finding]:
    """Find what `check` finds, and what cannot be divided between processes."""
    yield from check(run)
    started, part = process_count(run), run.options("strategy").shard_size
    if part is not None and started % part:
        fix = "remove it, which divides the model between all of them"
        yield failure("strategy.shard_size", f"it must divide {counted(started, 'process')}", fix)
    if started == 1:
        return
    instead = "strategy.id=ddp, in which each process has a copy"
    if not _trains_language(run):
        reason = f"only the weights of language models are divided between {counted(started, 'process')}"
        yield failure("strategy.id", reason, instead)


def _trains_language(run: RunSession) -> bool:
    trainer = cast(TrainerSpec, run.registry.spec("trainer", run.config.trainer.id))
    actions = {getattr(run.registry.spec("environment", one.id), "action", "chat") for one in run.resolved.environments}
    return trainer.shards and not actions - {"chat"}


def check_device(run: RunSession) -> Iterator[Finding]:
    """Find a GPU of a single-process run that does not exist. Imports torch only if a GPU is requested."""
    device = run.config.model.device
    if not device.startswith("cuda"):
        return
    import torch

    there, index = torch.cuda.device_count(), device.partition(":")[2]
    if there <= (int(index) if index.isdecimal() else 0):
        fix = "model.device=auto, which uses a GPU if available"
        yield failure("model.device", f"this machine has {counted(there, 'GPU')}", fix)


def launch(run: RunSession, arguments: Sequence[str]) -> Processes | Start:
    """Return the processes started by a launcher, including this one, or else a function that starts them."""
    if world_size() > 1:
        from rlcore_trainer.distributed.processes import JoinedProcesses

        return JoinedProcesses(cpu=not _gpus(run.config.model.device))
    count, address = _count(run), _address(run)
    if address is not None and LAUNCHER not in os.environ:
        return lambda: start_in_cluster(arguments, count, address, run.config.model.device)
    return Alone() if count == 1 else lambda: start(arguments, count)


def start_in_cluster(arguments: Sequence[str], count: int, address: str, device: str) -> int:
    """Do the same as `start` with processes on the machines of a Ray cluster.

    Raises:
        UserError: the cluster cannot be used, has no room, or its machines differ.
    """
    with closing(ClusterRanks(address, count, device)) as ranks:
        return start(arguments, count, ranks)


def start(arguments: Sequence[str], count: int, ranks: LocalRanks | ClusterRanks | None = None) -> int:
    """Run ``rlcore`` with these arguments in ``count`` processes, and return the exit status of the main process.

    SIGINT, SIGTERM and SIGHUP are forwarded once to each process. If a process fails, the others get some time to
    notice, and are then stopped.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    ranks = ranks or LocalRanks()
    # Create the store here: it outlives every process, and its port is known to be free.
    store = TCPStore(ranks.address, 0, is_master=True, wait_for_workers=False)
    processes: list[RankProcess] = []
    try:
        with stops_handled(lambda number, frame: _signal(processes, number)):
            for index in range(count):
                variables = rank_variables(index, count, ranks.address, store.port)
                processes.append(ranks.start(index, arguments, variables))
            untold = _wait(processes, store)
    finally:
        left = [process for process in processes if process.poll() is None]
        for process in left:
            process.kill()
        for process in left:
            process.wait()
    if untold is not None:
        say(f"error: {untold}", err=True)
        return 1
    status = processes[0].returncode
    assert status is not None
    return status


def _wait(processes: Sequence[RankProcess], store: Store) -> str | None:
    """Wait until all processes have ended. Return the first failure if the main process did not report it."""
    failed: str | None = None
    failed_at, asked = 0.0, 0
    # They write where they wait. The second signal stops after the step, the third interrupts the step.
    stops = (
        (0.0, SIGNAL),
        (WRITTEN_S, signal.SIGTERM),
        (WRITTEN_S + GRACE_S / 2, signal.SIGINT),
        (WRITTEN_S + GRACE_S, signal.SIGKILL),
    )
    while None in [process.poll() for process in processes]:  # all: a process on another machine gets its signals then
        if failed is None and (failed := _first_failure(processes)) is not None:
            failed_at = time.monotonic()
            with suppress(RuntimeError):  # a process may have told more
                told_here = json.dumps({"kind": "process", "text": failed})
                failed = json.loads(store.compare_set(FAILURE, "", told_here)).get("text", failed)
        waited = time.monotonic() - failed_at - GRACE_S
        if failed is not None and asked < len(stops) and waited > stops[asked][0]:
            _signal(processes, stops[asked][1])
            asked += 1
        if asked == len(stops) and waited > stops[-1][0] + GRACE_S:
            break  # a machine does not answer
        time.sleep(0.05)
    told = (processes[0].returncode or 0) > 0 and not asked
    return None if told else failed or _first_failure(processes)


def _first_failure(processes: Sequence[RankProcess]) -> str | None:
    for index, process in enumerate(processes):
        if status := process.poll():
            named = f"rank {index} of {len(processes)}"
            if isinstance(process, RemoteProcess):
                named = f"{named} on {process.host}"
                if status == LOST:
                    return f"{named} was lost, with its machine or with Ray on it: {process.lost}"
            if status < 0:
                reason = "; the machine may have run out of memory" if status == -signal.SIGKILL else ""
                return f"{named} was ended by {signal.Signals(-status).name}{reason}"
            return f"{named} ended with status {status}"
    return None


def _signal(processes: Sequence[RankProcess], number: int) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            process.send_signal(number)


def process_count(run: RunSession) -> int:
    """Return the number of processes of a run."""
    return world_size() if "WORLD_SIZE" in os.environ else _count(run)


def _address(run: RunSession) -> str | None:
    """Return the address of the Ray cluster that starts the processes."""
    options = run.options("strategy")
    return options.address if isinstance(options, DataParallelConfig) else None


def _count(run: RunSession) -> int:
    """Return the number of processes of a run without a launcher."""
    options = run.options("strategy")
    assert isinstance(options, DataParallelConfig)
    if options.processes is not None or options.address is not None or "WORLD_SIZE" in os.environ:
        return options.processes or 1
    return _gpus(run.config.model.device) or 1


def _gpus(device: str) -> int:
    """Return the number of GPUs available to processes with this ``model.device``."""
    if device == "cpu" or device.startswith("cuda:"):
        return int(device != "cpu")
    import torch

    return torch.cuda.device_count()


def _here(run: RunSession) -> int:
    """Return the number of processes on this machine."""
    if "WORLD_SIZE" in os.environ:
        return int(os.environ.get("LOCAL_WORLD_SIZE", world_size()))
    return _count(run)


def _conflicts(run: RunSession) -> Iterator[Finding]:
    wanted, started, device = run.options("strategy").processes, world_size(), run.config.model.device
    launched = "WORLD_SIZE" in os.environ
    if launched and wanted not in (None, started):
        reason = f"the launcher started {counted(started, 'process')}: WORLD_SIZE={started}"
        yield failure("strategy.processes", reason, "remove it, or start rlcore run without a launcher")
    count, team = process_count(run), run.options("strategy").sequence_parallel
    if count % team:
        reason = f"it must divide {counted(count, 'process')}"
        yield failure("strategy.sequence_parallel", reason, f"strategy.sequence_parallel={math.gcd(count, team)}")
    elif team > 1 and not _trains_language(run):
        reason = "only micro-batches of language models are divided between processes"
        yield failure("strategy.sequence_parallel", reason, "strategy.sequence_parallel=1")
    if (address := _address(run)) is not None and LAUNCHER not in os.environ:
        yield from _cluster_conflicts(address, wanted)
    if count == 1:
        return
    if device.startswith("cuda:"):
        reason = f"{count} processes need a GPU each"
        fix = "model.device=auto, which assigns a GPU to each process, or strategy.id=single"
        yield failure("model.device", reason, fix)
    elif address is None and ((gpus := _gpus(device)) or device == "cuda"):
        here = _here(run)
        if here > gpus:
            reason = f"each process needs a GPU, and this machine has {gpus}"
            fix = f"strategy.processes={gpus}, or model.device=cpu" if gpus else "model.device=cpu"
            yield failure("strategy.processes", reason, fix, value=str(here))


def _cluster_conflicts(address: str, processes: int | None) -> Iterator[Finding]:
    if "WORLD_SIZE" in os.environ:
        reason = "another launcher has started the processes"
        yield failure(KEY, reason, "remove it, or start rlcore run without a launcher")
        return
    if processes is None:
        reason = f"{KEY} needs the number of processes"
        yield failure("strategy.processes", reason, "strategy.processes=N, with a GPU or a core for each")
    yield from check_address(address, KEY)
