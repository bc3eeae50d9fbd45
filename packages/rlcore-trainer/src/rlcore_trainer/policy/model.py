"""Load a Hugging Face folder as a trainable model.

Axes: ``V`` embeddings, ``D`` the width of the model.
"""

from __future__ import annotations

from pathlib import Path

import torch
from rlcore.errors import UserError
from rlcore.models.adapter import is_adapter
from rlcore.models.reward_model import check_policy
from rlcore_models.cpu_linear import use_onednn
from rlcore_models.loading import load_model, unreadable
from torch import Tensor
from transformers import PreTrainedModel

from rlcore_trainer.policy.finite import first_non_finite

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
    "processor_config.json",
    "rlcore.json",
)
"""Possible files of a tokenizer and of a processor of images, which a checkpoint copies unchanged."""


def load_policy(folder: Path, *, dtype: str, device: torch.device, quantization: str = "none") -> PreTrainedModel:
    """Load the model of a folder for training. `rlcore_trainer.policy.forward` chooses how it is computed.

    A quantised model is the base of an adapter, and none of its weights are trained. A vision-language model is loaded
    with its vision tower.

    Raises:
        UserError: the configuration, weights or tokenizer are missing or damaged, or do not belong together, the
            vocabulary is smaller than the tokenizer's, the weights are already quantised, or the model is not a causal
            language model or a vision-language model of a supported family.
    """
    check_folder(folder)
    model = load_model(folder, dtype=dtype, device=device, quantization=quantization, trained=True)
    model.requires_grad_(quantization == "none")
    _check_vocabulary(model, folder)
    _check_finite(model, folder)
    use_onednn(model)
    return model


def load_second(folder: Path, policy: PreTrainedModel, *, where: str, dtype: str | None = None) -> PreTrainedModel:
    """Load the model of a folder on the policy's device.

    Args:
        folder: a Hugging Face folder
        policy: the model whose tokens it will read
        where: the key that names the folder
        dtype: dtype of the weights; None uses that of the policy

    Raises:
        UserError: as for `load_policy`, or the model has no embedding for some of the policy's tokens.
    """
    dtype = dtype or str(policy.dtype).removeprefix("torch.")
    model = load_policy(folder, dtype=dtype, device=policy.device)
    known, wanted = _embeddings(model), _embeddings(policy)
    if known < wanted:
        raise UserError(
            f"the model of {where} needs embeddings for all {wanted:,} tokens of the policy",
            found=f"{known:,} embeddings",
            where=str(folder),
            fix=f"{where}=FOLDER of a model with the policy's tokenizer",
        )
    return model


def _embeddings(model: PreTrainedModel) -> int:
    weight_VD = model.get_input_embeddings().weight  # peft wraps the layer to train it as a whole
    assert isinstance(weight_VD, Tensor)
    return len(weight_VD)


def check_folder(folder: Path) -> None:
    """Raise an error if files are missing in a model's folder, before anything is loaded."""

    def missing(what: str, fix: str) -> UserError:
        found = ", ".join(sorted(path.name for path in folder.iterdir())) if folder.is_dir() else "no such folder"
        return UserError(f"model.path needs {what}", found=found or "an empty folder", where=str(folder), fix=fix)

    if is_adapter(folder):
        raise UserError(
            "expected a full model",
            found="an adapter",
            where=str(folder),
            fix=f"rlcore merge {folder} --out FOLDER, or continue from it with model.path=BASE lora.adapter={folder}",
        )
    if not (folder / "config.json").is_file():
        raise missing("a Hugging Face folder with config.json", "use a local model folder or builtin:tiny-qwen2")
    check_policy(folder)
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("pytorch_model*.bin")):
        raise missing("the model's weights (*.safetensors)", "copy the weights next to config.json")
    if not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.json", "tokenizer.model")):
        raise missing("the model's tokenizer (tokenizer.json)", "copy tokenizer.json and tokenizer_config.json there")


def output_head(model: PreTrainedModel) -> Tensor:
    """Return the weights of the output layer [V, D]."""
    weight_VD = model.get_output_embeddings().weight  # type: ignore[no-untyped-call]
    assert isinstance(weight_VD, Tensor)
    return weight_VD


def _check_vocabulary(model: PreTrainedModel, folder: Path) -> None:
    if not (folder / "tokenizer.json").is_file():
        return
    from tokenizers import Tokenizer

    try:
        tokens = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
    except Exception as error:  # the tokenizers library raises no narrower type
        raise unreadable("the tokenizer of the model", error, folder) from error
    rows = _embeddings(model)
    if rows < tokens:
        raise UserError(
            "the tokenizer must not have more tokens than the model",
            found=f"{tokens} tokens, {rows} embeddings",
            where=str(folder),
            fix="use the tokenizer that the model was trained with",
        )


def _check_finite(model: PreTrainedModel, folder: Path) -> None:
    name = first_non_finite(dict(model.named_parameters()))
    if name is not None:
        raise not_finite(f"NaN or infinity in {name}", folder)


def not_finite(found: str, folder: Path) -> UserError:
    """Return the error of weights or log-probabilities that are NaN or infinite."""
    fix = "choose another checkpoint, or download the model again"
    return UserError("a model must have finite weights and log-probabilities", found=found, where=str(folder), fix=fix)
