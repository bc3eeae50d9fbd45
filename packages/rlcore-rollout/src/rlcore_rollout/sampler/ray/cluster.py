"""The connection to a Ray cluster."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rlcore.errors import UserError
from rlcore.runs.surroundings import usable_cores

from rlcore_rollout.sampler.ray.config import RaySamplerConfig, cluster_address

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray would otherwise start each process with "uv run" in a copy of the working directory.
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}
"""Environment variables of Ray, which it reads when it is imported."""


class Cluster:
    """A connection to a Ray cluster, or a cluster on this machine that ends with it.

    Args:
        config: the options of the sampler

    Raises:
        UserError: the cluster has other versions or another token, or no room for the workers.
    """

    def __init__(self, config: RaySamplerConfig) -> None:
        self.address = cluster_address(config)
        for name, value in SETTINGS.items():
            os.environ.setdefault(name, value)
        if self.address is None:
            create_token()
        if self.address is None or _has_token():
            os.environ.setdefault("RAY_AUTH_MODE", "token")  # Ray reads the token for the address "auto" alone
        imported = "ray" in sys.modules
        import ray

        if imported and not ray.is_initialized():  # by a notebook, or by vLLM: Ray has read its variables then
            ray._raylet.Config.initialize("")
        self.ray = ray
        self._owned = not ray.is_initialized()
        if self._owned:
            self._connect(config)
            _print_messages(ray, shown=False)  # Ray would print those of lost workers among the lines of the run
        try:
            self.gpus = self._gpus() if config.gpus is None else config.gpus
            self._require_places(config)
        except BaseException:
            self.close()
            raise

    @property
    def named(self) -> str:
        """The cluster, for messages."""
        return f"the Ray cluster {self.address}" if self.address is not None else "Ray on this machine"

    def close(self) -> None:
        """Disconnect, and end a cluster that was started here. A second call does nothing."""
        if self._owned:
            self._owned = False
            with _signals_kept():
                self.ray.shutdown()
            _print_messages(self.ray, shown=True)

    def free(self) -> str:
        """Return the free cores and GPUs of the whole cluster."""
        cpus, gpus = self._free()
        return f"free are CPU {cpus:g} and GPU {gpus:g}"

    def shortage(self, config: RaySamplerConfig) -> str | None:
        """Return a message if other work, such as another run, uses what the workers need."""
        cpus, gpus = config.workers * config.cpus, config.workers * self.gpus
        free = self._free()
        if cpus <= free[0] and gpus <= free[1]:
            return None
        needed = f"{config.workers} workers need CPU {cpus:g} and GPU {gpus:g}"
        return (
            f"note      other work uses {self.named}: {self.free()}, and {needed}. The run waits for them, at most "
            f"{config.start_timeout_s:g} s (sampler.start_timeout_s)"
        )

    def _free(self) -> tuple[float, float]:
        free = self.ray.available_resources()
        return free.get("CPU", 0.0), free.get("GPU", 0.0)

    def kill(self, actor: Any) -> None:
        """End an actor at once. One that has ended, or a cluster that is gone, changes nothing."""
        with suppress(Exception):
            self.ray.kill(actor)

    def _connect(self, config: RaySamplerConfig) -> None:
        # A cluster on this machine may have more workers than cores: processes share them as usual.
        cores = {"num_cpus": max(usable_cores(), -(-config.workers * config.cpus // 1))} if self.address is None else {}
        try:
            with _signals_kept():
                self.ray.init(
                    address=self.address or "local",
                    log_to_driver=False,  # the workers send their lines
                    configure_logging=False,
                    include_dashboard=False if self.address is None else None,
                    **cores,
                )
        except (ConnectionError, RuntimeError, ValueError, AssertionError) as error:  # Ray raises all of them
            raise UserError(
                f"{self.named} cannot be used",
                found=str(error).strip().split("\n")[0],
                where="sampler.address",
                fix="start a node of the cluster on this machine, with the same versions and the same token "
                "(~/.ray/auth_token): ray start --address=HOST:PORT"
                if self.address is not None
                else "see whether ray start --head works on this machine",
            ) from None

    def _nodes(self) -> list[Mapping[str, Any]]:
        return [node for node in self.ray.nodes() if node["Alive"]]

    def _gpus(self) -> float:
        return float(any(node["Resources"].get("GPU", 0) >= 1 for node in self._nodes()))

    def _require_places(self, config: RaySamplerConfig) -> None:
        """Compare what the workers need with the cluster: Ray would wait for ever."""
        places, lines = 0, []
        for node in self._nodes():
            cpus, gpus = (node["Resources"].get(name, 0) for name in ("CPU", "GPU"))
            places += int(min(cpus // config.cpus, gpus // self.gpus if self.gpus else config.workers))
            lines.append(f"{node['NodeManagerHostname']}: CPU {cpus:g}, GPU {gpus:g}")
        if places < config.workers:
            raise UserError(
                f"the cluster has no room for {config.workers} workers, "
                f"each with CPU {config.cpus:g} and GPU {self.gpus:g}",
                found="\n".join([f"room for {places}", *lines]),
                where="sampler.workers",
                fix=f"set sampler.workers={places}" if places else "set a lower sampler.cpus or sampler.gpus",
            )


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


__all__ = ["Cluster", "create_token"]
