"""The modules that a new interpreter loads after an import, and the imports in the sources of every member."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from workspace import ROOT, closure, distribution, members, read_toml

HEAVY = {
    *("torch", "numpy", "transformers", "tokenizers", "safetensors", "accelerate", "datasets", "vllm", "ray"),
    *(
        "PIL",
        "pyarrow",
        "pandas",
        "datasets",
        "gymnasium",
        "sapien",
        "wandb",
        "tensorboard",
        "trackio",
        "huggingface_hub",
    ),
}
NOT_AT_START = HEAVY | {"pydantic", "rich", "asyncio", "yaml", "jinja2", "hypothesis", "pytest"}
"""Every command imports every ``plugin.py``."""
UNDECLARED = {
    "rl-plugin-robotwin": {"mplib"},  # in the interpreter of a RoboTwin checkout
    "rl-plugin-verifiers": {"aiohttp", "httpx", "mcp", "uvicorn", "verifiers"}  # in the interpreter that has verifiers,
    | {"rlcore_chat", "tools_here", "worlds"},  # and the modules beside them
    "rlcore-core": {"IPython", "polars", "gymnasium", "tokenizers", "ray"},  # of notebooks, frames, environments
    "rlcore-merge": {"PIL", "peft", "rlcore_models"},  # of comparisons, where the trainer's libraries are installed
    "rlcore-rollout": {"peft"},  # of rlcore[lora]
    "rlcore-sandbox": {"matplotlib"},  # of the interpreter that runs code of a model
}
"""Libraries that a member uses where they are installed, and does not install itself."""


def imported(statement: str) -> set[str]:
    """Top-level modules of a new interpreter after a statement."""
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
def test_command_start_imports_nothing_heavy(module: str) -> None:
    assert sorted(imported(f"import {module}") & NOT_AT_START) == []


def test_configuration_is_shown_without_heavy_imports() -> None:
    shown = "import sys\nfrom rlcore.cli import main\nsys.argv = ['rlcore', 'config', 'show', '-p', 'gsm8k-tools']"
    assert (
        sorted(imported(f"{shown}\ntry:\n    main()\nexcept SystemExit as end:\n    assert not end.code") & HEAVY) == []
    )


FOR_TENSORS = ("rlcore_models.pixels", "rlcore_models.vision_encoder", "rlcore_models.products")
"""Modules of the core that only the trainer and the engine in process import."""
FOR_CONTROL = ("rlcore.transport.control", "rlcore.transport.spaces")
"""Modules of the core that only environments with control actions import."""


def test_core_modules_import_nothing_heavy() -> None:
    source = ROOT / "packages" / "rlcore-core" / "src"
    files = sorted((source / "rlcore").rglob("*.py"))
    modules = [".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__") for path in files]
    light = [name for name in modules if "templates" not in name and name not in FOR_TENSORS + FOR_CONTROL]
    walk = "import importlib\nfor name in " + repr(light)
    assert sorted(imported(walk + ":\n    importlib.import_module(name)") & HEAVY) == []


def imports_of(path: Path) -> set[str]:
    """The top-level modules of all imports in a file, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names)


def test_every_import_is_declared_by_its_member() -> None:
    installed = packages_distributions()
    ours = {member.module_folder.name: [member.name] for member in members() if member.module_folder}
    undeclared: dict[str, set[str]] = {}
    for member in members():
        if member.module_folder is None:
            continue
        declared = closure(member.name, member.extras) | {member.name}
        # The templates of plugins are distributions of their own, whose metadata a fresh environment tests.
        sources = [path for path in member.module_folder.rglob("*.py") if "templates" not in path.parts]
        for module in set().union(*map(imports_of, sources)):
            names = ours.get(module) or installed.get(module, [module])
            if not {distribution(name) for name in names} & declared:
                undeclared.setdefault(member.name, set()).add(module)
    assert undeclared == UNDECLARED


def test_plugin_entry_points_exist() -> None:
    for member in members():
        if member.module_folder is None:
            continue
        entries = member.project.get("entry-points", {}).get("rlcore.plugins", {})
        assert entries or member.name == "rlcore-gui", f"{member.name} registers no plugin"
        for value in entries.values():
            path = member.module_folder.parent / (value.replace(".", "/") + ".py")
            assert path.is_file(), f"{member.name} declares {value}, but {path} does not exist"


def test_import_contracts_cover_every_module() -> None:
    modules = {member.module_folder.name for member in members() if member.module_folder}
    linter = read_toml(ROOT / "pyproject.toml")["tool"]["importlinter"]
    assert set(linter["root_packages"]) == modules
    layers = [set(layer.split(" | ")) for layer in linter["contracts"][0]["layers"]]
    libraries = {"rlcore_gui", "rlcore_models"}
    assert layers == [modules - libraries - {"rlcore"}, libraries, {"rlcore"}]
