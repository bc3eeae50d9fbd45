"""The action grammar: one block of code, or one boxed answer.

A turn that has both is an answer: its code is not run.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What a turn does."""

    code: str | None = None
    """The code to run; None if there is none, or if the turn answers."""
    answer: str | None = None
    """The content of the boxed answer; None if there is none."""
    well_formed: bool = False
    """Whether the turn has exactly one block, which is complete and at its end."""


def parse(text: str) -> Action:
    """Return the last complete answer of a turn, or else its last block of code."""
    raise NotImplementedError


def boxed_answer(text: str) -> str | None:
    r"""Return the content of the last ``<answer>\boxed{…}</answer>`` outside of code and thoughts; None without one."""
    return parse(text).answer


def code_turn(thought: str, code: str) -> str:
    """Return the text of a turn that runs code."""
    return f"{thought}\n<code>\n```python\n{code}\n```\n</code>"


def answer_turn(thought: str, answer: str) -> str:
    """Return the text of a turn that answers."""
    return f"{thought}\n<answer>\n\\boxed{{{answer}}}\n</answer>"
