"""Read and validate rows of data files, with their location."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcore.data.files import file_rows, row_place
from rlcore.data.forms import task_row
from rlcore.errors import DataError
from rlcore.types import Message

from rl_plugin_gsm8k_tools.demonstrations import FINAL, messages_of

QUESTION_NAMES = ("question", "prompt", "problem", "instruction")
FORMS = ("messages", "conversations", "prompt")
"""Fields with messages, as others write them."""
ROLES = ("system", "user", "assistant", "tool")

_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_COMMA = re.compile(r"\d\s?,\s?\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A valid row."""

    messages: tuple[Message, ...]
    fields: Mapping[str, Any]
    """All other fields. GSM8K's ``… #### N`` is split into ``answer`` N and the full text as ``solution``."""
    mapping: str = ""
    """How a row of another system was read; empty for a row in the own form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """An invalid row."""

    error: DataError


def read_rows(path: Path) -> Iterator[Row | BadRow]:
    """All rows of a .json, .jsonl or .parquet file, in order. Blank lines are ignored.

    Raises:
        DataError: the file cannot be read.
    """
    for number, value in file_rows(path):
        where = row_place(path, number)
        try:
            if isinstance(value, DataError):
                raise DataError(value.message, found=value.found, where=where)
            yield _row(value, where)
        except DataError as error:
            yield BadRow(error=error)


def _row(value: object, where: str) -> Row:
    if not isinstance(value, dict):
        raise DataError("a row must be an object with named fields", found=_short(value), where=where)
    given = value
    value, mapping = task_row(given)
    name = next((known for known in QUESTION_NAMES if known in value), "")
    if isinstance(value.get(name), list) or "messages" in value:
        name = name or "messages"
        messages = _messages(value[name], next((known for known in FORMS if known in given), name), where)
    else:
        if not name:
            present = ", ".join(sorted(map(str, given))) or "none"
            raise DataError(
                "a row needs a field 'question'",
                found=f"the fields {present}",
                where=where,
                fix="rename the field to 'question', 'prompt', 'problem' or 'instruction', or add 'messages'",
            )
        question = value[name]
        if not isinstance(question, str) or not question.strip():
            raise DataError(f"the field {name!r} must be text", found=_short(question), where=where)
        messages = (Message(role="user", content=question),)
    fields: dict[str, Any] = {key: item for key, item in value.items() if key != name}
    try:
        messages_of(fields)
    except (AttributeError, KeyError, TypeError) as error:
        raise DataError(
            "the field 'demonstration' must have the format of rlcore data prepare gsm8k-tools",
            found=f"{type(error).__name__}: {error}",
            where=where,
            fix="prepare the file again, or remove the field",
        ) from None
    answer = fields.get("answer")
    if answer is None or (isinstance(answer, str) and not answer.strip()):
        raise DataError(
            "a row needs a field 'answer'",
            found="an empty value" if "answer" in fields else "the fields " + ", ".join(sorted(map(str, value))),
            where=where,
            fix="add the expected answer, or skip invalid rows with data.on_error=skip",
        )
    if isinstance(answer, bool) or not isinstance(answer, (str, int, float)):
        raise DataError("the field 'answer' must be text or a number", found=_short(answer), where=where)
    if isinstance(answer, float) and not math.isfinite(answer):
        raise DataError("the field 'answer' must be a finite number", found=_short(answer), where=where)
    if isinstance(answer, str) and (final := FINAL.search(answer)) is not None:
        number = _THOUSANDS.sub(lambda match: match[0].replace(",", ""), final[1])
        if _COMMA.search(number):
            reason, fix = "a comma in a number must separate thousands", "write 2.5 or 2500"
            raise DataError(f"{reason}, in the field 'answer'", found=_short(answer[-40:]), where=where, fix=fix)
        fields = {**fields, "answer": number, "solution": answer}
    elif isinstance(answer, str) and "####" in answer:
        raise DataError("the field 'answer' has no number after '####'", found=_short(answer[-40:]), where=where)
    return Row(messages=messages, fields=fields, mapping=mapping)


def _messages(value: object, name: str, where: str) -> tuple[Message, ...]:
    good = isinstance(value, list) and bool(value)
    for message in value if isinstance(value, list) else ():
        good = good and isinstance(message, dict) and message.get("role") in ROLES
        good = good and isinstance(message.get("content"), str)
    if not good:
        raise DataError(
            f"the field {name!r} must be a list of objects with role and content, both text",
            found=_short(value),
            where=where,
        )
    assert isinstance(value, list)
    return tuple(Message(role=message["role"], content=message["content"]) for message in value)


def _short(value: object) -> str:
    text = f"{type(value).__name__} {value!r}"
    return text if len(text) <= 120 else text[:117] + "…"
