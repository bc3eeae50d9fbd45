"""Translation of verl's keys for rollouts, and of the table ``agent`` of its fork for agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore_compat.verl_algorithm import hyphens
from rlcore_compat.verl_model import MODEL_PATH
from rlcore_compat.vocabulary import Meaning, Refused, Several, Words, nothing

_ROLLOUT = "actor_rollout_ref.rollout"
_VALIDATION = f"{_ROLLOUT}.val_kwargs"
_TURNS = f"{_ROLLOUT}.multi_turn"
ENGINES = {"hf": "torch", "vllm": "vllm"}
_SPEED = "affects speed and memory only; rollout.vllm.arguments sets other arguments of vLLM"
_ENVIRONMENT = "environment.id sets the environment, which determines the turns"
_ASYNCHRONOUS = "trajectories always advance independently"
_WEIGHTS = "the run decides how the engine receives the weights"
_RECORDED = "every trajectory is stored in the run directory: rlcore view"


def _engine(value: Any, words: Words) -> str:
    if value not in ENGINES:
        raise Refused(f"the engine {value} is not supported: rollout.engine=vllm or rollout.engine=torch")
    return ENGINES[str(value)]


def _all_is_zero(value: Any, words: Words) -> Any:
    return 0 if value == -1 else value


def _temperature(value: Any, words: Words) -> Any:
    return 0.0 if words.get(f"{_VALIDATION}.do_sample") is False else value


def _do_sample(value: Any, words: Words) -> Several:
    return Several({"evaluation.temperature": 0.0} if value is False else {})


def _no_cache(value: Any, words: Words) -> Several:
    return Several({"rollout.vllm.image_cache_gib": 0.0} if value is True else {})


def _turns(value: Any, words: Words) -> Any:
    return Several({}) if value is None else value


def _no_videos(value: Any, words: Words) -> None:
    if value not in (0, 1, None):
        raise Refused("videos are not supported: give 0")


def _reward(value: Any, words: Words) -> list[dict[str, str]]:
    return [{"id": hyphens(value, words)}]


AGENT: Mapping[str, Meaning] = {
    "agent.agent_type": nothing(
        "environment.id sets the environment, and model.chat_format the format of tool calls",
        only=("hf",),
        otherwise="only the agent hf is supported; model.tool_parser selects another format of tool calls",
    ),
    "agent.tools": Meaning(ours="environment.tools"),
    "agent.template": Meaning(ours="model.chat_format"),
    "agent.model_name_or_path": MODEL_PATH,
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
}
_LOOP = f"{_ROLLOUT}.agent"
_EPISODES: Mapping[str, Meaning] = {
    f"{_LOOP}.activate_agent": nothing(
        "the environment always determines the turns",
        only=(True,),
        otherwise="for one answer without tools, use environment.max_turns=1",
    ),
    f"{_LOOP}.max_turns": Meaning(ours="environment.max_turns", why="generations, not tool calls"),
    f"{_LOOP}.concurrent_workers": nothing("tools of all trajectories always run concurrently"),
    f"{_LOOP}.tool_name_key": nothing(
        "environment.id sets the environment of all rows, and data.tools or environment.tools their tools",
        only=("env_name",),
        otherwise="the column of the environment's name is env_name",
    ),
    f"{_LOOP}.tool_meta_key": nothing(
        "null has no effect", only=(None,), otherwise="tools receive all fields of a row: give null"
    ),
    f"{_LOOP}.custom_stop": Meaning(ours="rollout.stop"),
    f"{_LOOP}.show_tqdm": nothing("a terminal always shows the progress"),
    f"{_LOOP}.vl_model_path": nothing("tokenizer and image processor are loaded from the model folder"),
    f"{_LOOP}.max_vllm_images": Meaning(ours="rollout.vllm.max_images"),
    f"{_LOOP}.max_vllm_videos": Meaning(ours=None, why="videos are not supported", read=_no_videos),
    f"{_LOOP}.tool_using_cumulative_reward_per_turn": nothing(
        "the weight of a reward for tool calls sets it: reward.N.weight"
    ),
    f"{_VALIDATION}.max_turn_in_val": nothing(
        "environment.max_turns is the limit of training and evaluation; rlcore eval RUN environment.max_turns=N "
        "evaluates with another one"
    ),
}
_SAMPLING: Mapping[str, Meaning] = {
    f"{_ROLLOUT}.name": Meaning(ours="rollout.engine", why="hf is torch", read=_engine),
    f"{_ROLLOUT}.n": Meaning(ours="rollout.group_size"),
    f"{_ROLLOUT}.temperature": Meaning(ours="rollout.temperature"),
    f"{_ROLLOUT}.top_p": Meaning(ours="rollout.top_p"),
    f"{_ROLLOUT}.top_k": Meaning(ours="rollout.top_k", why="-1 is 0, which keeps all tokens", read=_all_is_zero),
    f"{_ROLLOUT}.do_sample": nothing(
        "responses are always sampled", only=(True,), otherwise="training needs sampled responses: give True"
    ),
    f"{_ROLLOUT}.ignore_eos": nothing(
        "a response ends at its end token", only=(False,), otherwise="a response ends at its end token: give False"
    ),
    f"{_ROLLOUT}.over_sample_rate": nothing(
        "0 has no effect", only=(0, 0.0), otherwise="dropping slow trajectories favours short ones: give 0"
    ),
    f"{_ROLLOUT}.calculate_log_probs": nothing("the log-probabilities of sampled tokens are always recorded"),
    f"{_ROLLOUT}.seed": nothing("seed sets the sampling"),
    f"{_VALIDATION}.n": Meaning(ours="evaluation.samples"),
    f"{_VALIDATION}.temperature": Meaning(
        ours="evaluation.temperature", why="0 with do_sample=False", read=_temperature
    ),
    f"{_VALIDATION}.do_sample": Meaning(ours="evaluation.temperature", why="False: 0", read=_do_sample),
    f"{_VALIDATION}.top_p": Meaning(ours="evaluation.top_p"),
    f"{_VALIDATION}.top_k": Meaning(ours="evaluation.top_k", why="-1 is 0, which keeps all tokens", read=_all_is_zero),
    f"{_TURNS}.max_assistant_turns": Meaning(ours="environment.max_turns", read=_turns),
    f"{_TURNS}.max_user_turns": nothing(_ENVIRONMENT),
    f"{_TURNS}.enable": nothing(_ENVIRONMENT),
    f"{_TURNS}.tool_config_path": nothing("environment.tools sets the tools"),
    f"{_TURNS}.interaction_config_path": nothing(_ENVIRONMENT),
    f"{_TURNS}.format": Meaning(ours="model.tool_parser"),
    f"{_ROLLOUT}.agent.*": nothing(_ENVIRONMENT),
}
_ENGINE: Mapping[str, Meaning] = {
    f"{_ROLLOUT}.gpu_memory_utilization": Meaning(ours="rollout.vllm.gpu_memory_utilization"),
    f"{_ROLLOUT}.tensor_model_parallel_size": Meaning(ours="rollout.vllm.tensor_parallel_size"),
    f"{_ROLLOUT}.max_num_seqs": Meaning(ours="rollout.vllm.max_num_seqs"),
    f"{_ROLLOUT}.max_num_batched_tokens": Meaning(ours="rollout.vllm.arguments.max_num_batched_tokens"),
    f"{_ROLLOUT}.enforce_eager": Meaning(ours="rollout.vllm.enforce_eager"),
    f"{_ROLLOUT}.enable_prefix_caching": Meaning(ours="rollout.vllm.enable_prefix_caching"),
    f"{_ROLLOUT}.free_cache_engine": Meaning(ours="rollout.vllm.sleep"),
    f"{_ROLLOUT}.engine_kwargs.vllm.mm_processor_cache_gb": Meaning(ours="rollout.vllm.image_cache_gib"),
    f"{_ROLLOUT}.engine_kwargs.vllm.disable_mm_preprocessor_cache": Meaning(
        ours="rollout.vllm.image_cache_gib", why="True is 0", read=_no_cache
    ),
    f"{_ROLLOUT}.engine_kwargs.vllm.limit_mm_per_prompt.image": Meaning(ours="rollout.vllm.max_images"),
    f"{_ROLLOUT}.engine_kwargs.vllm.swap_space": nothing("vLLM computes preempted sequences again and swaps nothing"),
    f"{_ROLLOUT}.engine_kwargs.vllm.*": Meaning(ours="rollout.vllm.arguments.*"),
    f"{_ROLLOUT}.engine_kwargs.sglang.*": nothing("only with the engine sglang, which is not supported"),
    f"{_ROLLOUT}.engine_kwargs.trtllm.*": nothing("only with the engine trtllm, which is not supported"),
    f"{_ROLLOUT}.enable_chunked_prefill": nothing(_SPEED),
    f"{_ROLLOUT}.cudagraph_capture_sizes": nothing(_SPEED),
    f"{_ROLLOUT}.data_parallel_size": nothing(_SPEED),
    f"{_ROLLOUT}.moe_tensor_parallel_size": nothing(_SPEED),
    f"{_ROLLOUT}.skip_tokenizer_init": nothing("the engine receives tokens"),
    f"{_ROLLOUT}.expert_parallel_size": nothing(_SPEED),
    f"{_ROLLOUT}.disable_log_stats": nothing("metrics of the engine are always logged"),
    f"{_ROLLOUT}.dtype": nothing("model.dtype sets the data type of all weights"),
    f"{_ROLLOUT}.mode": nothing(_ASYNCHRONOUS),
    f"{_ROLLOUT}.load_format": nothing(_WEIGHTS),
    f"{_ROLLOUT}.layered_summon": nothing(_WEIGHTS),
    f"{_ROLLOUT}.multi_stage_wake_up": nothing(_WEIGHTS),
    f"{_ROLLOUT}.checkpoint_engine.*": nothing(_WEIGHTS),
    f"{_ROLLOUT}.enable_rollout_routing_replay": nothing(
        "False has no effect", only=(False,), otherwise="expert choices of the engine are not replayed: give False"
    ),
    f"{_ROLLOUT}.quantization": nothing(
        "None has no effect", only=(None,), otherwise="the engine uses the weights of the policy: give None"
    ),
    f"{_ROLLOUT}.trace.*": nothing(_RECORDED),
}
THE_ROLLOUT: Mapping[str, Meaning] = {**AGENT, **_EPISODES, **_SAMPLING, **_ENGINE}
"""By key of verl."""
