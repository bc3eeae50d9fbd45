"""The question to the judge, from templates and examples in TOML files."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, ValidationError
from rlcore.config.schema import Table
from rlcore.errors import DataError, did_you_mean
from rlcore.json_files import open_regular

from rl_plugin_llm_judge.verdicts import Form, VerdictParser

_OPENING = re.compile(r"<(?=[|/!\uff5c_A-Za-z])")
"""The beginning of a token such as ``<|im_end|>``, ``</s>`` or ``<image>``, which a server may read as special."""
_BRACKETED = re.compile(r"\[(?=/?[A-Z_]{2,}\])")
"""The beginning of a token such as ``[INST]``."""
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff"  # control characters and lone surrogates
    "\u200b\u2060\ufeff\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"  # text that is hidden or reordered
)


def quoted(text: str) -> str:
    """The text without control characters, invisible text and tokens of chat templates.

    A space after ``<`` separates the parts of a token. People and models read the text as before.
    """
    kept = _HIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
    return _BRACKETED.sub("[ ", _OPENING.sub("< ", kept)).strip()


def block_code(*texts: str) -> str:
    """A code for the delimiters of these texts. It depends on them, so that none of them can contain it by intent."""
    return hashlib.sha256("\0".join(texts).encode("utf-8", "replace")).hexdigest()[:8]


TEMPLATES = ("binary", "true-false", "graded")
EXAMPLES = ("general", "visual-search", "math", "chart", "video")
NO_EXAMPLES = "none"
LARGEST_FILE_BYTES = 2**20

_PLACEHOLDER = re.compile(r"\{(examples|case|code|question|reference|answer)\}")
Text = Annotated[str, Field(min_length=1)]
Model = TypeVar("Model", bound=BaseModel)


class Example(Table):
    """A solved example."""

    question: Text
    """The question."""
    reference: Text
    """The expected answer."""
    answer: Text
    """The answer to judge."""
    right: bool
    """The verdict of templates with two values."""
    score: Annotated[float, Field(ge=0, le=1)] | None = None
    """The verdict of graded templates; None is 1 or 0."""


class Examples(Table):
    """A file of examples."""

    example: Annotated[list[Example], Field(min_length=1, max_length=100)]
    """The examples, in the order of the question."""


class Template(Table):
    """A file with a question."""

    verdict: Form
    """``binary`` is 1 or 0, ``true-false`` is a word, ``graded`` is a number from 0 to 1."""
    marker: Text
    """The words before the verdict, without the colon."""
    system: str = ""
    """The system message; empty for none."""
    prompt: Text
    """The question, with ``{case}`` and, if it has examples, ``{examples}``."""
    case: Text
    """What is judged, with ``{question}``, ``{reference}``, ``{answer}`` and ``{code}``, which makes its delimiters
    impossible to forge."""
    again: str = ""
    """What is asked after a reply without a clear verdict; empty for a standard sentence."""


@dataclass(frozen=True)
class JudgePrompt:
    """The question to the judge.

    Args:
        template: its parts
        examples: the solved examples that it contains
    """

    template: Template
    examples: Sequence[Example] = ()

    @cached_property
    def parser(self) -> VerdictParser:
        """Parses the replies."""
        return VerdictParser(self.template.verdict, self.template.marker)

    def messages(self, question: str, expected: Sequence[str], answer: str) -> list[dict[str, str]]:
        """The conversation that asks about an answer, in the format of the chat-completions API."""
        case = self._case(question, " or ".join(expected), answer)
        text = _filled(self.template.prompt, {"examples": self._all_solved, "case": case})
        system = [{"role": "system", "content": self.template.system.strip()}] if self.template.system.strip() else []
        return [*system, {"role": "user", "content": text.strip()}]

    def again(self) -> str:
        """The question after a reply without a clear verdict."""
        template = self.template
        values = {"binary": "1 or 0", "true-false": "TRUE or FALSE", "graded": "a number from 0 to 1"}[template.verdict]
        return template.again or f'Reply with one line and nothing else: "{template.marker}:" and {values}.'

    @cached_property
    def _all_solved(self) -> str:
        return "\n".join(map(self._solved, self.examples))

    def _solved(self, example: Example) -> str:
        case = self._case(example.question, example.reference, example.answer)
        return f"{case}\n{self.template.marker}: {self._verdict(example)}\n"

    def _verdict(self, example: Example) -> str:
        if self.template.verdict == "graded":
            score = float(example.right) if example.score is None else example.score
            return f"{score:g}" if score % 1 else f"{score:.1f}"
        if self.template.verdict == "true-false":
            return "TRUE" if example.right else "FALSE"
        return "1" if example.right else "0"

    def _case(self, question: str, reference: str, answer: str) -> str:
        texts = {"question": quoted(question), "reference": quoted(reference), "answer": quoted(answer)}
        return _filled(self.template.case, {**texts, "code": block_code(*texts.values())}).strip()


def read_template(name: str) -> Template:
    """The template of this name, or of a TOML file.

    Raises:
        DataError: there is no such template, or the file is invalid.
    """
    found = _read(name, Template, TEMPLATES, "prompts", "template")
    for part, needed in (("prompt", ("case",)), ("case", ("reference", "answer"))):
        missing = [f"{{{key}}}" for key in needed if f"{{{key}}}" not in getattr(found, part)]
        if missing:
            raise DataError(f"{part} needs {' and '.join(missing)}", where=name, fix=f"add it to {part}")
    return found


def read_examples(name: str) -> tuple[Example, ...]:
    """The examples of this name, or of a TOML file; empty for ``none``. Raises like `read_template`."""
    if name == NO_EXAMPLES:
        return ()
    return tuple(_read(name, Examples, (*EXAMPLES, NO_EXAMPLES), "prompts/examples", "examples").example)


def _filled(text: str, values: Mapping[str, str]) -> str:
    """The text with its placeholders replaced in one pass, so that a value cannot contain one."""
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)


def _read(name: str, model: type[Model], known: Sequence[str], folder: str, key: str) -> Model:
    if name in known:
        text = files(__package__).joinpath(f"{folder}/{name}.toml").read_text(encoding="utf-8")
    elif name.endswith(".toml"):
        text = _text_of(Path(name).expanduser())
    else:
        raise DataError(
            f"there is no {key} {name!r}",
            found=did_you_mean(name, known),
            fix=f"set reward.N.{key} to {', '.join(known)} or a file that ends with .toml",
        )
    try:
        return model.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise DataError("the file is not valid TOML", found=str(error), where=name, fix="correct the file") from None
    except ValidationError as error:
        raise DataError(f"the file is no {key}", found=_problems(error), where=name, fix="correct the file") from None


def _text_of(path: Path) -> str:
    try:
        with open_regular(path) as file:
            data = file.read(LARGEST_FILE_BYTES + 1)
    except OSError as error:
        raise DataError(f"{path} cannot be read", found=error.strerror or str(error), fix="correct the path") from None
    if len(data) > LARGEST_FILE_BYTES:
        raise DataError(f"{path} is larger than {LARGEST_FILE_BYTES // 2**20} MiB", fix="shorten it")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8", found=str(error), fix="save it as UTF-8") from None


def _problems(error: ValidationError) -> str:
    rows: list[Any] = error.errors(include_url=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, row['loc'])) or 'file'}: {row['msg']}" for row in rows[:5])
