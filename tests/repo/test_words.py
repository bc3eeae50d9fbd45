"""Words that must not occur in published files."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from workspace import ROOT, members

FORBIDDEN_IN_SOURCES = {
    "unfinished": re.compile(r"\b(?:TODO|FIXME|XXX)\b"),
    "not implemented": re.compile(r"\bNotImplementedError\b"),
    "silent failure": re.compile(r"except(?: Exception| BaseException)?:\s*(?:pass|\.\.\.)\s*$", re.MULTILINE),
    "evaluates text": re.compile(r"(?<![\w.])(?<!def )(?:eval|exec)\("),
    "unsafe load": re.compile(r"weights_only\s*=\s*False|(?<!\w)pickle\.loads?\("),
}
FORBIDDEN_EVERYWHERE = re.compile(
    r"(?<![\w.-])/(?:work|root|home)/\w"  # an absolute path of a machine
    r"|(?:generated|written|created) (?:by|with) (?:an? )?(?:AI|assistant|chatbot|language model)\b"
    r"|\bco-authored-by\b",
    re.IGNORECASE,
)
BANNED_IN_PROSE = re.compile(
    r"(?<!\.)\b(?:is told|whole or not at all|who comes from|by one word|mend(?:s|ed|ing)?)\b".replace(" ", r"\s+"),
    re.IGNORECASE,
)
"""Phrases that the style guide bans. See "Style" in CONTRIBUTING.md."""
VAGUE_NAMES = {"utils.py", "util.py", "helpers.py", "helper.py", "misc.py", "common.py", "manager.py"}
NOT_OURS = {"uv.lock", "LICENSE", "tests/repo/test_words.py"}


def published_files() -> Iterator[Path]:
    """All text files that are tracked or not ignored by git."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    for name in sorted(set(names) - NOT_OURS):
        path = ROOT / name
        if path.is_file() and path.suffix not in {".png", ".jpg", ".parquet", ".safetensors"}:
            yield path


def source_files() -> Iterator[Path]:
    for member in members():
        if member.module_folder:
            yield from sorted(member.module_folder.rglob("*.py"))


def lines_with(pattern: re.Pattern[str], path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    place = path.relative_to(ROOT)
    return [f"{place}:{text.count(chr(10), 0, hit.start()) + 1}: {hit[0]}" for hit in pattern.finditer(text)]


def test_sources_have_no_unfinished_or_unsafe_code() -> None:
    found = [
        f"{line} ({why})"
        for path in source_files()
        for why, pattern in FORBIDDEN_IN_SOURCES.items()
        for line in lines_with(pattern, path)
    ]
    assert found == []


def test_module_names_are_specific() -> None:
    assert [str(path.relative_to(ROOT)) for path in source_files() if path.name in VAGUE_NAMES] == []


def test_files_contain_no_machine_paths_or_tool_credits() -> None:
    assert [line for path in published_files() for line in lines_with(FORBIDDEN_EVERYWHERE, path)] == []


def test_prose_contains_no_banned_phrases() -> None:
    documents = (path for path in published_files() if path.suffix in {".md", ".py"})
    assert [line for path in documents for line in lines_with(BANNED_IN_PROSE, path)] == []
