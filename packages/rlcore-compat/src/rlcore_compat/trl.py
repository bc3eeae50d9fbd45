"""The file of ``trl grpo --config``. The keys are in ``trl.toml``."""

from __future__ import annotations

import math
from typing import Any

from rlcore.config.adapters import Given
from rlcore.data.files import SUFFIXES, data_files
from rlcore.errors import DataError

from rlcore_compat.file_vocabulary import FileVocabulary
from rlcore_compat.tables import Refused, Several, Table, Words
from rlcore_compat.trl_batches import DATASET, as_steps, dataset_place, processes_beside, steps, steps_of_epoch

_AGGREGATIONS = {
    "grpo": "seq-mean-token-mean",
    "bnpo": "token-mean",
    "dapo": "token-mean",
    "dr_grpo": "seq-mean-token-sum-norm",
}
_LOSSES = ("cispo", "luspo", "sapo", "vespo")


def learning_rate(value: Any, words: Words) -> Several:
    found = Several({"trainer.learning_rate": value})
    if words.get("lr_scheduler_type") is None:
        found["trainer.schedule"] = "linear"
    return found


def dataset(value: Any, words: Words) -> Any:
    if not isinstance(value, str):
        raise Refused("must be a file, or the name of a data set in the hub's cache")
    name = dataset_place(value, words)
    if not name.endswith(SUFFIXES):
        try:
            data_files(name, "train")
        except DataError as error:
            raise Refused(
                f"data sets are not downloaded, and {error.message} ({error.found}): run hf download "
                f"--repo-type dataset {value}, or give a .jsonl, .json or .parquet file"
            ) from None
    return name


def _is_true(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Refused("must be true or false")
    return value


def peft(value: Any, words: Words) -> Several:
    if not _is_true(value):
        return Several()
    return Several({"lora.rank": words.get("lora_r", 16), "lora.alpha": words.get("lora_alpha", 32)})


def trackers(value: Any, words: Words) -> list[str]:
    """The console and the metrics file, and the given trackers."""
    names = value if isinstance(value, list) else [value]
    if "all" in names:
        raise Refused("list the trackers: tensorboard, wandb, trackio or none")
    return ["console", "jsonl", *(str(name) for name in names if name != "none")]


def delta(value: Any, words: Words) -> Any:
    """The bound of the ratio for negative advantages, which the loss of token ratios alone has."""
    if words.get("importance_sampling_level") == "sequence" or words.get("loss_type") == "luspo":
        raise Refused(
            "with sequence ratios, TRL's delta bounds the ratio of a whole sequence, which gspo and luspo do not have"
        )
    return value


def loss_type(value: Any, words: Words) -> Several:
    if value in _LOSSES:
        return Several({"algorithm.loss": value})
    if not isinstance(value, str) or value not in _AGGREGATIONS:
        raise Refused(f"supported loss types: {', '.join([*_AGGREGATIONS, *_LOSSES])}")
    found = Several({"algorithm.aggregation": _AGGREGATIONS[value]})
    if value == "dr_grpo" and words.get("max_completion_length") is not None:
        found["algorithm.max_response_tokens"] = words["max_completion_length"]
    return found


def level(value: Any, words: Words) -> Any:
    if value not in ("token", "sequence"):
        raise Refused("must be token (GRPO) or sequence (GSPO); algorithm.loss=gspo-token is the token-level variant")
    loss = words.get("loss_type")
    if loss == "luspo" and value == "token":
        raise Refused("loss_type luspo uses sequence ratios: give sequence")
    if loss in _LOSSES and loss != "luspo" and value == "sequence":
        raise Refused(f"loss_type {loss} uses token ratios: use grpo, or level token")
    return loss if loss in _LOSSES else {"token": "clip", "sequence": "gspo"}[value]


def epsilon(value: Any, words: Words) -> Several:
    found = Several({"algorithm.loss.clip_low": value})
    if words.get("epsilon_high") is None:
        found["algorithm.loss.clip_high"] = value
    return found


def epsilon_high(value: Any, words: Words) -> Any:
    if words.get("loss_type") != "cispo":
        return value
    if not isinstance(value, int | float) or value < 1:
        raise Refused("with loss_type cispo, it is the maximum weight of a token, at least 1")
    return value - 1


def beta(value: Any, words: Words) -> Several:
    return Several({"algorithm.kl.coefficient": value, **({"algorithm.kl.estimator": "k3"} if value else {})})


def context(value: Any, words: Words) -> int:
    parts = (value, words.get("max_completion_length", 256))
    if not all(isinstance(part, int) and part > 0 for part in parts):
        raise Refused("max_prompt_length and max_completion_length must be positive integers")
    return int(sum(parts))


def top_k(value: Any, words: Words) -> Any:
    return max(0, value) if isinstance(value, int) else value


def warmup_share(value: Any, words: Words) -> int:
    if not isinstance(value, int | float) or not 0 <= value < 1:
        raise Refused("must be a fraction of all steps, from 0 to below 1")
    return math.ceil(round(value * steps(None, words), 6))


def betas(value: Any, words: Words) -> list[Any]:
    return [words.get("adam_beta1", 0.9), words.get("adam_beta2", 0.999)]


def interval(value: Any, words: Words) -> Any:
    """``save_strategy`` and ``eval_strategy``: never, every N steps, or every pass over the data."""
    if value == "no":
        return 0
    if value == "epoch":
        return steps_of_epoch(words)
    if value != "steps":
        raise Refused("must be no, steps or epoch; the best checkpoint by evaluation is always kept")
    return Several()


def do_eval(value: Any, words: Words) -> Any:
    return Several() if _is_true(value) or words.get("eval_strategy") in ("steps", "epoch") else 0


def eval_steps(value: Any, words: Words) -> Any:
    off = words.get("do_eval") is False and words.get("eval_strategy") is None
    return Several() if off else as_steps(value, words)


def most_steps(value: Any, words: Words) -> Any:
    if not isinstance(value, int) or isinstance(value, bool):
        raise Refused("must be an integer number of optimiser steps; -1 uses num_train_epochs")
    return steps(value, words) if value > 0 else Several()


def epochs(value: Any, words: Words) -> Any:
    most = words.get("max_steps")
    return Several() if isinstance(most, int) and most > 0 else steps(value, words)


def _beside(given: Given) -> Words:
    """Count rows of ``dataset_name``, even if it is not given."""
    return {DATASET: None, **processes_beside(given)}


TRL = Table("rlcore_compat:trl.toml", "GRPOConfig")
"""The keys of ``GRPOConfig``."""
GRPO_FILE = FileVocabulary(
    name="TRL",
    paths=frozenset({"output_dir", "logging_dir"}),
    models=frozenset({DATASET, "model_name_or_path"}),
    beside=_beside,
    meanings=Table("rlcore_compat:trl.toml"),
)

__all__ = ["GRPO_FILE", "TRL", "trackers"]
