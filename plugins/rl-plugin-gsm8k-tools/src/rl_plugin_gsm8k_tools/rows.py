"""Read and validate rows of data files, with their location."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcore.errors import DataError, NotInstalledError
from rlcore.json_files import json_lines, open_regular, parse_json, read_json
from rlcore.plugins.loading import pip_line
from rlcore.types import Message

from rl_plugin_gsm8k_tools.demonstrations import FINAL, messages_of

QUESTION_NAMES = ("question", "prompt", "problem", "instruction")
ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A valid row."""

    messages: tuple[Message, ...]
    fields: Mapping[str, Any]
    """All other fields. GSM8K's ``… #### N`` is split into ``answer`` N and the full text as ``solution``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """An invalid row."""

    error: DataError


def read_rows(path: Path) -> Iterator[Row | BadRow]:
    """All rows of a .json, .jsonl or .parquet file, in order. Blank lines are ignored.

    Raises:
        DataError: the file cannot be read.
    """
    readers = {".json": _json, ".jsonl": _jsonl, ".parquet": _parquet}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise DataError(
            "data files must end in .json, .jsonl or .parquet",
            found=path.name,
            where=str(path),
            fix="rename the file to match its format, or use 'generated' for generated problems",
        )
    if not path.is_file():
        raise DataError(
            "a data file is missing",
            found="a folder" if path.is_dir() else "no such file",
            where=str(path.absolute()),
            fix="correct data.train or data.evaluation, or use 'generated' for generated problems",
        )
    for where, value in reader(path):
        try:
            yield value if isinstance(value, BadRow) else _row(value, where)
        except DataError as error:
            yield BadRow(error=error)


def _row(value: object, where: str) -> Row:
    if not isinstance(value, dict):
        raise DataError("a row must be an object with named fields", found=_short(value), where=where)
    if "messages" in value:
        name = "messages"
        messages = _messages(value[name], where)
    else:
        name = next((known for known in QUESTION_NAMES if known in value), "")
        if not name:
            present = ", ".join(sorted(map(str, value))) or "none"
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
        fields = {**fields, "answer": final[1].replace(",", ""), "solution": answer}
    elif isinstance(answer, str) and "####" in answer:
        raise DataError("the field 'answer' has no number after '####'", found=_short(answer[-40:]), where=where)
    return Row(messages=messages, fields=fields)


def _messages(value: object, where: str) -> tuple[Message, ...]:
    good = isinstance(value, list) and bool(value)
    for message in value if isinstance(value, list) else ():
        good = good and isinstance(message, dict) and message.get("role") in ROLES
        good = good and isinstance(message.get("content"), str)
    if not good:
        raise DataError(
            "the field 'messages' must be a list of objects with role and content, both text",
            found=_short(value),
            where=where,
        )
    assert isinstance(value, list)
    return tuple(Message(role=message["role"], content=message["content"]) for message in value)


def _json(path: Path) -> Iterator[tuple[str, object]]:
    try:
        rows = read_json(path)
    except UnicodeDecodeError as error:
        raise _not_utf8(path, error) from None
    except (OSError, ValueError) as error:
        fix = "use the suffix .jsonl if each line is a JSON object"
        raise DataError("a .json file must hold a JSON list", found=str(error), where=str(path), fix=fix) from None
    if not isinstance(rows, list):
        raise DataError("a .json file must hold a list of rows", found=_short(rows), where=str(path))
    for index, row in enumerate(rows):
        yield f"{path}, row {index + 1}", row


def _jsonl(path: Path) -> Iterator[tuple[str, object]]:
    try:
        with open_regular(path) as file:
            for number, line in json_lines(file):
                where, text = f"{path}, line {number}", line.decode("utf-8")
                try:
                    row = parse_json(text)
                except ValueError as error:
                    message = "a line of a .jsonl file must be JSON"
                    row = BadRow(error=DataError(message, found=str(error), where=where))
                yield where, row
    except UnicodeDecodeError as error:
        raise _not_utf8(path, error) from None
    except (OSError, ValueError) as error:
        fix = "restore the file, or split it"
        raise DataError("a data file cannot be read", found=str(error), where=str(path), fix=fix) from None


def _parquet(path: Path) -> Iterator[tuple[str, object]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise NotInstalledError(
            "parquet files need pyarrow", where=str(path), fix=pip_line(["rl-plugin-gsm8k-tools[parquet]"])
        ) from None
    try:
        rows = pyarrow.parquet.read_table(path).to_pylist()
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        fix = "restore the file, or convert it again"
        raise DataError("the parquet file cannot be read", found=str(error), where=str(path), fix=fix) from None
    for index, row in enumerate(rows):
        yield f"{path}, row {index + 1}", row


def _not_utf8(path: Path, error: UnicodeDecodeError) -> DataError:
    fix = "convert the file to UTF-8"
    return DataError("data files must be UTF-8", found=str(error), where=str(path), fix=fix)


def _short(value: object) -> str:
    text = f"{type(value).__name__} {value!r}"
    return text if len(text) <= 120 else text[:117] + "…"
