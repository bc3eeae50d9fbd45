"""Translation of the keys of Multimodal-Reinforce-CoT: supervised training, GRPO or GSPO with TRL, and evaluation.

Its programs merge ``pipeline.train`` with the level above it, so keys are accepted at both levels. Two keys that the
programs read and then ignore (the learning rate and the weight decay of GRPO) take effect here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore.config.requirements import unmet_with_extras
from rlcore_compat.file_vocabulary import FileVocabulary
from rlcore_compat.processes import processes_beside
from rlcore_compat.trl import TRL, trackers
from rlcore_compat.vocabulary import Meaning, Refused, Several, Words, nothing

from rl_plugin_visual_cot.files.batches import conversations_per_step, updates_of_epochs
from rl_plugin_visual_cot.files.models import PICTURES, adapter, base_or_model, conversations, other_pictures, pictures

_TRAIN = "pipeline.train"
_PATHS = frozenset(
    {
        "log_dir",
        "output_dir",
        "logging_dir",
        "image_dir",
        "test_image_dir",
        "train_file",
        "pipeline.val.val_file",
        "pipeline.test.test_file",
        "pipeline.val.image_dir",
        "pipeline.test.image_dir",
    }
)
_MODELS = frozenset({"model_path", "tokenizer_path", "lora_adapter_path"})
_WHERE = "a folder relative to the file, or a hub id"
_LOADING = "rows are loaded once, at the start of the run"
_MEMORY = "affects memory only; trainer.max_tokens_per_batch sets the batch size in memory"
_TEST = "not used to select checkpoints; to evaluate on it, run rlcore eval CHECKPOINT data.evaluation=FILE"


def _tokenizer(value: Any, words: Words) -> None:
    if value != words.get("model_path"):
        raise Refused("the tokenizer must be in the model folder: copy its files there, and set this key to model_path")


def _quantization(value: Any, words: Words) -> str:
    if not isinstance(value, bool):
        raise Refused("must be true or false")
    return "nf4" if value else "none"


def _starts(keys: Mapping[str, Any], why: str) -> Meaning:
    """A block that selects the trainer."""
    return Meaning(ours="trainer.id", why=why, read=lambda value, words: Several(keys))


def _starts_grpo(value: Any, words: Words) -> Several:
    found = Several({"trainer.id": "policy-gradient", "algorithm.advantage": "grpo"})
    if words.get("lr_scheduler_type") is None:
        found["trainer.schedule"] = "linear"
    return found


def _run_directory(tag: str) -> Meaning:
    keys = {"layout": "stamped", "name": tag}

    def read(value: Any, words: Words) -> Several:
        """Both programs write event files there by default."""
        found = Several({"runs": value, **keys})
        if words.get("report_to") is None and unmet_with_extras("rlcore-core[tensorboard]") is None:
            found["trackers.use"] = trackers("tensorboard", words)
        return found

    why = "<log_dir>/<date>_<time>_<name>/, with TensorBoard event files if TensorBoard is installed"
    return Meaning(ours="runs", also=keys, why=why, read=read)


def _do_eval(value: Any, words: Words) -> Several:
    if not isinstance(value, bool):
        raise Refused("must be true or false")
    asked = words.get("pipeline.test.evaluating_epoch_freq") is not None
    return Several({} if value or asked else {"evaluation.every": 0})


def _output_dir(value: Any, words: Words) -> Any:
    return value if words.get("log_dir") is None else Several({})


_MODEL: Mapping[str, Meaning] = {
    "model_path": Meaning(ours="model.path", why=_WHERE),
    "tokenizer_path": Meaning(ours=None, why="the tokenizer is loaded from the model folder", read=_tokenizer),
    "quantization": Meaning(
        ours="model.quantization", why="true: nf4, for the base of an adapter; false: none", read=_quantization
    ),
    "image_dir": pictures("data.images", why="pictures named {imageId}.jpg, with their environment and reward"),
    "test_image_dir": other_pictures("training does not use the test set"),
    "num_workers": nothing(_LOADING),
}
_LORA: Mapping[str, Meaning] = {
    "lora.r": Meaning(ours="lora.rank"),
    "lora.lora_alpha": Meaning(ours="lora.alpha"),
    "lora.target_modules": Meaning(ours="lora.targets"),
    "lora.use_rslora": Meaning(ours="lora.rslora"),
    "lora.use_dora": Meaning(ours="lora.dora"),
    "lora.modules_to_save": Meaning(ours="lora.modules_to_save"),
    "lora.bias": nothing("biases are not trained", only=("none",), otherwise="biases are not trained: use none"),
    "lora.task_type": nothing("the policy is always a causal language model"),
}
_TEST_SPLIT: Mapping[str, Meaning] = {
    "pipeline.test.test_file": nothing(_TEST),
    "pipeline.test.batch_size": nothing(_MEMORY),
    "pipeline.test.image_dir": other_pictures("training does not use the test set"),
    "pipeline.test.do_predict": nothing("use rlcore eval"),
    "pipeline.val.val_file": Meaning(ours="data.evaluation", why="used to select the best checkpoint"),
    "pipeline.val.batch_size": nothing(_MEMORY),
    "pipeline.val.image_dir": pictures("data.evaluation_images", also={}),
    "pipeline.val.do_eval": Meaning(
        ours="evaluation.every",
        why="false: 0, unless evaluating_epoch_freq is given; true has no effect",
        read=_do_eval,
    ),
}

_CONVERSATIONS = Meaning(
    ours="trainer.conversations_per_step",
    why="batch_size x gradient_accumulation_steps x processes",
    read=conversations_per_step,
)

SFT = FileVocabulary(
    name="the SFT file",
    block="SFT",
    also_within=_TRAIN,
    paths=_PATHS,
    models=_MODELS,
    beside=processes_beside,
    meanings={
        "SFT": _starts(
            {"trainer.id": "sft", "trainer.schedule": "linear", "trainer.lr_warmup_ratio": 0.1},
            "sft, with the fixed schedule of the original program",
        ),
        **_MODEL,
        "image_dir": pictures(
            "data.images",
            also={**PICTURES, "trainer.rollouts": True},
            why="pictures named {imageId}.jpg, with their environment and reward; evaluations also answer questions",
        ),
        "train_file": Meaning(
            ours="data.train",
            also={"data.id": "chat"},
            why="one conversation per row, or with image_dir one question with its chain of thought",
            read=conversations,
        ),
        "log_dir": _run_directory("SFT"),
        "seed": Meaning(ours="seed"),
        "n_epochs": Meaning(ours="trainer.epochs"),
        "batch_size": _CONVERSATIONS,
        "gradient_accumulation_steps": _CONVERSATIONS,
        "optimizer.learning_rate": Meaning(ours="trainer.learning_rate"),
        "optimizer.weight_decay": Meaning(ours="trainer.weight_decay"),
        "clip_grad_norm": Meaning(ours="trainer.max_gradient_norm"),
        "max_prompt_length": Meaning(ours="trainer.max_tokens", why="per conversation, as in the original program"),
        "max_completion_length": Meaning(ours="rollout.max_new_tokens", why="for evaluations with rollouts"),
        "saving_epoch_freq": Meaning(
            ours="checkpoint.every", why="passes over train_file, converted to updates", read=updates_of_epochs
        ),
        "pipeline.test.evaluating_epoch_freq": Meaning(
            ours="evaluation.every",
            why="passes over train_file, converted to updates; evaluates on val_file",
            read=updates_of_epochs,
        ),
        "logging_epoch_freq": nothing("every update is logged"),
        **_TEST_SPLIT,
        **_LORA,
        "lora.lora_dropout": Meaning(ours="lora.dropout"),
    },
)
GRPO = FileVocabulary(
    name="the GRPO file",
    block="GRPO",
    also_within=_TRAIN,
    paths=_PATHS,
    models=_MODELS,
    beside=processes_beside,
    meanings={
        "GRPO": Meaning(
            ours="trainer.id",
            why="policy-gradient with group advantages; linear schedule if lr_scheduler_type is not given",
            read=_starts_grpo,
        ),
        **_MODEL,
        "model_path": Meaning(
            ours="model.path",
            also={"warmup.steps": 0},
            why=f"{_WHERE}; trained without a warm-up",
        ),
        "train_file": Meaning(ours="data.train"),
        "lora_adapter_path": nothing("used only for evaluation"),
        "log_dir": _run_directory("GRPO"),
        "output_dir": Meaning(ours="runs", why="if log_dir is not given", read=_output_dir),
        "optimizer.learning_rate": Meaning(ours="trainer.learning_rate"),
        "optimizer.weight_decay": Meaning(ours="trainer.weight_decay"),
        **TRL,
        **_TEST_SPLIT,
        "pipeline.val.do_eval": TRL["do_eval"],
        "pipeline.test.evaluating_epoch_freq": nothing("evaluation.every sets the interval, in steps"),
        **_LORA,
        "lora.lora_dropout": nothing("dropout is not used in reinforcement learning: it adds noise to the ratios"),
    },
)
EVALUATION = FileVocabulary(
    name="the evaluation file",
    also_within=_TRAIN,
    paths=_PATHS,
    models=_MODELS,
    meanings={
        **_MODEL,
        "model_path": Meaning(
            ours="model.path", why=f"{_WHERE}; the base of lora_adapter_path, if that is given", read=base_or_model
        ),
        "lora_adapter_path": Meaning(ours="model.path", why="an adapter on the base model_path", read=adapter),
        "log_dir": Meaning(
            ours="runs",
            also={"layout": "stamped", "name": "Evaluator"},
            why="with image_dir: <log_dir>/<date>_<time>_Evaluator/result/eval_samples_Evaluator.json",
        ),
        "seed": Meaning(ours="seed"),
        "max_prompt_length": TRL["max_prompt_length"],
        "max_completion_length": TRL["max_completion_length"],
        "gradient_accumulation_steps": nothing("not used for evaluation"),
        "train_file": nothing("not used for evaluation"),
        "batch_size": nothing("not used for evaluation"),
        **_TEST_SPLIT,
        "pipeline.val.val_file": nothing("evaluation uses pipeline.test.test_file"),
        "pipeline.val.image_dir": other_pictures("evaluation uses pipeline.test.test_file"),
        "pipeline.test.test_file": Meaning(ours="data.evaluation"),
        "pipeline.test.image_dir": pictures("data.evaluation_images", also={}),
        "test_image_dir": pictures("data.evaluation_images", why="pictures of test_file"),
    },
)

__all__ = ["EVALUATION", "GRPO", "SFT"]
