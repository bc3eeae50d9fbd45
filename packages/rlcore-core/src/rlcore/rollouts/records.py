"""Stored rollouts: groups as JSON lines, with their images in a blob store next to them.

Each line of a compressed file is a gzip member, so that a group is read by its offset (`rlcore.rollouts.index`).
"""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import secrets
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from rlcore.atomic_files import sweep, told, whole
from rlcore.errors import DataError
from rlcore.images.encoding import LARGEST_FILE as LARGEST_BLOB
from rlcore.json_files import LONGEST_LINE, json_lines, open_regular, parse_json
from rlcore.plugin_calls import value_text
from rlcore.redaction import without_known
from rlcore.types import Group, Logprobs, Task, Trajectory, from_json, media_hash, to_json
from rlcore.types.codec import DecodeBytes, from_base64

_NAME = re.compile(r"[0-9a-f]{64}")
LARGEST = 10**300
"""Limit of integers that are rewards. JSON has integers that no float can hold."""
CHUNK = 1 << 18
EVIDENCE = "evidence"
"""The folder of a run with what is known about its rollouts; see `rlcore.rollouts.index`, `.responses`, `.evidence`."""


class BlobStore:
    """A folder of files named by the SHA-256 of their content: ``ab/abcd…``.

    Several processes may write to it concurrently. The folder is created with the first blob.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, sha256: str) -> Path:
        """The path of the blob with this hash, whether it exists or not.

        Raises:
            DataError: the name is not a hash. This also rejects paths outside of the folder.
        """
        if not _NAME.fullmatch(sha256):
            found = sha256 if len(sha256) <= 80 else f"{sha256[:77]}..."
            raise DataError("an image name must be 64 hexadecimal digits", found=repr(found), where=str(self.folder))
        return self.folder / sha256[:2] / sha256

    def put(self, data: bytes) -> str:
        """Store the bytes unless they are stored already; returns their hash.

        Raises:
            UserError: they cannot be written.
        """
        sha256 = media_hash(data)
        path = self.path(sha256)
        with suppress(OSError):
            if path.stat().st_size == len(data):
                return sha256
        partial = path.with_name(f".{sha256}.{os.getpid()}-{secrets.token_hex(4)}.partial")
        try:
            with told(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                partial.write_bytes(data)
                partial.replace(path)
        except BaseException:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
            raise
        return sha256

    def get(self, sha256: str) -> bytes:
        """The bytes of a hash.

        Raises:
            DataError: the blob is missing, or its content does not have this hash.
        """
        path = self.path(sha256)
        try:
            with open_regular(path) as file:
                data = file.read(LARGEST_BLOB + 1)
        except OSError as error:
            raise DataError(
                f"the image {sha256} cannot be read",
                found=error.strerror or str(error),
                where=str(path),
                fix="copy the folder media/ together with the rollouts",
            ) from None
        found = media_hash(data) if len(data) <= LARGEST_BLOB else ""
        if found != sha256:
            raise DataError(
                f"the image {sha256} is damaged",
                found=f"content with the hash {found}" if found else "too many bytes",
                where=str(path),
                fix="restore the file",
            )
        return data

    def sweep(self) -> None:
        """Remove unfinished files of killed processes."""
        for folder in self.folder.glob("??"):
            sweep(folder)


def trajectory_to_json(trajectory: Trajectory) -> dict[str, Any]:
    """Plain data; images in base64."""
    data: dict[str, Any] = to_json(trajectory)
    return data


def trajectory_from_json(data: Mapping[str, Any]) -> Trajectory:
    """The inverse of `trajectory_to_json`.

    Raises:
        ValueError: the data is not a trajectory in this format.
    """
    return _checked(from_json(Trajectory, data))


def task_to_json(task: Task) -> dict[str, Any]:
    """Plain data; images in base64."""
    data: dict[str, Any] = to_json(task)
    return data


def task_from_json(data: Mapping[str, Any]) -> Task:
    """The inverse of `task_to_json`. Raises like `trajectory_from_json`."""
    return from_json(Task, data)


def group_from_json(data: Any, *, decode_bytes: DecodeBytes = from_base64) -> Group:
    """The group of a stored line.

    Raises:
        ValueError: it is not a stored group.
    """
    group = from_json(Group, data, decode_bytes=decode_bytes)
    for trajectory in group.trajectories:
        _checked(trajectory)
    return group


def _checked(trajectory: Trajectory) -> Trajectory:
    results = trajectory.rewards.values()
    numbers = (*(one.value for one in results), *(value for one in results for value in one.components.values()))
    if any(isinstance(one, int) and abs(one) > LARGEST for one in (trajectory.reward, *numbers)):
        raise ValueError("Trajectory.rewards: expected numbers that a float can hold")
    if trajectory.reward is not None and math.isnan(trajectory.reward):
        raise ValueError("Trajectory.reward: expected a number or null, found nan")
    for turn in trajectory.turns:
        counts = [span.tokens for span in turn.versions]
        if counts and (min(counts) < 1 or sum(counts) != turn.end - turn.start):
            raise ValueError(f"Turn.versions: expected spans of {turn.end - turn.start} tokens, found {sum(counts)}")
    return trajectory


def blobs_of(path: Path) -> BlobStore:
    """The image store of a file of rollouts: ``media/`` of its run, or ``media/`` next to the file."""
    folder = path.parent
    if folder.name in ("rollouts", EVIDENCE) and (folder.parent / "config.toml").is_file():
        folder = folder.parent
    return BlobStore(folder / "media")


def write_groups(path: Path, groups: Iterable[Group]) -> None:
    """Write one JSON line per group, atomically. Equal groups give equal bytes; ``.gz`` is compressed.

    Each image is stored once in `blobs_of` the path; the lines contain the hashes. Secrets of the configuration, which
    an error of a component may repeat, are masked.

    Raises:
        UserError: a file cannot be written.
    """
    blobs, compress = blobs_of(path), path.suffix == ".gz"
    with whole(path) as file:
        for group in groups:
            line = line_of(group, blobs)
            file.write(member_of(line) if compress else line)


def line_of(group: Group, blobs: BlobStore) -> bytes:
    """The stored form of a group, whose images are put into the store."""
    data = to_json(group, encode_bytes=blobs.put, packed=(Logprobs,))
    text = json.dumps(data, ensure_ascii=False, default=value_text)
    return without_known(text).encode("utf-8", "surrogatepass") + b"\n"


def member_of(line: bytes) -> bytes:
    """A line as a gzip member. Equal lines give equal bytes."""
    return gzip.compress(line, compresslevel=1, mtime=0)


def read_group(path: Path, offset: int, *, where: str = "", decode_bytes: DecodeBytes | None = None) -> Group:
    """The group at an offset of a compressed file, without reading the groups before it.

    Args:
        path: a file of rollouts, or one that grows
        offset: the first byte of its gzip member
        where: names the group in messages; by default, the file and the offset
        decode_bytes: what to read in place of the image with a hash; None reads the image

    Raises:
        DataError: there is no stored group, or an image is missing or damaged.
    """
    where = where or f"{path} at byte {offset:,}"
    try:
        with open_regular(path) as raw:
            raw.seek(offset)
            with gzip.GzipFile(fileobj=raw, mode="rb") as file:
                line = file.readline(LONGEST_LINE + 1)
        if len(line) > LONGEST_LINE:
            raise ValueError(f"a line of more than {LONGEST_LINE:,} bytes")
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(f"cannot read the group in {where}", found=str(error), fix="restore the file") from None
    return group_of(line, decode_bytes or SharedBlobs(blobs_of(path)), where)


def members(file: IO[bytes]) -> Iterator[tuple[bytes, int]]:
    """The content and the length of each whole gzip member from the place of a file on.

    Raises:
        ValueError: a member is too long.
        zlib.error: it is damaged.
    """
    rest = b""
    while True:
        decoder, parts, length = zlib.decompressobj(wbits=31), list[bytes](), 0
        while not decoder.eof:
            chunk = rest or file.read(CHUNK)
            if not chunk:
                return
            parts.append(decoder.decompress(chunk, LONGEST_LINE))
            if decoder.unconsumed_tail or sum(map(len, parts)) > LONGEST_LINE:
                raise ValueError("a group that is too long")
            length += len(chunk)
            rest = decoder.unused_data
        yield b"".join(parts), length - len(rest)


def group_of(line: bytes, decode_bytes: DecodeBytes, where: str) -> Group:
    """The group of a line. Raises `DataError`, which names the place, if it is no stored group."""
    try:
        return group_from_json(parse_json(line), decode_bytes=decode_bytes)
    except ValueError as error:
        found, fix = f"{type(error).__name__}: {error}", "give a file of rollouts/ of a run, or restore it"
        raise DataError("this is not a stored group", found=found, where=where, fix=fix) from None


def read_groups(path: Path, *, decode_bytes: DecodeBytes | None = None) -> Iterator[Group]:
    """The groups of a file that `write_groups` wrote. The trajectories of a group share the bytes of their images.

    Raises:
        DataError: a line is not a stored group (its file and number are named), or an image is missing or damaged.
    """
    blobs = blobs_of(path)
    try:
        with open_regular(path) as raw, gzip.open(raw) if path.suffix == ".gz" else raw as file:
            for number, line in json_lines(file):
                yield group_of(line, decode_bytes or SharedBlobs(blobs), f"{path}:{number}")
    except (OSError, EOFError, ValueError, zlib.error) as error:
        fix = "restore the file, or leave it out"
        raise DataError(f"cannot read the rollouts in {path}", found=str(error), fix=fix) from None


class SharedBlobs:
    """Reads each blob once, by its hash."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        self._known: dict[str, bytes] = {}

    def __call__(self, sha256: str) -> bytes:
        """The bytes of a hash. Raises as `BlobStore.get`."""
        if sha256 not in self._known:
            self._known[sha256] = self._blobs.get(sha256)
        return self._known[sha256]


def stored_rollouts(path: Path) -> list[Path]:
    """The files of stored rollouts at a path (a file, a run, or a folder of rollouts), ordered by step.

    Raises:
        DataError: there are no such files.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataError(f"there is no run or file {path}", fix="give a run directory, or a file in its rollouts/")
    folder = path / "rollouts" if (path / "rollouts").is_dir() else path
    files = [file for pattern in ("*.jsonl", "*.jsonl.gz") for file in folder.glob(pattern) if file.name[0] != "."]
    if not files:
        fix = "give a run with stored rollouts, or a file"
        raise DataError(f"{path} has no stored rollouts", found=f"none in {folder}", fix=fix)
    return sorted(files, key=purpose_and_step)


def purpose_and_step(file: Path) -> tuple[str, int]:
    """``("train", 12)`` of ``train-000012.jsonl.gz``; the whole name and -1 when the name has no step."""
    name = record_name(file)
    purpose, _, step = name.rpartition("-")
    return (purpose, int(step)) if step.isdecimal() and purpose else (name, -1)


def record_name(file: Path) -> str:
    """The name of a file of rollouts without its suffixes."""
    return file.name.removesuffix(".gz").removesuffix(".jsonl")
