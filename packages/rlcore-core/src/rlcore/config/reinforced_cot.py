"""The YAML files of Multimodal-Reinforce-CoT: supervised training, GRPO or GSPO by TRL, evaluation.

Its programs take ``pipeline.train`` and the level above it together, so a word may stand at either place. What they
read and then passed over (the learning rate and weight decay of GRPO) is honoured here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore.config.requirements import unmet_with_extras
from rlcore.config.trl import TRL, trackers
from rlcore.config.trl_batches import conversations_per_step, updates_of_epochs
from rlcore.config.vocabulary import FileVocabulary, Meaning, Refused, Several, Words, never, nothing

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
_WHERE = "a folder, from the file's own place, or a hub id as it is"
_PICTURES = "no picture is read: the text of the rows alone is trained on"
_LOADING = "rows are read once, when the run starts"
_MEMORY = "memory only; trainer.max_tokens_per_batch decides how much is computed at once"
_TEST = "no checkpoint is chosen by the test set; rlcore eval CHECKPOINT data.evaluation=FILE measures on it"
_ADAPTER_MERGED = (
    "an adapter is evaluated merged: rlcore merge ADAPTER --base MODEL --out FOLDER, and model_path: FOLDER; "
    "a checkpoint of ours as it is: rlcore eval CHECKPOINT"
)


def _tokenizer(value: Any, words: Words) -> None:
    if value != words.get("model_path"):
        raise Refused("the tokenizer is that of the model's folder: put its files there, and name model_path here")


def _quantization(value: Any, words: Words) -> str:
    if not isinstance(value, bool):
        raise Refused("it is true or false")
    return "nf4" if value else "none"


def _starts(keys: Mapping[str, Any], why: str) -> Meaning:
    """The block itself chooses the trainer."""
    return Meaning(ours="trainer.id", why=why, read=lambda value, words: Several(keys))


def _starts_grpo(value: Any, words: Words) -> Several:
    found = Several({"trainer.id": "policy-gradient", "algorithm.advantage": "grpo"})
    if words.get("lr_scheduler_type") is None:
        found["trainer.schedule"] = "linear"
    return found


def _run_directory(tag: str) -> Meaning:
    keys = {"layout": "stamped", "name": tag}

    def read(value: Any, words: Words) -> Several:
        """Event files are written there in any case, and by both programs unless TRL is told otherwise."""
        found = Several({"runs": value, **keys})
        if words.get("report_to") is None and unmet_with_extras("rlcore-core[tensorboard]") is None:
            found["trackers.use"] = trackers("tensorboard", words)
        return found

    why = "<log_dir>/<date>_<time>_<name>/, with event files of TensorBoard where that is installed"
    return Meaning(ours="runs", also=keys, why=why, read=read)


def _output_dir(value: Any, words: Words) -> Any:
    return value if words.get("log_dir") is None else Several({})


_MODEL: Mapping[str, Meaning] = {
    "model_path": Meaning(ours="model.path", why=_WHERE),
    "tokenizer_path": Meaning(ours=None, why="the tokenizer is that of the model's folder", read=_tokenizer),
    "quantization": Meaning(
        ours="model.quantization", why="true is nf4, under an adapter; false is none", read=_quantization
    ),
    "image_dir": nothing(_PICTURES),
    "test_image_dir": nothing(_PICTURES),
    "num_workers": nothing(_LOADING),
}
_LORA: Mapping[str, Meaning] = {
    "lora.r": Meaning(ours="lora.rank"),
    "lora.lora_alpha": Meaning(ours="lora.alpha"),
    "lora.target_modules": Meaning(ours="lora.targets"),
    "lora.use_rslora": Meaning(ours="lora.rslora"),
    "lora.use_dora": Meaning(ours="lora.dora"),
    "lora.modules_to_save": Meaning(ours="lora.modules_to_save"),
    "lora.bias": nothing("no bias is trained", only=("none",), otherwise="biases are not trained: give none"),
    "lora.task_type": nothing("a policy is always a causal language model"),
}
_TEST_SPLIT: Mapping[str, Meaning] = {
    "pipeline.test.test_file": nothing(_TEST),
    "pipeline.test.batch_size": nothing(_MEMORY),
    "pipeline.test.image_dir": nothing(_PICTURES),
    "pipeline.test.do_predict": nothing("rlcore eval does, at any time"),
    "pipeline.val.val_file": Meaning(ours="data.evaluation", why="the best checkpoint is chosen by it"),
    "pipeline.val.batch_size": nothing(_MEMORY),
    "pipeline.val.image_dir": nothing(_PICTURES),
    "pipeline.val.do_eval": nothing("evaluation.every decides, 0 for never"),
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
    meanings={
        "SFT": _starts(
            {"trainer.id": "sft", "trainer.schedule": "linear", "trainer.warmup_ratio": 0.1},
            "sft, with the schedule that is fixed there",
        ),
        **_MODEL,
        "train_file": Meaning(ours="data.train", also={"data.id": "chat"}, why="one conversation a row"),
        "log_dir": _run_directory("SFT"),
        "seed": Meaning(ours="seed"),
        "n_epochs": Meaning(ours="trainer.epochs"),
        "batch_size": _CONVERSATIONS,
        "gradient_accumulation_steps": _CONVERSATIONS,
        "optimizer.learning_rate": Meaning(ours="trainer.learning_rate"),
        "optimizer.weight_decay": Meaning(ours="trainer.weight_decay"),
        "clip_grad_norm": Meaning(ours="trainer.max_gradient_norm"),
        "max_prompt_length": Meaning(ours="trainer.max_tokens", why="of a whole conversation, as there"),
        "max_completion_length": Meaning(ours="rollout.max_new_tokens", why="of evaluations that roll out"),
        "saving_epoch_freq": Meaning(
            ours="checkpoint.every", why="passes over train_file, in updates", read=updates_of_epochs
        ),
        "pipeline.test.evaluating_epoch_freq": Meaning(
            ours="evaluation.every", why="passes over train_file, in updates; on val_file", read=updates_of_epochs
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
    meanings={
        "GRPO": Meaning(
            ours="trainer.id",
            why="policy-gradient, with advantages of groups, and TRL's linear schedule without an lr_scheduler_type",
            read=_starts_grpo,
        ),
        **_MODEL,
        "model_path": Meaning(
            ours="model.path",
            also={"warmup.steps": 0},
            why=f"{_WHERE}; it is trained as it is, without a warm-up",
        ),
        "train_file": Meaning(ours="data.train"),
        "lora_adapter_path": nothing("only an evaluation reads it there"),
        "log_dir": _run_directory("GRPO"),
        "output_dir": Meaning(ours="runs", why="where no log_dir is given: one folder holds a run", read=_output_dir),
        "optimizer.learning_rate": Meaning(ours="trainer.learning_rate"),
        "optimizer.weight_decay": Meaning(ours="trainer.weight_decay"),
        **TRL,
        **_TEST_SPLIT,
        "pipeline.test.evaluating_epoch_freq": nothing("evaluation.every decides, in steps"),
        **_LORA,
        "lora.lora_dropout": nothing("nothing is dropped out in reinforcement learning: ratios would be noise"),
    },
)
EVALUATION = FileVocabulary(
    name="the evaluation file",
    also_within=_TRAIN,
    paths=_PATHS,
    models=_MODELS,
    meanings={
        **_MODEL,
        "lora_adapter_path": never(_ADAPTER_MERGED),
        "log_dir": nothing("rlcore eval prints its table, and stores trajectories with --save FILE.jsonl.gz"),
        "seed": Meaning(ours="seed"),
        "max_prompt_length": TRL["max_prompt_length"],
        "max_completion_length": TRL["max_completion_length"],
        "gradient_accumulation_steps": nothing("nothing is trained"),
        "train_file": nothing("nothing is trained"),
        "batch_size": nothing("nothing is trained"),
        **_TEST_SPLIT,
        "pipeline.val.val_file": nothing("pipeline.test.test_file is what is measured on"),
        "pipeline.test.test_file": Meaning(ours="data.evaluation"),
    },
)

__all__ = ["EVALUATION", "GRPO", "SFT"]
