"""The code blocks of Markdown documents, with the test comment before each block."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from workspace import ROOT

_COMMENT = re.compile(r"\s*<!--\s*test:\s*(?P<mode>quick|slow|file|skip)\b(?P<rest>.*?)-->\s*")
_FENCE = re.compile(r"(?P<indent>\s*)(?P<ticks>`{3,})(?P<language>[\w+-]*)\s*")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block."""

    line: int
    language: str
    text: str
    mode: str
    """``quick``, ``slow``, ``file``, ``skip``, or an empty string without a comment."""
    rest: str
    """The text after the mode in the comment."""

    @property
    def commands(self) -> list[list[str]]:
        """The argument lists of a ``console`` block (lines with ``$``) or of a ``bash`` block (all lines)."""
        text = self.text.replace("\\\n", " ")
        if self.language == "console":
            lines = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
        else:
            lines = text.splitlines() if self.language in ("bash", "sh") else []
        split = (shlex.split(line, comments=True) for line in lines)
        return [arguments[2:] if arguments[:2] == ["uv", "run"] else arguments for arguments in split if arguments]

    @property
    def shortened(self) -> list[list[str]]:
        """The commands with the overrides of the comment: one list per ``rlcore run``, separated by ``|``."""
        lists = [shlex.split(part) for part in self.rest.split("|")]
        commands = []
        for arguments in self.commands:
            if arguments[:2] == ["rlcore", "run"]:
                overrides = lists.pop(0) if len(lists) > 1 else lists[0]
                keys = {override.partition("=")[0] for override in overrides}
                arguments = [each for each in arguments if each.partition("=")[0] not in keys] + overrides
            commands.append(arguments)
        return commands


def documents() -> list[Path]:
    """All published documents."""
    patterns = ("*.md", "docs/**/*.md", "examples/**/*.md", "packages/*/*.md", "plugins/*/*.md")
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern))


def blocks(document: Path) -> Iterator[Block]:
    """The fenced blocks of a document, in order."""
    lines = document.read_text(encoding="utf-8").splitlines()
    mode = rest = ""
    number = 0
    while number < len(lines):
        fence = _FENCE.fullmatch(lines[number])
        comment = _COMMENT.fullmatch(lines[number])
        number += 1
        if comment:
            mode, rest = comment["mode"], comment["rest"].strip()
        elif fence:
            start = number
            while number < len(lines) and lines[number].strip() != fence["ticks"]:
                number += 1
            body = "\n".join(line.removeprefix(fence["indent"]) for line in lines[start:number]) + "\n"
            yield Block(line=start, language=fence["language"], text=body, mode=mode, rest=rest)
            mode = rest = ""
            number += 1
        elif lines[number - 1].strip():
            assert not mode, f"{document.name}:{number}: a test comment without a block"
