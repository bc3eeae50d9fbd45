"""Tokens with their texts and values."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from byte_level import byte_level_tokenizer
from hypothesis import given
from hypothesis import strategies as some
from rlcore.rollouts.decoding import loaded
from rlcore.types import Logprobs, LossMask, Segment, TokenIds, Turn, VersionSpan
from rlcore_view.tokens import _segment, texts_of
from tokenizers import Tokenizer, decoders, models

Ask = Callable[..., Any]
BYTES = byte_level_tokenizer(["the answer", "你好 wörld"], 300)
PIECES = Tokenizer(models.BPE(vocab={"▁a": 0, "▁": 1, "b": 2, "你": 3, "</s>": 4}, merges=[]))
PIECES.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])

ABORTS = {"type": "BPE", "vocab": {"a": 0, "é": 1}, "merges": ["a é"], "continuing_subword_prefix": "x"}


def text_of(tokenizer: Tokenizer, ids: list[int]) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=False))


def texts(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    return texts_of(ids, lambda windows: [text_of(tokenizer, window) for window in windows])


@given(some.lists(some.integers(0, BYTES.get_vocab_size() - 1), max_size=60))
def test_texts_of_any_bytes_are_the_decoded_text(ids: list[int]) -> None:
    found = texts(BYTES, ids)
    assert (len(found), "".join(found)) == (len(ids), text_of(BYTES, ids))


@given(some.lists(some.integers(0, 4), max_size=40))
def test_texts_of_pieces_with_spaces_are_the_decoded_text(ids: list[int]) -> None:
    found = texts(PIECES, ids)
    assert (len(found), "".join(found)) == (len(ids), text_of(PIECES, ids))


def test_last_token_of_a_character_has_its_text() -> None:
    ids = [BYTES.token_to_id(token) for token in ("ð", "Ł", "ĺ", "Ģ", "t")]
    found = texts(BYTES, ids)
    assert (found[:2], "".join(found), found[-1]) == (["", ""], text_of(BYTES, ids), "t")


def test_tokens_that_cannot_be_decoded_have_no_texts() -> None:
    assert texts_of([1, 2, 3], lambda windows: []) == []


def test_long_texts_take_linear_time(tmp_path: Path) -> None:
    BYTES.save(str(tmp_path / "tokenizer.json"))
    decoding = loaded(tmp_path / "tokenizer.json")
    assert decoding is not None
    ids = [BYTES.token_to_id("ð")] * 32_768  # no token completes a character
    begin = time.monotonic()
    assert "".join(texts_of(ids, decoding.texts)) == text_of(BYTES, ids)
    assert time.monotonic() - begin < 10  # a second on an idle machine; quadratic time is minutes


def test_values_belong_to_trained_tokens(ask: Ask) -> None:
    found = ask("runs/first/train/1/0/1/tokens")
    (segment,) = found["segments"]
    columns, trained = segment["columns"], segment["trained"]
    assert (found["missing"], "".join(segment["texts"])) == ("", "the questionthe answer is 42 1 你好")
    assert sorted(columns) == ["advantage", "engine_logprob", "gap", "logprob", "ratio"]
    assert not trained[0]
    assert trained[-1]
    for name, value in {"advantage": 1.5, "engine_logprob": -0.5, "gap": 0.25, "ratio": math.exp(0.5)}.items():
        assert columns[name] == [pytest.approx(value) if mask else None for mask in trained]


@pytest.mark.parametrize(("end", "last"), [(4, 4), (3, None)])
def test_versions_of_a_turn_during_which_the_weights_changed_are_a_column(end: int, last: int | None) -> None:
    spans = (VersionSpan(3, 1), VersionSpan(4, end - 2))
    turn = Turn(kind="policy", start=1, end=end, messages=(), policy_version=3, versions=spans)
    segment = Segment(
        token_ids=TokenIds(range(4)),
        loss_mask=LossMask([False, True, True, True]),
        logprobs=Logprobs.zeros(4),
        turns=(turn,),
    )
    assert _segment(segment, {}, None)["columns"]["version"] == [None, 3, 4, last]
    assert "version" not in _segment(replace(segment, turns=(replace(turn, versions=()),)), {}, None)["columns"]


def test_carried_group_has_the_values_of_the_step_that_trained_it(ask: Ask) -> None:
    found = ask("runs/first/train/1/2/1/tokens")
    assert (found["missing"], found["segments"][0]["columns"]["advantage"][-1]) == ("", 1.5)


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("evaluation/0/0/0", "evaluation"),
        ("train/1/0/0", "50%"),
        ("train/1/1/0", "dropped: all rewards are equal"),
        ("train/3/0/0", "token_evidence|stored"),
        ("train/4/0/0", "not trained yet"),
    ],
)
def test_missing_values_have_a_reason(ask: Ask, place: str, why: str) -> None:
    found = ask(f"runs/first/{place}/tokens")
    assert any(word in found["missing"] for word in why.split("|")), found["missing"]
    assert "advantage" not in found["segments"][0]["columns"]
    assert "engine_logprob" in found["segments"][0]["columns"]


@pytest.mark.parametrize("damage", ["cut", "header", "other", "count"])
def test_damaged_values_are_only_missing(run: Path, ask: Ask, write_values: Callable[..., None], damage: str) -> None:
    path = run / "evidence" / "train-000001.tokens.safetensors"
    content = path.read_bytes()
    other = (run / "evidence" / "train-000002.tokens.safetensors").read_bytes()
    changed = {"cut": content[:-4], "header": b"\xff" * 8 + content[8:], "other": other}
    if damage == "count":
        write_values(run, 1, (1, 0, 1), 3)
    else:
        path.write_bytes(changed[damage])
    found = ask("runs/first/train/1/0/1/tokens")
    assert found["missing"]
    assert list(found["segments"][0]["columns"]) == ["engine_logprob"]
    assert found["segments"][0]["texts"]


@pytest.mark.parametrize("content", ["{", json.dumps({"model": ABORTS})], ids=["damaged", "aborting"])
def test_hostile_tokenizer_costs_only_the_texts(run: Path, ask: Ask, content: str) -> None:
    (run / "model" / "tokenizer.json").write_text(content, encoding="utf-8")
    (segment,) = ask("runs/first/train/1/0/1/tokens")["segments"]
    assert segment["texts"] == []
    assert segment["columns"]["advantage"][-1] == 1.5
