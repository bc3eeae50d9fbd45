"""Print the section of ``CHANGELOG.md`` of a tag, such as ``v0.1.0``, which must be the version of the members."""

from __future__ import annotations

import re
import sys

from workspace import ROOT, members


def notes(tag: str, changelog: str) -> str:
    """The text below the heading of the version, up to the next heading of that level."""
    version = tag.removeprefix("v")
    if wrong := {member.version for member in members()} - {version}:
        raise SystemExit(f"the tag is {tag}, but the version of the members is {', '.join(sorted(wrong))}")
    section = re.search(rf"^## {re.escape(version)}\b.*?\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if section is None:
        raise SystemExit(f"CHANGELOG.md has no section for {version}: rename the section of unreleased changes")
    return section[1].strip()


if __name__ == "__main__":
    print(notes(sys.argv[1], (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")))
