"""GGUF files become folders with the values, configuration and tokenizer that transformers reads from them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import gguf_models
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from rlcore.errors import NotInstalledError, UserError
from rlcore_merge import compare, merge
from rlcore_merge.cli import merge as command
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

ARCHITECTURES = sorted(gguf_models.WIDTHS)
TEXTS = (gguf_models.TEXT, "  two spaces\n\ttab é 🙂", "<|im_start|>user\nHi<|im_end|>\n", "</s>The answer", "")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("gguf")

    def path_of(architecture: str) -> Path:
        path = folder / f"{architecture}.gguf"
        return path if path.exists() else gguf_models.write(path, architecture, tied=architecture != "qwen2")

    return path_of


def reference(path: Path) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_values_are_those_of_transformers_to_the_bit(
    written: Callable[[str], Path], tmp_path: Path, architecture: str
) -> None:
    path = written(architecture)
    merged = merge(path, tmp_path / "out")
    found = load_file(tmp_path / "out" / "model.safetensors")
    expected = reference(path).state_dict()
    tied = architecture != "qwen2"
    assert found.keys() == expected.keys() - ({"lm_head.weight"} if tied else set())
    for name, tensor in found.items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor.view(torch.int32), expected[name].view(torch.int32)), name
    assert merged.layout == "gguf"
    config = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert "quantization_config" not in config
    assert config["dtype"] == "float32"
    assert config["tie_word_embeddings"] is tied


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_configuration_and_tokenizer_are_those_of_transformers(
    written: Callable[[str], Path], tmp_path: Path, architecture: str
) -> None:
    path = written(architecture)
    merge(path, tmp_path / "out")
    expected = AutoConfig.from_pretrained(path.parent, gguf_file=path.name).to_dict()
    found = AutoConfig.from_pretrained(tmp_path / "out").to_dict()
    differ = {key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key)}
    assert differ <= {"_name_or_path", "_model_name_or_path", "architectures", "dtype"}
    width = gguf_models.WIDTHS[architecture]
    assert found.get("head_dim", found["hidden_size"] // found["num_attention_heads"]) == width
    assert GenerationConfig.from_pretrained(tmp_path / "out").eos_token_id == 2
    theirs = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    ours = AutoTokenizer.from_pretrained(tmp_path / "out")
    for text in TEXTS:
        assert ours(text)["input_ids"] == theirs(text)["input_ids"], text
        assert ours.decode(ours(text)["input_ids"]) == theirs.decode(theirs(text)["input_ids"])
    assert len(ours) == len(theirs)
    assert (ours.eos_token_id, ours.bos_token_id, ours.pad_token_id) == (2, 1, 2)
    assert ours.chat_template == gguf_models.TEMPLATE
    message = [{"role": "user", "content": "Hi"}]
    assert ours.apply_chat_template(message, tokenize=False) == "user: Hi\n"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_output_loads_as_a_normal_folder_and_computes_the_same(
    written: Callable[[str], Path], tmp_path: Path, architecture: str
) -> None:
    path = written(architecture)
    merge(path, tmp_path / "out")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        assert torch.equal(model(ids).logits, reference(path)(ids).logits)


def test_dtype_is_rounded_to_nearest_even(written: Callable[[str], Path], tmp_path: Path) -> None:
    path = written("llama")
    merge(path, tmp_path / "out", dtype="bf16")
    found = load_file(tmp_path / "out" / "model.safetensors")
    expected = reference(path).state_dict()
    assert all(torch.equal(tensor, expected[name].to(torch.bfloat16)) for name, tensor in found.items())
    config = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert config["dtype"] == "bfloat16"


def test_ranges_of_any_size_have_the_same_values(written: Callable[[str], Path], monkeypatch: Any) -> None:
    from rlcore_merge.checkpoint import Request
    from rlcore_merge.layouts import Layouts

    tensors = Layouts().open(written("llama"), Request(base=written("llama").parent)).tensors
    for tensor in tensors.values():
        size = int(np.prod(tensor.shape))
        whole = tensor.read(0, size)
        for start, count in ((0, 1), (1, 100), (63, 2), (size - 1, 1), (size // 3, size // 2)):
            count = min(count, size - start)
            assert np.array_equal(tensor.read(start, count), whole[start : start + count])


def test_width_of_heads_is_read_from_the_file(tmp_path: Path) -> None:
    """transformers ignores it for Qwen 3, and then cannot load the weights."""
    path = gguf_models.write(tmp_path / "qwen3.gguf", "qwen3", head_width=32)
    merge(path, tmp_path / "out")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert model.config.head_dim == 32
    assert model.model.layers[0].self_attn.q_proj.weight.shape == (4 * 32, 64)


def test_vocabulary_of_sentencepiece_in_a_llama_file(tmp_path: Path) -> None:
    words = gguf_models.sentencepiece_vocabulary()
    path = gguf_models.write(tmp_path / "llama.gguf", "llama", vocabulary=words)
    merge(path, tmp_path / "out")
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
    ours = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert [ours(text)["input_ids"] for text in TEXTS] == [theirs(text)["input_ids"] for text in TEXTS]


def test_a_base_replaces_configuration_and_tokenizer(written: Callable[[str], Path], tmp_path: Path) -> None:
    merge(written("llama"), tmp_path / "base")
    config = tmp_path / "base" / "config.json"
    config.write_text(config.read_text(encoding="utf-8").replace("50000.0", "123.0"), encoding="utf-8")
    merge(written("llama"), tmp_path / "out", base=tmp_path / "base")
    assert json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))["rope_parameters"][
        "rope_theta"
    ] == pytest.approx(123.0)
    assert compare(tmp_path / "out", written("llama")).equal


def test_a_base_of_another_size_is_refused(written: Callable[[str], Path], tmp_path: Path) -> None:
    merge(written("llama"), tmp_path / "base")
    config = tmp_path / "base" / "config.json"
    config.write_text(config.read_text(encoding="utf-8").replace(": 256,", ": 128,"), encoding="utf-8")
    with pytest.raises(UserError, match="contradict"):
        merge(written("llama"), tmp_path / "out", base=tmp_path / "base")


def test_scaled_positions_are_reported(tmp_path: Path, written: Callable[[str], Path]) -> None:
    assert merge(written("llama"), tmp_path / "plain").notes == ()
    path, scaled = written("llama"), tmp_path / "scaled.gguf"
    reader = gguf.GGUFReader(path)
    assert "llama.rope.scaling.type" not in reader.fields
    original = gguf.GGUFWriter.add_rope_freq_base

    def add(self: gguf.GGUFWriter, value: float) -> None:
        original(self, value)
        self.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gguf.GGUFWriter, "add_rope_freq_base", add)
        gguf_models.write(scaled, "llama")
    notes = merge(scaled, tmp_path / "out").notes
    assert len(notes) == 1
    assert "llama.rope.scaling.type is 'linear'" in notes[0]


def test_command_converts_a_file_and_suggests_it_for_a_folder(written: Callable[[str], Path], tmp_path: Path) -> None:
    source = tmp_path / "downloaded"
    source.mkdir()
    (source / "small.gguf").write_bytes(written("llama").read_bytes())
    done = CliRunner().invoke(command, [str(source / "small.gguf"), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("config.json", "generation_config.json", "model.safetensors", "rlcore-merge.json"),
        *("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"),
    }
    with pytest.raises(UserError) as caught:
        merge(source, tmp_path / "again")
    assert str(source / "small.gguf") in str(caught.value.fix)


def test_other_files_of_the_folder_are_not_read(written: Callable[[str], Path], tmp_path: Path) -> None:
    source = tmp_path / "downloaded"
    source.mkdir()
    (source / "small.gguf").write_bytes(written("llama").read_bytes())
    (source / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["own.Tokenizer", null]}}')
    (source / "own.py").write_text("raise SystemExit('code of the folder ran')")
    merge(source / "small.gguf", tmp_path / "out")
    assert not (tmp_path / "out" / "own.py").exists()
    assert "auto_map" not in (tmp_path / "out" / "tokenizer_config.json").read_text(encoding="utf-8")


def test_temporary_files_are_removed(written: Callable[[str], Path], tmp_path: Path, monkeypatch: Any) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    merge(written("llama"), tmp_path / "out")
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("missing", ["gguf", "transformers"])
def test_missing_extra_is_named_with_the_command(
    written: Callable[[str], Path], tmp_path: Path, monkeypatch: Any, missing: str
) -> None:
    monkeypatch.delitem(sys.modules, "rlcore_merge.sources.gguf", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(NotInstalledError) as caught:
        merge(written("llama"), tmp_path / "out")
    assert "rlcore-merge" in str(caught.value.fix)
    assert "gguf" in str(caught.value.fix)
    assert not (tmp_path / "out").exists()
