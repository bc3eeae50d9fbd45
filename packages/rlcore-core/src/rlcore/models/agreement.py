"""Check that config.json and tokenizer of a model folder agree with its other files, before weights are loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlcore.errors import UserError
from rlcore.json_files import read_json
from rlcore.models.config_file import CONFIG, json_object, read_config
from rlcore.models.weights import stored_types

GENERATION = "generation_config.json"
TOKENIZER = "tokenizer.json"
_QUANTISED = re.compile(r"F[468]_\w+|F4|[IU](4|8|16|32)|float[48]_\w+|u?int(8|16|32)")
"""Types of quantised weights in safetensors and in torch. Buffers of plain models are bool or int64."""


def check_agreement(folder: Path) -> None:
    """Check a folder's ``quantization_config`` and its end tokens.

    Raises:
        UserError: config.json states a quantization that the weights do not have, or an end token is not a token of the
            tokenizer.
    """
    config = read_config(folder)
    _check_quantization(folder, config)
    _check_end_tokens(folder, config)


def _check_quantization(folder: Path, config: dict[str, Any]) -> None:
    """Files whose types cannot be read are skipped, because loading reports them."""
    stated = next((part["quantization_config"] for part in _parts(config) if part.get("quantization_config")), None)
    if stated is None:
        return
    method = stated.get("quant_method") if isinstance(stated, dict) else stated
    types = stored_types(folder)
    if types and not any(_QUANTISED.fullmatch(kind) for kind in types):
        raise UserError(
            f"{CONFIG} states a quantization that the weights do not have",
            found=f"quantization_config with quant_method {str(method)[:40]!r}, and weights of type "
            f"{', '.join(sorted(types))}",
            where=str(folder / CONFIG),
            fix=f"remove quantization_config from it, or convert the folder: rlcore merge {folder} --out FOLDER",
        )


def _check_end_tokens(folder: Path, config: dict[str, Any]) -> None:
    # The configuration of a text model inside often has the default of its class, which nothing reads.
    sources = ((folder / CONFIG, config), (folder / GENERATION, json_object(folder / GENERATION)))
    stated = [(path, found["eos_token_id"]) for path, found in sources if found.get("eos_token_id") is not None]
    settings = folder / "tokenizer_config.json"
    named = json_object(settings).get("eos_token")
    named = named.get("content") if isinstance(named, dict) else named
    if not stated and named is None:
        return
    tokens = _tokens(folder / TOKENIZER)
    if tokens is None:
        return
    texts, ids = tokens
    for path, value in stated:
        if not all(type(index) is int and index in ids for index in (value if isinstance(value, list) else [value])):
            raise UserError(
                "eos_token_id must be an id or a list of ids of the tokenizer",
                found=repr(value)[:80],
                where=str(path),
                fix="save or download the model again",
            )
    if isinstance(named, str) and named not in texts:
        raise UserError(
            "eos_token must be a token of the tokenizer",
            found=repr(named)[:80],
            where=str(settings),
            fix="save or download the tokenizer again",
        )


def _parts(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The configuration and that of its text model."""
    yield config
    if isinstance(inner := config.get("text_config"), dict):
        yield inner


def _tokens(path: Path) -> tuple[set[str], set[int]] | None:
    """The texts and the ids of all tokens; None if there is no tokenizer or it is damaged, which its reader reports."""
    try:
        definition = read_json(path)
        vocabulary = definition["model"]["vocab"]
        if isinstance(vocabulary, list):  # of pairs of a piece and its score
            vocabulary = {piece: index for index, (piece, _) in enumerate(vocabulary)}
        tokens = {**vocabulary, **{entry["content"]: entry["id"] for entry in definition.get("added_tokens") or ()}}
        return set(tokens), set(tokens.values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
