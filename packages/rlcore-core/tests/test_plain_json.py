"""JSON that every reader takes."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as some
from rlcore.plain_json import plain

TEXTS = some.text(some.characters(), max_size=6)
VALUES = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | TEXTS,
    lambda inside: some.lists(inside, max_size=3) | some.dictionaries(TEXTS, inside, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_any_data_is_strict_json(value: Any) -> None:
    shown = plain(value)
    assert json.loads(json.dumps(shown, allow_nan=False, ensure_ascii=False).encode()) == shown


def test_what_is_not_json_is_replaced() -> None:
    given = {"\ud800": [math.nan, math.inf, 10**400], "pair": "\ud83d\ude00", "kept": (2**63, -0.5, True, None)}
    assert plain(given) == {"\ufffd": [None] * 3, "pair": "\U0001f600", "kept": [2**63, -0.5, True, None]}
