"""Translation of verl's keys for the length of a run, its checkpoints, its machine and its logs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rlcore_compat.vocabulary import Meaning, Refused, Several, Words, nothing

_MACHINE = "a run uses one machine, unless torchrun starts its processes on several"
_RESUME = "continue a run with rlcore run --resume RUN"
_RAY = "Ray is used only with sampler.id=ray"
_RECORDED = "every trajectory is stored in the run directory: rlcore view"
_STEPS = "trainer.total_training_steps"
_MACHINES = "trainer.nnodes"
_ENGINES = ("dp", "fsdp")
_FILES = ("file", "jsonl", "rl_logging_board")
_BOARD = "rlcore view shows the trajectories of the run directory"


def _trackers(value: Any, words: Words) -> list[str]:
    names = [str(name) for name in (value if isinstance(value, list) else [value])]
    return [*(name for name in names if name not in _FILES), "jsonl"]


def _processes(value: Any, words: Words) -> Several:
    if not isinstance(value, int) or value < 1:
        raise Refused("must be a positive integer")
    if words.get(_MACHINES, 1) != 1:
        return Several({"strategy.id": "ddp"})  # torchrun has started the processes
    return Several({"strategy.id": "ddp", "strategy.processes": value} if value > 1 else {})


def _machines(value: Any, words: Words) -> None:
    """Several machines are accepted if a launcher has started that many processes."""
    if value == 1:
        return
    here = words.get("trainer.n_gpus_per_node", 8)
    if not all(isinstance(number, int) and number > 0 for number in (value, here)):
        raise Refused("must be a positive integer")
    if os.environ.get("WORLD_SIZE") != str(value * here):
        raise Refused(
            f"{_MACHINE}: run torchrun --nnodes={value} --nproc-per-node={here} --rdzv-backend=c10d "
            "--rdzv-endpoint=HOST:PORT -m rlcore run … on each of them"
        )


def _never_is_zero(value: Any, words: Words) -> Any:
    return 0 if isinstance(value, int) and value < 0 else value


def _steps(value: Any, words: Words) -> Any:
    return Several({}) if value is None else value


def _passes(value: Any, words: Words) -> Any:
    if words.get(_STEPS) is not None:
        return Several({})
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise Refused("must be a positive integer")
    return "1 pass" if value == 1 else f"{value} passes"


def _unless_empty(value: Any, words: Words) -> Any:
    return Several({}) if value in ("", None) else value


def _kept(value: Any, words: Words) -> Any:
    return Several({}) if value is None else value


def _device(value: Any, words: Words) -> Any:
    if value not in ("cuda", "cpu"):
        raise Refused(f"the device {value} is not supported: cuda or cpu")
    return value


def _engine(value: Any, words: Words) -> None:
    if value not in _ENGINES:
        name = {"megatron": "Megatron", "veomni": "VeOmni"}.get(str(value), value)
        raise Refused(f"{name} is not supported; strategy.id distributes updates over processes")


THE_TRAINER: Mapping[str, Meaning] = {
    "trainer.logger": Meaning(ours="trackers.use", why="jsonl is always used; file is jsonl", read=_trackers),
    "trainer.project_name": Meaning(ours="trackers.wandb.project"),
    "trainer.experiment_name": Meaning(
        ours="name", why="the name of the run directory and in trackers", read=_unless_empty
    ),
    "trainer.default_local_dir": Meaning(ours="runs", why="each run creates a folder in it"),
    "trainer.n_gpus_per_node": Meaning(
        ours="strategy.processes", why="more than one: processes of strategy.id=ddp", read=_processes
    ),
    _MACHINES: Meaning(ours=None, why=_MACHINE, read=_machines),
    "trainer.device": Meaning(ours="model.device", read=_device),
    "trainer.save_freq": Meaning(ours="checkpoint.every", read=_never_is_zero),
    "trainer.max_actor_ckpt_to_keep": Meaning(ours="checkpoint.keep", read=_kept),
    "trainer.max_critic_ckpt_to_keep": nothing("checkpoint.keep sets it for the policy and the critic"),
    "trainer.test_freq": Meaning(ours="evaluation.every", read=_never_is_zero),
    _STEPS: Meaning(ours="trainer.steps", read=_steps),
    "trainer.total_epochs": Meaning(
        ours="trainer.steps", why="passes over the training tasks; only without total_training_steps", read=_passes
    ),
    "trainer.val_before_train": nothing("if evaluation.every is above 0, an evaluation runs before the first step"),
    "trainer.val_only": nothing("rlcore run trains", only=(False,), otherwise="to evaluate only, use rlcore eval"),
    "trainer.log_val_generations": nothing(_RECORDED),
    "trainer.rollout_data_dir": nothing(_RECORDED),
    "trainer.validation_data_dir": nothing(_RECORDED),
    "trainer.the_first_batch_rollout_data_dir": nothing(_RECORDED),
    "trainer.rl_logging_board_dir": nothing(_BOARD),
    "trainer.tensorboard_dir": nothing("the tracker tensorboard writes to the run directory"),
    "debug": nothing("warnings are always shown"),
    "vs_debug": nothing("warnings are always shown"),
    "trainer.resume_mode": nothing(_RESUME, only=("auto", "disable"), otherwise=_RESUME),
    "trainer.resume_from_path": nothing(_RESUME),
    "trainer.default_hdfs_dir": nothing(
        "checkpoints are written to the run directory",
        only=(None,),
        otherwise="checkpoints are not uploaded: give null",
    ),
    "trainer.balance_batch": nothing("trajectories are distributed over processes by their number of tokens"),
    "trainer.use_legacy_worker_impl": nothing("selects between implementations of verl"),
    "trainer.ray_wait_register_center_timeout": nothing(_RAY),
    "trainer.wandb_proxy": nothing(
        "None has no effect",
        only=(None, "None", ""),
        otherwise="wandb reads the proxy from the environment variable HTTPS_PROXY",
    ),
    "ray_kwargs.*": nothing(_RAY),
    "actor_rollout_ref.hybrid_engine": nothing(
        "engine and trainer run on the same machine", only=(True,), otherwise="engine and trainer share a machine: True"
    ),
    "actor_rollout_ref.nccl_timeout": nothing("torch sets the timeout of its processes"),
    "model_engine": Meaning(ours=None, why="strategy.id distributes updates over processes", read=_engine),
    "distillation.enabled": nothing(
        "False has no effect", only=(False,), otherwise="distillation from a teacher is not supported"
    ),
    "distillation.*": nothing("only with distillation.enabled=True"),
    "global_profiler.tool": nothing(
        "None has no effect", only=(None,), otherwise="profiles are not recorded: give null"
    ),
    "global_profiler.*": nothing("only with global_profiler.tool"),
}
"""By key of verl."""
