"""The images of rows of conversations and prompts: sources in messages, and the column ``images``.

An image is read when its row is read, decoded once to find damaged files, and kept encoded. Rows with equal images
share the bytes, and a file is read once. The pixels are decoded again only where an image is fitted to a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlcore.errors import DataError
from rlcore.images import check_image, encode_image
from rlcore.types import ImagePart, Part, TextPart, media_hash

COLUMNS = ("images", "image")
"""Columns with the images of a row, in the order of their places. The first one that a row has is used."""
MARK = "<image>"
"""The place of an image in the text of a row with such a column."""
OTHER_MEDIA = ("videos", "video", "audios", "audio")
SOURCES = ("image", "image_url", "path", "url")
"""Keys of an image part with the image."""
OWN_SIZES = ("min_pixels", "max_pixels", "resized_height", "resized_width")
"""Keys of an image part that set its size in other systems."""
PART_TYPES = ("text", "image", "image_url")


class ImageReader:
    """Reads and checks images. A file is read once, and equal images share their bytes."""

    def __init__(self, folder: Path | None) -> None:
        """Paths are relative to the folder and must not leave it. None rejects all paths."""
        self._folder = folder
        self._contents: dict[str, bytes] = {}
        self._files: dict[str, str] = {}

    def read(self, source: object) -> ImagePart:
        """Return the image of a path, a data URI, encoded bytes, ``{"bytes", "path"}``, or a PIL image.

        Raises:
            DataError: it is missing, damaged or not one of these. The caller adds file and line.
        """
        if isinstance(source, Mapping) and source.keys() & {"bytes", "path", "url"}:
            source = source.get("bytes") or source.get("path") or source.get("url")
        if isinstance(source, (bytes, bytearray, memoryview)):
            return self._kept(bytes(source))
        if isinstance(source, (str, Path)):
            return self._at(str(source))
        if hasattr(source, "save") and hasattr(source, "convert"):  # of pillow, which need not be installed
            return self._kept(encode_image(source))  # type: ignore[arg-type]
        found = f"{type(source).__name__} {source!r}"[:120]
        raise DataError("an image must be a path, a data URI, bytes, or an object with bytes or path", found=found)

    def bytes_of(self, parts: Iterable[str]) -> tuple[bytes, ...]:
        """The bytes of the images with these hashes, each one once."""
        return tuple(self._contents[sha256] for sha256 in dict.fromkeys(parts))

    def _at(self, place: str) -> ImagePart:
        if place.startswith("data:"):
            return self._kept(encode_image(place))
        if place not in self._files:
            self._files[place] = self._kept(self._file(place)).sha256
        return ImagePart(sha256=self._files[place])

    def _file(self, place: str) -> bytes:
        scheme, separator, rest = place.partition("://")
        if separator and scheme != "file":
            fix = "download the images, and give their paths"
            raise DataError("images are not downloaded while data is read", found=place[:120], fix=fix)
        if self._folder is None:
            fix = "set data.images to the folder of the images"
            raise DataError("an image is given as a path, without a folder", found=place[:120], fix=fix)
        try:
            return encode_image(Path(rest if separator else place), folder=self._folder)
        except DataError as error:
            found = f"{place[:120]} in {self._folder}" if error.found == place else f"{error.found}: {error.where}"
            fix = error.fix or "correct the path, or set data.images to the folder of the images"
            raise DataError(error.message, found=found, fix=fix) from None

    def _kept(self, data: bytes) -> ImagePart:
        sha256 = media_hash(data)
        if sha256 not in self._contents:
            check_image(data)
            self._contents[sha256] = data
        return ImagePart(sha256=sha256)


@dataclass(slots=True)
class RowImages:
    """The places of images in one row, in reading order."""

    reader: ImageReader
    column: list[object] | None
    """The images of the column; None if the row has no such column."""
    splits_text: bool
    """Whether `MARK` in a text is the place of an image."""
    taken: int = field(default=0)

    @classmethod
    def of(cls, reader: ImageReader, entries: Iterable[object], column: list[object] | None) -> RowImages:
        """Count the places in the messages.

        Args:
            reader: of the file or the data set
            entries: the contents of all messages that can have images
            column: the images of the row; None if it has no such column

        Raises:
            DataError: the numbers of images and places differ.
        """
        if column is None:
            return cls(reader, None, splits_text=False)
        bare = marks = 0
        for content in entries:
            for part in content if isinstance(content, list) else [content]:
                text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else part
                marks += text.count(MARK) if isinstance(text, str) else 0
                bare += isinstance(part, dict) and part.get("type") == "image" and _source(part) is None
        places = bare or marks
        if places != len(column):
            kind = 'parts {"type": "image"}' if bare else f"marks {MARK}"
            raise DataError(
                "a row must have a place for each image of its column",
                found=f"{len(column)} in the column of images, {places} {kind} in the messages",
                fix=f"write {MARK} in a message where an image belongs",
            )
        return cls(reader, column, splits_text=not bare)

    def parts(self, text: str) -> list[Part]:
        """A text, split at the places of images."""
        if not self.splits_text:
            return [TextPart(text=text)]
        found: list[Part] = []
        for number, piece in enumerate(text.split(MARK)):
            found += [self._next()] if number else []
            found += [TextPart(text=piece)] if piece else []
        return found

    def image(self, part: Mapping[str, Any]) -> ImagePart:
        """The image of a part of a message.

        Raises:
            DataError: it has no image, or sizes of its own.
        """
        if sizes := [key for key in OWN_SIZES if part.get(key) is not None]:
            fix = "set model.images.min_pixels and model.images.max_pixels, or resize the image"
            raise DataError("an image cannot have a size of its own", found=sizes[0], fix=fix)
        source = _source(part)
        if source is not None:
            return self.reader.read(source)
        if self.column is None:
            fix = "add the column images to the row, or the image to the part"
            raise DataError("an image part must have an image", found=f"the keys {', '.join(part)}", fix=fix)
        return self._next()

    def _next(self) -> ImagePart:
        assert self.column is not None
        self.taken += 1
        return self.reader.read(self.column[self.taken - 1])


def take_column(fields: dict[str, Any]) -> list[object] | None:
    """Remove the column of images from the fields of a row, and return its images; None if it has no such column.

    Raises:
        DataError: the row has videos or sounds.
    """
    for name in OTHER_MEDIA:
        if isinstance(fields.get(name), list) and fields[name]:
            raise DataError(f"the column {name!r} is not supported", found="a list", fix="remove the row")
    column = _column(fields)
    for name in COLUMNS:
        if name in fields:
            del fields[name]
            break
    return column


def prompt_content(prompt: str, row: Mapping[str, Any]) -> object:
    """The content of a message with a prompt that is one text. Images of the row precede a text without marks."""
    column = _column(row) or ()
    if MARK in prompt or not column:
        return prompt
    return [*({"type": "image"} for _ in column), {"type": "text", "text": prompt}]


def _column(row: Mapping[str, Any]) -> list[object] | None:
    value, found = next(((row[name], True) for name in COLUMNS if name in row), (None, False))
    return (value if isinstance(value, list) else [] if value is None else [value]) if found else None


def _source(part: Mapping[str, Any]) -> object:
    """What an image part contains; None if it takes the next image of the column."""
    source = next((part[key] for key in SOURCES if part.get(key) is not None), None)
    nested = isinstance(source, dict) and "url" in source and "image_url" in part
    return source["url"] if nested else source  # type: ignore[index]
