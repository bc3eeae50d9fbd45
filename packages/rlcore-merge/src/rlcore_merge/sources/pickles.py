"""Read pickles of tensors without running code that they name.

A pickle is a program that imports and calls functions. This reader imports nothing: each name on a fixed allowlist
maps to a function of this module or to an inert object with its arguments and state. Any other name raises an error.
This is stricter than ``torch.load(weights_only=True)``, which imports and calls the names on its allowlist, and it
needs neither torch nor a process group.
"""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, Self

from rlcore.errors import UserError

from rlcore_merge.sources.pickle_operations import check_operations
from rlcore_merge.tensors import BY_TORCH_NAME, COPY_AGAIN, Kind, Shape, refuse_state

MOST_NUMBERS = 64
"""Numbers in a shape."""
DAMAGED = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError)
"""What reading unexpected content of a pickle raises."""


class ForbiddenName(UserError):
    """A pickle names something other than checkpoint data."""


class Object:
    """An inert object of a pickle: its constructor arguments and its state."""

    name = ""

    def __new__(cls, *arguments: Any, **named: Any) -> Self:
        """Keep the constructor arguments."""
        if len(arguments) > MOST_NUMBERS:  # each object has a copy of them
            raise ValueError(f"an object with {len(arguments)} arguments")
        made = object.__new__(cls)
        made.arguments, made.state = arguments, named
        return made

    arguments: tuple[Any, ...]
    state: Any

    def __init__(self, *arguments: Any, **named: Any) -> None: ...

    def __setstate__(self, state: Any) -> None:
        # Of an object with slots: (its dictionary or None, its slots).
        self.state = state[1] if isinstance(state, tuple) and len(state) == 2 and state[0] is None else state

    def __setitem__(self, key: Any, value: Any) -> None: ...

    def append(self, item: Any) -> None:
        """Ignore items: an object does not act as a list."""

    def extend(self, items: Any) -> None:
        """See `append`."""

    def get(self, key: str, default: Any = None) -> Any:
        """A value of the state."""
        return self.state.get(key, default) if isinstance(self.state, Mapping) else default


class Ordered(OrderedDict[Any, Any]):
    """An ``OrderedDict`` without the attributes that a pickle adds, which could replace its methods."""

    def __setstate__(self, state: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class Storage:
    """A storage of a torch file: its key and the kind of its elements, None if its tensors specify the kind."""

    kind: Kind | None
    key: str
    elements: int
    """Bytes if the kind is None."""

    __setstate__ = refuse_state

    @property
    def alignment(self) -> int:
        """Bytes per element."""
        return 1 if self.kind is None else self.kind.size

    @property
    def size(self) -> int:
        """Bytes of all elements."""
        return self.elements * self.alignment


@dataclass(frozen=True, slots=True)
class Strided:
    """A tensor of a torch file."""

    storage: Storage
    kind: Kind
    offset: int
    """In elements."""
    shape: Shape
    strides: Shape

    __setstate__ = refuse_state


@dataclass(frozen=True, slots=True)
class Distributed:
    """A tensor with some of its blocks in the file: a ``DTensor`` or a ``ShardedTensor`` with its state."""

    name: str
    shape: Shape
    state: Any

    __setstate__ = refuse_state


def whole_number(value: Any) -> int:
    """A count, an offset or a stride. Raises `ValueError` for any other value, which torch rejects too."""
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"{value} is not a whole number" if type(value) is int else f"{_kind(value)} as a number")
    return value


def _kind(value: Any) -> str:
    return type(value).__name__  # not its text, which can be exponentially longer than the pickle


def whole_numbers(values: Any = ()) -> Shape:
    """A shape or strides. Raises `ValueError` for any other value."""
    if not isinstance(values, tuple | list) or len(values) > MOST_NUMBERS:
        raise ValueError(f"{_kind(values)} instead of at most {MOST_NUMBERS} whole numbers")
    return tuple(whole_number(value) for value in values)


def _strided(
    storage: Any, kind: Any, offset: Any, shape: Any, strides: Any, requires_grad: Any = False, metadata: Any = None
) -> Strided:
    if not isinstance(storage, Storage) or not isinstance(kind, Kind):
        raise ValueError("a tensor without a typed storage")
    _check_gradient(requires_grad, kind)
    if metadata:  # conj or neg: the elements are stored without a pending conjugation or negation
        raise ValueError("a pending conjugation or negation; save tensor.resolve_conj().resolve_neg()")
    shape, strides = whole_numbers(shape), whole_numbers(strides)
    if len(shape) != len(strides):
        raise ValueError(f"a tensor with {len(shape)} axes and {len(strides)} strides")
    if prod(shape) * kind.size > storage.size:  # an expanded tensor: written out, it can be larger than any disk
        raise ValueError(f"a tensor of {prod(shape):,} elements in a storage of {storage.size // kind.size:,}")
    return Strided(storage, kind, whole_number(offset), shape, strides)


def _check_gradient(requires_grad: Any, kind: Kind) -> None:
    integer = kind.torch_name.startswith(("int", "uint", "bool"))
    if type(requires_grad) is not bool or (requires_grad and integer):
        raise ValueError(f"a gradient of a {kind.torch_name} tensor")


# The functions have the signatures of those in torch: pickles with other arguments are damaged.
def _tensor_v1(storage: Any, offset: Any, shape: Any, strides: Any) -> Strided:
    return _strided(storage, getattr(storage, "kind", None), offset, shape, strides)


def _tensor_v2(
    storage: Any, offset: Any, shape: Any, strides: Any, requires_grad: Any, hooks: Any, metadata: Any = None
) -> Strided:
    return _strided(storage, getattr(storage, "kind", None), offset, shape, strides, requires_grad, metadata)


def _tensor_v3(
    storage: Any, offset: Any, shape: Any, strides: Any, requires_grad: Any, hooks: Any, kind: Any, metadata: Any = None
) -> Strided:
    if not isinstance(storage, Storage) or storage.kind is not None:
        raise ValueError("a tensor with two kinds of elements")
    return _strided(storage, kind, offset, shape, strides, requires_grad, metadata)


def _parameter(data: Any, requires_grad: Any, hooks: Any, state: Any = None) -> Any:
    if isinstance(data, Strided):
        _check_gradient(requires_grad, data.kind)
    elif not isinstance(data, Distributed):
        raise ValueError(f"a parameter of the type {type(data).__name__}")
    return data


def _typed(function: Any, type_: Any, arguments: Any, state: Any) -> Any:
    name = getattr(type_, "name", "").rpartition(".")[2]
    if name in {"DTensor", "ShardedTensor"}:
        return Distributed(name, whole_numbers(arguments[2]), state)
    if isinstance(function, Function):
        return function(*arguments)
    raise pickle.UnpicklingError(f"a tensor of the type {name or _kind(type_)}")


def _attribute(owner: Any, name: str) -> Any:
    if isinstance(owner, type) and issubclass(owner, Object):
        return _object(f"{owner.name}.{name}")
    raise _forbidden(f"getattr of {_kind(owner)}")


def _forbidden(found: str) -> ForbiddenName:
    return ForbiddenName(
        "the checkpoint was rejected: its pickle contains more than data",
        found=found,
        fix="do not trust this file; if you wrote it yourself, save only the state dict: "
        "torch.save(model.state_dict(), FILE)",
    )


@dataclass(frozen=True, slots=True)
class Function:
    """A function that a pickle may call. The pickle cannot change it, in contrast to a plain function."""

    call: Callable[..., Any]

    __setstate__ = refuse_state

    def __call__(self, *arguments: Any) -> Any:
        """The result of the function."""
        return self.call(*arguments)


def _object(name: str) -> type[Object]:
    return type("Record", (Object,), {"name": name})


_STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool", "ComplexFloatStorage": "complex64",
}  # fmt: skip

_COPIES: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": Ordered,
    "builtins.set": set,
    "__builtin__.set": set,
    "builtins.list": list,
    "builtins.dict": dict,
    "builtins.tuple": tuple,
}
"""Functions that copy their argument. A pickle can copy a long list again with every few bytes."""

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "builtins.getattr": Function(_attribute),
    "__builtin__.getattr": Function(_attribute),
    "builtins.slice": slice,
    "torch.Size": Function(whole_numbers),
    "torch._utils._rebuild_tensor": Function(_tensor_v1),
    "torch._utils._rebuild_tensor_v2": Function(_tensor_v2),
    "torch._utils._rebuild_tensor_v3": Function(_tensor_v3),
    "torch._utils._rebuild_parameter": Function(_parameter),
    "torch._utils._rebuild_parameter_with_state": Function(_parameter),
    "torch._tensor._rebuild_from_type_v2": Function(_typed),
}

_MODULES = {
    "torch": "Tensor device memory_format layout",
    "torch.serialization": "_get_layout",
    "torch.storage": "UntypedStorage TypedStorage",
    "torch._utils": "_rebuild_wrapper_subclass",
    "torch.nn.parameter": "Parameter Buffer",
    "torch._tensor": "Tensor",
    "pathlib": "PosixPath WindowsPath PurePosixPath PureWindowsPath Path",
    "pathlib._local": "PosixPath WindowsPath",
    "argparse": "Namespace",
    "torch.distributed.tensor": "DTensor",
    "torch.distributed.tensor._api": "DTensor",
    "torch.distributed._tensor.api": "DTensor",
    "torch.distributed.tensor._dtensor_spec": "DTensorSpec TensorMeta ShardOrderEntry",
    "torch.distributed._tensor._dtensor_spec": "DTensorSpec TensorMeta",
    "torch.distributed._tensor.placement_types": "DTensorSpec TensorMeta Shard Replicate Partial _Partial "
    "_StridedShard",
    "torch.distributed.tensor.placement_types": "Shard Replicate Partial _Partial _StridedShard _MaskPartial",
    "torch.distributed.tensor._ops._embedding_ops": "_MaskPartial",
    "torch.distributed.device_mesh": "DeviceMesh",
    "torch.distributed._tensor.device_mesh": "DeviceMesh",
    "torch.distributed._mesh_layout": "_MeshLayout _FlatLayout",
    "torch.distributed._shard.sharded_tensor.api": "ShardedTensor",
    "torch.distributed._shard.sharded_tensor.shard": "Shard",
    "torch.distributed._shard.sharded_tensor.metadata": "ShardedTensorMetadata TensorProperties MEM_FORMAT_ENCODING",
    "torch.distributed._shard.metadata": "ShardMetadata",
    "torch.distributed._shard.sharding_spec.chunk_sharding_spec": "ChunkShardingSpec",
    "torch.distributed._shard.sharding_spec.api": "EnumerableShardingSpec",
    "torch.distributed.remote_device": "_remote_device",
    "torch.distributed.checkpoint.metadata": "Metadata MetadataIndex TensorStorageMetadata BytesStorageMetadata "
    "ChunkStorageMetadata TensorProperties _MEM_FORMAT_ENCODING StorageMeta",
    "torch.distributed.checkpoint.filesystem": "_StorageInfo _StoragePrefix",
    "deepspeed.runtime.fp16.loss_scaler": "LossScaler DynamicLossScaler LossScaleConfig LossScaleProfile",
    "deepspeed.runtime.zero.config": "ZeroStageEnum DeepSpeedZeroConfig",
    "deepspeed.runtime.zero.offload_config": "OffloadDeviceEnum DeepSpeedZeroOffloadParamConfig "
    "DeepSpeedZeroOffloadOptimizerConfig",
    "deepspeed.utils.tensor_fragment": "fragment_address",
    "deepspeed.runtime.fp16.fused_optimizer": "FP16_Optimizer",
    "deepspeed.runtime.zero.partition_parameters": "ZeroParamStatus ZeroParamType",
}

_NAMES = {f"{module}.{name}" for module, names in _MODULES.items() for name in names.split()}


class Reader(pickle.Unpickler):
    """Unpickle one file. Names that are not on the allowlist raise `ForbiddenName`."""

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content))
        self._left = 2 * len(content)
        """Elements that may still be copied. Every element takes at least one byte of the pickle."""
        self._known: dict[str, Any] = {}
        self._storages: dict[str, Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        """The object that a name maps to."""
        full = f"{module}.{name}"
        if full not in self._known:
            self._known[full] = self._resolve(module, name, full)
        return self._known[full]

    def _resolve(self, module: str, name: str, full: str) -> Any:
        if full in _COPIES:
            return Function(partial(self._copy, _COPIES[full]))
        if full in _FUNCTIONS:
            return _FUNCTIONS[full]
        if module in {"torch", "torch.storage"} and name in _STORAGES:
            return BY_TORCH_NAME[_STORAGES[name]]
        if module == "torch" and name in BY_TORCH_NAME:
            return BY_TORCH_NAME[name]
        if full in _NAMES:
            return _object(full)
        raise _forbidden(f"it imports {full}")

    def _copy(self, make: Callable[..., Any], *arguments: Any) -> Any:
        self._left -= sum(len(one) for one in arguments if isinstance(one, Sized))
        if self._left < 0:
            raise ValueError("more copies of lists than any checkpoint has")
        return make(*arguments)

    def persistent_load(self, pid: Any) -> Storage:
        """A reference to a storage: ``("storage", type, key, device, elements)``."""
        if not isinstance(pid, tuple) or len(pid) != 5 or pid[0] != "storage" or type(pid[2]) is not str:
            raise pickle.UnpicklingError("a persistent id that is not a storage")
        kind = pid[1] if isinstance(pid[1], Kind) else None
        if kind is None and getattr(pid[1], "name", "") != "torch.storage.UntypedStorage":
            raise pickle.UnpicklingError("a storage of an unknown type")
        storage = Storage(kind, pid[2], whole_number(pid[4]))
        if self._storages.setdefault(storage.key, storage) != storage:
            raise pickle.UnpicklingError(f"the storage {storage.key} has two descriptions")
        return storage


def load(content: bytes, where: str) -> Any:
    """The object in a pickle, with `Object`, `Strided` and `Distributed` in place of objects that are not plain data.

    Raises:
        ForbiddenName: the pickle names something that is not on the allowlist.
        UserError: the pickle is damaged.
    """
    try:
        check_operations(content)
        return Reader(content).load()
    except ForbiddenName as error:
        error.where = where
        raise
    except Exception as error:  # a damaged pickle raises anything
        found = f"its pickle is damaged or has an unknown format: {type(error).__name__}: {error}"
        raise UserError("a checkpoint file cannot be read", found=found, where=where, fix=COPY_AGAIN) from None
