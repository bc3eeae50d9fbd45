"""The tokens of a trajectory with their texts and values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

from rlcore.errors import DataError
from rlcore.plain_json import number
from rlcore.rollouts.decoding import Decoding, loaded
from rlcore.rollouts.evidence import Tokens, ratio, read_tokens
from rlcore.rollouts.index import Row
from rlcore.types import Segment

from rlcore_view.errors import NotFoundError
from rlcore_view.recent import Recent
from rlcore_view.stored import Stored, StoredGroup

REASONS = {
    "equal": "all rewards are equal",
    "all_right": "all siblings are right",
    "all_wrong": "all siblings are wrong",
    "not_scored": "too few siblings are scored",
    "surplus": "more groups than this step and the next one need",
}
"""Why a group was dropped, as ``fate.tsx`` says it."""
UNKNOWN = "\ufffd"
"""What a decoder writes for bytes that are no character, or not yet."""
LONGEST_CHARACTER = 4
"""Bytes of the longest character, and so the most tokens that one can be split over."""
WINDOW = 12
"""Tokens that are decoded together at most. The texts of the first ones are known already."""
Columns = dict[str, list[float]]
DecodeAll = Callable[[list[list[int]]], list[str]]
"""Returns the text of each list of token ids, or no texts."""


def tokens_data(stored: Stored, found: StoredGroup, sibling: int) -> dict[str, Any]:
    """The tokens of a trajectory. Raises `NotFoundError` if there is no such sibling."""
    one = next((each for each in found.group.trajectories if each.sibling == sibling), None)
    if one is None or sibling not in found.rows:
        raise NotFoundError(f"the group {found.number} has no sibling {sibling}", fix="choose one of the group")
    row = found.rows[sibling]
    missing, values = "", dict[int, Columns]()
    try:
        if not (missing := _why_missing(found, row)):
            path = stored.tokens_file(row["trained_step"] if "trained_step" in row else row["step"])
            values = _values_of(path, (row["step"], row["group"], sibling))
            missing = "" if values else _not_among(path, row)
    except DataError as error:
        missing = error.line
    decoding = _decoding(stored)
    segments = []
    for place, segment in enumerate(one.segments):
        columns = values.get(place, {})
        if any(len(column) != segment.sampled_tokens for column in columns.values()):
            missing, columns = "The stored values belong to other rollouts.", {}
        segments.append(_segment(segment, columns, decoding))
    return {"segments": segments, "missing": missing}


def _why_missing(found: StoredGroup, row: Row) -> str:
    """Why a trajectory has no values, from its row; empty if it should have them."""
    if found.file.purpose != "train":
        return "An evaluation trains no tokens."
    if found.file.unfinished:
        return "The step is not trained yet."
    if row.get("fate") == "dropped":
        why = str(row.get("why", ""))
        return f"The group was dropped: {REASONS.get(why, why)}." if why else "The group was dropped."
    if row.get("fate") == "carried" and "trained_step" not in row:
        return "The group was carried over, and is not trained yet."
    return "This trajectory was left out of training." if row.get("excluded") else ""


def _not_among(path: Path, row: Row) -> str:
    if row.get("spread") == 0:
        return "No values are stored: the rewards of the group are equal, so nothing was computed for it."
    share = values_in(path).note.get("share")
    if isinstance(share, (int, float)) and share < 1:
        return f"The values of {share:.0%} of the trajectories are stored (trainer.token_evidence), not of this one."
    return "No values of this trajectory are stored."


def _segment(segment: Segment, values: Mapping[str, list[float]], decoding: Decoding | None) -> dict[str, Any]:
    ids, trained = segment.token_ids.tolist(), [bool(mask) for mask in segment.loss_mask]
    engine = [value for value, mask in zip(segment.logprobs, trained, strict=True) if mask]
    columns = {"engine_logprob": engine, **{name: one for name, one in values.items() if name != "log_ratio"}}
    if "logprob" in values:
        columns["gap"] = [learner - other for learner, other in zip(values["logprob"], engine, strict=True)]
    if "log_ratio" in values:
        columns["ratio"] = [ratio(value) for value in values["log_ratio"]]
    if any(turn.versions for turn in segment.turns):
        columns["version"] = list(_versions(segment))
    is_control = bool(segment.arrays)
    return {
        "ids": ids,
        "texts": texts_of(ids, decoding.texts) if decoding is not None and not is_control else [],
        "trained": trained,
        "columns": {name: list(_spread(column, trained)) for name, column in columns.items()},
    }


def _versions(segment: Segment) -> Iterator[float]:
    """The version of the weights that sampled each token of the policy."""
    spans = (span for turn in segment.turns if turn.kind == "policy" for span in turn.spans)
    versions = (span.version for span in spans for _ in range(span.tokens))
    yield from islice(chain(versions, repeat(math.nan)), segment.sampled_tokens)  # stored spans may be too short


def _spread(values: Iterable[float], trained: Iterable[bool]) -> Iterator[float | None]:
    """A value for each token, None for those that are not trained, with the digits that float32 has."""
    rest = iter(values)
    for mask in trained:
        value = number(next(rest)) if mask else None
        yield float(f"{value:.7g}") if value is not None else None


def texts_of(ids: list[int], decode: DecodeAll) -> list[str]:
    """The text of each token; no texts if they cannot be decoded. Together they are the decoded text.

    The last characters of a window that are not known are held back until further tokens complete them.
    """
    places = list(_windows(len(ids)))
    decoded = decode([ids[start:end] for start, end in places])
    if not decoded:
        return []
    texts: list[str] = []
    known = 0
    for (_, end), window in zip(places, decoded, strict=True):
        settled = window if end == len(ids) else _settled(window)
        if end == len(texts):
            known = len(settled)
        else:
            texts.append(settled[known:])
            known = max(known, len(settled))
    return texts


def _windows(count: int) -> Iterator[tuple[int, int]]:
    """The windows that are decoded: one that ends with each token, so that the time is linear.

    Before a window starts at another token, the tokens that are known are decoded from there.
    """
    start = 0
    for end in range(1, count + 1):
        if end - start > WINDOW:
            start = end - 1 - WINDOW // 2
            yield start, end - 1
        yield start, end


def _settled(decoded: str) -> str:
    """A text without characters at its end that further tokens may complete."""
    for _ in range(LONGEST_CHARACTER - 1):
        decoded = decoded.removesuffix(UNKNOWN)
    return decoded


def _decoding(stored: Stored) -> Decoding | None:
    """The tokenizer of a run; None if it is not here, or cannot be loaded."""
    file = stored.tokenizer
    return _DECODINGS.get(file, [file], lambda: loaded(file)) if file else None


def text_of(stored: Stored, ids: list[int]) -> str:
    """The text of token ids; empty if they cannot be decoded."""
    decoding = _decoding(stored)
    return decoding(ids) if decoding is not None else ""


def values_in(path: Path) -> Tokens:
    """The values of a step. Raises `DataError` if there are none, or they are damaged."""
    return _TOKENS.get(path, [path], lambda: read_tokens(path))


def _values_of(path: Path, place: tuple[int, int, int]) -> dict[int, Columns]:
    """The values of the trained tokens of a trajectory by segment; empty if they are not stored."""
    tokens = values_in(path)
    return {
        sequence["segment"]: {name: tokens.part(name, rows) for name in tokens.names}
        for sequence, rows in tokens.sequences()
        if (sequence["step"], sequence["group"], sequence["sibling"]) == place
    }


_TOKENS: Recent[Tokens] = Recent(2)
_DECODINGS: Recent[Decoding | None] = Recent(1)

__all__ = ["text_of", "texts_of", "tokens_data", "values_in"]
