"""The messages of a question, shared by supervised training, reinforcement learning and evaluation."""

from __future__ import annotations

import string
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Literal

from rlcore import ImagePart, Message, TextPart
from rlcore.images import image_size
from rlcore.types import Part, Role

Tools = Literal["code", "zoom", "none"]
Style = Literal["guided", "agent", "plain", "row"]
Coordinates = Literal["pixels", "thousandths"]

SPACES: dict[Coordinates, str] = {
    "pixels": "in pixels of that picture, whose size is given below",
    "thousandths": "in thousandths of the width and height of that picture, from 0 to 1000",
}
"""What the coordinates of the zoom tool mean, in words that complete a sentence."""
MARK = "<image>"
"""The place of a picture in the text of a row."""
HIDDEN = "The pictures are not shown in this message. You see of them only what you show with the tool."
MODULES = ("numpy", "PIL", "matplotlib", "cv2", "scipy", "skimage")
"""Modules of which the prompt says whether code can import them."""
LETTERS = string.ascii_uppercase


def opening(
    question: str,
    images: Sequence[bytes],
    *,
    tools: Tools = "code",
    style: Style = "guided",
    options: Sequence[str] = (),
    coordinates: Coordinates = "pixels",
    shown: bool = True,
    importable: Sequence[str] | None = None,
) -> tuple[Message, ...]:
    """Return the messages before the first turn: one message of a user, with the pictures before the text.

    Args:
        question: text of the question
        images: encoded pictures, to which the message refers by their hashes
        tools: what the model may use: ``code``, ``zoom`` or ``none``
        style: ``guided``, with all instructions; ``agent``, which asks for plans as well; ``plain``, the pictures and
            the question alone
        options: texts of the options of a multiple choice
        coordinates: the space of the zoom tool's regions
        shown: whether the message has the pictures; otherwise, the model must look at them with its tool
        importable: those of `MODULES` that code can import; None if this is not known, and the prompt says nothing

    Raises:
        DataError: a picture cannot be read.
    """
    asked = with_options(question, options)
    if style == "plain":
        seen = map(ImagePart.of, images) if shown else ()
        return (Message(role="user", content=(*seen, TextPart(text=asked))),)
    sizes = "\n".join(
        f"{clue(number)}: width {width}, height {height}"
        for number, (width, height) in enumerate(map(image_size, images))
    )
    words = {"sizes": sizes, "space": SPACES[coordinates], "available": _available(importable)}
    text = _template(tools).substitute(words, question=asked).rstrip("\n")
    if style == "agent":
        text = _template("agent").substitute() + text
    if not shown:
        return (Message(role="user", content=(TextPart(text=f"{HIDDEN}\n\n{text}"),)),)
    parts: list[Part] = []
    for number, image in enumerate(images):
        parts += named_picture(number, image)
    return (Message(role="user", content=(*parts, TextPart(text="\n" + text))),)


def own_opening(
    prompt: Sequence[tuple[Role, str]], images: Sequence[bytes], *, shown: bool = True
) -> tuple[Message, ...]:
    """Return the messages of a row's own prompt, with its pictures at the marks ``<image>``, or without both.

    Pictures without a mark precede the first text of a user.
    """
    if not shown:
        return tuple(Message(role=role, content=text.replace(MARK, "")) for role, text in prompt)
    left = list(enumerate(images))
    marks = sum(text.count(MARK) for _, text in prompt)
    messages: list[Message] = []
    ahead = left[: max(0, len(left) - marks)]
    del left[: len(ahead)]
    for role, text in prompt:
        parts: list[Part] = []
        if role == "user":
            for number, image in ahead:
                parts += named_picture(number, image)
            ahead = []
        for position, piece in enumerate(text.split(MARK)):
            if position and left:
                parts += named_picture(*left.pop(0))
            elif position:
                piece = MARK + piece
            parts += [TextPart(text=piece)] if piece else []
        messages.append(Message(role=role, content=tuple(parts)))
    return tuple(messages)


def with_options(question: str, options: Sequence[str]) -> str:
    """Return a question followed by its lettered options, if there are any."""
    listed = (f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False))
    return "\n".join([question, *listed])


def clue(number: int) -> str:
    """The name of a picture, for the model and in the sandbox."""
    return f"image_clue_{number}"


def named_picture(number: int, image: bytes) -> tuple[Part, ...]:
    """The parts of a message that show a picture between tags with its name."""
    name = clue(number)
    return (TextPart(text=f"<{name}>"), ImagePart.of(image), TextPart(text=f"</{name}>"))


def _available(importable: Sequence[str] | None) -> str:
    """What code can use, as a sentence."""
    if importable is None:
        return "The network is not available."
    found = [name for name in MODULES if name in importable]
    missing = [*(name for name in MODULES if name not in found), "the network"]
    lacks = f"{_listed(missing)} {'is' if len(missing) == 1 else 'are'} not"
    if not found:
        return f"{lacks} available."
    return f"{_listed(found)} {'is' if len(found) == 1 else 'are'} available, {lacks}."


def _listed(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


@cache
def _template(name: str) -> string.Template:
    file = resources.files(__package__) / "templates" / f"{name}.txt"
    return string.Template(file.read_text(encoding="utf-8"))


__all__ = [
    "MARK",
    "MODULES",
    "SPACES",
    "Coordinates",
    "Style",
    "Tools",
    "clue",
    "named_picture",
    "opening",
    "own_opening",
]
