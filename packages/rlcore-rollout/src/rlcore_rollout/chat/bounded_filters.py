"""Functions of chat templates that can make much from little: they check the size before, or while they work."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import date
from typing import TYPE_CHECKING, Any, NoReturn

from jinja2.exceptions import SecurityError, TemplateError
from jinja2.filters import do_indent, make_attrgetter
from jinja2.utils import Namespace, pass_environment

if TYPE_CHECKING:
    from rlcore_rollout.chat.safe_jinja import TemplateSandbox

LONGEST_TEXT = 4_000_000
"""Characters and items of a value that a template makes, with everything inside it."""
LARGEST_ARGUMENT = 1_000
"""Largest number passed to a filter, such as a width, and characters of the format of a date."""
MOST_COMPARISONS = 10**8
"""Characters of a text times those of what is searched for or stripped. A search from the end compares as many."""
TODAY = date(2024, 7, 26)
"""The date of ``strftime_now``: the same tokens on every day. It is the default that Llama's templates state."""


class PlainNamespace(Namespace):
    """A namespace whose text does not contain its values: these may contain the namespace."""

    __repr__ = object.__repr__


def raise_exception(message: str) -> NoReturn:
    """Reject the conversation."""
    raise TemplateError(message)


def today(shown: str) -> str:
    """Return the fixed date in a format."""
    if len(shown) > LARGEST_ARGUMENT:
        raise SecurityError(f"the format of a date has up to {LARGEST_ARGUMENT:,} characters")
    return TODAY.strftime(shown)


def check_size(size: int) -> None:
    """Raise `SecurityError` if a value is too large."""
    if size > LONGEST_TEXT:
        raise SecurityError(f"the template makes more than {LONGEST_TEXT:,} characters or items in one value")


def check_search(text: str, part: Any) -> None:
    """Raise `SecurityError` if searching for a part, or stripping its characters, can take long."""
    if isinstance(part, str) and len(text) * len(part) > MOST_COMPARISONS:
        raise SecurityError(f"a text of {len(part):,} characters is too long to search for")


def trim(text: Any, chars: str | None = None) -> str:
    """Remove characters from both ends of a text."""
    whole = str(text)
    check_search(whole, chars)
    return whole.strip(chars)


def join(separator: str, parts: Iterable[Any]) -> str:
    """Join texts."""
    texts, size = [], 0
    for part in parts:
        texts.append(str(part))
        size += len(texts[-1]) + len(separator)
        check_size(size)
    return separator.join(texts)


def replace(text: str, old: str, new: str, count: int = -1) -> str:
    """Replace parts of a text."""
    text, old, new = str(text), str(old), str(new)
    check_size(len(text) + text.count(old) * len(new))
    return text.replace(old, new, -1 if count is None else count)


@pass_environment
def sum_filter(sandbox: TemplateSandbox, values: Iterable[Any], attribute: Any = None, start: Any = 0) -> Any:
    """Add values, each sum within the limits."""
    if attribute is not None:
        values = map(make_attrgetter(sandbox, attribute), values)
    for value in values:
        sandbox.step()
        start = sandbox.call_binop(None, "+", start, value)
    return start


@pass_environment
def join_filter(sandbox: TemplateSandbox, values: Iterable[Any], d: str = "", attribute: Any = None) -> str:
    """Join values as texts."""
    return join(str(d), values if attribute is None else map(make_attrgetter(sandbox, attribute), values))


def indent(text: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    """Indent the lines of a text."""
    text = str(text)
    check_size(len(text) + (1 + text.count("\n")) * (width if isinstance(width, int) else len(width)))
    return do_indent(text, width, first, blank)


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return JSON as templates of transformers expect it: without escapes for HTML."""
    encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    if indent is None and separators is None:
        return encoder.encode(value)
    return join("", encoder.iterencode(value))
