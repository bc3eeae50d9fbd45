"""Files of another system given with ``-c``: recognised by what they hold, and read in its words."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcore.config.accelerate_file import ACCELERATE
from rlcore.config.layers import KeyPath, Layer, file_layer
from rlcore.config.messages import Problem
from rlcore.config.reinforced_cot import EVALUATION, GRPO, SFT
from rlcore.config.trl_batches import PROCESSES
from rlcore.config.vocabulary import FileVocabulary, Word, foreign_value, interpret, unknown_word
from rlcore.config.write import toml_value
from rlcore.model_folder import BUILTIN

BLOCKS = {vocabulary.block: vocabulary for vocabulary in (SFT, GRPO)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The files of a command line, as layers."""

    layers: Sequence[Layer]
    """In the order of the files."""
    lines: Sequence[str]
    """One line for each word of another system."""


def read_files(paths: Sequence[str], own: Sequence[str]) -> Files:
    """Every file as a layer: ours as they are, others by what their words mean here.

    What a word means may depend on how many processes there are, which another file may say, or ``own``, the overrides
    that will stand above.
    """
    read = [(name, file_layer(Path(name).expanduser(), name=name)) for name in paths]
    known = [vocabulary_of(layer.tree) for _, layer in read]
    processes = _processes([layer.tree for _, layer in read], own)
    layers: list[Layer] = []
    lines: list[str] = []
    for (name, layer), vocabulary in zip(read, known, strict=True):
        if vocabulary is None:
            layers.append(layer)
            continue
        words, problems = _words(layer, vocabulary, Path(name).expanduser().parent)
        given = [word for word in words if word.value is not None]
        values = {**processes, **{word.key: word.value for word in given}}
        reading = interpret(given, values, vocabulary, own=own, problems=problems)
        layers.append(reading.layer)
        lines += reading.lines
        lines += [f"{word.text} sets nothing: it is as if not given" for word in words if word.value is None]
    return Files(layers=layers, lines=lines)


def vocabulary_of(tree: Mapping[str, Any]) -> FileVocabulary | None:
    """Whose words a file is written in; None when they are ours."""
    for block, vocabulary in BLOCKS.items():
        if block in tree:
            return vocabulary
    if "distributed_type" in tree:
        return ACCELERATE
    return EVALUATION if {"model_path", "pipeline"} <= set(tree) else None


def _processes(trees: Sequence[Mapping[str, Any]], own: Sequence[str]) -> dict[str, Any]:
    """How many processes a file or an override says that there are."""
    found: dict[str, Any] = {}
    for tree in trees:
        if vocabulary_of(tree) is ACCELERATE and PROCESSES in tree:
            found[PROCESSES] = tree[PROCESSES]
    for text in own:
        key, _, value = text.partition("=")
        if key.strip() == "strategy.processes":
            found[PROCESSES] = foreign_value(value)
    return found


def _words(layer: Layer, vocabulary: FileVocabulary, folder: Path) -> tuple[list[Word], list[Problem]]:
    words: list[Word] = []
    problems: list[Problem] = []
    for path, value in _leaves(layer.tree, vocabulary, ()):
        origin = layer.origin(path)
        key = _known(path, vocabulary)
        if path == (vocabulary.block,):
            needs = Problem(
                kind="bad value", path=vocabulary.block, value=toml_value(value), origin=origin, reason="needs a table"
            )
            problems.append(needs)
            continue
        if key is None:
            problems.append(unknown_word(".".join(path), origin, vocabulary))
            continue
        text = f"{origin}: {'.'.join(path[bool(vocabulary.block) :])} = {toml_value(value)}"
        words.append(Word(text, key, _in_place(key, value, vocabulary, folder), origin))
    if vocabulary.block:
        origin = layer.origin((vocabulary.block,))
        words.insert(0, Word(f"{origin}: {vocabulary.block}", vocabulary.block, True, origin))
    return words, problems


def _leaves(tree: Mapping[str, Any], vocabulary: FileVocabulary, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    """Every key with its value; a table that is a word itself is not entered."""
    for name, value in tree.items():
        here = (*path, str(name))
        if isinstance(value, Mapping) and _known(here, vocabulary) is None:
            yield from _leaves(value, vocabulary, here)
        elif here != (vocabulary.block,) or value is not None:  # an empty block has no keys
            yield here, value


def _known(path: KeyPath, vocabulary: FileVocabulary) -> str | None:
    """The vocabulary's key for a place in the file."""
    if vocabulary.block:
        if path[0] != vocabulary.block:
            return None
        path = path[1:]
    key = ".".join(path)
    if key in vocabulary.meanings:
        return key
    outside = key.removeprefix(f"{vocabulary.also_within}.") if vocabulary.also_within else key
    return outside if outside in vocabulary.meanings else None


def _in_place(key: str, value: Any, vocabulary: FileVocabulary, folder: Path) -> Any:
    """The value, with paths as they are seen from here."""
    if isinstance(value, list) and key in vocabulary.paths:
        return [_in_place(key, item, vocabulary, folder) for item in value]
    if not isinstance(value, str) or key not in vocabulary.paths | vocabulary.models:
        return value
    path = os.path.normpath(folder / Path(value).expanduser())
    if key in vocabulary.models and not value.startswith((".", "/", "~")) and not Path(path).exists():
        return value
    return value if value.startswith(BUILTIN) else path


__all__ = ["Files", "read_files", "vocabulary_of"]
