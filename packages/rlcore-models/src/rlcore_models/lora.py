"""LoRA adapters through peft: attach, save and load.

peft injects its layers into the model in place. The model keeps its class, so packed attention, the fused loss and
engines work unchanged. There is one adapter, with peft's default name.
"""

from __future__ import annotations

import copy
import json
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from rlcore.console.wording import counted
from rlcore.errors import UserError
from rlcore.models.adapter import FINGERPRINT, QUANTIZATION, WEIGHTS, check_base, read_settings
from rlcore.models.fingerprint import fingerprint_of_folder
from rlcore.types import derive_seed
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from rlcore_models.lora_config import ALL, LoraTable
from rlcore_models.lora_names import Layers, wrong_names
from rlcore_models.sharded import put
from rlcore_models.vision_encoder import OF_TOWER, is_vision_language, text_model

NAME = "default"
PREFIX = "base_model.model."
"""Prefix of every name in an adapter's file: the path of the model in peft's own wrapper."""


@dataclass(frozen=True, slots=True)
class Base:
    """The base model of an adapter."""

    folder: Path
    fingerprint: str


_BASES: WeakKeyDictionary[nn.Module, Base] = WeakKeyDictionary()


def has_adapter(model: nn.Module) -> bool:
    """Return whether the model has an adapter from `attach`."""
    return model in _BASES


def quantization_of(model: PreTrainedModel) -> str:
    """Return the quantization of the model's linear layers, as a value of ``model.quantization``."""
    settings: Any = getattr(model.config, "quantization_config", None)
    return "none" if settings is None else str(settings.bnb_4bit_quant_type)


def attach(
    model: PreTrainedModel,
    table: LoraTable,
    *,
    base: Path,
    seed: int,
    adapter: Path | None = None,
    dropout: bool = False,
) -> None:
    """Attach an adapter to the model, and train only the adapter's parameters.

    A new adapter does not change the model's output. The vision tower of a vision-language model is adapted only if
    ``table.targets`` is a regular expression that matches its paths, because vLLM cannot serve adapters there. Its
    layers are trained in full only if a name of ``table.modules_to_save`` matches no layer of the text model.

    Args:
        model: a model from `rlcore_models.loading.load_model`
        table: the layers to adapt and the form of the adapter
        base: the folder that the model was loaded from
        seed: seed of the run
        adapter: folder of an adapter to continue from
        dropout: whether ``table.dropout`` applies

    Raises:
        UserError: the layers do not exist, or the adapter has another base or another form.
    """
    # peft imports bitsandbytes, which warns about an optional kernel on processors with AVX-512 BF16.
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
    from peft import LoraConfig, inject_adapter_in_model

    if adapter is not None:
        check_base(adapter, base)
        _check_form(table, adapter)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # keys of another version of peft; relevant settings are compared above
            settings = LoraConfig.from_pretrained(str(adapter))
        settings.inference_mode = False
    else:
        assert table.rank is not None
        _check_names(model, table)
        alpha = table.alpha or table.rank
        settings = LoraConfig(
            r=table.rank,
            lora_alpha=alpha if alpha != int(alpha) else int(alpha),  # type: ignore[arg-type]  # peft takes any number
            target_modules=_targets(model, table),
            exclude_modules=_excluded(model, table),
            use_rslora=table.rslora,
            use_dora=table.dora,
            modules_to_save=_whole(model, table) or None,
            task_type="CAUSAL_LM",
        )
    settings.lora_dropout = table.dropout if dropout else 0.0
    settings.base_model_name_or_path = str(base.resolve())
    torch.manual_seed(derive_seed(seed, "lora"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the merge reports untied embeddings
        try:
            inject_adapter_in_model(settings, model, adapter_name=NAME)
        except (ValueError, TypeError) as error:
            raise UserError(
                "peft cannot attach this adapter to the model",
                found=str(error).splitlines()[0],
                where=f"{base}, lora.targets={table.targets}",
                fix=f"choose from its linear layers: {', '.join(_layers_of(model).linear_names)}",
            ) from error
    model.train(False)  # restore evaluation mode: new layers, including dropout, start in training mode
    _BASES[model] = Base(base.resolve(), fingerprint_of_folder(base))
    _check_embeddings(model)
    if adapter is not None:
        write_values(model, read_values(model, adapter))


def settings_of(model: PreTrainedModel) -> dict[str, Any] | None:
    """Return peft's settings of the model's adapter as plain JSON values; None if it has none."""
    settings = getattr(model, "peft_config", {}).get(NAME)
    if settings is None:
        return None
    words: dict[str, Any] = settings.to_dict()
    plain = (str, int, float, bool, list, dict, set, type(None))
    return {
        key: sorted(value) if isinstance(value, set) else value
        for key, value in words.items()
        if isinstance(value, plain)
    }


def attach_empty(model: PreTrainedModel, settings: Mapping[str, Any]) -> None:
    """Add the layers of an adapter to a model whose parameters are on the device ``meta``, without values.

    Args:
        model: the model without an adapter
        settings: as returned by `settings_of`
    """
    from peft import LoraConfig, inject_adapter_in_model

    known = {field.name for field in fields(LoraConfig)}
    config = LoraConfig(**{key: value for key, value in settings.items() if key in known})
    config.inference_mode = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as in `attach`
        inject_adapter_in_model(config, model, adapter_name=NAME, low_cpu_mem_usage=True)
    model.train(False)


def _targets(model: PreTrainedModel, table: LoraTable) -> str | list[str]:
    """Return the layers to adapt; for all layers of a vision-language model the names of those of its text model."""
    if table.targets == ALL and is_vision_language(model):
        return _layers_of(text_model(model)).linear_names
    return table.targets


def _excluded(model: PreTrainedModel, table: LoraTable) -> str | None:
    explicit = isinstance(table.targets, str) and table.targets != ALL
    return OF_TOWER if is_vision_language(model) and not explicit else None


def _whole(model: PreTrainedModel, table: LoraTable) -> list[str]:
    """Return the layers to train in full; for a vision-language model the paths of those in its text model.

    peft selects every layer whose path ends with a name. Names such as ``norm`` also occur in the vision tower, which
    is selected only by a name that no layer of the text model has.
    """
    if not is_vision_language(model):
        return table.modules_to_save
    found: set[str] = set()
    for name in table.modules_to_save:
        paths = {path for path in _layers_of(model).all if path.endswith(name)}
        found |= {path for path in paths if not re.fullmatch(OF_TOWER, path)} or paths
    return sorted(found)


def adapter_parameters(model: PreTrainedModel) -> dict[str, nn.Parameter]:
    """Return the trained and saved parameters, by their names in an adapter's file without `PREFIX`."""
    from peft import get_peft_model_state_dict

    everything: Any = dict(model.named_parameters())
    found: dict[str, nn.Parameter] = get_peft_model_state_dict(
        model, state_dict=everything, adapter_name=NAME, save_embedding_layers=False
    )
    return found


def values_of(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return a copy of the adapter's current values."""
    return {name: parameter.detach().clone() for name, parameter in adapter_parameters(model).items()}


@torch.no_grad()
def write_values(model: PreTrainedModel, values: Mapping[str, Tensor]) -> None:
    """Overwrite the adapter's values."""
    for name, parameter in adapter_parameters(model).items():
        put(parameter, values[name])


@contextmanager
def switched_off(model: PreTrainedModel) -> Iterator[None]:
    """Disable the adapter inside the block."""
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils.other import AuxiliaryTrainingWrapper

    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    layers = [module for module in model.modules() if isinstance(module, (BaseTunerLayer, AuxiliaryTrainingWrapper))]
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)
        model.requires_grad_(False)  # peft's switch also changes these
        for parameter in trained:
            parameter.requires_grad_(True)


def save_adapter(model: PreTrainedModel, folder: Path, values: Mapping[str, Tensor] | None = None) -> None:
    """Write the adapter in peft's format, with the fingerprint of its base in the metadata of the weights.

    Args:
        model: the model
        folder: a new folder
        values: the whole tensors by their names in the file, if processes hold parts of them
    """
    base = _BASES[model]
    settings = copy.copy(model.peft_config[NAME])
    settings.inference_mode = True
    for key in ("target_modules", "modules_to_save"):
        if isinstance(names := getattr(settings, key), (set, list)):
            setattr(settings, key, sorted(names))
    folder.mkdir(parents=True, exist_ok=True)
    settings.save_pretrained(str(folder))
    if values is None:
        values = {PREFIX + name: value.detach().cpu() for name, value in adapter_parameters(model).items()}
    tensors = {name: value.contiguous() for name, value in values.items()}
    metadata = {"format": "pt", FINGERPRINT: base.fingerprint}
    if (quantised := quantization_of(model)) != "none":
        metadata[QUANTIZATION] = quantised
    save_file(tensors, folder / WEIGHTS, metadata=metadata)
    _order_metadata(folder / WEIGHTS)


def _order_metadata(path: Path) -> None:
    """Sort the metadata of a safetensors file in place, because safetensors writes it in random order."""
    with path.open("r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8").ljust(length)
        assert len(text) == length, "the same header in another order is as long"
        file.seek(8)
        file.write(text)


def read_values(model: PreTrainedModel, folder: Path) -> dict[str, Tensor]:
    """Return the values stored in a folder for the model's adapter.

    Raises:
        UserError: the folder is damaged, or its adapter has another form.
    """
    try:
        stored = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise UserError("the adapter cannot be read", found=str(error), where=str(folder / WEIGHTS)) from error
    values = {name.removeprefix(PREFIX): value for name, value in stored.items()}
    own = adapter_parameters(model)
    strange = sorted(values.keys() ^ own.keys())
    strange += [name for name in own if name in values and values[name].shape != own[name].shape]
    if strange:
        raise UserError(
            "the adapter does not fit the model",
            found=f"{len(strange)} tensors are missing, unexpected or have another shape, such as {strange[0]}",
            where=str(folder),
            fix="use an adapter of this model",
        )
    return values


def description(model: PreTrainedModel) -> str:
    """Return a one-line description of the adapter for the log."""
    from peft.tuners.lora import LoraLayer

    settings: Any = model.peft_config[NAME]
    own = sum(parameter.numel() for parameter in adapter_parameters(model).values())
    layers = sum(isinstance(module, LoraLayer) for module in model.modules())
    kind = "DoRA" if settings.use_dora else "LoRA"
    kind = f"rs{kind}" if settings.use_rslora else kind
    held = quantization_of(model)
    base = "frozen base" if held == "none" else f"frozen {held} base"
    whole = sorted({path.rpartition(".")[2] for path in settings.modules_to_save or ()})
    saved = f", full {', '.join(whole)}" if whole else ""
    return f"{kind} of rank {settings.r} on {counted(layers, 'layer')}{saved}: {own:,} trained parameters, {base}"


def _check_form(table: LoraTable, adapter: Path) -> None:
    if differences := table.differences(read_settings(adapter)):
        key, asked, found = differences[0]
        raise UserError(
            f"lora.{key} does not match the adapter",
            found=f"{asked}; the adapter has {found}",
            where=str(adapter),
            fix=f"lora.{key}={found}, or start a new run",
        )


def _check_names(model: PreTrainedModel, table: LoraTable) -> None:
    for key, wanted, fix in wrong_names(table, _layers_of(model)):
        raise UserError(f"lora.{key} names no layer of the model", found=repr(wanted), where=f"lora.{key}", fix=fix)


def _layers_of(model: nn.Module) -> Layers:
    modules = [(name, module) for name, module in model.named_modules() if name]
    return Layers([name for name, _ in modules], [name for name, module in modules if isinstance(module, nn.Linear)])


def _check_embeddings(model: PreTrainedModel) -> None:
    """Reject low-rank matrices on the embeddings: loss and engine read these weights without calling the layer."""
    from peft.tuners.lora import LoraLayer

    for layer in (model.get_input_embeddings(), model.get_output_embeddings()):  # type: ignore[no-untyped-call]
        if isinstance(layer, LoraLayer):
            name = next(name for name, module in model.named_modules() if module is layer)
            raise UserError(
                "LoRA does not support the embedding and output layers",
                found=name,
                where="lora.targets",
                fix=f"remove it from the targets; lora.modules_to_save=[{name.rpartition('.')[2]!r}] trains it fully",
            )
