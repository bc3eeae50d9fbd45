"""The parameters of a transformers model, in the form that the decoder reads.

Supports model families built from the same layer: RMSNorm, rotary positions, grouped-query attention and SwiGLU.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rlcore.errors import NotInstalledError, UserError
from rlcore.models.adapter import is_adapter
from rlcore.models.folder import base_of
from rlcore.plugins.loading import pip_line
from rlcore_models.device import device_name
from rlcore_models.loading import load_model, unreadable
from rlcore_models.streaming import fill, named_tensors, streamed_model
from rlcore_models.vision_encoder import text_model
from torch import Tensor

from rlcore_rollout.engines.torch.config import FUSED_BYTES
from rlcore_rollout.engines.torch.projections import (
    OutputLayer,
    Projection,
    concatenate,
    interleave,
    pair_rows,
    projection,
)

if TYPE_CHECKING:
    from rlcore.contracts import NamedTensor, WeightSource
    from transformers import PreTrainedModel

    from rlcore_rollout.engines.context import EngineContext

TEXT_FAMILIES = ("Qwen2ForCausalLM", "Qwen3ForCausalLM", "LlamaForCausalLM")
VISION_FAMILIES = (
    "Qwen2VLForConditionalGeneration",
    "Qwen2_5_VLForConditionalGeneration",
    "Qwen3VLForConditionalGeneration",
)
"""These see images."""
FAMILIES = (*TEXT_FAMILIES, *VISION_FAMILIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The dimensions of a model."""

    layers: int
    width: int
    heads: int
    key_heads: int
    head_width: int
    vocabulary: int
    context: int
    epsilon: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One block. The rows of query and key projections are ordered so that rotated pairs are adjacent."""

    attention_norm: Tensor
    query_key_value: tuple[Projection, ...]
    """One fused projection, or separate query, key and value projections in the model's own row order."""
    query_norm: Tensor | None
    key_norm: Tensor | None
    attention_output: Projection
    mlp_norm: Tensor
    gate_up: tuple[Projection, ...]
    down: Projection


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """All parameters that a forward pass reads."""

    shape: Shape
    fused: bool
    embedding: Tensor
    layers: tuple[Layer, ...]
    norm: Tensor
    head: OutputLayer
    frequencies: Tensor
    """Radians per position of each rotated pair, float32 [head_width / 2]."""
    rotation_scale: float
    axes_F: Tensor | None = None
    """Which position of a visual token rotates each pair: 0 temporal, 1 vertical, 2 horizontal, [head_width / 2]."""

    @property
    def device(self) -> torch.device:
        """The device that holds the weights."""
        return self.embedding.device

    @property
    def dtype(self) -> torch.dtype:
        """The type of the weights."""
        return self.embedding.dtype


def model_of(source: WeightSource, context: EngineContext, before: PreTrainedModel | None = None) -> PreTrainedModel:
    """Return a model with the source's weights.

    They share the memory of the trainer's if it is in this process.

    Args:
        source: the weights
        context: device and type of weights that are loaded from the folder
        before: the model of earlier weights of the same source
    """
    if source.folder is None:
        raise UserError("the torch engine needs the folder of a model", fix="set model.path")
    weights = source.weights()
    if weights is None:
        return _load(source.folder, context)
    if before is None:
        return streamed_model(source.folder, weights, quantization=context.quantization, adapter=source.adapter)
    fill(before, weights)
    return before


def outline(module: PreTrainedModel) -> PreTrainedModel:
    """Return a copy of a module that shares its tensors, into which others can be filled."""
    tensors = (*module.parameters(), *module.buffers())
    return copy.deepcopy(module, {id(tensor): tensor for tensor in tensors})


def separate(module: torch.nn.Module) -> None:
    """Give a module copies of its weights, which the trainer does not change."""
    fill(module, [_copied(one) for one in named_tensors(module)])


def _copied(one: NamedTensor) -> NamedTensor:
    """Return a copy. Quantised weights are not trained, and an object of their type holds more than the numbers."""
    return one._replace(tensor=one.tensor.clone()) if one.tensor.is_floating_point() else one


@torch.inference_mode()
def separated(weights: Weights, module: torch.nn.Module) -> Weights:
    """Return weights that share no trained tensor with the module from which they were read.

    Fused projections are copies already, so there is one copy of each weight.
    """
    trained = {one.data_ptr() for one in module.parameters() if one.is_floating_point()}
    copies: dict[int, Tensor] = {}

    def copied(value: Any) -> Any:
        if isinstance(value, Tensor):
            if value.is_mkldnn or (place := value.data_ptr()) not in trained:
                return value
            if place not in copies:  # tied ones share a copy
                copies[place] = value.clone()
            return copies[place]
        if isinstance(value, tuple):
            return tuple(map(copied, value))
        if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **{one.name: copied(getattr(value, one.name)) for one in fields(value)})
        return value

    found: Weights = copied(weights)
    return found


def _load(folder: Path, context: EngineContext) -> PreTrainedModel:
    if is_adapter(folder):
        return _with_adapter(_load(base_of(folder), context), folder)
    if not (folder / "config.json").is_file():
        raise UserError("the torch engine needs a Hugging Face folder", found="no config.json", where=str(folder))
    device = torch.device(device_name(context.device, gpus=torch.cuda.device_count()))
    return load_model(folder, dtype=context.dtype, device=device, quantization=context.quantization)


def _with_adapter(module: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """Return the module with a folder's adapter applied to its layers."""
    try:
        from peft import PeftModel
    except ImportError:
        raise NotInstalledError(
            "the torch engine reads an adapter with peft", where=str(folder), fix=pip_line(["rlcore[lora]"])
        ) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # modules trained in full beside a tied layer do not concern an engine
            model: Any = PeftModel.from_pretrained(module, str(folder))
    except Exception as error:  # as in `_load`
        raise unreadable("the adapter", error, folder) from error
    found: PreTrainedModel = model.base_model.model
    found.train(False)
    return found


def unsupported(module: torch.nn.Module) -> str | None:
    """Return why the decoder cannot compute the module; None if it can."""
    model: Any = module
    name = type(module).__name__
    if name not in FAMILIES:
        return f"it is of none of the families {', '.join(FAMILIES)}"
    config = model.config.get_text_config()
    others = {kind for kind in config.to_dict().get("layer_types") or () if kind != "full_attention"}
    if others:
        return f"it has layers of type {', '.join(sorted(others))}"
    if config.hidden_act != "silu":
        return f"it has hidden_act {config.hidden_act!r}"
    rotary: Any = text_model(module).rotary_emb
    if getattr(rotary, "rope_type", "default") in ("dynamic", "longrope"):
        return f"it has rope_type {rotary.rope_type!r}"
    return None


@torch.inference_mode()
def read_weights(module: torch.nn.Module, *, copy: bool = True) -> Weights:
    """Read the parameters of a module for which `unsupported` returns None.

    Small models get fused and packed copies of their projections. Larger ones, or without ``copy`` all models, share
    the module's memory.
    """
    model: Any = module
    text: Any = text_model(module)
    config, rotary = text.config, text.rotary_emb
    embedding = text.embed_tokens.weight
    head_width = int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    shape = Shape(
        layers=len(text.layers),
        width=int(config.hidden_size),
        heads=int(config.num_attention_heads),
        key_heads=int(config.num_key_value_heads),
        head_width=head_width,
        vocabulary=int(embedding.shape[0]),
        context=int(config.max_position_embeddings),
        epsilon=float(config.rms_norm_eps),
    )
    in_blocks = sum(parameter.numel() for parameter in text.layers.parameters())
    whole = all(parameter.is_floating_point() for parameter in text.layers.parameters())
    fused = copy and whole and in_blocks * embedding.element_size() <= FUSED_BYTES
    return Weights(
        shape=shape,
        fused=fused,
        embedding=embedding.detach(),
        layers=tuple(_layer(block, shape, fused, embedding.dtype) for block in text.layers),
        norm=text.norm.weight.detach(),
        head=OutputLayer(projection(model.lm_head, folded=fused, dtype=embedding.dtype)),
        frequencies=rotary.inv_freq.detach().float(),
        rotation_scale=float(getattr(rotary, "attention_scaling", 1.0)),
        axes_F=_rotary_axes(module, rotary) if type(module).__name__ in VISION_FAMILIES else None,
    )


def _rotary_axes(module: torch.nn.Module, rotary: Any) -> Tensor:
    """Return the axis of each rotated pair: in runs (Qwen2-VL), or in turns while there are enough (Qwen3-VL)."""
    sections = list(rotary.mrope_section)
    axes_F = torch.zeros_like(rotary.inv_freq, dtype=torch.int64)
    if type(module).__name__ == "Qwen3VLForConditionalGeneration":
        for axis in (1, 2):
            axes_F[axis : 3 * sections[axis] : 3] = axis
        return axes_F
    start = 0
    for index, length in enumerate(sections):
        axes_F[start : start + length] = index % 3
        start += length
    return axes_F


def _layer(block: Any, shape: Shape, fused: bool, dtype: torch.dtype) -> Layer:
    attention, mlp = block.self_attn, block.mlp

    def read(linear: Any) -> Projection:
        return projection(linear, folded=fused, dtype=dtype)

    query, key = read(attention.q_proj), read(attention.k_proj)
    output, down = read(attention.o_proj), read(mlp.down_proj)
    query_key_value: tuple[Projection, ...] = (query, key, read(attention.v_proj))
    gate_up: tuple[Projection, ...] = (read(mlp.gate_proj), read(mlp.up_proj))
    if fused:
        pairs = (pair_rows(query, shape.head_width), pair_rows(key, shape.head_width), query_key_value[2])
        query_key_value = (concatenate(pairs).packed(),)
        gate_up = (concatenate(gate_up).packed(),)
        output, down = output.packed(), down.packed()
    norms = (getattr(attention, "q_norm", None), getattr(attention, "k_norm", None))
    query_norm, key_norm = (None if norm is None else interleave(norm.weight.detach(), 0) for norm in norms)
    return Layer(
        attention_norm=block.input_layernorm.weight.detach(),
        query_key_value=query_key_value,
        query_norm=query_norm,
        key_norm=key_norm,
        attention_output=output,
        mlp_norm=block.post_attention_layernorm.weight.detach(),
        gate_up=gate_up,
        down=down,
    )
