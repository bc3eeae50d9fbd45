"""Model folders with tokenizers: one that is built here, and the real Qwen ones where RLCORE_DATA has them."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from byte_level import byte_level_tokenizer
from tokenizers import AddedToken

sys.path.insert(0, str(Path(__file__).parent))  # for what several test files share

os.environ.pop("UV_RUN_RECURSION_DEPTH", None)  # messages name commands as without uv

if TYPE_CHECKING:
    from chat_endpoint import Endpoint
    from scripted_episodes import Play

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|image_pad|>", "<|vision_end|>")
MARKUP = ("<tool_call>", "</tool_call>", "<think>", "</think>")
TEXTS = (
    "system\nuser\nassistant\ntool\n<tool_response>\n</tool_response>\n",
    'tools: calculator(expression)\n{"name": "calculator", "arguments": {"expression": "12 + 3 * 4"}}',
    "Tom has 3 apples and buys 12 more. How many apples does he have? The answer is 15.",
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n",
)


def build_tokenizer(
    folder: Path, *, special: tuple[str, ...] = SPECIAL, markup: tuple[str, ...] = MARKUP, eos: str = "<|im_end|>"
) -> Path:
    """A byte-level BPE tokenizer of a few hundred tokens, made in milliseconds, in the shape of Qwen's."""
    tokenizer = byte_level_tokenizer(TEXTS, 400)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in markup])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "Qwen2TokenizerFast", "eos_token": eos}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small tokenizer that has ChatML's tokens and tags."""
    return build_tokenizer(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def make_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes folders with a tokenizer of other tokens."""
    return lambda **options: build_tokenizer(tmp_path_factory.mktemp("made"), **options)


@pytest.fixture(scope="session")
def real_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Gives the folder of a published tokenizer, such as ``qwen2.5-vl``; skips without RLCORE_DATA."""
    made: dict[str, Path] = {}

    def folder(kind: str) -> Path:
        if "RLCORE_DATA" not in os.environ:
            pytest.skip("RLCORE_DATA names no folder with real tokenizers")
        if kind not in made:
            source = Path(os.environ["RLCORE_DATA"]) / "tokenizers"
            made[kind] = tmp_path_factory.mktemp(kind)
            for path in (source / kind).iterdir():
                shutil.copyfile(path, made[kind] / path.name)
            definition = runpy.run_path(str(source / "assemble.py"))["assemble"](kind)
            text = json.dumps(definition, ensure_ascii=False)
            (made[kind] / "tokenizer.json").write_text(text, encoding="utf-8")
        return made[kind]

    return folder


@pytest.fixture
def play(tiny_folder: Path) -> Play:
    """Plays single trajectories with a scripted engine."""
    from scripted_episodes import Play

    return Play(tiny_folder)


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    """A scripted server; without the trainer, and without the keys of the developer's environment."""
    from chat_endpoint import Endpoint

    monkeypatch.setenv("RLCORE_DISABLE_PLUGINS", "trainer")
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.delenv(name, raising=False)
    made = Endpoint()
    yield made
    made.close()
