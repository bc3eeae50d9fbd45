"""Images as escape sequences of terminals: the protocols of kitty and iTerm2, and sixel."""

from __future__ import annotations

import base64
import io
import os
import re
import select
import shutil
import sys
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from rlcore.terminal import draw

if TYPE_CHECKING:
    from PIL.Image import Image

Protocol = Literal["kitty", "iterm2", "sixel"]
COLUMNS, ROWS = 48, 18
"""Largest size of a drawn image in characters."""
CELL = (8, 16)
"""Assumed width and height of a character in pixels, for the aspect ratio and for sixel."""
SCALE = 2
"""Pixels that are sent for each assumed pixel of a character, for dense displays."""
CHUNK = 4096
"""Largest payload of one escape sequence of kitty, in bytes."""
COLORS = 128
"""Size of the palette of a sixel image."""
ANSWER_S = 0.3
"""How long a terminal may take to say what it can draw, in seconds."""
INDENT = "      "


def protocol() -> Protocol | None:
    """How the terminal draws images; None if the output is no terminal, has no colours, or cannot draw."""
    variables = os.environ
    if not sys.stdout.isatty() or "NO_COLOR" in variables or variables.get("TERM", "dumb") == "dumb":
        return None
    if "TMUX" not in variables and "STY" not in variables:  # these pass only sixel on
        program = variables.get("TERM_PROGRAM", "")
        if program in ("iTerm.app", "WezTerm", "mintty") or variables.get("LC_TERMINAL") == "iTerm2":
            return "iterm2"
        if variables["TERM"] == "xterm-kitty" or "KITTY_WINDOW_ID" in variables or program == "ghostty":
            return "kitty"
    return "sixel" if _says_sixel() else None


def drawn(image: Image, how: Protocol) -> str:
    """The escape sequence of an image, indented, with a line break after it.

    Args:
        image: of any size, in RGB; it is reduced to at most `COLUMNS` x `ROWS` characters
        how: the protocol of the terminal
    """
    room = max(8, min(COLUMNS, shutil.get_terminal_size().columns - len(INDENT) - 1))
    width, height = room * CELL[0], ROWS * CELL[1]
    scale = min(1.0, width / image.width, height / image.height)
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    columns = max(1, round(size[0] / CELL[0]))
    if how == "sixel":
        return f"{INDENT}{_sixel(image.resize(size))}\n"
    fine = image.copy()
    fine.thumbnail((size[0] * SCALE, size[1] * SCALE))
    written = io.BytesIO()
    fine.save(written, format="PNG")
    data = base64.b64encode(written.getvalue()).decode()
    if how == "iterm2":
        return f"{INDENT}\x1b]1337;File=inline=1;width={columns};preserveAspectRatio=1:{data}\a\n"
    chunks = [data[start : start + CHUNK] for start in range(0, len(data), CHUNK)]
    first = f"a=T,f=100,q=2,c={columns},"
    parts = (
        f"\x1b_G{'' if number else first}m={int(number + 1 < len(chunks))};{chunk}\x1b\\"
        for number, chunk in enumerate(chunks)
    )
    return f"{INDENT}{''.join(parts)}\n"


def _sixel(image: Image) -> str:
    """A sixel sequence: for each band of six rows, one line of columns for each colour in it (DEC STD 070)."""
    indexed = image.convert("RGB").quantize(COLORS)
    width, height = indexed.size
    pixels, palette = indexed.tobytes(), indexed.getpalette() or []
    rows = [f'\x1bPq"1;1;{width};{height}']
    for number in sorted(set(pixels)):
        red, green, blue = (round(value / 2.55) for value in palette[3 * number : 3 * number + 3])
        rows.append(f"#{number};2;{red};{green};{blue}")
    for top in range(0, height, 6):
        lines: dict[int, bytearray] = {}
        for row in range(top, min(top + 6, height)):
            for column, number in enumerate(pixels[row * width : (row + 1) * width]):
                lines.setdefault(number, bytearray(b"?" * width))[column] += 1 << (row - top)
        rows.append("$".join(f"#{number}{_runs(line)}" for number, line in lines.items()) + "-")
    return "".join(rows) + "\x1b\\"


def _runs(line: bytearray) -> str:
    """A line in which repeated characters are counted."""
    runs = ((chr(value), len(list(same))) for value, same in groupby(line))
    return "".join(f"!{count}{character}" if count > 3 else character * count for character, count in runs)


def _says_sixel() -> bool:
    """Ask the terminal for its attributes; number 4 is sixel."""
    try:
        import termios
        import tty

        place = sys.stdin.fileno()
        if not sys.stdin.isatty() or os.tcgetpgrp(place) != os.getpgrp():
            return False
        before = termios.tcgetattr(place)
    except (ImportError, OSError, ValueError):
        return False
    answer = b""
    try:
        tty.setcbreak(place, termios.TCSANOW)
        draw("\x1b[c")
        while not answer.endswith(b"c") and select.select([place], [], [], ANSWER_S)[0]:
            answer += os.read(place, 64) or b"c"
    except (OSError, termios.error):
        return False
    finally:
        termios.tcsetattr(place, termios.TCSANOW, before)
    attributes = re.search(rb"\x1b\[\?([0-9;]*)c", answer)
    return attributes is not None and b"4" in attributes[1].split(b";")


__all__ = ["Protocol", "drawn", "protocol"]
