"""What the model reads about the result of its code, and about a turn without code or answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rlcore import CodeResult, DataError, ImagePart, Message, Observation, TextPart
from rlcore.images import image_size
from rlcore.images.fitting import EXTREME
from rlcore.types import Part

from rl_plugin_visual_search.prompts import clue

OPEN = "<tool_response>\n<interpreter>\n"
CLOSE = "\n</interpreter>\n</tool_response>"
TEXT, PICTURES, ERROR = "Text Result:", "Image Result:", "Execution error:"
_FORGED = re.compile(r"<(/?)(?=(?:tool_response|interpreter|image_clue_\d+|code|answer)\b)")

FORM = (
    "Write code as <code>, a line with ```python, your code, a line with ```, </code>. "
    "Or answer with <answer>\\boxed{'your answer'}</answer>."
)
ANSWER_FORM = "Answer with <answer>\\boxed{'your answer'}</answer>."
ZOOM_FORM = f"Call image_zoom_in_tool, or answer. {ANSWER_FORM}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The pictures of a result that the model sees, and how many it does not see."""

    pictures: tuple[tuple[str, bytes], ...]
    """Names and encoded pictures."""
    left_out: int
    """Pictures for which the episode has no room."""
    thin: int
    """Pictures that no model can see, because one side is more than `EXTREME` times as long as the other."""
    unreadable: int


def shown_pictures(result: CodeResult, room: int) -> Shown:
    """Choose the pictures of a result that are shown: the first ones, at most ``room``."""
    named = list(zip(result.image_names, result.images, strict=True))
    sizes = [_size(image) for image in result.images]
    usable = [each for each, size in zip(named, sizes, strict=True) if size is not None and not _is_thin(*size)]
    unreadable = sizes.count(None)
    return Shown(
        pictures=tuple(usable[: max(0, room)]),
        left_out=max(0, len(usable) - max(0, room)),
        thin=len(named) - len(usable) - unreadable,
        unreadable=unreadable,
    )


def result_observation(result: CodeResult, shown: Shown, *, loaded: int) -> Observation:
    """Return the message of a user with the output of code.

    Tags in the output that look like those of the message are escaped. Special tokens in it are plain text anyway.

    Args:
        result: of the code
        shown: its pictures
        loaded: number of pictures of the question, which a reset loads again
    """
    parts: list[Part] = [TextPart(text=OPEN + "\n".join(_texts(result, shown, loaded)))]
    if shown.pictures:
        parts.append(TextPart(text=f"\n{PICTURES}"))
    for name, image in shown.pictures:
        parts += [TextPart(text=f"\n<{name}>"), ImagePart.of(image), TextPart(text=f"</{name}>")]
    parts.append(TextPart(text=CLOSE))
    images = tuple(dict.fromkeys(image for _, image in shown.pictures))
    return Observation(messages=(Message(role="user", content=_joined(parts)),), images=images)


def problem_observation(problem: str, form: str = FORM) -> Observation:
    """Return the message of a user about a turn that does nothing."""
    text = f"{OPEN}{ERROR} {problem}. {form}{CLOSE}"
    return Observation(messages=(Message(role="user", content=text),))


def _texts(result: CodeResult, shown: Shown, loaded: int) -> list[str]:
    output = [part.rstrip("\n") for part in (result.stdout, result.stderr, result.value) if part.strip()]
    found = [TEXT, *map(_escaped, output)]
    if not output and result.ok and not result.images and not result.omitted_images:
        found.append("(The code ran without output. Use print() and plt.show().)")
    if not result.ok:
        reason = _escaped(result.error.rstrip("\n")) or f"the code ended with the status {result.status}"
        found = [*(found if output else []), f"{ERROR} {reason}"]
    if result.reset:
        found.append(f"The state was reset: all variables are lost, and {_names(loaded)} loaded again.")
    if shown.left_out:
        found.append(f"{_pictures(shown.left_out)} not returned, because the number of pictures is limited.")
    if result.omitted_images:
        found.append(f"{_pictures(result.omitted_images)} not returned, because one block of code showed too many.")
    if shown.thin:
        why = f"because one side is more than {EXTREME} times as long as the other"
        found.append(f"{_pictures(shown.thin)} not returned, {why}.")
    if shown.unreadable:
        found.append(f"{_pictures(shown.unreadable)} not returned, because the image file is damaged.")
    return found


def _joined(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts, with neighbouring texts as one."""
    joined: list[Part] = []
    for part in parts:
        if isinstance(part, TextPart) and joined and isinstance(before := joined[-1], TextPart):
            joined[-1] = TextPart(text=before.text + part.text)
        else:
            joined.append(part)
    return tuple(joined)


def _names(loaded: int) -> str:
    if loaded == 1:
        return f"{clue(0)} is"
    return f"{clue(0)} to {clue(loaded - 1)} are" if loaded else "no picture is"


def _pictures(count: int) -> str:
    return f"{count} picture was" if count == 1 else f"{count} pictures were"


def _escaped(text: str) -> str:
    return _FORGED.sub(r"<\\\1", text)


def _size(image: bytes) -> tuple[int, int] | None:
    try:
        return image_size(image)
    except DataError:
        return None


def _is_thin(width: int, height: int) -> bool:
    return max(width, height) > EXTREME * min(width, height)


__all__ = ["ANSWER_FORM", "FORM", "ZOOM_FORM", "Shown", "problem_observation", "result_observation", "shown_pictures"]
