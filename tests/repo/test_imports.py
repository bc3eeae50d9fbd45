"""What must be light is light: which modules a fresh interpreter holds after an import."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from workspace import ROOT, members, read_toml

HEAVY = {
    *("torch", "numpy", "transformers", "tokenizers", "safetensors", "accelerate", "datasets", "vllm", "ray"),
    *("PIL", "pyarrow", "pandas", "gymnasium", "sapien", "wandb", "tensorboard", "trackio", "huggingface_hub"),
}
NOT_AT_START = HEAVY | {"pydantic", "rich", "asyncio", "yaml", "jinja2", "hypothesis", "pytest"}
"""What a ``plugin.py`` imports is paid by every call of the command."""


def imported(statement: str) -> set[str]:
    """Top-level modules of a fresh interpreter after a statement."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    return set(json.loads(result.stdout.splitlines()[-1]))


PLUGIN_MODULES = sorted(
    value.partition(":")[0]
    for member in members()
    for value in member.project.get("entry-points", {}).get("rlcore.plugins", {}).values()
)


@pytest.mark.parametrize("module", ["rlcore", "rlcore.cli", *PLUGIN_MODULES])
def test_what_every_command_imports_is_light(module: str) -> None:
    assert sorted(imported(f"import {module}") & NOT_AT_START) == []


def test_a_configuration_is_checked_without_anything_that_computes() -> None:
    dry_run = "import sys\nfrom rlcore.cli import main\nsys.argv = ['rlcore', 'run', '-p', 'gsm8k-tools', '--dry-run']"
    assert (
        sorted(imported(f"{dry_run}\ntry:\n    main()\nexcept SystemExit as end:\n    assert not end.code") & HEAVY)
        == []
    )


def test_all_of_the_core_imports_nothing_heavy() -> None:
    source = ROOT / "packages" / "rlcore-core" / "src"
    files = sorted((source / "rlcore").rglob("*.py"))
    modules = [".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__") for path in files]
    walk = "import importlib\nfor name in " + repr([name for name in modules if "templates" not in name])
    assert sorted(imported(walk + ":\n    importlib.import_module(name)") & HEAVY) == []


def test_every_member_with_a_module_has_a_plugin_entry_that_exists() -> None:
    for member in members():
        if member.module_folder is None:
            continue
        entries = member.project["entry-points"]["rlcore.plugins"]
        for value in entries.values():
            path = member.module_folder.parent / (value.replace(".", "/") + ".py")
            assert path.is_file(), f"{member.name} names {value}, and there is no {path}"


def test_the_import_arrows_are_drawn_for_every_module() -> None:
    modules = {member.module_folder.name for member in members() if member.module_folder}
    linter = read_toml(ROOT / "pyproject.toml")["tool"]["importlinter"]
    assert set(linter["root_packages"]) == modules
    layers = [set(layer.split(" | ")) for layer in linter["contracts"][0]["layers"]]
    assert layers == [modules - {"rlcore"}, {"rlcore"}]
