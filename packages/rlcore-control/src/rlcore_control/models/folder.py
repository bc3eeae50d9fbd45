"""The folder of a control policy: ``config.json`` and ``model.safetensors``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlcore.errors import UserError
from rlcore.json_files import read_json
from rlcore.models.contents import indexed_files
from rlcore_trainer.policy.finite import first_non_finite
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

VERSION = 1
"""``version`` in ``config.json``: folders of another version are refused."""
CONFIG, WEIGHTS = "config.json", "model.safetensors"
_MAX_BYTES = 1_000_000
_AGAIN = "use the folder of another checkpoint, or save the policy again"


def write_folder(folder: Path, described: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
    """Write the configuration, which names the kind of the policy in ``model_type``, and the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"version": VERSION, **described}, indent=2)
    (folder / CONFIG).write_text(text + "\n", encoding="utf-8")
    stored = {name: weight.detach().cpu().contiguous() for name, weight in weights.items()}
    save_file(stored, folder / WEIGHTS, metadata={"format": "pt"})


def read_config(folder: Path) -> dict[str, Any]:
    """Read the configuration of a policy.

    Raises:
        UserError: the file is missing or damaged.
    """
    try:
        tree = read_json(folder / CONFIG, limit=_MAX_BYTES)
    except (OSError, ValueError) as error:
        raise unreadable(f"{type(error).__name__}: {error}", folder / CONFIG) from error
    if not isinstance(tree, dict):
        raise unreadable("not a JSON object", folder / CONFIG)
    return tree


def check_version(described: Mapping[str, Any], folder: Path) -> None:
    """Raise `UserError` if the folder was written in another version of the format."""
    if described.get("version") != VERSION:
        raise UserError(
            f"the policy needs version {VERSION} of its folder",
            found=f"version {described.get('version')}",
            where=str(folder / CONFIG),
            fix="use the version of rlcore that saved it",
        )


def read_weights(path: Path, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Read exactly the weights of a model from a safetensors file.

    Args:
        path: the file
        own: the names and sizes of the model's weights

    Raises:
        UserError: the file is missing or damaged; or as `check_weights`.
    """
    weights = read_tensors(path)
    check_weights(weights, own, path)
    return weights


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a safetensors file, or of the files of its index ``model.safetensors.index.json``.

    Raises:
        UserError: a file is missing or damaged, or outside of the folder.
    """
    index = path.with_name(f"{path.name}.index.json")
    if path.is_file() or not index.is_file():
        return _tensors(path)
    found: dict[str, Tensor] = {}
    for part in indexed_files(index):
        found |= _tensors(part)
    return found


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise unreadable(f"{type(error).__name__}: {error}", path) from error


def check_weights(weights: Mapping[str, Tensor], own: Mapping[str, Tensor], path: Path) -> None:
    """Raise `UserError` if a weight of a file is missing, unknown, of another size or kind, or not finite."""
    report = [
        _listed("missing", [name for name in own if name not in weights]),
        _listed("unexpected", [name for name in weights if name not in own]),
        _listed(
            "of another size",
            [
                f"{name} {list(weights[name].shape)} instead of {list(own[name].shape)}"
                for name in own
                if name in weights and own[name].shape != weights[name].shape
            ],
        ),
        _listed(
            "of another kind",
            [
                f"{name} {str(weights[name].dtype).removeprefix('torch.')} instead of numbers with a fraction"
                for name in own
                if name in weights and own[name].is_floating_point() and not _has_fraction(weights[name])
            ],
        ),
    ]
    if any(report):
        raise UserError(
            "the weights of a policy must be those of its configuration",
            found="\n".join(line for line in report if line),
            where=str(path),
            fix="keep config.json and model.safetensors of one policy together",
        )
    bad = first_non_finite(weights)
    if bad is not None:
        raise unreadable(f"NaN or infinity in {bad}", path)


def _has_fraction(weight: Tensor) -> bool:
    """Whether a weight has floating-point numbers. Those of 8 bits mean nothing without their scales."""
    return weight.is_floating_point() and weight.element_size() > 1


def _listed(what: str, names: list[str], most: int = 5) -> str:
    """One line of the report: the first names and the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{what}: {', '.join(names[:most])}{more}" if names else ""


def unreadable(found: str, path: Path) -> UserError:
    """Return the error of a damaged file; only the first line of ``found`` is shown."""
    return UserError("a policy cannot be loaded", found=found.split("\n")[0], where=str(path), fix=_AGAIN)
