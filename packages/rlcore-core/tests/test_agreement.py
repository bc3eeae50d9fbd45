"""A configuration that the weights or the tokenizer contradict is named before weights are loaded."""

from __future__ import annotations

import json
import struct
import zipfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from rlcore.errors import UserError
from rlcore.models.agreement import check_agreement
from rlcore.models.folder import check_model_folder

BPE = {
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
    "added_tokens": [{"id": 2, "content": "<|im_end|>", "special": True}],
}
UNIGRAM = {"model": {"type": "Unigram", "vocab": [["<unk>", 0.0], ["a", -1.0]]}, "added_tokens": []}
GGUF = {"quant_method": "gguf"}
FP8 = {"quant_method": "fp8"}


def folder_with(
    folder: Path,
    config: dict[str, Any],
    *,
    types: tuple[str, ...] = ("F32",),
    tokenizer: Any = BPE,
    generation: Any = None,
    settings: Any = None,
) -> Path:
    """A model folder whose weights have these types, without their data."""
    entries = {f"w{index}": {"dtype": kind, "shape": [0], "data_offsets": [0, 0]} for index, kind in enumerate(types)}
    header = json.dumps(entries).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    files = {"config.json": config, "tokenizer.json": tokenizer}
    files |= {"generation_config.json": generation, "tokenizer_config.json": settings}
    for name, content in files.items():
        if content is not None:
            (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("config", "types"),
    [
        ({}, ("F32",)),
        ({"quantization_config": None}, ("F32",)),
        ({"quantization_config": FP8}, ("F8_E4M3", "BF16")),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, ("BF16", "U8")),
        ({"quantization_config": {"quant_method": "gptq"}}, ("F16", "I32")),
        ({"text_config": {"quantization_config": FP8}}, ("F8_E4M3", "BF16")),
    ],
)
def test_quantization_of_the_weights_is_accepted(tmp_path: Path, config: dict[str, Any], types: tuple[str]) -> None:
    check_agreement(folder_with(tmp_path, config, types=types))


@pytest.mark.parametrize("types", [("F32",), ("BF16", "F32"), ("F16", "I64", "BOOL")])
@pytest.mark.parametrize("stated", [GGUF, FP8, {"load_in_4bit": True}, "gguf"])
@pytest.mark.parametrize("inner", [False, True])
def test_quantization_that_the_weights_do_not_have_is_named(
    tmp_path: Path, types: tuple[str, ...], stated: object, inner: bool
) -> None:
    config: dict[str, Any] = {"quantization_config": stated}
    folder_with(tmp_path, {"text_config": config} if inner else config, types=types)
    for check in (check_agreement, check_model_folder):
        with pytest.raises(UserError, match="a quantization that the weights do not have") as caught:
            check(tmp_path)
        assert caught.value.where == str(tmp_path / "config.json")
        assert all(kind in str(caught.value.found) for kind in types)
        assert f"rlcore merge {tmp_path} --out FOLDER" in str(caught.value.fix)


@pytest.mark.parametrize(
    ("pickle", "kind"),
    [
        (b"ctorch._utils\n_rebuild_tensor_v2\nctorch\nFloatStorage\n", "float32"),
        (b"ctorch.storage\nUntypedStorage\nctorch\nfloat8_e4m3fn\n", None),
        (b"ctorch\nCharStorage\n", None),
        (b"damaged", None),
    ],
)
def test_types_in_a_file_of_torch_are_read_without_unpickling_it(
    tmp_path: Path, pickle: bytes, kind: str | None
) -> None:
    folder_with(tmp_path, {"quantization_config": FP8})
    (tmp_path / "model.safetensors").unlink()
    with zipfile.ZipFile(tmp_path / "pytorch_model.bin", "w") as archive:
        archive.writestr("archive/data.pkl", pickle)
    with nullcontext() if kind is None else pytest.raises(UserError, match="a quantization that") as caught:
        check_agreement(tmp_path)
    assert kind is None or f"weights of type {kind}" in str(caught.value.found)


@pytest.mark.parametrize("eos", [2, [0, 2], None, []])
@pytest.mark.parametrize("settings", [None, {"eos_token": "<|im_end|>"}, {"eos_token": {"content": "b"}}])
def test_end_token_of_the_tokenizer_is_accepted(tmp_path: Path, eos: object, settings: object) -> None:
    config = {"eos_token_id": eos, "text_config": {"eos_token_id": 151_645}}
    check_agreement(folder_with(tmp_path, config, generation={"eos_token_id": eos}, settings=settings))


@pytest.mark.parametrize("eos", [3, -1, [2, 3], "2", True, 2.0, [[2]], 10**30, {}])
@pytest.mark.parametrize("place", ["config.json", "generation_config.json"])
def test_end_token_that_the_tokenizer_lacks_is_named(tmp_path: Path, eos: object, place: str) -> None:
    states = {"eos_token_id": eos}
    folder_with(tmp_path, states if place == "config.json" else {}, generation=states if place != "config.json" else {})
    for check in (check_agreement, check_model_folder):
        with pytest.raises(UserError, match="eos_token_id must be an id") as caught:
            check(tmp_path)
        assert caught.value.where == str(tmp_path / place)
        assert caught.value.found == repr(eos)[:80]


def test_end_token_by_its_text_is_named(tmp_path: Path) -> None:
    folder_with(tmp_path, {}, settings={"eos_token": "</s>"})
    with pytest.raises(UserError, match="eos_token must be a token") as caught:
        check_agreement(tmp_path)
    assert caught.value.found == "'</s>'"
    assert caught.value.where == str(tmp_path / "tokenizer_config.json")


def test_vocabulary_may_be_a_list_of_pieces(tmp_path: Path) -> None:
    check_agreement(folder_with(tmp_path, {"eos_token_id": 1}, tokenizer=UNIGRAM))
    with pytest.raises(UserError, match="eos_token_id"):
        check_agreement(folder_with(tmp_path, {"eos_token_id": 2}, tokenizer=UNIGRAM))


@pytest.mark.parametrize(
    "tokenizer",
    [
        *(None, [], {}, {"model": 3}, {"model": {"vocab": 3}}, {"model": {"vocab": {"a": [1]}}}),
        *({"model": {"vocab": [[[], 1]]}}, {"model": {"vocab": {}}, "added_tokens": [{}]}),
        {"model": {"vocab": {}}, "added_tokens": [{"id": 1, "content": []}]},
    ],
)
def test_damaged_tokenizer_is_left_to_its_reader(tmp_path: Path, tokenizer: object) -> None:
    check_agreement(folder_with(tmp_path, {"eos_token_id": 1}, tokenizer=tokenizer))
