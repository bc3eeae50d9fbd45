"""The connection of a run to a Ray cluster. Imports Ray only to connect."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rlcore.checks import Finding, failure
from rlcore.errors import UserError
from rlcore.runs.surroundings import changed_versions, surroundings, usable_cores

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray would otherwise start each process with "uv run" in a copy of the working directory.
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}
"""Environment variables of Ray, which it reads when it is imported."""
ANSWER_S = 5.0
"""Time for a cluster to accept a connection. Ray itself waits much longer."""


class RayCluster:
    """A connection to a Ray cluster, or a cluster on this machine that ends with it.

    Args:
        address: ``HOST:PORT`` of the cluster, ``auto`` for the one of this machine, or None to start one
        key: the configuration key of the address, for messages
        cores: cores that a cluster which is started here has at least

    Raises:
        UserError: the cluster has other versions or another token.
    """

    def __init__(self, address: str | None, key: str, *, cores: float = 1) -> None:
        self.address, self._key = address, key
        for name, value in SETTINGS.items():
            os.environ.setdefault(name, value)
        if address is None:
            create_token()
        if address is None or _has_token():
            os.environ.setdefault("RAY_AUTH_MODE", "token")  # Ray reads the token for the address "auto" alone
        imported = "ray" in sys.modules
        import ray

        if imported and not ray.is_initialized():  # by a notebook, or by vLLM: Ray has read its variables then
            ray._raylet.Config.initialize("")
        self.ray = ray
        self._owned = not ray.is_initialized()
        if self._owned:
            self._connect(cores)
            _print_messages(ray, shown=False)  # Ray would print those of lost workers among the lines of the run

    @property
    def named(self) -> str:
        """The cluster, for messages."""
        return f"the Ray cluster {self.address}" if self.address is not None else "Ray on this machine"

    @property
    def nodes(self) -> list[Mapping[str, Any]]:
        """The machines of the cluster that are alive, as Ray describes them."""
        return [node for node in self.ray.nodes() if node["Alive"]]

    def close(self) -> None:
        """Disconnect, and end a cluster that was started here. A second call does nothing."""
        if self._owned:
            self._owned = False
            with _signals_kept():
                self.ray.shutdown()
            _print_messages(self.ray, shown=True)

    def free(self) -> tuple[float, float]:
        """Return the free cores and GPUs of the whole cluster."""
        free = self.ray.available_resources()
        return free.get("CPU", 0.0), free.get("GPU", 0.0)

    def said_free(self) -> str:
        """Return the free cores and GPUs of the whole cluster, for messages."""
        cpus, gpus = self.free()
        return f"free are CPU {cpus:g} and GPU {gpus:g}"

    def require_room(self, count: int, what: str, key: str, *, cpus: float, gpus: float, taken: int = 0) -> None:
        """Compare what some processes need with what the cluster has, free or not: Ray would wait for ever.

        Args:
            count: number of processes
            what: their name, for messages
            key: the configuration key of their number
            cpus: cores of each
            gpus: GPUs of each
            taken: places of this size that other processes of the run have

        Raises:
            UserError: there is no room for them, with what each machine has.
        """
        places, lines = 0, []
        for node in self.nodes:
            has_cpus, has_gpus = (node["Resources"].get(name, 0) for name in ("CPU", "GPU"))
            places += int(min(has_cpus // cpus, has_gpus // gpus if gpus else count))
            lines.append(f"{node['NodeManagerHostname']}: CPU {has_cpus:g}, GPU {has_gpus:g}")
        if (places := max(0, places - taken)) < count:
            raise UserError(
                f"the cluster has no room for {count} {what}, each with CPU {cpus:g} and GPU {gpus:g}",
                found="\n".join([f"room for {places}{f' beside {taken} that train' if taken else ''}", *lines]),
                where=key,
                fix=f"set {key}={places}, or add machines" if places else "add machines with free cores and GPUs",
            )

    def kill(self, actor: Any) -> None:
        """End an actor at once. One that has ended, or a cluster that is gone, changes nothing."""
        with suppress(Exception):
            self.ray.kill(actor)

    def _connect(self, cores: float) -> None:
        # A cluster on this machine may have more workers than cores: processes share them as usual.
        here = {"num_cpus": max(usable_cores(), -(-cores // 1))} if self.address is None else {}
        try:
            with _signals_kept():
                self.ray.init(
                    address=self.address or "local",
                    log_to_driver=False,  # the workers send their lines
                    configure_logging=False,
                    include_dashboard=False if self.address is None else None,
                    **here,
                )
        except (ConnectionError, RuntimeError, ValueError, AssertionError) as error:  # Ray raises all of them
            raise UserError(
                f"{self.named} cannot be used",
                found=str(error).strip().split("\n")[0],
                where=self._key,
                fix="start a node of the cluster on this machine, with the same versions and the same token "
                "(~/.ray/auth_token): ray start --address=HOST:PORT"
                if self.address is not None
                else "see whether ray start --head works on this machine",
            ) from None


def check_address(address: str, key: str) -> Iterator[Finding]:
    """Find an address at which there is no cluster.

    Args:
        address: ``HOST:PORT``, or ``auto``
        key: the configuration key of the address
    """
    if address == "auto":
        return
    if "://" in address:
        reason = "the process of the run must be part of the cluster, not a client of it"
        fix = "start ray start --address=HOST:PORT on this machine, and give HOST:PORT"
        yield failure(key, reason, fix, value=address)
        return
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S):
            return
    except (OSError, ValueError, OverflowError) as error:
        reason = f"there is no Ray cluster: {getattr(error, 'strerror', None) or error}"
        fix = "HOST:PORT of the machine where ray start --head runs; its port is 6379 by default"
        yield failure(key, reason, fix, value=address)


def about_this_machine() -> Mapping[str, Any]:
    """Return the name of this machine and its versions, for `require_same_versions` on another one."""
    return {"host": socket.gethostname(), **surroundings([])}


def place_in_cluster() -> Mapping[str, Any]:
    """Return the address of this machine in its cluster, and the GPUs that Ray has given to this actor."""
    import ray

    return {"address": ray.util.get_node_ip_address(), "gpus": ray.get_gpu_ids()}


def require_same_versions(here: Mapping[str, Any], there: Mapping[str, Any]) -> str | None:
    """Compare the versions of two machines.

    Args:
        here: `about_this_machine` of this one
        there: that of the other one

    Returns:
        A message if the versions of other libraries differ.

    Raises:
        UserError: those of Python, rlcore or a plugin differ.
    """
    changes = changed_versions({name: here[name] for name in ("python", "versions", "plugins")}, there)
    ours = ("Python ", "rlcore", *(f"{name} " for name in {*here["plugins"], *there["plugins"]}))
    if fatal := [change for change in changes if change.startswith(ours)]:
        raise UserError(
            "the machines of a run need the same versions of Python, rlcore and its plugins",
            found=f"{'; '.join(fatal)} (here → there)",
            where=there["host"],
            fix="install the same versions there, in the environment of its ray start",
        )
    return f"note      other versions on {there['host']} may change results: {'; '.join(changes)}" if changes else None


def _print_messages(ray: Any, *, shown: bool) -> None:
    """Choose whether Ray prints messages of the cluster to stdout. Ray has no public setting for those of its nodes."""
    ray._private.worker._worker_logs_enabled = shown


def _token_file() -> Path:
    return Path.home() / ".ray" / "auth_token"


def _has_token() -> bool:
    """Return whether there is a token for the cluster, where Ray looks for it."""
    given = any(os.environ.get(name) for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    return given or _token_file().is_file()


def create_token() -> None:
    """Create a token for clusters on this machine, unless there is one, as Ray does.

    Two runs that start at the same time would each let Ray write a token, and one of them would then refuse its own
    processes. A link is made in one step and fails if there is one. Ray's file can be read by every user, this cannot.
    """
    if _has_token():
        return
    path = _token_file()
    with suppress(OSError):  # Ray creates one itself, or says why it cannot
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent) as file:
            file.write(secrets.token_hex(32))
            file.flush()
            os.link(file.name, path)


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Keep the handlers of a run: Ray replaces that of SIGTERM, with which a run saves a checkpoint."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        with suppress(TypeError):  # a handler that was not set from Python
            signal.signal(signal.SIGTERM, before)
