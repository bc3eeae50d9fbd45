"""Templates of this folder, and of packages that write pages. jinja2 is imported when the first page is written."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from rlcore.console.escaping import printable
from rlcore.console.wording import counted

if TYPE_CHECKING:
    from jinja2 import Template


@cache
def template(name: str, package: str = __package__) -> Template:
    """A template of a package. Its lines are joined without their indentation, so that it adds no white space."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"printable": printable, "lines": _lines, "counted": counted}
    return environment.from_string("".join(line.strip() for line in source(name, package).splitlines()))


def source(name: str, package: str = __package__) -> str:
    """The text of a file of a package."""
    return (files(package) / name).read_text(encoding="utf-8")


def _lines(text: str, limit: int) -> str:
    """The beginning of a text, whose only control characters are line breaks."""
    return "\n".join(map(printable, text[:limit].split("\n")))


__all__ = ["source", "template"]
