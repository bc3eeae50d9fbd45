"""Multiple choices: options inside of a question, and their order.

In published files the right option is often the first one, so a model that always answers A would be right. The order
of the options depends on a seed and on the question alone: not on the order in the file, nor on other rows.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace

from rlcore.types import derive_seed

from rl_plugin_visual_search.data.rows import MOST_OPTIONS, Row
from rl_plugin_visual_search.matching import LETTERS, compare, normalised

_OPTION = re.compile(r"^[ \t]*\(?([A-Z])[).:][ \t]+(\S.*?)[ \t]*$", re.MULTILINE)
_LETTER_ALONE = re.compile(r"[^\n.]*\boption'?s? letter\b[^\n]*", re.IGNORECASE)


def choice_of(row: Row, *, seed: int | None) -> Row:
    """Return a row whose answer is the letter and the text of the right option, as ``C. a red one``.

    With a seed, its options are apart from the question, and their order depends on the seed. Rows that are no multiple
    choice, or whose answer is none of the options, or two of them, are returned as they are.

    Args:
        row: any row
        seed: of the order; None keeps the question and the order of the file
    """
    apart = with_options_apart(row)
    right = _right_option(apart)
    if seed is None:
        if right is None:
            return row
        answer = _lettered(right, apart.options)
        return replace(row, options=apart.options, listed=not row.options, answer=answer)
    if right is None:
        return apart
    options = sorted(apart.options)
    random.Random(derive_seed(seed, "options", apart.question, *options)).shuffle(options)
    return replace(apart, options=tuple(options), answer=_lettered(right, options), aliases=())


def _lettered(right: str, options: Sequence[str]) -> str:
    return f"{LETTERS[options.index(right)]}. {right}"


def with_options_apart(row: Row) -> Row:
    """Return a row whose options are not in the text of the question, such as ``(A) red`` on a line of its own.

    The sentence that asks for the letter of an option is left out. Only lines from A on in order are options.
    """
    if row.options:
        return row
    found = list(_OPTION.finditer(row.question))
    first = next((place for place, match in enumerate(found) if match[1] == "A"), None)
    if first is None:
        return row
    lines = [match for match, letter in zip(found[first:], LETTERS, strict=False) if match[1] == letter]
    if not 2 <= len(lines) <= MOST_OPTIONS or [match[1] for match in lines] != list(LETTERS[: len(lines)]):
        return row
    if "\n".join(match[0] for match in lines) not in row.question:
        return row  # something else is between the options
    asked = f"{row.question[: lines[0].start()]}{row.question[lines[-1].end() :]}"
    question = _LETTER_ALONE.sub("", asked).strip()
    return replace(row, question=question, options=tuple(match[2] for match in lines)) if question else row


def _right_option(row: Row) -> str | None:
    """The text of the only option that the answer names."""
    texts = [normalised(option) for option in row.options]
    if len(set(texts)) != len(texts):
        return None
    right = [
        option
        for letter, option in zip(LETTERS, row.options, strict=False)
        if compare(row.answer, [letter], options=row.options).right
    ]
    return right[0] if len(right) == 1 else None


__all__ = ["choice_of", "with_options_apart"]
