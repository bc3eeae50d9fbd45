"""The file of ``trl grpo --config``: the keys of ``GRPOConfig``, of the model and of the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlcore.config.adapters import Given

from rlcore_compat.file_vocabulary import FileVocabulary
from rlcore_compat.processes import processes_beside
from rlcore_compat.trl import TRL
from rlcore_compat.trl_batches import DATASET
from rlcore_compat.vocabulary import Meaning, Refused, Several, Words, never, nothing

_NOT_CODE = "code in model folders is not executed"
_OF_PEFT = "only with use_peft: true"
_REWARDS = "rewards are set in the recipe, with weights in reward.ID.weight: {}"


def _learning_rate(value: Any, words: Words) -> Several:
    found = Several({"trainer.learning_rate": value})
    if words.get("lr_scheduler_type") is None:
        found["trainer.schedule"] = "linear"
    return found


def _dataset(value: Any, words: Words) -> Any:
    if not isinstance(value, str) or not value.endswith((".json", ".jsonl")):
        raise Refused("datasets are not downloaded: give a .json or .jsonl file")
    return value


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Refused("must be true or false")
    return value


def _peft(value: Any, words: Words) -> Several:
    if not _switch(value):
        return Several({})
    return Several({"lora.rank": words.get("lora_r", 16), "lora.alpha": words.get("lora_alpha", 32)})


def _of_peft(ours: str) -> Meaning:
    def read(value: Any, words: Words) -> Several:
        return Several({ours: value} if words.get("use_peft") is True else {})

    return Meaning(ours=ours, why=_OF_PEFT, read=read)


def _quantization(value: Any, words: Words) -> str:
    return "nf4" if _switch(value) else "none"


_MODEL: Mapping[str, Meaning] = {
    "model_name_or_path": Meaning(
        ours="model.path",
        also={"warmup.steps": 0},
        why="a folder relative to the file, or a hub id; trained without a warm-up",
    ),
    "model_revision": nothing(
        "the main revision is loaded", only=("main",), otherwise="download the revision, and give its folder"
    ),
    "dtype": Meaning(ours="model.dtype"),
    "torch_dtype": Meaning(ours="model.dtype"),
    "trust_remote_code": nothing(_NOT_CODE, only=(False,), otherwise=_NOT_CODE),
    "attn_implementation": nothing("the trainer selects the attention for its packed batches"),
    "use_peft": Meaning(
        ours="lora.rank",
        why="true: also lora.alpha; defaults 16 and 32 without lora_r and lora_alpha",
        read=_peft,
    ),
    "lora_r": _of_peft("lora.rank"),
    "lora_alpha": _of_peft("lora.alpha"),
    "lora_target_modules": _of_peft("lora.targets"),
    "lora_modules_to_save": _of_peft("lora.modules_to_save"),
    "use_rslora": _of_peft("lora.rslora"),
    "use_dora": _of_peft("lora.dora"),
    "lora_dropout": nothing("dropout is not used in reinforcement learning: it adds noise to the ratios"),
    "lora_task_type": nothing("the policy is always a causal language model"),
    "load_in_4bit": Meaning(
        ours="model.quantization", why="true: nf4, for the base of an adapter; false: none", read=_quantization
    ),
    "bnb_4bit_quant_type": nothing("always nf4", only=("nf4",), otherwise="4-bit quantization is always nf4"),
    "load_in_8bit": nothing(
        "8-bit quantization is not supported", only=(False,), otherwise="use load_in_4bit, or neither"
    ),
}
_DATA: Mapping[str, Meaning] = {
    DATASET: Meaning(ours="data.train", why="a .json or .jsonl file", read=_dataset),
    "dataset_config": nothing("not used for a file"),
    "dataset_train_split": nothing("a file is one split"),
    "dataset_test_split": nothing("set the evaluation data with data.evaluation=FILE"),
    "dataset_streaming": nothing("tasks are loaded once, at the start of the run"),
    "reward_funcs": nothing(_REWARDS.format("reward.0.id=module:function")),
    "reward_model_name_or_path": never(_REWARDS.format("a reward model is a reward of a plugin")),
    "output_dir": Meaning(ours="runs", why="each run creates a folder in it"),
}
_GRPO = {"algorithm.advantage": "grpo"}


def _beside(given: Given) -> Words:
    """Count rows of ``dataset_name``, even if it is not given."""
    return {DATASET: None, **processes_beside(given)}


GRPO_FILE = FileVocabulary(
    name="TRL",
    paths=frozenset({DATASET, "output_dir", "logging_dir"}),
    models=frozenset({"model_name_or_path"}),
    beside=_beside,
    meanings={
        **_MODEL,
        **_DATA,
        **TRL,
        **{
            name: replace(TRL[name], also=_GRPO)
            for name in ("num_generations", "importance_sampling_level", "scale_rewards")
        },
        "num_train_epochs": replace(
            TRL["num_train_epochs"], why=TRL["num_train_epochs"].why.replace("train_file", DATASET)
        ),
        "learning_rate": Meaning(
            ours="trainer.learning_rate",
            why="also trainer.schedule = linear, as in TRL, if lr_scheduler_type is not given",
            read=_learning_rate,
        ),
    },
)

__all__ = ["GRPO_FILE"]
