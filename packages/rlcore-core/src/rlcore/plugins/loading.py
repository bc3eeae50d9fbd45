"""Import plugins and their components.

A component is given as ``"module:attribute"`` or ``"path/file.py:attribute"``.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.resources
import importlib.util
import io
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from types import ModuleType
from typing import Any

from rlcore.console.invocation import started_by_uv
from rlcore.errors import ExplainedError, NotInstalledError, PluginError, UserError, did_you_mean
from rlcore.plugin_calls import Ended, error_text, plugin_code, value_text
from rlcore.plugins.discovery import CHECKED, HOSTS, Complaint, Plugin
from rlcore.specs import Spec

FILE_MODULE = "rlcore_file_"
"""Prefix of the module name of a file that an import path names."""
SPECS = "rlcore_specs"
"""Name of the list of specs in a plugin module."""
HEAVY = ("torch", "numpy", "transformers", "vllm", "ray")
"""Modules that a plugin module must not import, because every command imports the plugin module."""


def import_plugin(plugin: Plugin) -> tuple[object, tuple[Complaint, ...]]:
    """The object with the hooks, and complaints about its import. Printed output is suppressed.

    Raises:
        PluginError: the module is missing, or its import failed.
    """
    before = set(sys.modules)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), plugin_code(f"the import of the plugin {plugin.named}"):
            found = _entry_point(plugin)
            _add_hooks(found)
    except UserError as error:  # also one that the module raised
        raise PluginError(error.line, fix=error.fix) from error
    except Exception as error:
        fix = None
        if isinstance(error, ModuleNotFoundError) and error.name:
            fix = f"install the package that provides {error.name!r}, or RLCORE_DISABLE_PLUGINS={plugin.name}"
        raise PluginError(describe(error), fix=fix) from error
    complaints = []
    if heavy := [name for name in HEAVY if name in sys.modules and name not in before]:
        names = " and ".join(heavy)
        problem = f"its import loads {names}, which slows down every rlcore command"
        complaints.append(Complaint(problem=problem, fix=f"do not import {names} in {plugin.module}"))
    if text := printed.getvalue().strip():
        problem = f"its import prints to stdout: {text.splitlines()[0][:60]!r}"
        complaints.append(Complaint(problem=problem, fix=f"remove the print from {plugin.module}"))
    return found, tuple(complaints)


def load_attribute(target: str, *, what: str | None = None, where: str | None = None, needs: Sequence[str] = ()) -> Any:
    """Import the object that ``target`` refers to.

    Args:
        target: ``module:attribute`` (with dots for nested attributes) or ``path/file.py:attribute``.
        what: the name in error messages, such as ``engine 'torch'``.
        where: the origin of ``target``.
        needs: requirements in pip syntax that provide missing imports.

    Raises:
        NotInstalledError: a module is missing.
        PluginError: the import failed for another reason, or the attribute does not exist.
    """
    what = what or repr(target)
    location, separator, attribute = target.rpartition(":")
    if not separator or not location or not attribute:
        raise PluginError(f"{what} must have the form 'module:name' or 'file.py:name'", found=target, where=where)
    try:
        with plugin_code("" if _is_own(location) else f"the import of {what}{f' ({where})' if where else ''}"):
            if location.endswith(".py"):
                found: Any = _import_file(Path(location).expanduser().resolve())
            else:
                found = importlib.import_module(location)
            for part in attribute.split("."):
                if not hasattr(found, part):
                    missing, near = f"{location} has no {part!r}", _nearest(part, found)
                    raise PluginError(f"{what} does not exist", found=missing, where=where, fix=near)
                found = getattr(found, part)
    except UserError:
        raise
    except ModuleNotFoundError as error:
        raise _missing(error, location, what, where, needs) from error
    except Exception as error:
        line = source_line(error) or location
        raise PluginError(
            f"{what} cannot be imported", found=error_text(error), where=where or line, fix=f"edit {line}"
        ) from error
    return found


def resource(target: str) -> Traversable:
    """The file in an installed package that ``module:path/inside`` refers to."""
    module, separator, path = target.partition(":")
    try:
        with plugin_code(f"the import of {module!r}"):
            file = importlib.resources.files(module).joinpath(path)
            there = bool(separator) and file.is_file()
    except Exception as error:
        what, fix = f"the package {module!r} of {target!r}", "reinstall the plugin that refers to it"
        if isinstance(error, ModuleNotFoundError):
            raise PluginError(f"{what} is not installed", fix=fix) from error
        found, where = error_text(error), source_line(error)
        raise PluginError(f"{what} cannot be imported", found=found, where=where, fix=fix) from error
    if not there:
        raise PluginError(
            f"the file {target!r} does not exist",
            found="the package was built without it",
            fix="include the file in the wheel (see its pyproject.toml), or reinstall the plugin",
        )
    return file


def _nearest(name: str, owner: object) -> str | None:
    return did_you_mean(name, [known for known in dir(owner) if not known.startswith("_")])


PUBLISHED = False
"""Whether the distributions of rlcore are on the package index. Until then they are installed from a clone."""
OWN = frozenset(
    {*CHECKED, "rlcore-gui", "rlcore-harness", "rlcore-view"}
    | {"rl-plugin-aitw", "rl-plugin-gem", "rl-plugin-gsm8k-tools", "rl-plugin-gymnasium", "rl-plugin-lerobot"}
    | {"rl-plugin-llm-judge", "rl-plugin-mind2web", "rl-plugin-miniwob", "rl-plugin-openenv"}
    | {"rl-plugin-reasoning-gym", "rl-plugin-reward-model", "rl-plugin-robotwin", "rl-plugin-string-equal"}
    | {"rl-plugin-textarena", "rl-plugin-verifiers", "rl-plugin-visual-search", "rl-plugin-world-model"}
)
"""The distributions of a clone."""
_REQUIREMENT = re.compile(r"([\w.-]+)(\[[^\]]*\])?")


def pip_line(requirements: Sequence[str]) -> str:
    """The command that installs requirements, with shell quoting where needed.

    Distributions of rlcore come from the folders of a clone until they are published.
    """
    texts = [text if PUBLISHED else _in_a_clone(text) for text in requirements]
    words = [f"'{text}'" if set(text) & set("[]<>=!~; ") else text for text in texts]
    command = " ".join(["uv pip install" if started_by_uv() else "pip install", *words])
    return command if texts == list(requirements) else f"{command}   # in a clone of rlcore"


def _in_a_clone(requirement: str) -> str:
    found = _REQUIREMENT.match(requirement)
    if found is None or found[1] not in OWN:
        return requirement
    name, extras = found[1], found[2] or ""
    if name == "rlcore" and not extras:
        return "./packages/*"
    return f"./{'plugins' if name.startswith('rl-plugin-') else 'packages'}/{name}{extras}"


def source_line(error: BaseException) -> str | None:
    """``file:line`` of the code that raised, without frames of the import system."""
    if isinstance(error, Ended) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    own = [frame for frame in frames if frame.filename not in _MACHINERY]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else None


def describe(error: BaseException) -> str:
    """``Type: text (file:line)`` on one line. An error of rlcore states what it found, and where."""
    first, *_ = error_text(error).splitlines()
    if isinstance(error, ExplainedError):
        first = f"{type(error).__name__}: {error.line}"
    line = None if isinstance(error, ExplainedError) and error.where else source_line(error)
    return f"{first} ({Path(line).name})" if line else first


_HERE = Path(__file__).parent
_MACHINERY = {
    *(str(_HERE / name) for name in ("loading.py", "installed.py", "registry.py")),
    str(_HERE.parent / "plugin_calls.py"),
    str(_HERE.parent / "session" / "components.py"),
}


def _is_own(location: str) -> bool:
    """Whether a module belongs to rlcore, whose heavy libraries may take long to import."""
    return location.partition(".")[0] in {"rlcore", *(name.replace("-", "_") for name in HOSTS)}


def _entry_point(plugin: Plugin) -> object:
    name, _, attribute = plugin.module.partition(":")
    reinstall = f"pip install --force-reinstall {plugin.distribution}"
    try:
        found: object = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise PluginError(f"its entry point module {name!r} does not exist", fix=reinstall) from error
    for part in attribute.split(".") if attribute else ():
        if not hasattr(found, part):
            near = _nearest(part, found)
            problem = f"its entry point is {plugin.module!r}, but {name} has no attribute {part!r}"
            raise PluginError(f"{problem}; {near}" if near else problem, fix=reinstall)
        found = getattr(found, part)
    return found


def _add_hooks(module: object) -> None:
    """Add the hooks that return the specs in ``rlcore_specs``. Raises `PluginError` if one of them is defined, too."""
    from rlcore.hookspecs import hookimpl  # pluggy, which a list of plugins does without

    declared: dict[str, list[Spec]] = {}
    for spec in getattr(module, SPECS, ()):
        if not isinstance(spec, Spec):
            raise PluginError(f"{SPECS} has {value_text(spec)}, expected specs", fix=f"correct {SPECS}")
        declared.setdefault(spec.hook, []).append(spec)
    for name, specs in declared.items():
        if not hasattr(getattr(module, name, _declared([])), SPECS):
            raise PluginError(f"{SPECS} has specs of the hook {name}, which is defined, too", fix="join them")
        setattr(module, name, hookimpl(_declared(specs)))


def _declared(specs: Sequence[Spec]) -> Callable[[], Sequence[Spec]]:
    def hook() -> Sequence[Spec]:
        return specs

    setattr(hook, SPECS, specs)
    return hook


def _missing(
    error: ModuleNotFoundError, location: str, what: str, where: str | None, needs: Sequence[str]
) -> UserError:
    module = error.name or "unknown"
    top = module.partition(".")[0]
    if module != top and f"{location}.".startswith(f"{module}."):
        return PluginError(
            f"{what} does not exist", found=f"no module {module!r}", where=where, fix="reinstall its distribution"
        )
    fix = pip_line(needs) if needs else f"install the package that provides {top!r}"
    beside = Path(location).parent if location.endswith(".py") else Path()
    if (beside / f"{top}.py").is_file():  # not on sys.path
        fix = f"write {top}.py:NAME" if module == location else f"export PYTHONPATH={beside.resolve()}"
    return NotInstalledError(f"{what} needs the module {module!r}", found="it is not installed", where=where, fix=fix)


@functools.cache
def _import_file(path: Path) -> ModuleType:
    """Import a resolved path once, under a name derived from the path, so that its classes can be pickled."""
    if not path.is_file():
        raise PluginError(f"there is no file {str(path)!r}", fix="give a path relative to the current directory")
    name = f"{FILE_MODULE}{path.stem}_{hashlib.blake2b(str(path).encode(), digest_size=4).hexdigest()}"
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
