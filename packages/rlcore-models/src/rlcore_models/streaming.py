"""A model whose weights are those of a `rlcore.contracts.WeightSource`, without a copy of them.

The weights of a source in the same process are the live tensors of the trainer, so a model that was filled once has its
later values, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlcore.contracts import NamedTensor
from rlcore.errors import EngineError
from torch import Tensor, nn
from transformers import PreTrainedModel

from rlcore_models.cpu_linear import use_onednn
from rlcore_models.loading import attention_of, class_of, config_of
from rlcore_models.quantization import use_empty_layers, with_constants
from rlcore_models.sharded import whole

Places = dict[str, list[tuple[nn.Module, str]]]
"""The modules that hold a tensor, with the name of their attribute; several if tensors are tied."""


def named_tensors(module: nn.Module) -> Iterator[NamedTensor]:
    """Yield every parameter and every saved buffer of a module once, without gradients and without a copy.

    A sharded parameter is gathered, so all its processes must iterate together. One tensor is gathered at a time.
    """
    for name, tensor in _kept(module):
        found = whole(tensor)
        if found.is_floating_point():
            found = found.detach()
        elif found is not tensor:
            found = with_constants(found, module.get_submodule(name.rpartition(".")[0]))
        yield named(name, found)  # a quantised parameter as the object itself, which has constants beside its numbers


def kept_by_main(weights: Iterable[NamedTensor]) -> dict[str, Tensor] | None:
    """Return weights by name on the CPU in the main process, and None in the others, which gather them with it."""
    import torch.distributed as distributed

    main, found = distributed.get_rank() == 0, dict[str, Tensor]()
    for one in weights:
        if main:
            found[one.name] = one.tensor.cpu()
    return found if main else None


def named(name: str, tensor: Tensor) -> NamedTensor:
    """Return a tensor with its name."""
    return NamedTensor(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), tensor)


def _kept(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters()
    for path, owner in module.named_modules():
        for name, buffer in owner.named_buffers(recurse=False):
            if name not in owner._non_persistent_buffers_set:
                yield f"{path}.{name}" if path else name, buffer


def streamed_model(
    folder: Path,
    weights: Iterable[NamedTensor],
    *,
    quantization: str = "none",
    adapter: Mapping[str, Any] | None = None,
) -> PreTrainedModel:
    """Return a model with the configuration of a folder and the given weights, in evaluation mode.

    Args:
        folder: has config.json
        weights: every tensor of the model
        quantization: ``none`` or ``nf4``, that of the weights
        adapter: peft's settings of the adapter that the weights include; None if they include none

    Raises:
        EngineError: the weights are not those of the model.
    """
    tensors = list(weights)
    example = next(one.tensor for one in tensors if one.tensor.is_floating_point())
    config = config_of(folder)
    with _parameters_on_meta():
        model: PreTrainedModel = class_of(folder).from_config(
            config, dtype=example.dtype, attn_implementation=attention_of(config), trust_remote_code=False
        )
    model.train(False)
    if quantization == "none" and example.device.type == "cpu":
        use_onednn(model, device=example.device)
    elif quantization != "none":
        use_empty_layers(model, quantization, dtype=example.dtype, device=example.device)
        places = _places(model)
        for one in tensors:  # DoRA reads the quantised weights when it is attached
            if not one.tensor.is_floating_point() and (name := one.name.replace(".base_layer.", ".")) in places:
                _replace(places[name], one, model)
    if adapter is not None:
        from rlcore_models.lora import attach_empty

        attach_empty(model, adapter)
    for owner in model.modules():
        for name, buffer in owner.named_buffers(recurse=False):
            owner._buffers[name] = buffer.to(example.device)
    fill(model, tensors)
    return model


def fill(model: nn.Module, weights: Iterable[NamedTensor]) -> None:
    """Replace all parameters and saved buffers of a model by the given tensors, which it then shares.

    Raises:
        EngineError: a tensor is missing, unknown or of another shape. The model may have been changed partly.
    """
    places = _places(model)
    for one in weights:
        holders = places.pop(one.name, None)
        if holders is None:
            raise _unfitting(f"no tensor {one.name}", model)
        _replace(holders, one, model)
    if places:
        raise _unfitting(f"{len(places)} tensors that are not sent, such as {next(iter(places))}", model)


def _places(model: nn.Module) -> Places:
    names, places = dict[int, str](), Places()
    for path, owner in model.named_modules():
        for name, tensor in (*owner._parameters.items(), *owner._buffers.items()):
            if tensor is not None and name not in owner._non_persistent_buffers_set:
                first = names.setdefault(id(tensor), f"{path}.{name}" if path else name)
                places.setdefault(first, []).append((owner, name))
    return places


def _replace(holders: Sequence[tuple[nn.Module, str]], one: NamedTensor, model: nn.Module) -> None:
    """Put a tensor into all places of a tied one, as the same object."""
    tensor: Tensor = one.tensor
    owner, name = holders[0]
    is_buffer = name in owner._buffers
    old: Tensor | None = owner._buffers[name] if is_buffer else owner._parameters[name]
    assert old is not None
    if tensor.is_floating_point() and old.shape != tensor.shape:
        raise _unfitting(f"{one.name} of shape {list(old.shape)} instead of {list(tensor.shape)}", model)
    if not is_buffer and not isinstance(tensor, nn.Parameter):
        tensor = nn.Parameter(tensor, requires_grad=False)
    for owner, name in holders:
        (owner._buffers if is_buffer else owner._parameters)[name] = tensor  # type: ignore[assignment]


def _unfitting(found: str, model: nn.Module) -> EngineError:
    return EngineError(
        f"the weights of the trainer do not fit the model of the engine: {type(model).__name__} has {found}"
    )


@contextmanager
def _parameters_on_meta() -> Iterator[None]:
    """Create parameters without memory, but buffers with their values, which are not part of the weights."""
    register = nn.Module.register_parameter

    def register_on_meta(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and not parameter.is_meta:
            parameter = nn.Parameter(parameter.to("meta"), requires_grad=parameter.requires_grad)
        register(module, name, parameter)

    nn.Module.register_parameter = register_on_meta  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


__all__ = ["fill", "kept_by_main", "named", "named_tensors", "streamed_model"]
