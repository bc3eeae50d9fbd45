"""Make the plugin of an example importable without installing it: its sources and the metadata of an installation."""

from __future__ import annotations

from pathlib import Path

from workspace import read_toml


def search_path(example: Path, folder: Path) -> list[str]:
    """The entries for ``sys.path``. The metadata is written into ``folder``."""
    project = read_toml(example / "pyproject.toml")["project"]
    information = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    information.mkdir(parents=True, exist_ok=True)
    metadata = [f"Name: {project['name']}", f"Version: {project['version']}"]
    metadata += [f"Requires-Dist: {requirement}" for requirement in project["dependencies"]]
    (information / "METADATA").write_text("\n".join(metadata) + "\n", encoding="utf-8")
    entries = [f"{name} = {target}" for name, target in project["entry-points"]["rlcore.plugins"].items()]
    (information / "entry_points.txt").write_text("[rlcore.plugins]\n" + "\n".join(entries) + "\n", encoding="utf-8")
    return [str(folder), str(example / "src")]
