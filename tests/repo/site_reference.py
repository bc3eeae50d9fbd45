"""The pages of the API reference: one for each public module, with what mkdocstrings reads from its docstrings.

A module is public if `rlcore` exports names of it, a Python block of a document imports it, or it declares hooks.
"""

from __future__ import annotations

import ast
from pathlib import Path

from documents import blocks, documents
from workspace import members

EXPORTS = "_HOMES"


def exported_names(initialiser: Path) -> dict[str, list[str]]:
    """The names that the module `rlcore` exports, by the module that defines them."""
    (table,) = (
        ast.literal_eval(node.value)
        for node in ast.parse(initialiser.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == EXPORTS
    )
    return {f"rlcore.{home}": sorted(names.split()) for home, names in table.items()}


def imported_in_documents(modules: set[str]) -> set[str]:
    """The modules of the workspace that the Python blocks of the documents import names from."""
    texts = (block.text for document in documents() for block in blocks(document) if block.language == "python")
    imports = (node for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom))
    return {node.module for node in imports if node.module and node.module.partition(".")[0] in modules}


def public_modules() -> dict[str, list[str]]:
    """The public modules with the names to show; an empty list stands for all that are documented."""
    folders = {member.module_folder.name: member.module_folder for member in members() if member.module_folder}
    exported = exported_names(folders["rlcore"] / "__init__.py")
    hooks = {f"{name}.hookspecs" for name, folder in folders.items() if (folder / "hookspecs.py").is_file()}
    others = (imported_in_documents(set(folders)) | hooks) - set(exported) - {"rlcore"}
    return dict(sorted((exported | {name: [] for name in others}).items()))


def write_reference(folder: Path) -> list[str]:
    """Write a page for each public module, and return their paths."""
    pages = []
    for module, names in public_modules().items():
        members_shown = [f"    options: {{members: [{', '.join(names)}]}}"] if names else []
        lines = [f"# {module}", "", f"::: {module}", *members_shown]
        page = f"api/{module}.md"
        (folder / page).parent.mkdir(exist_ok=True)
        (folder / page).write_text("\n".join(lines) + "\n", encoding="utf-8")
        pages.append(page)
    return pages
