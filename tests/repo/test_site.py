"""The documentation site has every document, its links resolve, and it is short enough to read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from documents import documents
from site_pages import LINK, is_prose, navigation, page_of, replaced, site_text, words, write_pages
from site_reference import public_modules, write_reference
from workspace import ROOT

WORDS = 60_000


def flat(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            yield from flat(next(iter(entry.values())))


def test_every_document_is_once_in_the_navigation() -> None:
    pages = {document: page_of(document) for document in documents()}
    shown = Counter(flat(navigation(pages)))
    assert [page for page, count in shown.items() if count > 1] == [], "linked twice in docs/README.md"
    missing = [str(document.relative_to(ROOT)) for document, page in pages.items() if page not in shown]
    assert missing == [], "add a line to docs/README.md"


def test_links_of_the_site_lead_to_its_pages(tmp_path: Path) -> None:
    pages = write_pages(tmp_path, None)
    broken = []
    for page in pages.values():
        found: list[str] = []
        replaced((tmp_path / page).read_text(encoding="utf-8"), lambda link, found=found: found.append(link[3]) or "")
        paths = (target.partition("#")[0] for target in found if not re.match(r"[a-z]+:|#", target))
        broken += [f"{page}: {path}" for path in paths if not ((tmp_path / page).parent / path).is_file()]
    assert broken == []


def test_link_to_a_source_leads_to_the_repository_if_its_address_is_known() -> None:
    document = ROOT / "examples" / "minimal_loop" / "README.md"
    targets = {found["target"] for found in LINK.finditer(document.read_text(encoding="utf-8"))}
    (source,) = (target for target in targets if "grpo.py" in target)
    pages = {each: page_of(each) for each in documents()}
    address = "https://host/owner/name"
    assert f"]({address}/blob/main/examples/minimal_loop/{source})" in site_text(document, pages, address)
    assert f"({source})" not in site_text(document, pages, None)


def test_reference_has_the_modules_that_plugins_need(tmp_path: Path) -> None:
    shown = public_modules()
    assert {"rlcore.contracts", "rlcore.specs", "rlcore.testing", "rlcore_trainer.hookspecs"} <= set(shown)
    assert "ToolEnvironment" in shown["rlcore.episodes.tool_environment"]
    assert len(set(write_reference(tmp_path))) == len(shown)


def test_documentation_is_short() -> None:
    counted = {str(document.relative_to(ROOT)): words(document) for document in documents() if is_prose(document)}
    assert sum(counted.values()) <= WORDS, f"shorten {Counter(counted).most_common(10)}"
