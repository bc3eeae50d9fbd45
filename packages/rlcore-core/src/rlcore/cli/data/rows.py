"""Rows of data files, datasets and stored rollouts as lines of text, with their images as files."""

from __future__ import annotations

import contextlib
import gzip
import json
import math
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rlcore.atomic_files import told
from rlcore.cli.output import excerpt, printable
from rlcore.console.terminal import say
from rlcore.console.wording import counted
from rlcore.data import files as data
from rlcore.data.row_images import COLUMNS, ImageReader
from rlcore.errors import DataError, NotInstalledError, RlcoreError, WriteError
from rlcore.images.encoding import decode_image, image_suffix
from rlcore.json_files import json_lines, open_regular, parse_json, read_json
from rlcore.plugin_calls import value_text
from rlcore.rollouts.decoding import Decoder, no_decoder
from rlcore.rollouts.records import BlobStore, blobs_of, group_from_json
from rlcore.types import Group, NumberArray, Segment, Task, Trajectory, thaw, to_json
from rlcore.types.arrays import FORMATS

CONVERSATIONS = ("messages", "prompt", "chosen", "rejected")
"""Fields of a row that are lists of messages."""
LONGEST_ANSWER = 600
"""Characters of an answer that are shown as the model wrote it."""
LONGEST_FIELD = 160
"""Characters of a field of a task that are shown."""
MOST_STATES, MOST_NUMBERS = 24, 10
"""Decisions of an episode or parts of a field, and numbers of a row, that are shown."""

ReadImage = Callable[[str], bytes]
"""Returns the encoded image with a hash; raises `DataError` if there is none."""


def files_of_data(source: str, path: Path, split: str) -> list[Path]:
    """The files of a folder of data, or of a name in the hub's cache; none for everything else."""
    is_run = any(any(path.glob(name)) for name in ("config.toml", "rollouts", "*/config.toml"))
    is_data = path.is_dir() and not is_run and any(file.suffix.lower() in data.SUFFIXES for file in path.glob("**/*"))
    cached = not path.exists() and data.in_hub_cache(source) is not None
    return data.data_files(source, split) if is_data or cached else []


def file_rows(path: Path) -> Iterator[tuple[Mapping[str, Any], ReadImage]]:
    """The rows of a file, each with what reads its images."""
    images = FileImages(_image_folder(path), blobs_of(path))
    return ((row, images.read) for row in images.marked(_rows(path)))


def _image_folder(path: Path) -> Path:
    """The folder that the paths of images are relative to: that of the file, unless its metadata names another."""
    if path.suffix == ".parquet" and path.is_file():
        with contextlib.suppress(ImportError, OSError, ValueError, KeyError, TypeError):
            import pyarrow.parquet

            return Path(json.loads(pyarrow.parquet.read_schema(path).metadata[b"rlcore"])["images"])
    return path.parent


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    if not path.is_file():
        found = "not a regular file" if os.path.lexists(path) else None
        raise DataError(f"there is no file {path}", found=found, fix="give a file, or the name of a dataset")
    if path.suffix == ".parquet":
        yield from _parquet_rows(path)
        return
    try:
        if path.suffix == ".json":
            tree = read_json(path)
            rows = tree if isinstance(tree, list) else [tree]
            yield from (row if isinstance(row, dict) else {"value": row} for row in rows)
            return
        with open_regular(path) as raw, gzip.open(raw) if path.suffix == ".gz" else raw as file:
            for number, line in json_lines(file):
                yield _json_row(line, f"{path}:{number}")
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise _unreadable(path, error) from None


def _json_row(line: bytes, where: str) -> Mapping[str, Any]:
    try:
        row = parse_json(line)
    except ValueError as error:
        fix = "correct the line"
        raise DataError("the line is not valid JSON", found=str(error), where=where, fix=fix) from None
    return row if isinstance(row, dict) else {"value": row}


def _parquet_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        import pyarrow.parquet
    except ImportError:
        raise NotInstalledError(f"reading {path} needs pyarrow", fix="pip install pyarrow") from None
    try:
        file = pyarrow.parquet.ParquetFile(path)
        for batch in file.iter_batches(batch_size=16):
            yield from batch.to_pylist()
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(f"cannot read {path}", found=printable(str(error)), fix="restore the file, or convert it again")


class FileImages:
    """Replaces images of rows by their hashes, and keeps the bytes."""

    def __init__(self, folder: Path, others: BlobStore) -> None:
        """Paths in the rows are relative to the folder and must not leave it. ``others`` has all other images."""
        self._reader = ImageReader(folder)
        self._others = others
        self._found: set[str] = set()

    def marked(self, rows: Iterator[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Rows with ``{"sha256": …}`` for each readable image. Others are left as they are."""
        for row in rows:
            yield {key: self._marked(value) if key in COLUMNS else value for key, value in row.items()}

    def read(self, sha256: str) -> bytes:
        """The bytes of an image. Raises `DataError` if there is none."""
        return self._reader.bytes_of([sha256])[0] if sha256 in self._found else self._others.get(sha256)

    def _marked(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._marked(item) for item in value]
        if not value:
            return value
        try:
            sha256 = self._reader.read(value).sha256
        except RlcoreError:
            return value
        self._found.add(sha256)
        return {"sha256": sha256}


class Shown(NamedTuple):
    """The place of an image."""

    sha256: str


def row_lines(row: Mapping[str, Any]) -> Iterator[str | Shown]:
    """The fields of a row, with conversations as messages; for a stored group, its first trajectory."""
    if set(row) == {"task", "trajectories"}:
        yield from _group_lines(row)
        return
    for key, value in row.items():
        if key in CONVERSATIONS and isinstance(value, list):
            yield f"  {key}"
            yield from (line for message in value for line in _message_lines(message))
        elif images := _images_in(value):
            yield f"  {key}"
            yield from images
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=value_text)
            first, *others = excerpt(text)
            yield f"  {key}: {first}"
            yield from (f"    {line}" for line in others)


def _images_in(value: Any) -> list[str | Shown]:
    """The images of a column of `FileImages`; empty for any other value."""
    parts = value if isinstance(value, list) else [value]
    shown = [_part(part) for part in parts if isinstance(part, Mapping) and set(part) == {"sha256"}]
    return shown if len(shown) == len(parts) else []


def _group_lines(row: Mapping[str, Any]) -> Iterator[str | Shown]:
    try:
        group = group_from_json(row, decode_bytes=str.encode)  # images are read where they are shown
    except ValueError as error:
        fix = "give a file of rollouts/ of a run, or restore it"
        raise DataError("this is not a stored group", found=printable(str(error)), fix=fix) from None
    yield from group_lines(group)


def group_lines(group: Group, fate: str = "", decoder: Decoder = no_decoder) -> Iterator[str | Shown]:
    """The task of a group, what became of the group if that is known, and its first trajectory."""
    yield f"  task {printable(group.task.id)}"
    yield from fields_of(group.task)
    if fate:
        yield f"  {fate}"
    for trajectory in group.trajectories[:1]:
        yield f"  trajectory 1 of {len(group.trajectories)}: {ending(trajectory)}"
        if group.rewards_G[1:]:
            yield f"  rewards of the other trajectories: {', '.join(map(reward_text, group.rewards_G[1:]))}"
        yield from conversation(trajectory, decoder)


def fields_of(task: Task) -> Iterator[str]:
    """A line for each field of a task that is not a message, such as its expected answer."""
    for name, value in task.fields.items():
        yield from _field(printable(name, 60), thaw(value))


def _field(name: str, value: Any, depth: int = 0) -> Iterator[str]:
    """Yield a line for a field, or if it is too long, a line for each of its parts."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=value_text)
    if len(text) <= LONGEST_FIELD or not isinstance(value, (dict, list)) or depth == 2:
        yield f"  {name}: {printable(text, LONGEST_FIELD)}"
        return
    parts = list(value.items() if isinstance(value, dict) else enumerate(value))
    for key, part in parts[:MOST_STATES]:
        yield from _field(f"{name}.{printable(str(key), 60)}", part, depth + 1)
    if len(parts) > MOST_STATES:
        yield f"  {name}: {len(parts) - MOST_STATES} more"


def ending(trajectory: Trajectory) -> str:
    """How a trajectory ended, its length and its reward."""
    metrics = trajectory.metrics
    reported = metrics.get("prompt_tokens", 0) + metrics.get("completion_tokens", 0)  # by an endpoint
    reported = int(reported) if math.isfinite(reported) else 0
    of_policy = any(segment.arrays for segment in trajectory.segments)
    length = counted(sum(map(len, trajectory.segments)) or reported, "decision" if of_policy else "token")
    sampled = f" ({trajectory.sampled_tokens} sampled)" if trajectory.sampled_tokens and not of_policy else ""
    role = f"{printable(trajectory.role)}: " if trajectory.role else ""
    return f"{role}{trajectory.stop}, {length}{sampled}, reward {reward_text(trajectory.reward)}"


def conversation(trajectory: Trajectory, decoder: Decoder = no_decoder) -> Iterator[str | Shown]:
    """The messages of a trajectory, or the states and actions of a robot, and its failure.

    With a decoder, an answer whose tool calls cannot be parsed is also shown as the model wrote it.
    """
    for number, segment in enumerate(trajectory.segments):
        if number:
            kept = len(segment.context)
            yield f"    (context rewritten to {counted(kept, 'message')})" if kept else "    (a new conversation)"
        yield from states(segment)
        for turn in segment.turns:
            yield from (line for message in turn.messages for line in _message_lines(to_json(message)))
            unreadable = any(call.error for message in turn.messages for call in message.tool_calls)
            if unreadable and (decode := decoder()) is not None:
                written = decode(list(segment.token_ids[turn.start : turn.end]))
                yield f"      as written: {printable(written, LONGEST_ANSWER)}"
    if trajectory.failure is not None:
        yield f"  failure: {printable(str(trajectory.failure))}"


def states(segment: Segment) -> Iterator[str]:
    """A line for each decision of a control policy: what it saw, what it did, and the reward of the environment."""
    arrays = {name: numbers_of(one) for name, one in segment.arrays.items()}
    rewards = {turn.start: turn.reward for turn in segment.turns if turn.reward is not None}
    count = len(segment) if arrays else 0
    for step in range(count):
        if count > MOST_STATES and step == MOST_STATES // 2:
            yield f"    … {counted(count - MOST_STATES, 'decision')} …"
        if MOST_STATES // 2 <= step < count - MOST_STATES // 2 and count > MOST_STATES:
            continue
        cells = [f"{name} {row_text(one, step)}" for name, one in arrays.items()]
        cells += [f"reward {rewards[step]:.4g}"] if step in rewards else []
        yield f"    decision {step}: {'; '.join(cells)}" if segment.loss_mask[step] else f"    left in: {cells[0]}"


def numbers_of(array: NumberArray) -> tuple[list[float], tuple[int, ...]]:
    """The numbers of an array in one list, and its shape. Those of images are left out."""
    if len(array.shape) > 2:
        return [], array.shape
    count = len(array.data) // array.itemsize
    return list(struct.unpack(f"={count}{FORMATS[array.dtype]}", array.data)), array.shape


def row_text(array: tuple[list[float], tuple[int, ...]], row: int) -> str:
    """A row of an array as text: its first numbers, or its shape if it is an image."""
    numbers, shape = array
    if len(shape) > 2:
        return f"[{' x '.join(map(str, shape[1:]))}]"
    width = shape[1] if len(shape) > 1 else 1
    shown = [f"{value:.3g}" for value in numbers[row * width : row * width + min(width, MOST_NUMBERS)]]
    return f"[{', '.join(shown)}{', …' if width > MOST_NUMBERS else ''}]"


def reward_text(value: float | None) -> str:
    """A reward, or that there is none."""
    return "not scored" if value is None else f"{value:g}"


def _message_lines(message: Any) -> Iterator[str | Shown]:
    if not isinstance(message, Mapping):
        yield f"    {printable(str(message))}"
        return
    content, calls = message.get("content", ""), message.get("tool_calls") or ()
    parts: list[str | Shown] = []
    for part in content if isinstance(content, (list, tuple)) else [content or ""]:
        shown = _part(part)
        parts += [shown] if isinstance(shown, Shown) else [printable(line) for line in shown.splitlines()]
    parts += [call_line(call) for call in (calls if isinstance(calls, (list, tuple)) else (calls,))]
    if parts:
        begin = f"    {printable(str(message.get('role', '?')))}:"
        yield begin if isinstance(parts[0], Shown) else f"{begin} {parts.pop(0)}"
        yield from (part if isinstance(part, Shown) else f"      {part}" for part in parts)


def _part(part: Any) -> str | Shown:
    """A text, or an image in rlcore's form. Anything else, such as an image in a data file, is shown as JSON."""
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping):
        if isinstance(part.get("sha256"), str):
            return Shown(part["sha256"])
        if isinstance(part.get("text"), str):
            return str(part["text"])
    return json.dumps(part, ensure_ascii=False, default=value_text)


def call_line(call: Any) -> str:
    """A tool call, in rlcore's form or in that of the chat completions API."""
    inner = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(inner, Mapping):
        return f"→ {printable(str(call))}"
    arguments = inner.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=value_text)
    return f"→ {printable(str(inner.get('name', '?')))}({printable(str(inner.get('error') or text))})"


class ShownImages:
    """Writes each image once and prints its path."""

    def __init__(self, folder: Path | None, default: Path | None) -> None:
        """Choose where images go.

        Args:
            folder: the folder that the user asked for
            default: the folder otherwise, which may not be writable; None only names the images
        """
        self._folder = folder
        self._default = default
        self._written: set[Path] = set()

    def show(self, sha256: str, read: ReadImage, *, stored: Path | None = None) -> None:
        """Print a line about an image, and write it. A damaged image is named.

        Args:
            sha256: its hash
            read: reads it
            stored: its file, which is named if it is not written
        """
        name = sha256[:12]
        try:
            data = read(sha256)
            suffix, image = image_suffix(data), decode_image(data)
        except RlcoreError as error:
            say(f"      [image {name}: {str(error).splitlines()[0]}]")
            return
        path = self._path(name, suffix, data) or stored
        where = path or "--images DIR writes it to a file"
        say(f"      [image {name}, {image.width} x {image.height}{', ' if path else '; '}{where}]")

    def _path(self, name: str, suffix: str, data: bytes) -> Path | None:
        """Write an image; returns None if there is no folder for it, or the default cannot be written to."""
        folder = self._folder or self._default
        if folder is None:
            return None
        path = folder / f"{name}{suffix}"
        if path not in self._written:
            try:
                with told(path):
                    folder.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(data)
            except WriteError:
                if self._folder is not None:
                    raise
                return None
            self._written.add(path)
        return path
