"""What commands print: help texts, excerpts of long texts, and JSON alone on stdout, whatever components print."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from rlcore.console import escaping
from rlcore.console.terminal import say_json

Command = TypeVar("Command", bound=Callable[..., Any])
_STDOUT = "rlcore.stdout"
"""Key of the context under which the redirected stdout is kept."""


def examples(*lines: str) -> str:
    """An epilog with one example per line, which click does not wrap."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def printable(text: str, limit: int = 600) -> str:
    """A text as one printable line, truncated if it is long."""
    safe = escaping.printable(text)
    return safe if len(safe) <= limit else f"{safe[:limit]}… ({len(safe)} characters)"


def excerpt(text: str, limit: int = 600) -> list[str]:
    """The lines of a text, truncated if it is long."""
    shown = text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
    return shown.split("\n")


def json_option(help: str) -> Callable[[Command], Command]:
    """The option ``--json``, as the parameter ``as_json``. With it, everything but `print_json` goes to stderr."""
    return click.option("--json", "as_json", is_flag=True, is_eager=True, callback=_redirect, help=help)


def print_json(value: object, *, indent: int | None = None) -> None:
    """Print plain data as JSON to the real stdout."""
    say_json(value, indent=indent, stream=click.get_current_context().meta.get(_STDOUT))


def _redirect(context: click.Context, parameter: click.Parameter, value: bool) -> bool:
    if value:
        context.meta[_STDOUT] = sys.stdout
        context.with_resource(contextlib.redirect_stdout(sys.stderr))
    return value
