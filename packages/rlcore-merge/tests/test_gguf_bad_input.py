"""Damaged and hostile GGUF files are refused by name, before anything large is allocated."""

from __future__ import annotations

import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path
from random import Random
from typing import Any

import gguf_models
import pytest
from gguf import GGMLQuantizationType
from rlcore.errors import UserError
from rlcore_merge import merge
from rlcore_merge.checkpoint import Request
from rlcore_merge.sources import gguf_header
from rlcore_merge.sources.gguf import open_file

LARGEST_PEAK = 8 << 20
"""Bytes that reading a bad file may allocate."""
TEXT, ARRAY, UINT32 = 8, 9, 4


def text(value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def entry(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def file_of(
    *entries: bytes,
    tensors: tuple[bytes, ...] = (),
    version: int = 3,
    counts: tuple[int, int] | None = None,
    rest: bytes = b"",
) -> bytes:
    stated = counts or (len(tensors), len(entries))
    return b"GGUF" + struct.pack("<IQQ", version, *stated) + b"".join((*entries, *tensors)) + rest


def tensor(name: str, shape: tuple[int, ...], kind: int = 0, offset: int = 0, axes: int | None = None) -> bytes:
    numbers = struct.pack(f"<{len(shape)}Q", *shape)
    return text(name) + struct.pack("<I", axes or len(shape)) + numbers + struct.pack("<IQ", kind, offset)


LLAMA = entry("general.architecture", TEXT, text("llama"))
BAD_HEADERS = {
    "empty": (b"", "it is empty"),
    "magic": (b"GGML" + bytes(60), "begins with b'GGML' instead of b'GGUF'"),
    "html": (b"<!doctype html>" + bytes(60), "begins with b'<!do'"),
    "cut-counts": (b"GGUF" + struct.pack("<IQ", 3, 1), "it ends in the header, after 16 bytes"),
    "version-1": (file_of(version=1, rest=bytes(64)), "it has version 1; supported are 2 and 3"),
    "version-4": (file_of(version=4, rest=bytes(64)), "it has version 4"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 1, 1) + bytes(64), "big-endian"),
    "million-entries": (
        file_of(counts=(0, 1_000_000), rest=entry("a", 0, b"\0") * 1_000_000),
        "it states 1,000,000 metadata entries, and the limit is 4,096",
    ),
    "most-entries": (file_of(counts=(0, 2**64 - 1)), "18,446,744,073,709,551,615 metadata entries"),
    "entries-beyond-end": (file_of(counts=(0, 4000)), "truncated: 4,000 metadata entries do not fit in 24 bytes"),
    "most-tensors": (file_of(counts=(2**40, 0)), "1,099,511,627,776 tensors, and the limit is 65,536"),
    "tensors-beyond-end": (file_of(counts=(60_000, 0)), "60,000 tensors do not fit"),
    "long-key": (file_of(struct.pack("<Q", 2**62) + bytes(64)), "bytes of a metadata key, and the limit is 256"),
    "long-text": (
        file_of(entry("a", TEXT, struct.pack("<Q", 2**63)), rest=bytes(64)),
        "9,223,372,036,854,775,808 bytes of the text 'a', and the limit is 1,048,576",
    ),
    "text-beyond-end": (file_of(entry("a", TEXT, struct.pack("<Q", 2**19))), "524,288 bytes of the text 'a' do not"),
    "long-array": (
        file_of(entry("a", ARRAY, struct.pack("<IQ", UINT32, 2**60)), rest=bytes(64)),
        "items of the array 'a' and those before it, and the limit is 2,097,152",
    ),
    "array-beyond-end": (
        file_of(entry("a", ARRAY, struct.pack("<IQ", UINT32, 2**20)), rest=bytes(64)),
        "1,048,576 items of the array 'a' do not fit",
    ),
    "many-arrays": (
        file_of(*(entry(f"{n}", ARRAY, struct.pack("<IQ", 0, 2**18) + bytes(2**18)) for n in range(9))),
        "2,359,296 items of the array '8' and those before it",
    ),
    "long-item": (
        file_of(entry("a", ARRAY, struct.pack("<IQQ", TEXT, 1, 2**50)), rest=bytes(64)),
        "bytes of an item of the array 'a', and the limit is 2,048",
    ),
    "nested-array": (
        file_of(entry("a", ARRAY, struct.pack("<IQ", ARRAY, 1)), rest=bytes(64)),
        "the array 'a' has items of the unsupported type 9",
    ),
    "unknown-type": (file_of(entry("a", 77, b""), rest=bytes(64)), "'a' has the unknown type 77"),
    "not-utf-8": (file_of(entry("a", TEXT, text(b"\xff\xfe"))), "is not UTF-8"),
    "key-twice": (file_of(LLAMA, LLAMA), "'general.architecture' occurs twice"),
    "tensor-twice": (file_of(tensors=(tensor("w", (4,)),) * 2), "the tensor 'w' occurs twice"),
    "many-axes": (file_of(tensors=(tensor("w", (1,), axes=2**31),)), "has 2,147,483,648 axes"),
    "no-axes": (file_of(tensors=(tensor("w", ()) + bytes(16),)), "'w' has 0 axes"),
    "absurd-shape": (file_of(tensors=(tensor("w", (2**40, 2**40)),)), "'w' has the shape [1099511627776, "),
    "empty-axis": (file_of(tensors=(tensor("w", (0, 2)),)), "'w' has the shape [2, 0]"),
    "alignment": (file_of(entry("general.alignment", UINT32, struct.pack("<I", 3))), "general.alignment is 3 and not"),
}


@pytest.mark.parametrize("case", sorted(BAD_HEADERS))
def test_bad_header_is_named_and_nothing_large_is_allocated(tmp_path: Path, case: str) -> None:
    content, expected = BAD_HEADERS[case]
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    found = refused(path, tmp_path / "out")
    assert found.message == "a GGUF file cannot be read"
    assert expected in str(found.found)


def refused(path: Path, out: Path) -> UserError:
    """The error of merging a file, which must not allocate or write anything."""
    tracemalloc.start()
    try:
        with pytest.raises(UserError) as caught:
            merge(path, out)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.where == str(path)
    assert peak < LARGEST_PEAK
    assert not out.exists()
    return caught.value


def patched(path: Path, key: str, new: bytes) -> None:
    """Write other bytes over the value of a metadata entry, after the number of its type."""
    content = bytearray(path.read_bytes())
    at = content.index(text(key)) + len(text(key)) + 4
    content[at : at + len(new)] = new
    path.write_bytes(content)


@pytest.fixture
def valid(tmp_path: Path) -> Path:
    return gguf_models.write(tmp_path / "valid.gguf", "llama")


WRONG_VALUES = {
    "block_count": ("llama.block_count", 2**31, "llama.block_count is 2147483648 and not 1 to 1,024"),
    "more-layers": ("llama.block_count", 900, "it has 20 tensors for 900 layers"),
    "one-layer-more": ("llama.block_count", 3, "it has no tensor blk.2.attn_norm.weight"),
    "one-layer-less": ("llama.block_count", 1, "it has the unsupported tensor blk.1.attn_k.weight"),
    "hidden": ("llama.embedding_length", 128, "the metadata imply [278, 128]"),
    "no-heads": ("llama.attention.head_count", 0, "llama.attention.head_count is 0 and not 1 to 4,096"),
    "heads": ("llama.attention.head_count", 3, "3 heads are not a multiple of the key-value heads, 2"),
    "odd-heads": ("llama.rope.dimension_count", 15, "the heads have the odd width 15"),
    "infinite": ("llama.attention.layer_norm_rms_epsilon", 0x7F800000, "rms_epsilon is inf and not a positive number"),
    "eos": ("tokenizer.ggml.eos_token_id", 278, "eos_token_id is 278, and the vocabulary has 278 tokens"),
    "bos": ("tokenizer.ggml.bos_token_id", 2**32 - 1, "bos_token_id is 4294967295, and"),
}


@pytest.mark.parametrize("case", sorted(WRONG_VALUES))
def test_wrong_value_is_named(valid: Path, tmp_path: Path, case: str) -> None:
    key, value, expected = WRONG_VALUES[case]
    patched(valid, key, struct.pack("<I", value))
    found = refused(valid, tmp_path / "out")
    assert found.message == "a GGUF file cannot be converted"
    assert expected in str(found.found)


@pytest.mark.parametrize("architecture", ["mamba", "llama4", "", "../llama"])
def test_unsupported_architecture_is_named(tmp_path: Path, architecture: str) -> None:
    path = tmp_path / "other.gguf"
    path.write_bytes(file_of(entry("general.architecture", TEXT, text(architecture))))
    found = str(refused(path, tmp_path / "out").found)
    assert found == f"general.architecture is {architecture!r}; supported are llama, qwen2, qwen3, gemma3"


@pytest.mark.parametrize("entries", [(), (entry("general.architecture", UINT32, bytes(4)),)])
def test_architecture_that_is_no_text_is_named(tmp_path: Path, entries: tuple[bytes, ...]) -> None:
    path = tmp_path / "other.gguf"
    path.write_bytes(file_of(*entries))
    assert str(refused(path, tmp_path / "out").found).startswith("general.architecture is ")


def test_file_that_is_cut_anywhere_is_refused(valid: Path, tmp_path: Path) -> None:
    content = valid.read_bytes()
    data = gguf_header.read(valid).data
    cuts = {*range(0, 4000, 97), *range(data - 300, data + 300, 7), len(content) - 1, len(content) // 2}
    for cut in sorted(cuts):
        valid.write_bytes(content[:cut])
        found = str(refused(valid, tmp_path / "out").found)
        assert any(word in found for word in ("ends", "truncated", "empty", "begins")), (cut, found)
    valid.write_bytes(content)
    merge(valid, tmp_path / "out")


def with_tensor(path: Path, name: str, *, kind: int | None = None, offset: int | None = None) -> None:
    """Change the description of a tensor with two axes."""
    content = bytearray(path.read_bytes())
    at = content.index(text(name)) + len(text(name)) + 4 + 2 * 8
    if kind is not None:
        content[at : at + 4] = struct.pack("<I", kind)
    if offset is not None:
        content[at + 4 : at + 12] = struct.pack("<Q", offset)
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"offset": 2**63}, "it is truncated"),
        ({"offset": 2**64 - 1}, "it is truncated"),
        ({"offset": 0}, "overlap"),
        ({"kind": 4}, "unsupported type 4"),
        ({"kind": 24}, "unsupported type 24"),
        ({"kind": 2**32 - 1}, "unsupported type 4294967295"),
        ({"kind": int(GGMLQuantizationType.Q4_K)}, "rows of 64 elements, which is not a multiple of 256"),
    ],
)
def test_tensor_at_a_wrong_place_or_of_a_wrong_type_is_named(
    valid: Path, tmp_path: Path, changes: dict[str, int], expected: str
) -> None:
    with_tensor(valid, "blk.1.attn_q.weight", **changes)
    assert expected in str(refused(valid, tmp_path / "out").found)


@pytest.mark.parametrize("name", ["token_embd.weight", "output_norm.weight", "blk.0.ffn_up.weight"])
def test_missing_tensor_is_named(tmp_path: Path, name: str) -> None:
    path = gguf_models.write(tmp_path / "incomplete.gguf", "llama", drop=(name,))
    assert str(refused(path, tmp_path / "out").found) == f"it has no tensor {name}"


def test_part_of_a_split_file_is_named(valid: Path, tmp_path: Path) -> None:
    content = valid.read_bytes()
    more = entry("split.count", 2, struct.pack("<H", 3))
    tensors, entries = struct.unpack_from("<QQ", content, 8)
    valid.write_bytes(content[:8] + struct.pack("<QQ", tensors, entries + 1) + more + content[24:])
    assert "it is one of 3 parts" in str(refused(valid, tmp_path / "out").found)


def words(**changes: Any) -> dict[str, Any]:
    return {**gguf_models.byte_level_vocabulary(), **changes}


def test_vocabulary_without_a_model_needs_a_base(tmp_path: Path) -> None:
    path = gguf_models.write(tmp_path / "words.gguf", "llama", vocabulary=words(model="none"))
    with pytest.raises(UserError, match="tokenizer of a GGUF file") as caught:
        merge(path, tmp_path / "out")
    assert "'none'" in str(caught.value.found)
    assert "--base FOLDER" in str(caught.value.fix)
    assert not (tmp_path / "out").exists()


def test_merges_of_unknown_tokens_are_named(tmp_path: Path) -> None:
    path = gguf_models.write(tmp_path / "words.gguf", "llama", vocabulary=words(merges=["no such", "one"]))
    with pytest.raises(UserError, match="tokenizer of a GGUF file") as caught:
        merge(path, tmp_path / "out")
    assert caught.value.where == str(path)


def test_vocabulary_with_other_counts_is_named(tmp_path: Path) -> None:
    path = gguf_models.write(tmp_path / "words.gguf", "llama", vocabulary=words(types=[1, 1]))
    assert "token_type does not have one number for each of 278" in str(refused(path, tmp_path / "out").found)


def test_exit_status_is_2(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGML" + bytes(60))
    arguments = [sys.executable, "-m", "rlcore_merge", str(tmp_path / "bad.gguf"), "--out", str(tmp_path / "out")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "a GGUF file cannot be read" in done.stderr
    assert "Traceback" not in done.stderr


def fuzzed(content: bytes, random: Random, header: int) -> bytes:
    changed = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 8))):
        at = random.randrange(header if random.random() < 0.9 else len(content))
        width = random.choice((1, 1, 4, 8))
        changed[at : at + width] = random.choice((bytes(width), b"\xff" * width, random.randbytes(width)))
    return bytes(changed[: random.randrange(len(changed)) if random.random() < 0.1 else None])


def assert_read_or_refused(valid: Path, tmp_path: Path, seeds: range) -> None:
    """A damaged file is refused, or all of its tensors can be read."""
    content, header = valid.read_bytes(), gguf_header.read(valid).data
    path = tmp_path / "damaged.gguf"
    read, errors = 0, []
    for seed in seeds:
        path.write_bytes(fuzzed(content, Random(seed), header))
        try:
            opened = open_file(path, Request(base=tmp_path))
        except UserError as error:
            errors.append(error)
            continue
        read += 1
        for each in opened.tensors.values():
            each.read(0, 7)
    assert read
    assert errors
    assert {error.where for error in errors} == {str(path)}


def test_damaged_files_are_read_or_refused(valid: Path, tmp_path: Path) -> None:
    assert_read_or_refused(valid, tmp_path, range(300))


@pytest.mark.long
def test_many_damaged_files_are_read_or_refused(valid: Path, tmp_path: Path) -> None:
    assert_read_or_refused(valid, tmp_path, range(1000, 8000))
