"""Put the built site beside those of other versions: ``publish_site.py FOLDER v0.1.0``.

``FOLDER`` is a checkout of the branch that is served. Each minor version has a folder, the newest also ``latest``, and
``versions.json`` lists them for the selector of the theme.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from workspace import ROOT

REDIRECT = '<!DOCTYPE html><meta http-equiv="refresh" content="0; url=latest/"><a href="latest/">Documentation</a>\n'


def publish(site: Path, folder: Path, tag: str) -> None:
    """Copy the site to the folder of its version, and list the versions, newest first."""
    version = ".".join(tag.removeprefix("v").split(".")[:2])
    replace(site, folder / version)
    numbers = (each.name.split(".") for each in folder.iterdir() if each.name.replace(".", "").isdigit())
    versions = [".".join(each) for each in sorted(numbers, key=lambda each: [int(part) for part in each], reverse=True)]
    if versions[0] == version:
        replace(site, folder / "latest")
    aliases = {versions[0]: ["latest"]}
    entries = [{"version": each, "title": each, "aliases": aliases.get(each, [])} for each in versions]
    (folder / "versions.json").write_text(json.dumps(entries, indent=1), encoding="utf-8")
    (folder / "index.html").write_text(REDIRECT, encoding="utf-8")


def replace(site: Path, target: Path) -> None:
    """Copy a folder in place of another one."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(site, target)


if __name__ == "__main__":
    publish(ROOT / "build" / "site" / "html", Path(sys.argv[1]), sys.argv[2])
