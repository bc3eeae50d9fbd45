"""The pages of the documentation site, from the Markdown documents of the repository."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from documents import documents
from workspace import ROOT, members

CONTENTS = ROOT / "docs" / "README.md"
"""The table of contents. The navigation of the site is made from its headings and links."""
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\[\]]*)\]\((?P<target>[^)\s]+)\)")
CODE = re.compile(r"^[ ]*(?P<fence>`{3,}).*?^[ ]*(?P=fence)[ ]*$", re.DOTALL | re.MULTILINE)
TEST_COMMENT = re.compile(r"^[ ]*<!-- test:.*?-->\n", re.DOTALL | re.MULTILINE)
GENERATED = {"configuration.md", "metrics.md", "trl.md", "verl.md", "cards.md", "troubleshooting.md"}
"""The pages of ``docs/reference`` that are written from the code."""
IMAGES = ROOT / "docs" / "images"


def page_of(document: Path) -> str:
    """The path of a document in the site: ``plugins/aitw.md`` for ``plugins/rl-plugin-aitw/README.md``."""
    path = document.relative_to(ROOT)
    if document == CONTENTS:
        return "contents.md"
    if path.parent == Path("."):
        return "index.md" if path.name == "README.md" else f"project/{path.name.lower()}"
    if path.parts[0] == "docs":
        path = path.relative_to("docs")
        return str(path.with_name("index.md") if path.name == "README.md" else path)
    folder, *inside = path.parts[1:]
    if not inside:
        return f"{path.parts[0]}/index.md"
    name = folder.removeprefix("rl-plugin-")
    return f"{path.parts[0]}/{name}.md" if inside == ["README.md"] else f"{path.parts[0]}/{name}-{inside[-1].lower()}"


def replaced(text: str, replace: Callable[[re.Match[str]], str]) -> str:
    """The text with its links replaced, except for those in fenced blocks."""
    parts, end = [], 0
    for code in CODE.finditer(text):
        parts += [LINK.sub(replace, text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, LINK.sub(replace, text[end:])])


def site_text(document: Path, pages: dict[Path, str], repository: str | None) -> str:
    """A document with the links of the site.

    A link to a file that is no page leads to the repository. Without its address, only the text of the link remains.
    """
    here = Path(pages[document]).parent

    def replace(link: re.Match[str]) -> str:
        target, _, anchor = link["target"].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return link[0]
        file = (document.parent / target).resolve()
        if (file / "README.md") in pages:
            file /= "README.md"
        if file in pages or IMAGES in file.parents:
            place = pages.get(file) or picture(file)
            return f"{link['image']}[{link['text']}]({os.path.relpath(place, here)}{f'#{anchor}' if anchor else ''})"
        kind = "tree" if file.is_dir() else "blob"
        path = file.relative_to(ROOT).as_posix()
        return f"[{link['text']}]({repository}/{kind}/main/{path})" if repository else str(link["text"])

    return replaced(TEST_COMMENT.sub("", document.read_text(encoding="utf-8")), replace)


def picture(file: Path) -> str:
    """The path of a picture in the site."""
    return f"images/{file.relative_to(IMAGES)}"


def plugin_overview(pages: dict[Path, str]) -> str:
    """The page that lists all plugins, each with its curve if its document has one."""
    lines = ["# Plugins", "", "The commands train a tiny model on a CPU in minutes.", ""]
    for member in members():
        document = member.folder / "README.md"
        if document not in pages or member.folder.parent.name != "plugins":
            continue
        name = member.name.removeprefix("rl-plugin-")
        lines += [f"## [{name}]({name}.md)", "", str(member.project["description"]), ""]
        if any(member.folder.glob("src/*/recipes/default.toml")):
            lines += ["```console", f"$ rlcore run --plugin {name}", "```", ""]
        if shown := re.search(r"!\[([^\]]*)\]\(([^)]+\.svg)\)", document.read_text(encoding="utf-8")):
            lines += [f"![{shown[1]}](../{picture((member.folder / shown[2]).resolve())})", ""]
    return "\n".join(lines)


def navigation(pages: dict[Path, str]) -> list[Any]:
    """The navigation: a tab for each heading of the table of contents, a section for each of its subheadings.

    A link to a folder or its ``README.md`` stands for all pages of the folder that have no entry themselves.
    """
    text = CONTENTS.read_text(encoding="utf-8")
    entries = re.compile(rf"^(?P<marks>##+) (?P<heading>.+)$|{LINK.pattern}", re.MULTILINE)
    named = {(CONTENTS.parent / found["target"]).resolve() for found in LINK.finditer(text)}
    tabs: list[Any] = [{"Home": ["index.md", "contents.md"]}]
    tab: list[Any] = []
    here: list[Any] = []
    for found in entries.finditer(text):
        if found["heading"]:
            here = []
            if found["marks"] == "##":
                tab = here
            (tabs if found["marks"] == "##" else tab).append({found["heading"]: here})
            continue
        file = (CONTENTS.parent / found["target"]).resolve()
        folder = file.parent if file.name == "README.md" else file
        if folder.is_dir():
            here += ["plugins/index.md"] if folder.name == "plugins" else []
            inside = (each for each in pages if folder in each.parents and (each == file or each not in named))
            here += [pages[each] for each in sorted(inside, key=lambda each: (each != file, each))]
        else:
            here.append(pages[file])
    return tabs


def write_pages(folder: Path, repository: str | None) -> dict[Path, str]:
    """Write all pages and pictures. Returns the paths of the pages by document."""
    pages = {document: page_of(document) for document in documents()}
    assert len(set(pages.values())) == len(pages), "two documents have the same page"
    places = pages | {ROOT / "plugins": "plugins/index.md"}
    for document, page in pages.items():
        (folder / page).parent.mkdir(parents=True, exist_ok=True)
        (folder / page).write_text(site_text(document, places, repository), encoding="utf-8")
    (folder / "plugins" / "index.md").write_text(plugin_overview(pages), encoding="utf-8")
    shutil.copytree(IMAGES, folder / "images", dirs_exist_ok=True)
    shutil.copy(ROOT / "docs" / "site.css", folder)
    return pages


def is_prose(document: Path) -> bool:
    """Whether a document is written by hand to be read: no generated reference, no evidence and no list of changes."""
    evidence = CONTENTS.read_text(encoding="utf-8").partition("\n## Evidence\n")[2]
    named = {(CONTENTS.parent / found["target"]).resolve() for found in LINK.finditer(evidence)}
    folders = {ROOT / "docs" / "results", ROOT / "docs" / "decisions"}
    generated = document.parent.name == "reference" and document.name in GENERATED
    return not (generated or document in named or document.parent in folders or document.name == "CHANGELOG.md")


def words(document: Path) -> int:
    """The number of words of a document, without generated parts, fenced blocks, comments and the targets of links."""
    text = document.read_text(encoding="utf-8").partition("\n## The rules\n")[0]
    read = re.sub(r"<!-- survey -->.*?<!-- end|<!--.*?-->|\]\([^)]*\)", "", CODE.sub("", text), flags=re.DOTALL)
    return sum(any(character.isalnum() for character in word) for word in read.split())
