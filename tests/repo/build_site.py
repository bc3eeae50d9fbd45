"""Build the documentation site in ``build/site/html``. A warning, such as a link to a missing heading, fails the build.

::

    uv run --isolated --locked --only-group docs python tests/repo/build_site.py
    uv run --isolated --locked --only-group docs python tests/repo/build_site.py --repository https://HOST/OWNER/NAME
    uv run --isolated --locked --only-group docs zensical serve -f build/site/mkdocs.yml   # afterwards, to look at it

``mkdocs.yml`` in the root has the settings, and ``docs/README.md`` the navigation.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

from site_pages import navigation, write_pages
from site_reference import write_reference
from workspace import ROOT, members

FOLDER = ROOT / "build" / "site"


def write_sources(folder: Path, repository: str | None) -> Path:
    """Write the pages and the settings of the site. Returns the file of settings."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = write_pages(folder / "pages", repository)
    contents = navigation(pages)
    reference = next(tab["Reference"] for tab in contents if "Reference" in tab)
    reference.append({"Python": write_reference(folder / "pages")})
    python = {"paths": [str(member.module_folder.parent) for member in members() if member.module_folder]}
    settings = {
        "INHERIT": str(ROOT / "mkdocs.yml"),
        "docs_dir": "pages",
        "site_dir": "html",
        "nav": contents,
        "plugins": {"mkdocstrings": {"handlers": {"python": python}}},
        **({"repo_url": repository, "extra": {"version": {"provider": "mike"}}} if repository else {}),
    }
    path = folder / "mkdocs.yml"
    path.write_text(json.dumps(settings, indent=1), encoding="utf-8")  # JSON is YAML
    return path


def main() -> int:
    """Write the pages and build the site."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repository", metavar="URL", help="address of the repository, for a published site")
    settings = write_sources(FOLDER, parser.parse_args().repository)
    command = [Path(sys.executable).with_name("zensical"), "build", "--strict", "--config-file", settings]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
