"""Parse rows of preferences in the forms of TRL.

=====================  ===========================================================================================
explicit, messages     ``prompt``, ``chosen`` and ``rejected`` are lists of messages
explicit, texts        the three are texts: a user's message, and two answers of the assistant
implicit, messages     ``chosen`` and ``rejected`` are two conversations; the prompt is what they have in common
implicit, texts        ``chosen`` and ``rejected`` are two texts; the prompt is their common beginning, in whole words
=====================  ===========================================================================================

A row may have ``tools``, images and a ``margin``.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from rlcore.data.chat_rows import conversation, short
from rlcore.data.row_images import ImageReader, prompt_content
from rlcore.errors import DataError
from rlcore.types import Demonstration, Preference
from rlcore.types.checking import is_finite

SIDES = ("chosen", "rejected")
OTHER_FORMS = ("messages", "conversations", "completion", "instruction", "output")
"""Fields of other forms, which a row of preferences may have, too."""


def preference(row: object, reader: ImageReader) -> tuple[Preference, dict[str, Any]]:
    """The preference in a row, and the other fields of the row.

    Args:
        row: of a file
        reader: reads the images of the row

    Raises:
        DataError: the row is invalid. The caller adds file and line.
    """
    if not isinstance(row, dict):
        raise DataError("a row must be an object", found=short(row))
    if missing := [name for name in SIDES if name not in row]:
        other = any(name in row for name in OTHER_FORMS)
        raise DataError(
            f"a row of preferences needs the field {missing[0]!r}",
            found=f"the fields {', '.join(map(str, row)) or 'none'}",
            fix="for conversations, set data.id=chat and trainer.id=sft"
            if other
            else "give the fields prompt, chosen and rejected, or chosen and rejected that begin with the same prompt",
        )
    prompt, answers = _parts(row)
    fields = {key: value for key, value in row.items() if key not in ("prompt", *SIDES, *OTHER_FORMS)}
    margin = fields.pop("margin", None)
    if margin is not None and not is_finite(margin):
        raise DataError("the field 'margin' must be a finite number", found=short(margin))
    if answers["chosen"] == answers["rejected"]:
        raise DataError("the chosen and the rejected answer are equal", found=short(answers["chosen"]))
    found: dict[str, Demonstration] = {}
    rest: dict[str, Any] = {}
    for side, answer in answers.items():
        if not answer or not isinstance(answer[0], dict) or answer[0].get("role") != "assistant":
            raise DataError(
                f"the {side} answer must begin with a message of the assistant",
                found=short(answer[0]) if answer else "no message after the prompt",
            )
        try:
            found[side], rest = conversation({**fields, "messages": [*prompt, *answer]}, reader)
        except DataError as error:
            raise DataError(f"prompt and {side} answer: {error.message}", found=error.found, fix=error.fix) from None
    chosen, rejected, start = found["chosen"], found["rejected"], len(prompt)
    images = {data: None for one in (chosen, rejected) for data in one.images}
    read = Preference(
        prompt=chosen.messages[:start],
        chosen=chosen.messages[start:],
        rejected=rejected.messages[start:],
        tools=chosen.tools,
        images=tuple(images),
        margin=float(margin or 0.0),
    )
    return read, rest


def _parts(row: Mapping[str, Any]) -> tuple[list[Any], dict[str, list[Any]]]:
    """The entries of the prompt, and those of both answers."""
    prompt, sides = row.get("prompt"), {side: row[side] for side in SIDES}
    kinds = {type(value) for value in sides.values()}
    if kinds not in ({str}, {list}):
        found = " and ".join(short(value) for value in sides.values())
        raise DataError("'chosen' and 'rejected' must be two texts, or two lists of messages", found=found)
    for side, value in sides.items():
        if not value or (isinstance(value, str) and not value.strip()):
            raise DataError(f"the {side} answer is empty", found=short(value), fix="remove the row")
    if prompt is not None and not isinstance(prompt, (str, list)):
        raise DataError("'prompt' must be a text or a list of messages", found=short(prompt))
    if kinds == {str}:
        if prompt is None:
            prompt = _common_text(sides["chosen"], sides["rejected"])
            sides = {side: text[len(prompt) :] for side, text in sides.items()}
        asked = [_said("user", prompt_content(prompt, row))] if isinstance(prompt, str) else prompt
        return asked, {side: [_said("assistant", text)] for side, text in sides.items()}
    # A text beside conversations repeats the question that they begin with, as in UltraFeedback.
    whole = any(isinstance(value[0], dict) and value[0].get("role") != "assistant" for value in sides.values())
    if prompt is None or (isinstance(prompt, str) and whole):
        start = _common(sides["chosen"], sides["rejected"])
        prompt, sides = sides["chosen"][:start], {side: entries[start:] for side, entries in sides.items()}
    asked = [_said("user", prompt_content(prompt, row))] if isinstance(prompt, str) else prompt
    return asked, sides


def _common_text(one: str, other: str) -> str:
    """The common beginning of two texts up to the last space or line break."""
    shared = one[: _common(one, other)]
    start = max(shared.rfind(" "), shared.rfind("\n")) + 1
    if not shared[:start].strip():
        raise DataError(
            "'chosen' and 'rejected' must begin with the same prompt, because the row has no field 'prompt'",
            found=f"{one[:40]!r} and {other[:40]!r}",
            fix="add the field 'prompt'",
        )
    return shared[:start]


def _common(one: Sequence[Any], other: Sequence[Any]) -> int:
    """The number of equal items at the beginning of two sequences."""
    return sum(1 for _ in takewhile(bool, map(operator.eq, one, other)))


def _said(role: str, content: object) -> dict[str, object]:
    return {"role": role, "content": content}
