"""The templates of this folder. jinja2 is imported when the first page is written."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from rlcore.console.escaping import printable
from rlcore.console.wording import counted

if TYPE_CHECKING:
    from jinja2 import Template


@cache
def template(name: str) -> Template:
    """A template whose lines are joined without their indentation, so that it adds no white space to a page."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"printable": printable, "lines": _lines, "counted": counted}
    return environment.from_string("".join(line.strip() for line in source(name).splitlines()))


def source(name: str) -> str:
    """The text of a file of this folder."""
    return (files(__package__) / name).read_text(encoding="utf-8")


def _lines(text: str, limit: int) -> str:
    """The beginning of a text, whose only control characters are line breaks."""
    return "\n".join(map(printable, text[:limit].split("\n")))


__all__ = ["source", "template"]
