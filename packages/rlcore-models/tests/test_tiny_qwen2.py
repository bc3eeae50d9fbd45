from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from rlcore.errors import ConfigError
from rlcore_models.builtin.config import TinyQwen2Config
from rlcore_models.builtin.tiny_qwen2 import build
from rlcore_models.builtin.tokenizer import MARKUP, SPECIAL
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2ForCausalLM

CALL = '{"name": "calculator", "arguments": {"expression": "'
TEXTS = [f'Ava has {n} pens.\n<tool_call>\n{CALL}{n}+1"}}}}\n</tool_call>' for n in range(300)]


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_same_seed_and_texts_give_the_same_bytes(tmp_path: Path) -> None:
    state = torch.random.get_rng_state()
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        build(tmp_path / name, TEXTS, seed, TinyQwen2Config())
    assert torch.equal(state, torch.random.get_rng_state()), "building must not touch the global random numbers"
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")
    differing = {name for name, data in files_of(tmp_path / "a").items() if data != files_of(tmp_path / "c")[name]}
    assert differing == {"model.safetensors"}


def test_model_folder_has_about_a_million_parameters(tmp_path: Path) -> None:
    build(tmp_path, TEXTS, 0, TinyQwen2Config())
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert isinstance(model, Qwen2ForCausalLM)
    assert 700_000 < model.num_parameters() < 1_300_000
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert model.config.vocab_size == len(tokenizer)
    assert model.generation_config.eos_token_id == tokenizer.convert_tokens_to_ids("<|im_end|>")
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    assert chat == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_digits_and_markup_are_single_tokens(tmp_path: Path) -> None:
    build(tmp_path, TEXTS, 0, TinyQwen2Config())
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.tokenize("1024") == ["1", "0", "2", "4"]
    for token in (*SPECIAL, *MARKUP):
        assert tokenizer.tokenize(token) == [token]
    own = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in ("naïve ☃ \t<think>", CALL, "a  b\n\n{x} it's 12,345.6", TEXTS[7]):
        ids = tokenizer.encode(text)
        assert own.encode(text).ids == ids, "transformers and the file must agree"
        assert tokenizer.decode(ids) == text


def test_width_not_divisible_by_the_heads_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.builder\.width=120"):
        build(tmp_path / "model", TEXTS, 0, TinyQwen2Config(width=125, heads=4))
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    "sizes",
    [
        {"layers": 10**8},
        {"layers": 1001},
        {"width": 10**6},
        {"feed_forward": 10**24},
        {"vocabulary": 10**9},
        {"layers": 0},
        {"width": 65536, "layers": 900},
    ],
)
def test_sizes_beyond_the_limits_are_rejected(sizes: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        TinyQwen2Config(**sizes)


def test_largest_model_within_the_limits_is_accepted() -> None:
    assert TinyQwen2Config(layers=12, width=1024, feed_forward=2816, heads=16).layers == 12
