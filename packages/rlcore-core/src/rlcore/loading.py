"""Imports what a ``"module:attribute"`` or ``"path/file.py:attribute"`` string names."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.resources
import importlib.util
import sys
import traceback
from collections.abc import Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from types import ModuleType
from typing import Any

from rlcore.errors import NotInstalledError, PluginError, UserError, did_you_mean


def load_attribute(target: str, *, what: str | None = None, where: str | None = None, needs: Sequence[str] = ()) -> Any:
    """The object that ``target`` names.

    Args:
        target: ``module:attribute`` (dots go deeper) or ``path/file.py:attribute``.
        what: how errors call it, such as ``engine 'torch'``.
        where: who asked for it.
        needs: requirements in pip syntax that bring what its import misses.

    Raises:
        NotInstalledError: a module is missing.
        PluginError: the import failed otherwise, or the attribute is not there.
    """
    what = what or repr(target)
    location, separator, attribute = target.rpartition(":")
    if not separator or not location or not attribute:
        raise PluginError(f"{what} must be written 'module:name' or 'file.py:name'", found=target, where=where)
    try:
        module = (
            _import_file(Path(location).expanduser().resolve())
            if location.endswith(".py")
            else importlib.import_module(location)
        )
    except UserError:
        raise
    except ModuleNotFoundError as error:
        raise _missing(error, location, what, where, needs) from error
    except (Exception, SystemExit) as error:  # a file that was written to be run may end the interpreter
        line = source_line(error) or location
        raise PluginError(
            f"{what} cannot be imported",
            found=f"{type(error).__name__}: {error}",
            where=where or line,
            mend=f"mend {line}",
        ) from error
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            near = did_you_mean(part, [name for name in dir(found) if not name.startswith("_")])
            raise PluginError(f"{what} is not there", found=f"{location} has no {part!r}", where=where, mend=near)
        found = getattr(found, part)
    return found


def resource(target: str) -> Traversable:
    """The file inside an installed package that ``module:path/inside`` names."""
    module, separator, path = target.partition(":")
    try:
        file = importlib.resources.files(module).joinpath(path)
    except ModuleNotFoundError as error:
        raise PluginError(
            f"no package {module!r} holds {target!r}", mend="reinstall the plugin that names it"
        ) from error
    if not separator or not file.is_file():
        raise PluginError(
            f"the file {target!r} is not in its package",
            found="the package was built without it",
            mend="include it in the wheel (its pyproject.toml says what goes in), or reinstall its plugin",
        )
    return file


def pip_line(requirements: Sequence[str]) -> str:
    """``pip install …``, quoted for a shell where brackets or comparisons ask for it."""
    return " ".join(["pip install", *(f"'{text}'" if set(text) & set("[]<>=!~; ") else text for text in requirements)])


def source_line(error: BaseException) -> str | None:
    """``file:line`` of the code that raised, leaving out the machinery that imported it."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    own = [frame for frame in frames if frame.filename not in _MACHINERY]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else None


_MACHINERY = {
    str(Path(__file__).with_name(name))
    for name in ("loading.py", "plugins.py", "plugin_import.py", "registry.py", "run.py")
}


def _missing(
    error: ModuleNotFoundError, location: str, what: str, where: str | None, needs: Sequence[str]
) -> UserError:
    module = error.name or "unknown"
    top = module.partition(".")[0]
    if module != top and f"{location}.".startswith(f"{module}."):
        return PluginError(
            f"{what} is not there", found=f"no module {module!r}", where=where, mend="reinstall its distribution"
        )
    mend = pip_line(needs) if needs else f"install what brings the module {top!r}"
    beside = Path(location).parent if location.endswith(".py") else Path()
    if (beside / f"{top}.py").is_file():  # the interpreter does not look there
        mend = f"write {top}.py:NAME" if module == location else f"export PYTHONPATH={beside.resolve()}"
    return NotInstalledError(f"{what} needs the module {module!r}", found="it is not installed", where=where, mend=mend)


@functools.cache
def _import_file(path: Path) -> ModuleType:
    """Import a resolved path once, under a name made from it: its classes can be pickled in this process."""
    if not path.is_file():
        raise PluginError(f"there is no file {str(path)!r}", mend="give the path from the folder you stand in")
    name = f"rlcore_file_{path.stem}_{hashlib.blake2b(str(path).encode(), digest_size=4).hexdigest()}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
