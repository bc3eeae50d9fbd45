"""The text of tokens, with tokenizers that somebody else may have written."""

from __future__ import annotations

import json
import resource
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tokenizers")

from byte_level import byte_level_tokenizer
from rlcore.rollouts import decoding
from rlcore.rollouts.decoding import Decoding, loaded
from rlcore.rollouts.decoding_child import LARGEST_FILE, MEMORY
from rlcore.runs.tokenizer import decoder_of

ABORTS = {"vocab": {"a": 0, "é": 1}, "merges": ["a é"], "continuing_subword_prefix": "x"}
LETTERS = {"vocab": {"a": 0, "b": 1}, "merges": []}
PANICS = {"type": "Strip", "content": "a", "start": 5, "stop": 500}
ENDLESS = {
    "type": "Sequence",
    "decoders": [{"type": "Fuse"}, {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""}],
}
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes the tokenizer of a run."""
    file = tmp_path / "model" / "tokenizer.json"
    file.parent.mkdir()

    def write(model: Any = LETTERS, decoder: Any = None) -> Path:
        content = {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", **model}, "decoder": decoder}
        file.write_text(json.dumps(content), encoding="utf-8")
        return file

    return write


def started(file: Path) -> Decoding:
    found = loaded(file)
    assert found is not None
    return found


def process_of(decoding: Decoding) -> subprocess.Popen[bytes]:
    assert decoding._child.process is not None
    return decoding._child.process._process


def test_texts_are_those_of_the_tokenizer(write: Write, tmp_path: Path) -> None:
    tokenizer = byte_level_tokenizer(["the answer", "你好 wörld"], 300)
    tokenizer.save(str(write()))
    ids = tokenizer.encode("the answer: 你好\n\x00").ids
    decode = decoder_of(tmp_path / "rollouts" / "train-000001.jsonl.gz")
    assert decode is not None
    assert decode(ids) == tokenizer.decode(ids, skip_special_tokens=False)


def test_many_lists_are_decoded_in_parts(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "TOGETHER", 2)
    found = started(write())
    assert found.texts([[0], [1, 0], [], [0, 0, 7], [1]]) == ["a", "b a", "", "a a", "b"]
    assert found.texts([]) == []


def test_aborting_tokenizer_has_no_decoder(write: Write) -> None:
    assert loaded(write(ABORTS)) is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"model": 1}', "[" * 100_000])
def test_damaged_tokenizer_has_no_decoder(write: Write, content: str) -> None:
    file = write()
    file.write_text(content, encoding="utf-8")
    assert loaded(file) is None


def test_too_large_tokenizer_has_no_decoder(write: Write) -> None:
    file = write()
    with file.open("r+b") as opened:
        opened.truncate(LARGEST_FILE + 1)
    assert loaded(file) is None


def test_panic_costs_only_the_texts(write: Write) -> None:
    found = started(write(decoder=PANICS))
    assert (found([0]), found([]), found.texts([[0], [1]])) == ("", "", [])


def test_endless_expression_costs_only_the_texts(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "DECODING_S", 0.5)
    found = started(write(decoder=ENDLESS))
    begin = time.monotonic()
    assert found(([0] * 20 + [1]) * 10_000) == ""  # more letters in a row are an error
    assert 0.5 <= time.monotonic() - begin < 30
    assert (found([0]), found.texts([[0]])) == ("", [])


def test_long_texts_cost_only_the_texts(write: Write) -> None:
    file = write({"vocab": {"a" * 1_000_000: 0}, "merges": []})
    assert started(file).texts([[0]] * 100) == []


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux shows the limits of a process")
def test_child_has_limited_memory(write: Write) -> None:
    found = started(write())
    assert resource.prlimit(process_of(found).pid, resource.RLIMIT_AS) == (MEMORY, MEMORY)


@pytest.mark.parametrize("answer", ["", "nonsense", "[" * 9000, "{}", "[]", "[1]", '["a", "b"]', "1" * 10_000])
def test_nonsense_is_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    child = tmp_path / "child.py"
    child.write_text(f"import os\ninput()\nos.write(0, {answer!r}.encode() + b'\\n')\ninput()", encoding="utf-8")
    monkeypatch.setattr(decoding, "CHILD", child)
    assert loaded(tmp_path) is None


def test_child_ends_with_its_decoding(write: Write) -> None:
    found = started(write())
    process = process_of(found)
    assert process.poll() is None
    del found
    assert process.poll() is not None


def test_child_ends_when_its_input_closes(write: Write) -> None:
    found = started(write())
    found._child.close()
    assert process_of(found).poll() == 0
