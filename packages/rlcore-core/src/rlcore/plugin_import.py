"""Imports what an entry point names, and watches what that does."""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
from pathlib import Path

from rlcore.discovery import Complaint, Plugin
from rlcore.errors import did_you_mean
from rlcore.loading import source_line

HEAVY = ("torch", "numpy", "transformers", "vllm", "ray")
"""What the module with the hooks must not import: every command imports that module."""


class BrokenPlugin(Exception):
    """An entry point that cannot be imported: the problem and what mends it."""

    def __init__(self, problem: str, fix: str = "") -> None:
        super().__init__(problem)
        self.problem, self.fix = problem, fix


def import_plugin(plugin: Plugin) -> tuple[object, tuple[Complaint, ...]]:
    """The object with the hooks, and what is to be said against its import. What it prints is not shown.

    Raises:
        BrokenPlugin: it is not there, or its import raised.
    """
    before = set(sys.modules)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            found = _import(plugin)
    except (Exception, SystemExit) as error:
        if isinstance(error, BrokenPlugin):
            raise
        raise BrokenPlugin(describe(error), _fix(error, plugin)) from error
    complaints = []
    if heavy := [name for name in HEAVY if name in sys.modules and name not in before]:
        names = " and ".join(heavy)
        problem = f"its import brings {names} along, which makes every rlcore command slow"
        complaints.append(Complaint(problem=problem, fix=f"leave {names} out of what {plugin.module} imports"))
    if text := printed.getvalue().strip():
        problem = f"it prints when it is imported: {text.splitlines()[0][:60]!r}"
        complaints.append(Complaint(problem=problem, fix=f"take the print out of {plugin.module}"))
    return found, tuple(complaints)


def describe(error: BaseException) -> str:
    """``Type: text (file:line)`` in one line."""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    line = source_line(error)
    where = f" ({Path(line).name})" if line else ""
    return f"{type(error).__name__}: {text.splitlines()[0] if text else 'no message'}{where}"


def _import(plugin: Plugin) -> object:
    name, _, attribute = plugin.module.partition(":")
    reinstall = f"pip install --force-reinstall {plugin.distribution}"
    try:
        found: object = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise BrokenPlugin(f"its entry point names the module {name!r}, which is not there", reinstall) from error
    for part in attribute.split(".") if attribute else ():
        if not hasattr(found, part):
            near = did_you_mean(part, dir(found))
            problem = f"its entry point names {plugin.module!r}, and {name} has no {part!r}"
            raise BrokenPlugin(f"{problem}; {near}" if near else problem, reinstall)
        found = getattr(found, part)
    return found


def _fix(error: BaseException, plugin: Plugin) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"install what brings the module {error.name!r}, or RLCORE_DISABLE_PLUGINS={plugin.name}"
    return ""
