"""The commands and Python blocks of the documents run, and their links resolve.

CONTRIBUTING.md describes the comments under "Documents are tested".
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from documents import Block, blocks, documents
from example_plugin import search_path
from preloaded import rlcore_command
from rlcore.cli import EXIT_STATUS
from workspace import ROOT

SCRIPTS = Path(sys.executable).parent
VISIBLE = ("docs", "examples", "packages", "plugins", "tests", "pyproject.toml")
INSTALLED = re.compile(r"pip install \./examples/([\w-]+)")
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)\s#]+)[^)]*\)")


def named(document: Path) -> str:
    return str(document.relative_to(ROOT))


def with_blocks(mode: str) -> list[Path]:
    return [document for document in documents() if any(block.mode == mode for block in blocks(document))]


def with_python() -> list[Path]:
    return [d for d in documents() if any(b.language == "python" and b.mode in ("", "file") for b in blocks(d))]


def clone_like(folder: Path) -> Path:
    """A folder with the layout of a clone, in which commands can write files."""
    for name in VISIBLE:
        if (ROOT / name).exists():
            (folder / name).symlink_to(ROOT / name)
    return folder


def plugin_of(document: Path, folder: Path) -> str:
    """``PYTHONPATH`` for the commands of an example that installs a plugin, which may be its own."""
    present = [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
    if document.parent.parent.name != "examples":
        return os.pathsep.join(present)
    installed = sorted(set(INSTALLED.findall(document.read_text(encoding="utf-8"))))
    entries = [entry for name in installed for entry in search_path(ROOT / "examples" / name, folder)]
    return os.pathsep.join([*entries, *present])


def expanded(word: str, cwd: Path) -> list[str]:
    """The paths that a word with ``*`` matches, as in a shell."""
    return sorted(str(path.relative_to(cwd)) for path in cwd.glob(word)) if "*" in word else [word]


def succeeds(
    arguments: list[str], cwd: Path, place: str, timeout_s: float, *, preloaded: bool = False, python_path: str = ""
) -> str:
    """Run a command and return its output. ``preloaded`` avoids the import time."""
    arguments = [word for one in arguments for word in expanded(one, cwd)]
    program = {"rlcore": str(SCRIPTS / "rlcore"), "python": sys.executable}.get(arguments[0])
    assert program, f"{place}: a tested block may contain only `rlcore …` and `python …`, found {arguments[0]!r}"
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "120"} | (
        {"PYTHONPATH": python_path} if python_path else {}
    )
    if preloaded and arguments[0] == "rlcore" and "rollout.engine=vllm" not in arguments:  # vLLM requires a new process
        result = rlcore_command(arguments[1:], cwd, environment=environment, timeout_s=timeout_s)
    else:
        result = subprocess.run(
            [program, *arguments[1:]],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    output = result.stdout + result.stderr
    assert result.returncode == 0, f"{place}: {' '.join(arguments)} exited with {result.returncode}:\n{output}"
    return output


def run_blocks(document: Path, mode: str, cwd: Path, timeout_s: float) -> None:
    python_path = plugin_of(document, cwd / ".installed")
    for block in blocks(document):
        if block.mode == "file":
            (cwd / block.rest).parent.mkdir(parents=True, exist_ok=True)
            (cwd / block.rest).write_text(block.text, encoding="utf-8")
        if block.mode == mode:
            assert block.commands, f"{named(document)}:{block.line}: a tested block without a command"
            for arguments in block.shortened:
                place = f"{named(document)}:{block.line}"
                succeeds(arguments, cwd, place, timeout_s, preloaded=True, python_path=python_path)


@pytest.mark.long
@pytest.mark.parametrize("document", with_blocks("quick"), ids=named)
def test_quick_commands_run(document: Path, tmp_path: Path) -> None:
    run_blocks(document, "quick", clone_like(tmp_path), timeout_s=300)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("document", with_blocks("slow"), ids=named)
def test_slow_commands_run_shortened(document: Path, tmp_path: Path) -> None:
    run_blocks(document, "slow", clone_like(tmp_path), timeout_s=900)


@pytest.mark.long
@pytest.mark.parametrize("document", with_python(), ids=named)
def test_python_blocks_run(document: Path, tmp_path: Path) -> None:
    cwd = clone_like(tmp_path)
    pieces = []
    for block in blocks(document):
        if block.mode == "file":
            (cwd / block.rest).parent.mkdir(parents=True, exist_ok=True)
            (cwd / block.rest).write_text(block.text, encoding="utf-8")
        elif block.language == "python" and not block.mode:
            pieces.append(block.text)
    (cwd / "blocks.py").write_text("\n".join(pieces), encoding="utf-8")
    succeeds(["python", "blocks.py"], cwd, named(document), timeout_s=300)


@pytest.mark.long
def test_documented_commands_and_options_exist() -> None:
    lines = [
        (f"{named(document)}:{block.line}", arguments[1:])
        for document in documents()
        for block in blocks(document)
        if block.mode not in ("quick", "slow", "skip")
        for arguments in block.commands
        if arguments[0] == "rlcore"
    ]
    helps: dict[tuple[str, ...], str] = {}
    for place, arguments in lines:
        words = [word for word in arguments[:2] if re.fullmatch(r"[a-z][a-z-]*", word)]
        path = tuple(words if words[:1] in (["data"], ["plugins"], ["config"]) else words[:1])
        if path not in helps:
            helps[path] = succeeds(["rlcore", *path, "--help"], ROOT, place, timeout_s=300)
        for option in (word for word in arguments if word.startswith("--")):
            assert option.partition("=")[0] in helps[path], f"{place}: rlcore {' '.join(path)} has no {option}"


def test_readme_has_tested_commands() -> None:
    modes = {block.mode for block in blocks(ROOT / "README.md")}
    assert {"quick", "slow"} <= modes


@pytest.mark.parametrize("document", documents(), ids=named)
def test_relative_links_resolve(document: Path) -> None:
    targets = LINK.findall(document.read_text(encoding="utf-8"))
    assert [target for target in targets if not (document.parent / target).exists()] == []


def test_comment_overrides_replace_or_extend_each_run() -> None:
    runs = (
        "$ uv run rlcore run -p a trainer.steps=60  # long",
        "$ rlcore eval x",
        "$ rlcore run --resume r \\\n  y=1",
        "output",
    )
    text = "\n".join(runs)
    block = Block(line=1, language="console", text=text, mode="slow", rest="trainer.steps=2 z=3 | trainer.steps=4")
    assert block.shortened == [
        ["rlcore", "run", "-p", "a", "trainer.steps=2", "z=3"],
        ["rlcore", "eval", "x"],
        ["rlcore", "run", "--resume", "r", "y=1", "trainer.steps=4"],
    ]


def test_exit_status_page_lists_the_numbers_of_the_help() -> None:
    listed = set(re.findall(r"\b(\d+)  +", EXIT_STATUS))
    page = (ROOT / "docs" / "exit-status.md").read_text(encoding="utf-8")
    assert listed == set(re.findall(r"^\| (\d+) \|", page, re.MULTILINE))
    assert {"0", "1", "2", "70", "130", "143"} <= listed


def test_tests_named_in_the_security_promises_exist() -> None:
    page = (ROOT / "docs" / "security-promises.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:packages|plugins|tests)/[\w/.-]+\.py)`", page))
    assert len(named) > 10
    assert [path for path in sorted(named) if not (ROOT / path).is_file()] == []
