"""What a trajectory answers, and what its task expects."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlcore.errors import DataError
from rlcore.plugin_calls import value_text
from rlcore.types import Task, Trajectory

from rl_plugin_llm_judge.config import Extract, JudgeConfig

MOST_ACCEPTED = 64
_TAG = re.compile(r"<answer>(.*?)(</answer>|\Z)", re.DOTALL | re.IGNORECASE)
_BLOCK = re.compile(
    r"<think>.*?(?:</think>|\Z)|<code>.*?(?:</code>|\Z)|^[ \t]*```(?:python|py)\b.*?(?:^[ \t]*```[ \t]*$|\Z)",
    re.DOTALL | re.IGNORECASE | re.MULTILINE,
)
"""A thought or code of a turn. Tags inside of it are plain text."""
_BRACES = re.compile(r"\\[{}\\]|(?P<box>\\(?:boxed|fbox)\s?\{)|(?P<open>\{)|(?P<close>\})")


class UnusableTask(Exception):
    """A task without a question or an expected answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is judged."""

    question: str
    expected: tuple[str, ...]
    """The accepted answers."""
    answer: str

    @property
    def equal(self) -> bool:
        """Whether the answer equals an accepted one, except for case, white space and a full stop."""
        return _plain(self.answer) in map(_plain, self.expected)


def case_of(trajectory: Trajectory, task: Task, config: JudgeConfig) -> Case:
    """The question, the expected answer, and the answer of the policy, which is empty if there is none.

    Raises:
        UnusableTask: a field is missing or has another type.
    """
    return Case(
        question=_question(task, config.question_field),
        expected=(*_expected(task, config.field), *_aliases(task, config.aliases_field)),
        answer=given_answer(trajectory, config.extract),
    )


def check_fields(tasks: Sequence[Task], config: JudgeConfig, *, keys: str) -> None:
    """Check that a task can be judged, and that the fields which the options name exist in a task.

    Args:
        tasks: of one split
        config: the options that name fields
        keys: what messages write before the names of options

    Raises:
        DataError: a field is in no task, or no task has a question and an expected answer.
    """
    for option in ("field", "question_field", "aliases_field", "examples_field"):
        name = getattr(config, option)
        if name and tasks and not any(name in task.fields for task in tasks):
            found = f"no task has it; task {tasks[0].id!r} has {', '.join(sorted(tasks[0].fields)) or 'no fields'}"
            raise DataError(f"the judge needs the field {name!r}", found=found, fix=f"correct {keys}{option}")
    first = ""
    for task in tasks:
        try:
            _question(task, config.question_field)
            _expected(task, config.field)
        except UnusableTask as error:
            first = first or str(error)
        else:
            return
    if first:
        raise DataError("no task can be judged", found=first, fix=f"correct {keys}field and {keys}question_field")


def given_answer(trajectory: Trajectory, extract: Extract = "auto") -> str:
    """The answer of the policy. Only its last turn counts, never earlier ones or observations."""
    if extract == "answer-box":
        spoken = _BLOCK.sub("", trajectory.final_response)
        boxes = [box for inner in _tagged(spoken) if (box := last_box(inner)) is not None]
        return _unquoted(boxes[-1].strip()) if boxes else ""
    final = trajectory.final_response.rpartition("</think>")[2]
    if extract in {"auto", "answer-tag"}:
        if tags := _tagged(final):
            box = last_box(tags[-1])
            return (tags[-1] if box is None else box).strip()
        if extract == "answer-tag":
            return ""
    if extract in {"auto", "boxed"}:
        if (box := last_box(final)) is not None:
            return box.strip()
        if extract == "boxed":
            return ""
    return final.strip()


def _tagged(text: str) -> list[str]:
    """The contents of all complete ``<answer>…</answer>``."""
    return [str(inner) for inner, end in _TAG.findall(text) if end]


def _unquoted(text: str) -> str:
    quoted = len(text) >= 2 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1].strip() if quoted else text


def last_box(text: str) -> str | None:
    r"""The content of the balanced ``\boxed{…}`` that starts last; None if there is none."""
    opened: list[int | None] = []
    best: tuple[int, int] | None = None
    for match in _BRACES.finditer(text):
        if match["box"]:
            opened.append(match.end())
        elif match["open"]:
            opened.append(None)
        elif match["close"] and opened:
            start = opened.pop()
            if start is not None and (best is None or start > best[0]):
                best = (start, match.start())
    return text[best[0] : best[1]] if best else None


def _question(task: Task, field: str) -> str:
    if field:
        value = task.fields.get(field)
        if not isinstance(value, str) or not value.strip():
            raise UnusableTask(f"task {task.id!r}: field {field!r} must contain the question; {_found(task, field)}")
        return value
    asked = next((message.text for message in reversed(task.messages) if message.role == "user"), "")
    if not asked.strip():
        raise UnusableTask(f"task {task.id!r} has no user message with a question; set question_field")
    return asked


def _expected(task: Task, field: str) -> tuple[str, ...]:
    value = task.fields.get(field)
    values = list(value) if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else [value]
    texts = [_text(each) for each in values[:MOST_ACCEPTED]]
    if not texts or any(text is None for text in texts):
        raise UnusableTask(
            f"task {task.id!r}: field {field!r} must contain a text, a number or a list of accepted texts; "
            f"{_found(task, field)}"
        )
    return tuple(text for text in texts if text is not None)


def _aliases(task: Task, field: str) -> tuple[str, ...]:
    return _expected(task, field) if field and task.fields.get(field) else ()


def _text(value: object) -> str | None:
    """The text of an accepted answer; None if it is not usable."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    try:
        return str(value).strip() or None
    except ValueError:  # an integer with too many digits
        return None


def _found(task: Task, field: str) -> str:
    fields: Mapping[str, object] = task.fields
    if field not in fields:
        return f"found no such field among {sorted(fields)}"
    return f"found {value_text(fields[field])}"


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).removesuffix(".")
