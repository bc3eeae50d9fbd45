"""The processes of a run on the machines of a Ray cluster.

Ray reserves cores and GPUs, starts an actor for each process, and reports those that are lost. The processes are those
that ``torchrun`` would start: Ray runs no part of the training.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from rlcore.cli.retries import is_another_try
from rlcore.console.terminal import say
from rlcore.errors import UserError
from rlcore.runs.ray_cluster import RayCluster, about_this_machine, place_in_cluster, require_same_versions
from rlcore.session.processes import LAUNCHER

from rlcore_trainer.distributed.interfaces import interface_variables
from rlcore_trainer.distributed.local_ranks import THREADS, LocalRanks, RankProcess, share_of_cores

KEY = "strategy.address"
ROOM_S, NOTICE_S = 600.0, 5.0
"""Time to wait for resources that other work uses, and the time after which the wait is reported."""
WAIT_S = 1.0
"""Longest wait for Ray, which handles no signal meanwhile."""
ANSWER_S = 300.0
"""Time for the actors to start, which includes the start of Python on busy machines."""
LOOK_S = 0.5
"""Longest time until a machine answers whether its process has ended."""
END_S = 5.0
MOST_PRINTED = 1 << 16
"""Bytes of stderr that are shown for a look: the last ones."""
LOST = 256
"""In place of an exit status: the process was lost with its machine. Exit statuses are below it."""


class RankActor:
    """An actor that reserves the resources of a process and, except for the main process, starts it on its machine."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 (until the actor ends)
        self._read = 0

    def about(self, folder: str) -> Mapping[str, Any]:
        """Return the versions, the address and the reserved GPUs, and whether the machine has a folder."""
        return {**about_this_machine(), **place_in_cluster(), "has_folder": os.path.isdir(folder)}

    def start(self, folder: str, arguments: Sequence[str], variables: Mapping[str, str]) -> tuple[int | None, str]:
        """Start ``rlcore`` with the environment of ``ray start`` and these variables, and `look`."""
        # Ray has set the number of threads to that of the reserved cores.
        variables = {THREADS: share_of_cores(variables), **variables, LAUNCHER: str(os.getpid())}
        blocked = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # by Ray, also in its children
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rlcore", *arguments],
                cwd=folder,
                env={**os.environ, **interface_variables(place_in_cluster()["address"]), **variables},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._printed,
                start_new_session=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        return self.look(())

    def look(self, signals: Sequence[int]) -> tuple[int | None, str]:
        """Send signals, and return the exit status, if the process has ended, and what it has printed to stderr."""
        assert self._process is not None
        for number in signals:
            self._process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=LOOK_S)
        size = os.fstat(self._printed.fileno()).st_size
        start, self._read = max(self._read, size - MOST_PRINTED), size
        printed = os.pread(self._printed.fileno(), size - start, start)
        return self._process.returncode, printed.decode("utf-8", "replace")

    def end(self) -> tuple[int | None, str]:
        """End the process at once, and `look`."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        return self.look(())


class RemoteProcess(RankProcess):
    """A process that an actor has started.

    Args:
        actor: the actor
        started: its answer to `RankActor.start`
        host: its machine
        cluster: the cluster

    Attributes:
        returncode: as that of a `subprocess.Popen`, or `LOST`
        lost: why it was lost
    """

    returncode: int | None = None
    lost = ""

    def __init__(self, actor: Any, started: Any, host: str, cluster: RayCluster) -> None:
        self.host = host
        self._actor, self._cluster = actor, cluster
        self._signals: list[int] = []
        self._answer: Any = started

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal, `LOST`, or None while the process is running."""
        if self.returncode is not None:
            return self.returncode
        if self._answer is None:
            signals, self._signals = self._signals, []
            self._answer = self._actor.look.remote(signals)
        if self._cluster.ray.wait([self._answer], timeout=0)[0]:
            self._read(timeout_s=None)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal with the next `poll`: a handler of signals cannot call Ray."""
        self._signals.append(number)

    def kill(self) -> None:
        """Begin to end the process."""
        self._answer = self._actor.end.remote()

    def wait(self) -> None:
        """Wait until it has been killed, but not for a machine that does not answer."""
        with suppress(Exception):  # Ray raises many
            self._read(timeout_s=END_S)

    def _read(self, timeout_s: float | None) -> None:
        answer, self._answer = self._answer, None
        errors = self._cluster.ray.exceptions
        try:
            self.returncode, printed = self._cluster.ray.get(answer, timeout=timeout_s)
        except errors.ActorUnavailableError:  # for now: Ray reports a lost actor by another error
            return
        except errors.RayError as error:
            self.returncode, printed = LOST, ""
            self.lost = str(error).strip().rpartition("\n")[2].strip()
        if printed:
            say(*printed.splitlines(), err=True)


class ClusterRanks:
    """Places for the processes of a run, until `close` gives them back.

    The main process is on this machine.

    Args:
        address: the address of the cluster
        count: number of processes
        device: ``model.device``; unless it is ``cpu``, each process has a GPU if the cluster has GPUs

    Raises:
        UserError: the cluster cannot be used, has no room, or its machines differ.
    """

    def __init__(self, address: str, count: int, device: str) -> None:
        self._cluster, self._count = RayCluster(address, KEY), count
        self._group: Any = None
        self._actors: list[Any] = []
        try:
            self._reserve(device)
            self._inspect()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all actors and give the places back."""
        for actor in self._actors:
            self._cluster.kill(actor)
        if self._group is not None:
            with suppress(Exception):  # the cluster is gone
                self._cluster.ray.util.remove_placement_group(self._group)
        self._cluster.close()

    def start(self, index: int, arguments: Sequence[str], variables: Mapping[str, str]) -> RankProcess:
        """Start ``rlcore`` with these arguments and variables in the place with this index, the main process here."""
        variables = {**variables, **self._variables(index)}
        if index == 0:
            return LocalRanks().start(index, arguments, {**interface_variables(self.address), **variables})
        given = {name: value for name, value in os.environ.items() if _is_sent(name)}
        actor = self._actors[index]
        started = actor.start.remote(os.getcwd(), tuple(arguments), {**given, **variables})
        return RemoteProcess(actor, started, self._about[index]["host"], self._cluster)

    def _variables(self, index: int) -> dict[str, str]:
        """Return the environment variables of a process that depend on its place."""
        node = self._nodes[index]
        local = [other for other, its in enumerate(self._nodes) if its == node]
        gpus = [str(gpu) for other in local for gpu in self._about[other]["gpus"]]
        return {
            "LOCAL_RANK": str(local.index(index)),
            "LOCAL_WORLD_SIZE": str(len(local)),
            # Without GPUs of Ray, none: all processes must use the same kind of device.
            "CUDA_VISIBLE_DEVICES": ",".join(gpus),
        }

    def _reserve(self, device: str) -> None:
        ray, cluster = self._cluster.ray, self._cluster
        gpus = int(
            device != "cpu" and (device != "auto" or any(node["Resources"].get("GPU") for node in cluster.nodes))
        )
        self._require_machines(gpus)
        here = ray.get_runtime_context().get_node_id()
        own = next(node["Resources"] for node in cluster.nodes if node["NodeID"] == here)
        if own.get("CPU", 0) < 1 or own.get("GPU", 0) < gpus:
            raise UserError(
                f"the main process needs CPU 1 and GPU {gpus} on this machine",
                found=f"CPU {own.get('CPU', 0):g} and GPU {own.get('GPU', 0):g} in {cluster.named}",
                where=KEY,
                fix="start rlcore run on a machine of the cluster that has them",
            )
        bundle = {"CPU": 1, "GPU": gpus} if gpus else {"CPU": 1}
        labels: list[dict[str, str]] = [{"ray.io/node-id": here}, *({} for _ in range(self._count - 1))]
        self._group = ray.util.placement_group([bundle] * self._count, "PACK", bundle_label_selector=labels)
        if not self._is_reserved(NOTICE_S):
            needed = f"CPU {self._count} and GPU {self._count * gpus}, of which CPU 1 and GPU {gpus} on this machine"
            say(
                f"note      other work uses {cluster.named}: {cluster.said_free()}. The run waits for {needed}",
                err=True,
            )
            if not self._is_reserved(ROOM_S - NOTICE_S):
                raise UserError(
                    f"{cluster.named} had no room within {ROOM_S:g} s",
                    found=cluster.said_free(),
                    where="strategy.processes",
                    fix="end other work in the cluster, or set fewer processes",
                )
        places: dict[int, str] = ray.util.placement_group_table(self._group)["bundles_to_node_id"]
        # The processes of a machine follow each other, so that groups of them (shard_size) are on one machine if each
        # machine has a multiple of that number.
        order = sorted(range(self._count), key=lambda place: (place > 0, places[place] != here, places[place]))
        self._nodes = [places[place] for place in order]
        strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
        self._actors = [
            ray.remote(RankActor)
            .options(
                num_cpus=1, num_gpus=gpus, scheduling_strategy=strategy(self._group, placement_group_bundle_index=place)
            )
            .remote()
            for place in order
        ]

    def _require_machines(self, gpus: int) -> None:
        """Require machines that are large enough. After a failure, a machine may need some time to come back."""
        until = time.monotonic() + (ROOM_S if is_another_try() else 0)
        waits = False
        while True:
            try:
                self._cluster.require_room(self._count, "processes", "strategy.processes", cpus=1, gpus=gpus)
                return
            except UserError as error:
                if time.monotonic() > until:
                    raise
                if not waits:
                    say(f"note      {error.message}. The run waits for machines to come back", err=True)
                waits = True
            time.sleep(WAIT_S)

    def _is_reserved(self, timeout_s: float) -> bool:
        until = time.monotonic() + timeout_s
        while not self._group.wait(WAIT_S):
            if time.monotonic() > until:
                return False
        return True

    def _inspect(self) -> None:
        folder, here = os.getcwd(), about_this_machine()
        answers = [actor.about.remote(folder) for actor in self._actors]
        try:
            self._about: list[Mapping[str, Any]] = self._cluster.ray.get(answers, timeout=ANSWER_S)
        except self._cluster.ray.exceptions.RayError as error:
            raise UserError(
                f"no process can be started on a machine of {self._cluster.named}",
                found=str(error).strip().rpartition("\n")[2],
                where=KEY,
                fix="install the same versions of rlcore and its plugins everywhere, or try again if a machine is busy",
            ) from None
        notes = dict.fromkeys(require_same_versions(here, there) for there in self._about)
        say(*(note for note in notes if note is not None), err=True)
        if without := next((there["host"] for there in self._about if not there["has_folder"]), None):
            raise UserError(
                "the machines of a run need a shared disk with the working directory",
                found=f"{without} has no {folder}",
                where=KEY,
                fix="start rlcore run in a folder that all machines share",
            )
        self.address: str = self._about[0]["address"]
        """The address of this machine in the cluster."""
        hosts = Counter(there["host"] for there in self._about)
        places = ", ".join(f"{host} ({count})" for host, count in hosts.items())
        say(f"processes {self._count} in {self._cluster.named}: {places}", err=True)


def _is_sent(name: str) -> bool:
    """Return whether all processes need the value of a variable here: those of rlcore, except for secrets."""
    return name == THREADS or (name.startswith("RLCORE_") and not name.endswith(("_TOKEN", "_KEY")))
