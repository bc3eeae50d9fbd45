"""Observations as text, and text as actions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlcore.errors import UserError

if TYPE_CHECKING:
    from gymnasium import Space

LONGEST_BOX = 256
"""Maximum number of elements of a `Box` that is shown as numbers."""

_BEFORE, _AFTER = r"(?<![\w.-])_{0,3}", r"_{0,3}(?!\w|[.-]\w)"
"""Around a whole word or number: ``left`` is in ``_left_``, but not in ``up-left``, and 3 is not in 3.5."""
# Not actions, but they count as the last one in a text. With spaces, "2 100" may be two of several numbers.
_NO_NUMBER = r"-?[0-9]+(?:(?:[ ]?/[ ]?|,)[0-9]+|[ ][0-9]{3}(?![0-9]))+(?:\.[0-9]+)?"
_NONE_OF_SEVERAL = r"-?[0-9]+(?:[ ]?/[ ]?[0-9]+|[ ,]0[0-9]{2}(?![0-9]))+(?:\.[0-9]+)?"


class InvalidAction(ValueError):
    """A text without an action. The message tells the model what is valid."""


def check_observation_space(space: Space[Any], where: str = "") -> None:
    """Raise `UserError` if observations of this space cannot be shown as text."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        for name, part in space.spaces.items():
            check_observation_space(part, f"{where}{name}: ")
    elif isinstance(space, spaces.Tuple):
        for index, part in enumerate(space.spaces):
            check_observation_space(part, f"{where}{index}: ")
    elif isinstance(space, spaces.Box) and _size(space) > LONGEST_BOX:
        raise UserError(
            f"observations with more than {LONGEST_BOX} numbers cannot be shown as text",
            found=f"{where}{space}",
            fix="data.show=ansi if the environment has that render mode, or flatten the observation with a wrapper",
        )
    elif not isinstance(space, (spaces.Text, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Box)):
        raise UserError(
            "observations must be of Text, Discrete, MultiDiscrete, MultiBinary, Box, Dict or Tuple spaces",
            found=f"{where}{space}",
            fix="data.show=ansi if the environment has that render mode",
        )


def _size(space: Any) -> int:
    size = 1
    for length in space.shape:
        size *= int(length)
    return size


def observation_text(space: Space[Any], value: Any) -> str:
    """An observation as text.

    Text is shown as it is, and a number as a number. Arrays are numbers with spaces between them, one line for each
    row, rounded to 4 significant digits. The parts of a Dict are lines ``name: …``, and the parts of a Tuple have
    commas between them.
    """
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        parts = ((name, observation_text(part, value[name])) for name, part in space.spaces.items())
        return "\n".join(f"{name}:\n{text}" if "\n" in text else f"{name}: {text}" for name, text in parts)
    if isinstance(space, spaces.Tuple):
        texts = [observation_text(part, item) for part, item in zip(space.spaces, value, strict=True)]
        return ("\n" if any("\n" in text for text in texts) else ", ").join(texts)
    if isinstance(space, spaces.Text):
        return str(value)
    return _numbers(value.tolist() if hasattr(value, "tolist") else value)


def _numbers(value: Any) -> str:
    if not isinstance(value, list):
        return f"{value:.4g}" if isinstance(value, float) else str(int(value))
    between = "\n" if any(isinstance(item, list) for item in value) else " "
    return between.join(map(_numbers, value))


class Actions:
    """The actions of a space as text.

    - Discrete: one action. The last name (or number) in the text counts, so that a model can think before it acts.
      Names are compared without case, and any white space separates their words. It is invalid if it is unclear,
      such as ``1/2``, ``1,2`` and ``1 000``, or ``move, forward`` and ``move forwards`` for ``move forward``.
    - MultiDiscrete with one dimension: as many numbers as it has parts, the last ones in the text.
    - Text: the whole text without surrounding spaces.

    Args:
        space: the action space
        names: of the actions of a Discrete space, in order; empty for their numbers

    Raises:
        UserError: actions of the space cannot be written as text, or the names do not match it.
    """

    def __init__(self, space: Space[Any], names: Sequence[str] = ()) -> None:
        from gymnasium import spaces

        self.space = space
        self._values: dict[str, int] = {}
        self._parts = 0
        if isinstance(space, spaces.Discrete):
            first, count = int(space.start), int(space.n)
            if names and (
                len(names) != count or len({_spaced(name) for name in names}) != count or "" in map(_spaced, names)
            ):
                raise UserError(
                    f"data.actions needs {count} different names",
                    found=", ".join(names),
                    fix=f"name the actions {first} to {first + count - 1} in this order, or remove data.actions",
                )
            shown = list(names) or [str(first + number) for number in range(count)]
            self._values = {_spaced(name): first + number for number, name in enumerate(shown)}
            self.valid = f"one of these actions: {', '.join(shown)}"
            patterns = [_NO_NUMBER] if any(name.lstrip("-").isdecimal() for name in self._values) else []
            for name in sorted(self._values, key=len, reverse=True):
                words = list(map(re.escape, name.split()))
                patterns.append(r"\s+".join(words))
                if len(words) > 1:
                    patterns.append(r"\W+".join(words) + r"[^\W_]*")  # similar, but not the name
            self._pattern = re.compile(rf"{_BEFORE}({'|'.join(patterns)}){_AFTER}")
            return
        if names:
            raise UserError(
                "data.actions names the actions of a Discrete space", found=str(space), fix="remove data.actions"
            )
        self._pattern = re.compile(rf"{_BEFORE}({_NONE_OF_SEVERAL}|-?[0-9]{{1,18}}){_AFTER}")
        if isinstance(space, spaces.MultiDiscrete) and len(space.shape) == 1:
            self._parts = int(space.shape[0])
            ranges = zip(space.start.tolist(), space.nvec.tolist(), strict=True)
            limits = ", ".join(f"{low} to {low + count - 1}" for low, count in ranges)
            self.valid = f"{self._parts} numbers with spaces between them, in the ranges {limits}"
        elif isinstance(space, spaces.Text):
            self.valid = f"a text of {space.min_length} to {space.max_length} characters"
        else:
            raise UserError(
                "the model cannot act in this environment: its actions must be Discrete, MultiDiscrete or Text",
                found=str(space),
                fix="choose another environment with data.make, or discretise its actions with a wrapper",
            )

    @property
    def names(self) -> list[str]:
        """The actions of a Discrete space as the model writes them; empty for other spaces."""
        return list(self._values)

    def parse(self, text: str) -> Any:
        """The action in a text of the model, which `space` contains.

        Raises:
            InvalidAction: there is none.
        """
        if self._values:
            found = self._pattern.findall(text.lower())
            if found and _spaced(found[-1]) in self._values:
                return self._values[_spaced(found[-1])]
        elif self._parts:
            import numpy as np

            numbers = self._pattern.findall(text)[-self._parts :]
            if len(numbers) == self._parts and all(number.lstrip("-").isdecimal() for number in numbers):
                action = np.array([int(number) for number in numbers], dtype=np.int64).astype(self.space.dtype)
                if self.space.contains(action):
                    return action
        elif self.space.contains(text.strip()):
            return text.strip()
        raise InvalidAction(f"Invalid action. Answer with {self.valid}.")

    def text(self, action: Any) -> str:
        """The inverse of `parse`."""
        if self._values:
            return next(name for name, value in self._values.items() if value == action)
        return " ".join(map(str, action.tolist())) if self._parts else str(action)


def _spaced(name: str) -> str:
    return " ".join(name.lower().split())


__all__ = ["Actions", "InvalidAction", "check_observation_space", "observation_text"]
