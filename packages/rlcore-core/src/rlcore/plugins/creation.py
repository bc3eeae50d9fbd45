"""Create the package of a plugin: a copy of a small working one, with another name.

The packages are in the folder ``templates``. The name of each one occurs in it only as distribution, module and id, so
that a copy with another name works as well.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import keyword
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from rlcore.errors import UserError
from rlcore.plugins.discovery import canonical, discover
from rlcore.plugins.loading import OWN

NAMES = {
    "environment": "locked-doors",
    "reward": "final-answer",
    "tool": "whole-numbers",
    "dataset": "larger-number",
    "algorithm": "clipped-advantage",
    "engine": "plain-sampling",
    "tracker": "csv-file",
    "policy": "small-network",
}
"""The name of the package for each kind. Two words: the hyphen tells it from the same words in a sentence."""
TEMPLATES = Path(__file__).parent / "templates"
PREFIX = "rl-plugin-"
LONGEST = 60
"""Characters of a name. Names of files contain it, with other words."""
_FORM = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def create(kind: str, name: str, folder: Path) -> None:
    """Write the package ``rl-plugin-NAME`` into a new or empty folder, completely or not at all.

    Raises:
        UserError: the name cannot be used, or the folder is not free or cannot be written.
    """
    check_name(name)
    path = _free(folder)
    try:
        with TemporaryDirectory(prefix=".rlcore-", dir=path.parent) as beside:
            _copy(kind, name, Path(beside) / "package").replace(path)
    except OSError as error:
        raise UserError(
            "the package cannot be written",
            found=error.strerror or str(error),
            where=str(folder),
            fix="free disk space, change the permissions, or give another folder to --output",
        ) from error


def _copy(kind: str, name: str, folder: Path) -> Path:
    template = TEMPLATES / f"{PREFIX}{NAMES[kind]}"
    for source in sorted(template.rglob("*")):
        if source.is_file() and "__pycache__" not in source.parts:
            target = folder / renamed(str(source.relative_to(template)), kind, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(renamed(source.read_text(encoding="utf-8"), kind, name), encoding="utf-8")
    return folder


def renamed(text: str, kind: str, name: str) -> str:
    """A text of the package for a kind, with another name."""
    old = NAMES[kind]
    return text.replace(old, name).replace(old.replace("-", "_"), name.replace("-", "_"))


def run_command(folder: Path) -> str:
    """The command that trains with a created plugin: the last one in its README."""
    text = (folder / "README.md").read_text(encoding="utf-8")
    return str(re.findall(r"^\$ (.*)$", text, re.MULTILINE)[-1])


def missing(folder: Path) -> list[str]:
    """Distributions of rlcore that a created plugin needs for its tests and training, and that are not installed."""
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    names = [re.split(r"[^\w-]", text, maxsplit=1)[0] for text in texts]
    absent = [name for name in names if name.startswith(("rlcore", PREFIX)) and not _is_installed(name)]
    return [name for name in absent if not (name.startswith("rlcore-") and "rlcore" in absent)]  # it brings the others


def check_name(name: str) -> None:
    """Check that a plugin can have this name.

    Raises:
        UserError: it is not valid, reserved, or taken by an installed plugin or one of rlcore.
    """
    if not _FORM.fullmatch(name) or len(name) > LONGEST:
        near = canonical(re.sub(r"[^A-Za-z0-9]+", "-", name)).strip("-")
        fitting = len(near) <= LONGEST and _FORM.fullmatch(near)
        raise UserError(
            "the name of a plugin has lower-case letters, digits and single hyphens, begins with a letter, and has at "
            f"most {LONGEST} characters",
            found=name,
            fix=f"did you mean {near!r}?" if fitting else "choose a name such as 'my-game'",
        )
    if name.startswith(PREFIX):
        fix = f"rlcore plugins new {name.removeprefix(PREFIX)}"
        raise UserError(f"{PREFIX} is added to the name of a plugin", found=name, fix=fix)
    if reason := next(_uses(name), None):
        raise UserError(f"the name {name!r} is not free", found=reason, fix="choose another name")


def _uses(name: str) -> Iterator[str]:
    """What a name already means."""
    from rlcore.plugins.registry import KINDS, KNOWN_DISTRIBUTIONS, Registry  # a list of plugins does without it

    module = name.replace("-", "_")
    if keyword.iskeyword(module) or keyword.issoftkeyword(module):
        yield "a keyword of Python"
    if module in sys.stdlib_module_names:
        yield "a module of Python's standard library"
    own = {each.removeprefix("rlcore-").removeprefix(PREFIX) for each in OWN} | {*OWN, *KNOWN_DISTRIBUTIONS}
    if name in own:
        yield "a name of rlcore"
    for plugin in discover():
        if name in (canonical(plugin.name), canonical(plugin.distribution)):
            yield f"the installed plugin {plugin.named}"
    if _is_installed(PREFIX + name) or importlib.util.find_spec(f"rl_plugin_{module}"):
        yield f"the installed distribution {PREFIX}{name}"
    registry = Registry()
    for kind in KINDS:
        for offer in registry.offers(kind):
            if offer.spec.id == name:
                yield registry.named(kind, name)


def _is_installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _free(folder: Path) -> Path:
    """The absolute path of a folder that can be created, or replaced because it is empty."""
    path = folder.expanduser().resolve()
    found, fix = None, "another folder for --output"
    if path.parent.is_file():
        found = f"{path.parent} is a file"
    elif not path.parent.is_dir():
        found, fix = f"no folder {path.parent}", f"mkdir -p {shlex.quote(str(path.parent))}"
    elif path == Path.cwd():
        found, fix = "the current folder", "change to its parent, and give its name to --output"
    elif path.is_dir():
        found = "files in it" if any(path.iterdir()) else None
    elif path.exists():
        found = "a file"
    if found is not None:
        raise UserError("the package needs a new or empty folder", found=found, where=str(folder), fix=fix)
    return path
