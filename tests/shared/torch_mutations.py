"""Damage ``torch.save`` files at random, and read them with torch in a process that may crash.

Two kinds of damage: of the file (truncated, changed and moved bytes), and of the pickle in an archive with correct
checksums (changed integers, opcodes and text), which is what an attacker or a broken writer leaves.
"""

from __future__ import annotations

import io
import json
import pickletools
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

NUMBERS = (-1, 0, 1, 2, 3, 7, 255, 256, 65_535, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**31), -(2**63))
ORACLE = """
import hashlib, json, sys, warnings
from collections.abc import Mapping
import torch
warnings.simplefilter("ignore")
def described(tensor):
    if tensor.numel() > 1_000_000:
        return [str(tensor.dtype), list(tensor.shape), "large"]
    content = tensor.detach().clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)
    return [str(tensor.dtype), list(tensor.shape), hashlib.sha256(content.numpy().tobytes()).hexdigest()]
for line in sys.stdin:
    try:
        content = torch.load(line.rstrip("\\n"), map_location="cpu", weights_only=True)
        if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
            content = content["state_dict"]
        found = {str(name): described(value) for name, value in content.items() if isinstance(value, torch.Tensor)}
    except Exception:
        found = None
    print(json.dumps(found), flush=True)
"""
"""Prints the tensors of each file on stdin as JSON, or null if torch rejects it."""


def records(content: bytes) -> dict[str, bytes]:
    """The records of an archive by their full name."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def archive(content: Mapping[str, bytes]) -> bytes:
    """An archive with correct checksums."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as written:
        for name, data in content.items():
            written.writestr(zipfile.ZipInfo(name), data)
    return target.getvalue()


def damage_file(content: bytes, random: Random) -> bytes:
    """Change the bytes of any file."""
    data = bytearray(content)
    for _ in range(random.choice((1, 1, 1, 2, 8))):
        at = random.randrange(max(1, len(data)))
        length = min(random.choice((1, 4, 64, 1000)), len(data) - at)
        match random.randrange(6):
            case 0:
                del data[at:]
            case 1:
                del data[at : at + length]
            case 2:
                data[at : at + length] = bytes(length)
            case 3:
                data[at:at] = random.randbytes(length)
            case _:
                data[at] = (data[at] + random.randrange(1, 256)) % 256 if data else 0
        if not data:
            break
    return bytes(data)


def damage_pickle(content: bytes, random: Random, name: str = "data.pkl") -> bytes:
    """Change the pickle of an archive, and write the archive again with correct checksums."""
    parts = records(content)
    (pickled,) = [each for each in parts if each.endswith(f"/{name}")]
    for _ in range(random.choice((1, 1, 2, 3))):
        parts[pickled] = damaged(parts[pickled], random)
    return archive(parts)


def damaged(pickle: bytes, random: Random) -> bytes:
    """Change one opcode of a pickle, or one byte if the pickle is already damaged."""
    try:
        opcodes = list(pickletools.genops(pickle))
    except Exception:  # an earlier change
        return damage_file(pickle, random)
    ends = [position for _, _, position in opcodes[1:]] + [len(pickle)]
    places = list(zip(opcodes, ends, strict=True))
    change = random.choice((_number, _number, _number, _text, _opcode, _remove, _repeat, _exchange))
    return change(pickle, places, random)


Places = Sequence[tuple[tuple[Any, Any, Any], int]]


def _number(pickle: bytes, places: Places, random: Random) -> bytes:
    chosen = [place for place in places if isinstance(place[0][1], int) and "INT" in place[0][0].name]
    chosen = [place for place in chosen if place[0][0].name in {"BININT", "BININT1", "BININT2"}] or places
    (_, old, begin), end = random.choice(chosen)
    number = random.choice((*NUMBERS, random.randrange(-20, 200), -old if isinstance(old, int) else 5))
    size = number.bit_length() // 8 + 1
    return pickle[:begin] + b"\x8a" + bytes([size]) + number.to_bytes(size, "little", signed=True) + pickle[end:]


def _text(pickle: bytes, places: Places, random: Random) -> bytes:
    texts = [place for place in places if place[0][0].name == "BINUNICODE"]
    if not texts:
        return _opcode(pickle, places, random)
    (_, _, begin), end = random.choice(texts)
    other = random.choice([place[0][1] for place in texts] + ["", "state_dict", "0", "../0", "__metadata__", "\x1b[2J"])
    data = random.choice((other.encode(), b"\xed\xa0\x80", other.encode() + b"\0"))
    return pickle[:begin] + b"X" + struct.pack("<I", len(data)) + data + pickle[end:]


def _opcode(pickle: bytes, places: Places, random: Random) -> bytes:
    (_, _, begin), _ = random.choice(places)
    return pickle[:begin] + random.choice(pickletools.opcodes).code.encode("latin-1") + pickle[begin + 1 :]


def _remove(pickle: bytes, places: Places, random: Random) -> bytes:
    (_, _, begin), end = random.choice(places)
    return pickle[:begin] + pickle[end:]


def _repeat(pickle: bytes, places: Places, random: Random) -> bytes:
    (_, _, begin), end = random.choice(places)
    return pickle[:end] + pickle[begin:end] + pickle[end:]


def _exchange(pickle: bytes, places: Places, random: Random) -> bytes:
    (_, _, first), first_end = random.choice(places)
    (_, _, second), second_end = random.choice(places)
    return pickle[:first] + pickle[second:second_end] + pickle[first_end:]


MUTATIONS: tuple[Callable[[bytes, Random], bytes], ...] = (damage_file, damage_pickle, damage_pickle)


def mutate(content: bytes, seed: int) -> bytes:
    """A damaged copy of a ``torch.save`` file, the same for the same seed."""
    random = Random(seed)
    return random.choice(MUTATIONS)(content, random)


def read_by_torch(paths: Sequence[Path]) -> list[dict[str, list[Any]] | None]:
    """Dtype, shape and a digest of each tensor of each file; None if torch rejects the file or crashes on it."""
    answers: list[dict[str, list[Any]] | None] = []
    while len(answers) < len(paths):
        left = "".join(f"{path}\n" for path in paths[len(answers) :])
        run = subprocess.run(
            [sys.executable, "-c", ORACLE], input=left, capture_output=True, text=True, timeout=600, check=False
        )
        lines = run.stdout.splitlines()
        assert lines or run.returncode < 0, run.stderr[-2000:]
        answers += [json.loads(line) for line in lines]
        if len(answers) < len(paths):  # torch crashed on the next file
            answers.append(None)
    return answers
