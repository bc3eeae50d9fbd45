"""Layouts of plugins, and the plugin of rlcore-merge."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from rlcore.errors import UserError
from rlcore_merge import merge, plugin
from rlcore_merge.checkpoint import Checkpoint, Request
from rlcore_merge.layouts import OWN, Layouts
from rlcore_merge.specs import MergerSpec
from safetensors.torch import load_file


class OnePlugin:
    """Plugins with one layout: folders with a file ``own.txt``."""

    def claim(self, hook: str, *, folder: Path) -> str | None:
        assert hook == "rlcore_checkpoint_layout"
        return "own" if (folder / "own.txt").is_file() else None

    def offers(self, hook: str, expected: type[Any]) -> list[Any]:
        assert (hook, expected) == ("rlcore_mergers", MergerSpec)
        offer = ModuleType("offer")
        offer.spec = MergerSpec(id="own", target="custom_layout:open_folder", looked_for="own.txt")  # type: ignore[attr-defined]
        return [offer]


def open_own(folder: Path, request: Request) -> Checkpoint:
    from rlcore_merge.tensors import KINDS, MappedFile, Stored

    tensor = Stored(MappedFile(folder / "own.txt"), 0, KINDS["F32"], (2,))
    return Checkpoint(layout="own", folder=folder, tensors={"w": tensor}, companions=[], inputs=[folder / "own.txt"])


def test_layout_of_a_plugin_is_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("custom_layout")
    module.open_folder = open_own  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    source = tmp_path / "in"
    source.mkdir()
    layouts = Layouts(OnePlugin())  # type: ignore[arg-type]
    with pytest.raises(UserError) as caught:
        merge(source, tmp_path / "out", layouts=layouts)
    assert "own.txt" in str(caught.value.fix)
    (source / "own.txt").write_bytes(torch.tensor([1.0, 2.0]).numpy().tobytes())
    merge(source, tmp_path / "out", layouts=layouts)
    assert load_file(tmp_path / "out" / "model.safetensors")["w"].tolist() == [1.0, 2.0]


def test_every_built_in_layout_is_registered_and_importable() -> None:
    from rlcore.plugins.loading import load_attribute

    assert tuple(plugin.rlcore_mergers()) == OWN
    assert all(callable(load_attribute(spec.target)) for spec in OWN)
    (command,) = plugin.rlcore_commands()
    assert load_attribute(command.target).name == "merge"
