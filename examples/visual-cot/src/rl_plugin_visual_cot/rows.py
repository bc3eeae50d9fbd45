"""Rows of chain-of-thought files, such as those of GQA, and their pictures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from rlcore import DataError
from rlcore.images import check_image, encode_image
from rlcore.json_files import check_depth, json_lines, parse_json, read_text

SUFFIX = ".jpg"
LONGEST_NAME = 200


class Reason(StrEnum):
    """Why a row cannot be used."""

    INVALID_JSON = "invalid JSON"
    INVALID_FIELD = "missing or invalid field"
    UNSAFE_NAME = "unsafe picture name"
    MISSING_IMAGE = "missing picture"
    UNREADABLE_IMAGE = "unreadable picture"
    DUPLICATE = "repeated question"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A question about a picture, with a chain of thought and the answer."""

    image_id: str
    question: str
    reasoning: str
    answer: str
    image: bytes
    """The encoded picture. Rows with the same picture share one object."""


class UnusableRow(Exception):
    """A row that cannot be used."""

    def __init__(self, reason: Reason, found: str) -> None:
        super().__init__(f"{reason}: {found}")
        self.reason, self.found = reason, found


class RowReader:
    """Reads files of rows. Questions that were read already are duplicates."""

    def __init__(self, images: Path) -> None:
        self._folder = images
        self._images: dict[str, bytes] = {}
        self._seen: set[tuple[str, str]] = set()

    def read(self, path: Path) -> Iterator[tuple[int, Row | UnusableRow]]:
        """Yield the line or position of each row, and the row or why it cannot be used.

        Raises:
            DataError: the file cannot be read, or has another format.
        """
        for line, value in _values(path):
            try:
                yield line, self._row(value)
            except UnusableRow as error:
                yield line, error

    def _row(self, value: object) -> Row:
        if isinstance(value, UnusableRow):
            raise value
        if not isinstance(value, dict):
            raise UnusableRow(Reason.INVALID_FIELD, f"a {type(value).__name__} instead of an object")
        image_id = _text(value, "imageId")
        question = _text(value, "instruction" if "instruction" in value else "question")
        answer = _text(value, "answer")
        reasoning = _reasoning(value)
        if (image_id, question) in self._seen:
            raise UnusableRow(Reason.DUPLICATE, f"{image_id}: {question[:80]}")
        image = self._image(image_id)
        self._seen.add((image_id, question))
        return Row(image_id=image_id, question=question, reasoning=reasoning, answer=answer, image=image)

    def _image(self, image_id: str) -> bytes:
        if image_id not in self._images:
            plain = Path(image_id).name == image_id and image_id not in {".", ".."} and image_id.isprintable()
            if not plain or "\\" in image_id or len(image_id) > LONGEST_NAME:
                raise UnusableRow(Reason.UNSAFE_NAME, repr(image_id[:80]))
            path = Path(image_id + SUFFIX)
            if not (self._folder / path).is_file():
                raise UnusableRow(Reason.MISSING_IMAGE, str(self._folder / path))
            try:
                image = encode_image(path, folder=self._folder)
                check_image(image)
            except DataError as error:
                outside = "inside its folder" in error.message
                reason = Reason.UNSAFE_NAME if outside else Reason.UNREADABLE_IMAGE
                raise UnusableRow(reason, f"{self._folder / path}: {error.found or error.message}") from None
            self._images[image_id] = image
        return self._images[image_id]


def _values(path: Path) -> Iterator[tuple[int, Any]]:
    if path.suffix.lower() not in (".jsonl", ".json"):
        raise DataError("files of rows end in .jsonl or .json", found=path.name, where=str(path))
    if not path.is_file():
        fix = "correct data.train or data.evaluation"
        raise DataError("a data file is missing", found="no such file", where=str(path.absolute()), fix=fix)
    try:
        if path.suffix.lower() == ".jsonl":
            yield from _lines(path)
        else:
            yield from enumerate(_list(path), start=1)
    except (OSError, ValueError) as error:
        fix = "restore the file, or convert it to UTF-8"
        raise DataError("a data file cannot be read", found=str(error), where=str(path), fix=fix) from None


def _lines(path: Path) -> Iterator[tuple[int, Any]]:
    with path.open("rb") as file:
        for number, line in json_lines(file):
            try:
                yield number, parse_json(line.decode("utf-8"))
            except ValueError as error:
                yield number, UnusableRow(Reason.INVALID_JSON, str(error)[:120])


def _list(path: Path) -> list[Any]:
    try:
        rows = json.loads(read_text(path))
        check_depth(rows)
    except (ValueError, RecursionError) as error:
        raise DataError("a .json file must contain valid JSON", found=str(error), where=str(path)) from None
    if not isinstance(rows, list):
        fix = "use the suffix .jsonl if each line is a separate object"
        raise DataError("a .json file must contain a list", found=type(rows).__name__, where=str(path), fix=fix)
    return rows


def _text(row: dict[str, Any], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        found = "missing" if name not in row else f"{type(value).__name__} {str(value)[:40]!r}"
        raise UnusableRow(Reason.INVALID_FIELD, f"{name} is {found}, expected a text")
    return value.strip() if name in ("imageId", "answer") else value


def _reasoning(row: dict[str, Any]) -> str:
    """The text of the first chain of thought."""
    chains = row.get("cot")
    first = chains[0] if isinstance(chains, list) and chains else None
    if not isinstance(first, dict):
        raise UnusableRow(Reason.INVALID_FIELD, "cot is not a list of objects with a text")
    return _text(first, "text")


__all__ = ["Reason", "Row", "RowReader", "UnusableRow"]
