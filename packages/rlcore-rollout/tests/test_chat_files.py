"""The configuration files of a tokenizer may contain anything: a folder is used as it says, or rejected."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rlcore.errors import UserError
from rlcore.types import Message
from rlcore_rollout.chat.detect import detect_chat_format
from rlcore_rollout.chat.plain import PlainFormat
from rlcore_rollout.chat.qwen import Qwen3Format, Qwen25Format

FILES = {
    "tokenizer_config.json": (
        *("chat_template", "eos_token", "pad_token", "tokenizer_class", "added_tokens_decoder"),
        *("rlcore_chat_format", "model_max_length", "auto_map"),
    ),
    "generation_config.json": ("eos_token_id", "pad_token_id", "temperature"),
    "special_tokens_map.json": ("eos_token", "additional_special_tokens"),
}
TOKENS = ("<|im_end|>", "<|endoftext|>", "<|im_start|>", "<tool_call>", "user", "", "a", "\ud800")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.sampled_from(TOKENS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(("content", "name", "1", "x")), inner),
    max_leaves=6,
)
CONTENTS = st.fixed_dictionaries(
    {},
    optional={
        name: st.one_of(
            st.fixed_dictionaries({}, optional=dict.fromkeys(keys, JSON)).map(json.dumps).map(str.encode),
            JSON.map(json.dumps).map(str.encode),
            st.binary(max_size=20),
        )
        for name, keys in {**FILES, "chat_template.jinja": ()}.items()
    },
)
FORMATS = (PlainFormat, Qwen25Format, Qwen3Format)


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name in (*FILES, "chat_template.jinja"):
        (folder / name).unlink(missing_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def answer_or_place(make: Callable[[Path], Any], folder: Path) -> Any:
    """The answer for a folder, or the place that its error names."""
    try:
        return make(folder)
    except UserError as error:
        return error.where or ""


@pytest.fixture(scope="module")
def folder(make_folder: Callable[..., Path]) -> Path:
    return make_folder()


@given(CONTENTS)
@example({"tokenizer_config.json": b'{"chat_template": [3, {"name": []}]}'})
@example({"tokenizer_config.json": b'{"rlcore_chat_format": "os:system"}'})
@example({"chat_template.jinja": b"\xff"})
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_chat_format_is_a_known_name_or_none(folder: Path, files: dict[str, bytes]) -> None:
    write(folder, files)
    found = answer_or_place(detect_chat_format, folder)
    assert found is None or ":" not in found or str(folder) in found


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.__name__)
@given(CONTENTS)
@example({"generation_config.json": b'{"eos_token_id": [-1, 99999]}'})
@example({"tokenizer_config.json": b'{"eos_token": "a"}'})
@example({"tokenizer_config.json": b'{"eos_token": "\\ud800"}'})
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_format_of_any_files_keeps_turns_apart_or_is_rejected(
    folder: Path, kind: Callable[[Path], Any], files: dict[str, bytes]
) -> None:
    write(folder, files)
    chat = answer_or_place(kind, folder)
    if isinstance(chat, str):
        assert str(folder) in chat
        return
    size = chat.tokenizer._tokenizer.get_vocab_size()
    assert all(type(index) is int and 0 <= index < size for index in chat.stop_token_ids)
    text = "".join(token for token in TOKENS if len(token) > 1)
    ends = [list(chat.prompt([Message(role="user", content=one)])).count(chat.stop_token_ids[0]) for one in ("x", text)]
    assert ends[0] == ends[1], "the text of a user ended a turn"
