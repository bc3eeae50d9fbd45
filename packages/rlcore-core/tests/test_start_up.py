"""Modules that commands import, checked in a new interpreter."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

NEVER = {"torch", "numpy", "transformers", "tokenizers", "accelerate", "pyarrow", "wandb", "tensorboard", "trackio"}


def imported_after(code: str) -> set[str]:
    """Names in ``sys.modules`` once ``code`` has run."""
    script = f"{code}\nimport json, sys\nprint('\\n' + json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def modules_after(code: str) -> set[str]:
    """Top-level names in ``sys.modules`` once ``code`` has run."""
    return {name.partition(".")[0] for name in imported_after(code)}


def command(*arguments: str) -> str:
    start = f"import sys\nsys.argv = {['rlcore', *arguments]!r}\nfrom rlcore.cli import main\n"
    return f"{start}try:\n    main()\nexcept SystemExit:\n    pass"


def test_help_imports_neither_pydantic_nor_rich_nor_pluggy() -> None:
    modules_after(command("--help"))  # the first help after an installation asks the plugins for their commands
    assert not modules_after(command("--help")) & (NEVER | {"pydantic", "rich", "pluggy", "packaging"})


def test_help_does_not_look_for_plugins() -> None:
    modules_after(command("--help"))  # see above
    assert "rlcore.plugins.discovery" not in imported_after(command("--help"))


@pytest.mark.parametrize("arguments", [("plugins", "list"), ("plugins", "--help"), ("--version",)])
def test_listing_plugins_imports_no_pydantic_and_no_plugin(arguments: tuple[str, ...]) -> None:
    modules = modules_after(command(*arguments))
    assert not modules & (NEVER | {"pydantic", "rich", "pluggy"})
    assert not {name for name in modules if name.startswith(("rl_plugin_", "rlcore_"))}


def test_checking_plugins_imports_no_heavy_libraries() -> None:
    assert not modules_after(command("plugins", "list", "--check")) & (NEVER | {"pydantic", "rich"})


@pytest.mark.parametrize(
    "module", ["rlcore", "rlcore.types", "rlcore.plugin", "rlcore.plugins.registry", "rlcore.cli.doctor"]
)
def test_core_modules_import_no_heavy_libraries(module: str) -> None:
    assert not modules_after(f"import {module}") & (NEVER | {"pydantic", "rich"})


def test_importing_rlcore_imports_no_dependencies() -> None:
    assert not modules_after("import rlcore") & {"click", "pydantic", "pluggy", "rich", "packaging", "asyncio"}


def test_every_public_name_resolves() -> None:
    import rlcore

    assert all(getattr(rlcore, name) is not None for name in rlcore.__all__)
    with pytest.raises(AttributeError):
        _ = rlcore.nothing
