"""Import the object of an entry point, and detect side effects of the import."""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
from pathlib import Path

from rlcore.errors import did_you_mean
from rlcore.plugin_calls import error_text, plugin_code
from rlcore.plugins.discovery import Complaint, Plugin
from rlcore.plugins.loading import source_line

HEAVY = ("torch", "numpy", "transformers", "vllm", "ray")
"""Modules that a plugin module must not import, because every command imports the plugin module."""


class BrokenPlugin(Exception):
    """An entry point that cannot be imported: the problem and its fix."""

    def __init__(self, problem: str, fix: str = "") -> None:
        super().__init__(problem)
        self.problem, self.fix = problem, fix


def import_plugin(plugin: Plugin) -> tuple[object, tuple[Complaint, ...]]:
    """The object with the hooks, and complaints about its import. Printed output is suppressed.

    Raises:
        BrokenPlugin: the module is missing, or its import failed.
    """
    before = set(sys.modules)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), plugin_code(f"the import of the plugin {plugin.named}"):
            found = _import(plugin)
    except BrokenPlugin:
        raise
    except Exception as error:
        raise BrokenPlugin(describe(error), _fix(error, plugin)) from error
    complaints = []
    if heavy := [name for name in HEAVY if name in sys.modules and name not in before]:
        names = " and ".join(heavy)
        problem = f"its import loads {names}, which slows down every rlcore command"
        complaints.append(Complaint(problem=problem, fix=f"do not import {names} in {plugin.module}"))
    if text := printed.getvalue().strip():
        problem = f"its import prints to stdout: {text.splitlines()[0][:60]!r}"
        complaints.append(Complaint(problem=problem, fix=f"remove the print from {plugin.module}"))
    return found, tuple(complaints)


def describe(error: BaseException) -> str:
    """``Type: text (file:line)`` on one line."""
    line = source_line(error)
    where = f" ({Path(line).name})" if line else ""
    first, *_ = error_text(error).splitlines()
    return f"{first}{where}"


def _import(plugin: Plugin) -> object:
    name, _, attribute = plugin.module.partition(":")
    reinstall = f"pip install --force-reinstall {plugin.distribution}"
    try:
        found: object = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise BrokenPlugin(f"its entry point module {name!r} does not exist", reinstall) from error
    for part in attribute.split(".") if attribute else ():
        if not hasattr(found, part):
            near = did_you_mean(part, dir(found))
            problem = f"its entry point is {plugin.module!r}, but {name} has no attribute {part!r}"
            raise BrokenPlugin(f"{problem}; {near}" if near else problem, reinstall)
        found = getattr(found, part)
    return found


def _fix(error: BaseException, plugin: Plugin) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"install the package that provides {error.name!r}, or RLCORE_DISABLE_PLUGINS={plugin.name}"
    return ""
