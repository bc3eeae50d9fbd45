"""The keys of verl and of its fork for agents (``agent.…``): what each is here.

What a command line leaves open, the recipe decides; verl's own defaults are not taken over, except where a given word
has no meaning without one.
"""

from __future__ import annotations

from typing import Any

from rlcore.config.verl_algorithm import ACTOR as _ACTOR
from rlcore.config.verl_algorithm import ALGORITHM
from rlcore.config.verl_algorithm import hyphens as _id
from rlcore.config.vocabulary import Meaning, Refused, Several, Vocabulary, Words, nothing

_MODEL = "actor_rollout_ref.model"
_ROLLOUT = "actor_rollout_ref.rollout"
_REFERENCE = "actor_rollout_ref.ref"

_MEMORY = "memory only; trainer.max_tokens_per_batch decides how much is computed at once"
_OFFLOAD = "memory only; one device holds weights and optimiser, and nothing is moved off it"
_CRITIC = "a critic is updated on the policy's own mini-batches"
_MODEL_PATH = Meaning(
    ours="model.path", also={"warmup.steps": 0}, why="a model that is given is trained as it is, without a warm-up"
)


def _updates(value: Any, words: Words) -> int:
    """Optimiser steps per rollout. verl multiplies the mini-batch by its own ``rollout.n``, never by ``num_chains``."""
    siblings = words.get(f"{_ROLLOUT}.n", 1)
    rows = (words.get("data.train_batch_size"), words.get("agent.num_chains", siblings), value, siblings)
    if not all(isinstance(number, int) and number > 0 for number in rows):
        raise Refused("it is counted against data.train_batch_size: give both, as whole numbers above 0")
    tasks, group_size, mini_batch, siblings = rows
    updates, rest = divmod(tasks * group_size, mini_batch * siblings)
    if rest or not updates:
        raise Refused(
            f"{tasks * group_size} trajectories of a step are not whole mini-batches of {mini_batch * siblings}"
        )
    return int(updates)


def _reward(value: Any, words: Words) -> list[dict[str, str]]:
    return [{"id": _id(value, words)}]


def _trackers(value: Any, words: Words) -> list[str]:
    names = [str(name) for name in (value if isinstance(value, list) else [value])]
    return names if "jsonl" in names else [*names, "jsonl"]


def _processes(value: Any, words: Words) -> Several:
    if not isinstance(value, int) or value < 1:
        raise Refused("it counts devices: a whole number above 0")
    return Several({"strategy.id": "ddp", "strategy.processes": value} if value > 1 else {})


def _never_is_zero(value: Any, words: Words) -> Any:
    return 0 if isinstance(value, int) and value < 0 else value


VERL = Vocabulary(
    name="verl",
    meanings={
        **ALGORITHM,
        "data.train_files": Meaning(ours="data.train"),
        "data.val_files": Meaning(ours="data.evaluation"),
        "data.train_batch_size": Meaning(ours="trainer.tasks_per_step", why="counted in prompts"),
        "agent.agent_type": nothing(
            "environment.id decides what the agent does, model.chat_format how it writes calls",
            only=("hf",),
            otherwise="only the agent hf is the same here; model.tool_parser chooses another way to write calls",
        ),
        "agent.tools": Meaning(ours="environment.tools"),
        "agent.template": Meaning(ours="model.chat_format"),
        "agent.model_name_or_path": _MODEL_PATH,
        "agent.max_turns": Meaning(ours="environment.max_turns"),
        "agent.backend": nothing(
            "rollout.engine decides what samples",
            only=("async_verl", "async_vllm"),
            otherwise="what samples is rollout.engine; of the backends async_verl and async_vllm are the same here",
        ),
        "agent.reward_name": Meaning(ours="reward", why="the one reward", read=_reward),
        "agent.num_chains": Meaning(ours="rollout.group_size"),
        "agent.use_agent": nothing(
            "the environment always decides which turns there are",
            only=(True,),
            otherwise="one answer without tools is environment.tools=[] environment.max_turns=1",
        ),
        f"{_MODEL}.path": _MODEL_PATH,
        f"{_MODEL}.use_remove_padding": nothing("padding is never computed, as batches are packed"),
        f"{_MODEL}.enable_gradient_checkpointing": Meaning(ours="trainer.gradient_checkpointing"),
        f"{_ACTOR}.optim.lr": Meaning(ours="trainer.learning_rate"),
        f"{_ACTOR}.ppo_mini_batch_size": Meaning(
            ours="trainer.updates_per_rollout",
            why="train_batch_size x num_chains / ppo_mini_batch_size; it counts trajectories, with rollout.n prompts",
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
        f"{_ROLLOUT}.response_length": Meaning(ours="rollout.max_new_tokens", why="of one generation"),
        f"{_ROLLOUT}.gpu_memory_utilization": Meaning(ours="rollout.vllm.gpu_memory_utilization"),
        f"{_ROLLOUT}.tensor_model_parallel_size": Meaning(ours="rollout.vllm.tensor_parallel_size"),
        f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu": nothing(_MEMORY),
        f"{_REFERENCE}.log_prob_micro_batch_size_per_gpu": nothing(_MEMORY),
        f"{_REFERENCE}.fsdp_config.param_offload": nothing(_OFFLOAD),
        "critic.ppo_mini_batch_size": nothing(_CRITIC),
        "critic.ppo_micro_batch_size_per_gpu": nothing(_MEMORY),
        "trainer.logger": Meaning(ours="trackers.use", why="jsonl is always kept", read=_trackers),
        "trainer.project_name": Meaning(ours="trackers.wandb.project"),
        "trainer.experiment_name": Meaning(ours="name", why="the run directory's name, and the tracker's"),
        "trainer.n_gpus_per_node": Meaning(
            ours="strategy.processes", why="several are processes of strategy.id=ddp", read=_processes
        ),
        "trainer.nnodes": nothing(
            "executor.id=local stays on this machine", only=(1,), otherwise="a run stays on one machine: give 1"
        ),
        "trainer.save_freq": Meaning(ours="checkpoint.every", read=_never_is_zero),
        "trainer.test_freq": Meaning(ours="evaluation.every", read=_never_is_zero),
        "trainer.total_training_steps": Meaning(ours="trainer.steps"),
        "trainer.val_before_train": nothing(
            "where evaluation.every is above 0 there is an evaluation before the first step; training never sees it"
        ),
    },
)
