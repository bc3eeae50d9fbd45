"""Translation of the keys of verl and of its fork for agents (``agent.…``).

Keys that are not given keep the values of the recipe. verl's defaults are used only where a given key depends on them.
"""

from __future__ import annotations

from typing import Any

from rlcore_compat.verl_algorithm import ACTOR as _ACTOR
from rlcore_compat.verl_algorithm import ALGORITHM
from rlcore_compat.verl_algorithm import hyphens as _id
from rlcore_compat.vocabulary import Meaning, Refused, Several, Vocabulary, Words, nothing

_MODEL = "actor_rollout_ref.model"
_ROLLOUT = "actor_rollout_ref.rollout"
_REFERENCE = "actor_rollout_ref.ref"

_MEMORY = "affects memory only; trainer.max_tokens_per_batch sets the batch size in memory"
_OFFLOAD = "affects memory only; weights and optimiser stay on the device"
_CRITIC = "the critic uses the mini-batches of the policy"
_MODEL_PATH = Meaning(ours="model.path", also={"warmup.steps": 0}, why="the given model is trained without a warm-up")


def _updates(value: Any, words: Words) -> int:
    """Optimiser steps per rollout. verl multiplies the mini-batch size by ``rollout.n``, but not by ``num_chains``."""
    siblings = words.get(f"{_ROLLOUT}.n", 1)
    rows = (words.get("data.train_batch_size"), words.get("agent.num_chains", siblings), value, siblings)
    if not all(isinstance(number, int) and number > 0 for number in rows):
        raise Refused("depends on data.train_batch_size: give both, as positive integers")
    tasks, group_size, mini_batch, siblings = rows
    updates, rest = divmod(tasks * group_size, mini_batch * siblings)
    if rest or not updates:
        raise Refused(
            f"{tasks * group_size} trajectories per step are not divisible into mini-batches of {mini_batch * siblings}"
        )
    return int(updates)


def _reward(value: Any, words: Words) -> list[dict[str, str]]:
    return [{"id": _id(value, words)}]


def _trackers(value: Any, words: Words) -> list[str]:
    names = [str(name) for name in (value if isinstance(value, list) else [value])]
    return names if "jsonl" in names else [*names, "jsonl"]


def _processes(value: Any, words: Words) -> Several:
    if not isinstance(value, int) or value < 1:
        raise Refused("must be a positive integer")
    return Several({"strategy.id": "ddp", "strategy.processes": value} if value > 1 else {})


def _never_is_zero(value: Any, words: Words) -> Any:
    return 0 if isinstance(value, int) and value < 0 else value


VERL = Vocabulary(
    name="verl",
    tables=frozenset({"actor_rollout_ref", "agent"}),
    meanings={
        **ALGORITHM,
        "data.train_files": Meaning(ours="data.train"),
        "data.val_files": Meaning(ours="data.evaluation"),
        "data.train_batch_size": Meaning(ours="trainer.tasks_per_step", why="counted in prompts"),
        "agent.agent_type": nothing(
            "environment.id sets the environment, and model.chat_format the format of tool calls",
            only=("hf",),
            otherwise="only the agent hf is supported; model.tool_parser selects another format of tool calls",
        ),
        "agent.tools": Meaning(ours="environment.tools"),
        "agent.template": Meaning(ours="model.chat_format"),
        "agent.model_name_or_path": _MODEL_PATH,
        "agent.max_turns": Meaning(ours="environment.max_turns"),
        "agent.backend": nothing(
            "rollout.engine sets the engine",
            only=("async_verl", "async_vllm"),
            otherwise="only async_verl and async_vllm are supported; rollout.engine sets the engine",
        ),
        "agent.reward_name": Meaning(ours="reward", why="the only reward", read=_reward),
        "agent.num_chains": Meaning(ours="rollout.group_size"),
        "agent.use_agent": nothing(
            "the environment always determines the turns",
            only=(True,),
            otherwise="for one answer without tools, use environment.tools=[] environment.max_turns=1",
        ),
        f"{_MODEL}.path": _MODEL_PATH,
        f"{_MODEL}.use_remove_padding": nothing("batches are always packed, without padding"),
        f"{_MODEL}.enable_gradient_checkpointing": Meaning(ours="trainer.gradient_checkpointing"),
        f"{_ACTOR}.optim.lr": Meaning(ours="trainer.learning_rate"),
        f"{_ACTOR}.ppo_mini_batch_size": Meaning(
            ours="trainer.updates_per_rollout",
            why="train_batch_size x num_chains / ppo_mini_batch_size; in trajectories, or in prompts with rollout.n",
            read=_updates,
        ),
        f"{_ACTOR}.ppo_micro_batch_size_per_gpu": nothing(_MEMORY),
        f"{_ACTOR}.fsdp_config.param_offload": nothing(_OFFLOAD),
        f"{_ACTOR}.fsdp_config.optimizer_offload": nothing(_OFFLOAD),
        f"{_ROLLOUT}.name": Meaning(
            ours="rollout.engine", why="hf is torch", read=lambda value, words: "torch" if value == "hf" else value
        ),
        f"{_ROLLOUT}.n": Meaning(ours="rollout.group_size"),
        f"{_ROLLOUT}.temperature": Meaning(ours="rollout.temperature"),
        f"{_ROLLOUT}.response_length": Meaning(ours="rollout.max_new_tokens", why="per generation"),
        f"{_ROLLOUT}.gpu_memory_utilization": Meaning(ours="rollout.vllm.gpu_memory_utilization"),
        f"{_ROLLOUT}.tensor_model_parallel_size": Meaning(ours="rollout.vllm.tensor_parallel_size"),
        f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu": nothing(_MEMORY),
        f"{_REFERENCE}.log_prob_micro_batch_size_per_gpu": nothing(_MEMORY),
        f"{_REFERENCE}.fsdp_config.param_offload": nothing(_OFFLOAD),
        "critic.ppo_mini_batch_size": nothing(_CRITIC),
        "critic.ppo_micro_batch_size_per_gpu": nothing(_MEMORY),
        "trainer.logger": Meaning(ours="trackers.use", why="jsonl is always used", read=_trackers),
        "trainer.project_name": Meaning(ours="trackers.wandb.project"),
        "trainer.experiment_name": Meaning(ours="name", why="the name of the run directory and in trackers"),
        "trainer.n_gpus_per_node": Meaning(
            ours="strategy.processes", why="more than one: processes of strategy.id=ddp", read=_processes
        ),
        "trainer.nnodes": nothing("a run uses one machine", only=(1,), otherwise="a run uses one machine: give 1"),
        "trainer.save_freq": Meaning(ours="checkpoint.every", read=_never_is_zero),
        "trainer.test_freq": Meaning(ours="evaluation.every", read=_never_is_zero),
        "trainer.total_training_steps": Meaning(ours="trainer.steps"),
        "trainer.val_before_train": nothing("if evaluation.every is above 0, an evaluation runs before the first step"),
    },
)
