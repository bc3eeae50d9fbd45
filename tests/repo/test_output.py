"""Every module prints through ``rlcore.console.terminal``, which escapes what it prints."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from workspace import ROOT, members

DOOR = "rlcore/console/terminal.py"
IN_OTHER_PROCESSES = (
    *("rlcore_sandbox/inside/", "rlcore_sandbox/isolation/probe.py", "rlcore/rollouts/decoding_child.py"),
    *("rl_plugin_robotwin/simulation/probe.py", "rlcore_gui/prepare/screenshots.py"),
    *("rl_plugin_reasoning_gym/child.py", "rl_plugin_reward_model/worker.py"),
)
"""Modules that run in processes of their own, whose output rlcore reads and escapes."""
STREAMS = {"stdout", "stderr", "__stdout__", "__stderr__"}


def bypasses(source: str) -> Iterator[str]:
    """Line and name of everything in a module that prints without the door."""
    for node in ast.walk(ast.parse(source)):
        found = ""
        match node:
            case ast.Call(func=ast.Name(id="print")):
                found = "print()"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="click"), attr=("echo" | "secho") as name)):
                found = f"click.{name}()"
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=stream), attr=("write" | "writelines") as name)):
                found = f"sys.{stream}.{name}()" if stream in STREAMS else ""
            case ast.ImportFrom(module="click", names=names) if any(name.name in {"echo", "secho"} for name in names):
                found = "click.echo"
            case ast.Import(names=names) if any(name.name.partition(".")[0] == "rich" for name in names):
                found = "rich"
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] == "rich":
                found = "rich"
            case _:
                continue
        if found:
            yield f"{node.lineno}: {found}"


def test_no_module_prints_past_the_terminal_module() -> None:
    folders = [member.module_folder for member in members() if member.module_folder]
    paths = [path for folder in folders for path in folder.rglob("*.py")]
    doors = [path for path in paths if path.as_posix().endswith(DOOR)]
    assert len(doors) == 1
    found = {
        str(path.relative_to(ROOT)): list(bypasses(path.read_text(encoding="utf-8")))
        for path in paths
        if path not in doors and not any(part in path.as_posix() for part in IN_OTHER_PROCESSES)
    }
    assert {name: places for name, places in found.items() if places} == {}


@pytest.mark.parametrize(
    "line", ["print(1)", "click.echo(1)", "sys.stderr.write('')", "from rich.table import Table", "import rich.text"]
)
def test_bypass_is_found(line: str) -> None:
    assert len(list(bypasses(line))) == 1
