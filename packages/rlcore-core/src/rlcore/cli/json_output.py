"""``--json``: stdout holds the JSON and nothing else, whatever components print."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from rlcore.terminal import say_json

Command = TypeVar("Command", bound=Callable[..., Any])
_STDOUT = "rlcore.stdout"
"""Key of the context under which the redirected stdout is kept."""


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


__all__ = ["json_option", "print_json"]
