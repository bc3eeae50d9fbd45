"""The page of error messages and their fixes, from the calls in the source that have both."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from workspace import ROOT

ERRORS = ("Error", "failure")
"""Ends of the names of what is called: a class of errors, or `rlcore.checks.failure`, whose text follows its key."""
ANY = "…"
"""Stands for a value in a message."""


def page() -> str:
    """The messages of each distribution, in alphabetical order."""
    lines = [
        "# Troubleshooting by message",
        "",
        "This page lists error messages with their fixes, from the source. `…` stands for a value. An error also says",
        "what was found and where. For a run that ends without an error and does not learn, see",
        "[My run does not learn](../how-to/my-run-does-not-learn.md).",
    ]
    for folder in sorted([*ROOT.glob("packages/*/src"), *ROOT.glob("plugins/*/src")]):
        found: dict[str, list[str]] = {}
        for text, fix in sorted({pair for file in folder.rglob("*.py") for pair in messages(file)}, key=_order):
            found.setdefault(_cell(text), []).append(_cell(fix))
        if found:
            lines += ["", f"## {folder.parent.name}", "", "| Message | Fix |", "|---|---|"]
            lines += [f"| {text} | {'; or: '.join(dict.fromkeys(fixes))} |" for text, fixes in found.items()]
    return "\n".join(lines) + "\n"


def messages(file: Path) -> Iterator[tuple[str, str]]:
    """The messages of a file with their fixes, without those that are values as a whole."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for scope in ast.walk(tree):
        if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        assigned = {
            target.id: node.value
            for node in ast.walk(scope)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for call in ast.walk(scope):
            if isinstance(call, ast.Call) and _name(call).endswith(ERRORS):
                yield from _message(call, assigned)


def _message(call: ast.Call, assigned: dict[str, ast.expr]) -> Iterator[tuple[str, str]]:
    own = 1 if _name(call) == "failure" else 0
    fixes = [one.value for one in call.keywords if one.arg == "fix"] + call.args[2:3] * own
    if len(call.args) > own and fixes:
        text, fix = _text(call.args[own], assigned), _text(fixes[0], assigned)
        if text.strip(f"{ANY} :") and fix.strip(f"{ANY} :"):
            yield text, fix


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _text(node: ast.expr, assigned: dict[str, ast.expr]) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part, assigned) for part in node.values)
    if isinstance(node, ast.Name) and node.id in assigned:
        return _text(assigned[node.id], {})
    return ANY


def _cell(text: str) -> str:
    line = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    return line if len(line) <= 300 else f"{line[:299]}{ANY}"


def _order(pair: tuple[str, str]) -> tuple[str, str]:
    return pair[0].lower().strip(f"{ANY} '"), pair[1]
