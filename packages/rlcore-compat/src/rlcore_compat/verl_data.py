"""Translation of verl's keys for the data and the rewards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore_compat.vocabulary import Meaning, Refused, Several, Words, never, nothing

_ROWS = "data.id sets the dataset, which reads the rows"
_LOADED = "tasks are loaded once, at the start of the run"
_ALL = "all rows are used: give -1, or a shorter file"
_FUNCTION = "the recipe sets the rewards: reward.0.id=file.py:Class; verl's functions have another signature"
_BUILT_IN = ("naive", "dapo", "prime", "batch")
_OVERLONG = "reward_kwargs.overlong_buffer_cfg"
_REWARD_MODEL = "reward models are not supported; a reward is a component of a plugin: reward.0.id=file.py:Class"


def _gen_batch(value: Any, words: Words) -> Any:
    """Prompts that a rollout requests; verl filters the groups afterwards."""
    size = words.get("data.train_batch_size")
    if value is None or value == size or words.get("algorithm.filter_groups.enable") is not True:
        return Several({})
    if not isinstance(value, int) or not isinstance(size, int) or value < 1 or size < 1:
        raise Refused("must be a positive integer, and needs data.train_batch_size")
    return value / size if value > size else Several({})


def _evaluation_tasks(value: Any, words: Words) -> Any:
    return Several({}) if value is None or value == -1 else value


def _of_overlong(ours: str, table: str) -> Meaning:
    """A key of the penalty for responses near the limit."""
    enable = f"{table}.{_OVERLONG}.enable"

    def read(value: Any, words: Words) -> Several:
        return Several({ours: value} if words.get(enable) is True else {})

    return Meaning(ours=ours, why="only with overlong_buffer_cfg.enable=True", read=read)


def _only_without(switch: str) -> Meaning:
    return nothing(f"only with {switch}")


def _rewards(table: str, model: str, manager: str) -> Mapping[str, Meaning]:
    """The keys of a table for rewards; verl has an older and a newer one."""
    return {
        f"{manager}": nothing(
            "the recipe sets the rewards",
            only=_BUILT_IN,
            otherwise=f"must be one of {', '.join(_BUILT_IN)}: {_FUNCTION}",
        ),
        f"{table}.{_OVERLONG}.enable": nothing("algorithm.overlong.buffer enables the penalty"),
        f"{table}.{_OVERLONG}.len": _of_overlong("algorithm.overlong.buffer", table),
        f"{table}.{_OVERLONG}.penalty_factor": _of_overlong("algorithm.overlong.penalty", table),
        f"{table}.{_OVERLONG}.log": nothing("the length of responses is always logged"),
        f"{table}.reward_kwargs.max_resp_len": _of_overlong("algorithm.max_response_tokens", table),
        f"{table}.num_workers": nothing("rewards always run concurrently"),
        f"{table}.sandbox_fusion.*": never("a reward runs code in the sandbox of the run: sandbox.id=http"),
        f"{model}.enable": nothing("the recipe sets the rewards", only=(False,), otherwise=_REWARD_MODEL),
        f"{model}.*": nothing("only with a reward model, which is not supported"),
    }


DATA: Mapping[str, Meaning] = {
    "data.train_files": Meaning(ours="data.train"),
    "data.val_files": Meaning(ours="data.evaluation"),
    "data.train_batch_size": Meaning(ours="trainer.tasks_per_step", why="counted in prompts"),
    "data.gen_batch_size": Meaning(
        ours="algorithm.filter.oversample",
        why="gen_batch_size / train_batch_size, if above 1; only with filter_groups.enable=True",
        read=_gen_batch,
    ),
    "data.gen_batch_size_align_method": nothing("a rollout can have any number of tasks"),
    "data.max_video_gen_batch_size": nothing("rows with videos are not supported"),
    "data.with_mm_hint": nothing(
        "the prompt always shows the pictures",
        only=(True,),
        otherwise="the model always sees the pictures: give True",
    ),
    "data.min_pixels": Meaning(ours="model.images.min_pixels"),
    "data.max_pixels": Meaning(ours="model.images.max_pixels"),
    "data.prompt_template_path": nothing("the plugin writes the prompts; data.style selects one, if it has several"),
    "data.val_batch_size": nothing("an evaluation runs all of its tasks concurrently, up to rollout.concurrency"),
    "data.shuffle": Meaning(ours="trainer.shuffle"),
    "data.seed": nothing("seed sets the order of the tasks"),
    "data.validation_shuffle": nothing("the order of an evaluation has no effect"),
    "data.train_max_samples": nothing("all rows are used", only=(-1, None), otherwise=_ALL),
    "data.val_max_samples": Meaning(ours="evaluation.tasks", why="-1 uses all", read=_evaluation_tasks),
    "data.prompt_key": nothing(_ROWS),
    "data.reward_fn_key": nothing(_ROWS),
    "data.image_key": nothing(_ROWS),
    "data.video_key": nothing(_ROWS),
    "data.image_patch_size": nothing(_ROWS),
    "data.return_raw_chat": nothing("the environment and the rewards always receive the messages"),
    "data.return_raw_input_ids": nothing("trajectories always contain the tokens"),
    "data.return_full_prompt": nothing("trajectories always contain the prompt"),
    "data.return_multi_modal_inputs": nothing(_ROWS),
    "data.dataloader_num_workers": nothing(_LOADED),
    "data.use_shm": nothing(_LOADED),
    "data.tokenizer": nothing(
        "the tokenizer is loaded from the model folder",
        only=(None,),
        otherwise="the tokenizer must be in the model folder",
    ),
    "data.trust_remote_code": nothing("code in model folders is not executed"),
    "data.custom_cls.*": nothing(f"{_ROWS}; a class of verl is not called: data.id=file.py:Class"),
    "data.sampler.*": never(
        "samplers of verl are not called; tasks are drawn in a shuffled order, or in that of the file"
    ),
    "data.apply_chat_template_kwargs": Meaning(ours="model.chat_template_kwargs"),
    "data.apply_chat_template_kwargs.*": Meaning(ours="model.chat_template_kwargs.*"),
    "data.tool_config_path": nothing("environment.tools sets the tools"),
    "custom_reward_function.*": nothing(_FUNCTION),
    "reward.custom_reward_function.*": nothing(_FUNCTION),
    "data.use_difficulty_sampler": nothing(
        "curriculum.success selects tasks by their success rate",
        only=(False,),
        otherwise="tasks are selected by their success rate instead: curriculum.success=[0.1,0.9]",
    ),
    "reward_model.use_history_summary_reward": nothing(
        "the recipe sets the rewards",
        only=(False,),
        otherwise="it is a reward of the plugins with screens: add it to the rewards, reward.1.id=ID",
    ),
    "reward_model.reward_kwargs.max_workers": nothing("rewards always run concurrently"),
    "reward_model.launch_reward_fn_async": nothing("rewards always run concurrently with generation"),
    "reward_model.use_reward_loop": nothing("rewards always run concurrently with generation"),
    **_rewards("reward_model", "reward_model", "reward_model.reward_manager"),
    **_rewards("reward", "reward.reward_model", "reward.reward_manager.name"),
}
"""By key of verl."""
