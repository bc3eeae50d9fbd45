"""Load a Hugging Face folder as a model of ``transformers``."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from rlcore.console.wording import counted
from rlcore.errors import UserError
from rlcore.models.agreement import check_agreement
from rlcore.models.config_file import read_config
from rlcore.models.reward_model import is_reward_model
from rlcore.models.vision_language import sees_images
from rlcore.models.weights import COPY, Types, check_types
from torch import nn
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForSequenceClassification,
    PreTrainedModel,
)
from transformers.utils.logging import disable_progress_bar, set_verbosity_error

from rlcore_models.quantization import keep_layout, loading_options
from rlcore_models.thread_teams import limit_threads


def load_model(
    folder: Path, *, dtype: str, device: torch.device, quantization: str = "none", trained: bool = False
) -> PreTrainedModel:
    """Load the model of a folder, in evaluation mode. A vision-language model is loaded with its vision encoder.

    Args:
        folder: has config.json and weights
        dtype: of the weights; ``auto`` is float32 on a CPU and bfloat16 on a GPU
        device: of the weights
        quantization: ``none`` or ``nf4``
        trained: whether the weights will be trained, and so must not be quantised already

    Raises:
        NotInstalledError: a library for the quantization is missing.
        UserError: the configuration or the weights are damaged or do not belong together, or the model is not a causal
            language model or a vision-language model of a supported family.
    """
    check_agreement(folder)  # before the next check, which trusts config.json
    if trained:
        _check_whole(folder)
    check_types(folder, pickled=_pickled_types)
    chosen = _dtype(dtype, device)
    disable_progress_bar()  # type: ignore[no-untyped-call]  # a run prints only its own lines
    set_verbosity_error()  # type: ignore[no-untyped-call]  # missing tensors are reported below
    quantised = loading_options(quantization, dtype=chosen, device=device)
    kind = class_of(folder)
    try:
        loaded: Any = kind.from_pretrained(
            folder,
            dtype=chosen,
            local_files_only=True,
            trust_remote_code=False,
            attn_implementation=attention_of(config_of(folder)),
            output_loading_info=True,
            **quantised,
        )
    except Exception as error:  # damaged settings and weights raise every type in transformers and torch
        raise unreadable("the model", error, folder) from error
    model, loading = loaded
    assert isinstance(model, PreTrainedModel)
    _check_loaded(loading, folder)
    if quantised:
        keep_layout(model)
    else:
        nn.Module.to(model, device)
    if device.type == "cpu":
        limit_threads(model.num_parameters())
    evaluated: PreTrainedModel = model.train(False)
    return evaluated


def unreadable(what: str, error: Exception, folder: Path) -> UserError:
    """Return the error for an exception of a library that reads a part of a folder."""
    lines = str(error).splitlines()
    return UserError(
        f"{what} cannot be loaded",
        found=f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__,
        where=str(folder),
        fix="save or download the folder again, or choose a model that the installed transformers supports",
    )


def _check_whole(folder: Path) -> None:
    if read_config(folder).get("quantization_config") is not None:
        raise UserError(
            "training needs unquantised weights",
            found="quantised weights",
            where=str(folder),
            fix="use the original model, with model.quantization=nf4 and an adapter",
        )


def _check_loaded(loading: Mapping[str, Collection[str]], folder: Path) -> None:
    """Reject a model whose weights do not match its configuration.

    Missing tensors would silently be random, and tensors that are not read belong to a larger model.
    """
    for key, message in (
        ("missing_keys", "the weights of the model are incomplete"),
        ("unexpected_keys", "the model folder has more weights than the model of its config.json"),
    ):
        if names := sorted(loading[key]):
            verb = "missing" if key == "missing_keys" else "unread"
            found = f"{counted(len(names), f'{verb} tensor')}, such as {names[0]}"
            raise UserError(message, found=found, where=str(folder), fix=COPY)


def _pickled_types(path: Path) -> Types:
    """The tensors of a file of torch, without their data; none if it cannot be read."""
    try:
        tensors = torch.load(path, map_location="meta", weights_only=True, mmap=True)
        return {name: (str(tensor.dtype).removeprefix("torch."), tensor.ndim) for name, tensor in tensors.items()}
    except (OSError, EOFError, RuntimeError, ValueError, AttributeError, pickle.UnpicklingError):
        return {}


def class_of(folder: Path) -> Any:
    """Return the class of ``transformers`` that loads a folder."""
    config = read_config(folder)
    if is_reward_model(config):
        return AutoModelForSequenceClassification
    return AutoModelForImageTextToText if sees_images(config, folder) else AutoModelForCausalLM


def config_of(folder: Path) -> Any:
    """Return the configuration of a folder."""
    return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def attention_of(config: Any) -> str:
    """Return the attention to load, always by name: a configuration could name code to download."""
    kinds = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING if hasattr(config, "vision_config") else MODEL_FOR_CAUSAL_LM_MAPPING
    kind: Any = kinds.get(type(config), PreTrainedModel)
    return "sdpa" if kind._supports_sdpa else "eager"


def _dtype(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype
