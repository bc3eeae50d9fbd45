"""Limits of a pickle as a program, before it runs."""

from __future__ import annotations

import pickletools

MOST_OPERATIONS = 50_000_000
"""Operations of a pickle. The metadata of the largest distributed checkpoints have about 40 million."""
_STOP, _PUT, _LONG_BINPUT = b".pr"
_LINES = {
    ord(opcode.code): 2 if opcode.arg.name.endswith("pair") else 1
    for opcode in pickletools.opcodes
    if opcode.arg is not None and opcode.arg.n == pickletools.UP_TO_NEWLINE
}
"""Opcodes that lines follow, and how many."""


def _step(opcode: pickletools.OpcodeInfo) -> int:
    """Bytes of an operation, minus the bytes of the length that its argument begins with, or 0 if lines follow."""
    length = 0 if opcode.arg is None else opcode.arg.n
    if length >= 0:
        return 0 if opcode.code in ".r" else 1 + length
    one, eight = pickletools.TAKEN_FROM_ARGUMENT1, pickletools.TAKEN_FROM_ARGUMENT8U
    return 0 if length == pickletools.UP_TO_NEWLINE else {one: -1, eight: -8}.get(length, -4)


_STEPS = {ord(opcode.code): _step(opcode) for opcode in pickletools.opcodes}


def check_operations(content: bytes) -> None:
    """Reject too many operations, and an index of the memo that no pickle of this length needs.

    The unpickler allocates memory up to the index. This loop takes a fifth of the time of `pickletools.genops`.

    Raises:
        ValueError: a limit is exceeded.
    """
    at, most = 0, len(content)
    for _ in range(MOST_OPERATIONS):
        if at >= most:
            return
        step = _STEPS[code := content[at]]
        if step > 0:
            at += step
            continue
        at += 1
        if code == _STOP:
            return
        if code == _LONG_BINPUT:
            index, at = int.from_bytes(content[at : at + 4], "little"), at + 4
        elif lines := _LINES.get(code):
            index = int(content[at : content.index(b"\n", at)]) if code == _PUT else 0
            for _ in range(lines):
                at = content.index(b"\n", at) + 1
        else:
            index, at = 0, at - step + int.from_bytes(content[at : at - step], "little")
        if index > most:
            raise ValueError(f"the index {index:,} in a pickle of {most:,} bytes")
    raise ValueError(f"more than {MOST_OPERATIONS:,} operations")
