"""Config adapters translate the overrides and files that they claim, and change nothing else."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlcore.cli.layering import gather
from rlcore.config.adapters import config_adapter_of, nearest_adapter_key, translate
from rlcore.config.layers import override_layers
from rlcore.errors import PluginError
from rlcore.plugins.registry import Registry

PLUGIN = """
from rlcore import ConfigAdapterSpec, hookimpl
from rlcore.config.adapters import Translation
from rlcore.config.layers import values_layer

@hookimpl
def rlcore_config_adapters():
    yield ConfigAdapterSpec(
        id="NAME", target="MODULE:NOTES", overrides=True, files=(("notes",), ("who", "when")), summary="Notes."
    )

class Notes:
    keys = ("notes.seeds",)

    def claims(self, key):
        return key.startswith("notes.")

    def read_overrides(self, overrides, given):
        values = {"seed": int(overrides[-1].partition("=")[2])}
        layer = values_layer(values, f"command line: {overrides[-1]}")
        return Translation(layer=layer, lines=[f"{overrides[-1]} -> seed"])

    def read_file(self, file, given):
        lines = [f"{file.name} beside {list(given.overrides)} and {len(given.files)} files in {file.folder}"]
        values = {"seed": file.layer.tree["notes"]["seed"]}
        return Translation(layer=values_layer(values, file.layer.origin(("notes", "seed"))), lines=lines)

NOTES = Notes()
"""


@pytest.fixture
def notes(install: Callable[..., None]) -> Callable[..., None]:
    """Installs a distribution with one config adapter."""

    def write(distribution: str = "acme-notes", name: str = "notes", change: tuple[str, str] = ("", "")) -> None:
        module = distribution.replace("-", "_") + "_plugin"
        install(distribution, PLUGIN.replace("NAME", name).replace("MODULE", module).replace(*change))

    return write


def file(folder: Path, text: str, name: str = "notes.toml") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def test_override_is_translated_with_its_origin(notes: Callable[..., None]) -> None:
    notes()
    found = translate(Registry(), files=(), overrides=["notes.seeds=3", "trainer.steps=2"])
    assert found.own == ["trainer.steps=2"]
    assert [layer.tree for layer in found.overrides] == [{"seed": 3}]
    assert found.overrides[0].origin(("seed",)) == "command line: notes.seeds=3"
    assert found.lines == ["notes.seeds=3 -> seed"]


def test_file_is_translated_in_order_with_the_rest_of_the_command_line(
    notes: Callable[..., None], tmp_path: Path
) -> None:
    notes()
    ours, theirs = file(tmp_path, "seed = 1\n", "own.toml"), file(tmp_path, "[notes]\nseed = 5\n")
    found = translate(Registry(), files=[theirs, ours], overrides=["runs=here"])
    assert [layer.tree for layer in found.files] == [{"seed": 5}, {"seed": 1}]
    assert found.files[0].origin(("seed",)) == f"{theirs}:2"
    assert found.lines == [f"{theirs} beside ['runs=here'] and 2 files in {tmp_path}"]


def test_recipe_file_is_translated(notes: Callable[..., None], tmp_path: Path) -> None:
    notes()
    theirs, above = file(tmp_path, "[notes]\nseed = 5\n"), file(tmp_path, "seed = 1\n", "own.toml")
    found = gather(Registry(), recipe=theirs, files=(above,))
    same = gather(Registry(), files=(theirs, above))
    assert (found.recipe, same.recipe) == (theirs, "")
    assert [layer.tree for layer in found.layers] == [layer.tree for layer in same.layers] == [{"seed": 5}, {"seed": 1}]


def test_file_is_selected_by_all_keys_of_a_set(notes: Callable[..., None]) -> None:
    notes()
    registry = Registry()
    for tree in ({"notes": {}}, {"notes": 1, "seed": 2}, {"who": 1, "when": 2}):
        found = config_adapter_of(registry, tree)
        assert found is not None
        assert found.spec.id == "notes"
    for tree in ({}, {"who": 1}, {"seed": 2, "model": {"path": "a"}}):
        assert config_adapter_of(registry, tree) is None


def test_rlcore_keys_are_never_passed_to_adapters(notes: Callable[..., None]) -> None:
    notes(change=('key.startswith("notes.")', "True"))
    found = translate(Registry(), files=(), overrides=["seed=4", "model.path=a/b", "environment.id=x", "notes.seeds=3"])
    assert found.own == ["seed=4", "model.path=a/b", "environment.id=x"]


def test_malformed_override_is_not_passed_to_adapters(notes: Callable[..., None]) -> None:
    notes()
    assert translate(Registry(), files=(), overrides=["notes.seeds"]).own == ["notes.seeds"]


def test_nearest_adapter_key_of_an_unknown_key(notes: Callable[..., None]) -> None:
    notes()
    assert nearest_adapter_key(Registry(), "notes.seed") == "notes.seeds"
    assert nearest_adapter_key(Registry(), "Note") == "notes"
    assert nearest_adapter_key(Registry(), "trainer.steps") is None
    assert nearest_adapter_key(Registry(), "seeds") == "notes.seeds"


def test_conflicting_adapters_are_an_error(notes: Callable[..., None], tmp_path: Path) -> None:
    notes()
    notes("other-notes", "others")
    for given in (
        {"files": (), "overrides": ["notes.seeds=3"]},
        {"files": [file(tmp_path, "notes = 1")], "overrides": []},
    ):
        with pytest.raises(PluginError) as caught:
            translate(Registry(), **given)
        assert caught.value.found == "notes (acme-notes 1.2) and others (other-notes 1.2)"
        assert "RLCORE_DISABLE_PLUGINS=acme-notes" in str(caught.value.fix)


def test_builtin_adapter_takes_precedence(notes: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    notes()
    notes("other-notes", "others")
    monkeypatch.setattr("rlcore.plugins.discovery.HOSTS", ("rlcore-core", "other-notes"))
    offer = config_adapter_of(Registry(), {"notes": 1})
    assert offer is not None
    assert offer.spec.id == "others"


@pytest.mark.parametrize(
    "change",
    [(":NOTES", ":ABSENT"), ("return key", "key.nothing; return key")],
)
def test_broken_adapter_does_not_affect_other_overrides(
    change: tuple[str, str], notes: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    notes("fine-notes", "fine", change=('"notes."', '"fine."'))
    notes(change=change)
    with caplog.at_level(logging.ERROR):
        found = translate(Registry(), files=(), overrides=["trainer.steps=2", "fine.seed=3"])
    assert found.own == ["trainer.steps=2"]
    assert [layer.tree for layer in found.overrides] == [{"seed": 3}]


def test_failing_adapter_is_reported(notes: Callable[..., None], tmp_path: Path) -> None:
    notes()
    with pytest.raises(PluginError) as caught:
        translate(Registry(), files=[file(tmp_path, "notes = 1\n")], overrides=[])
    assert "'notes'" in caught.value.message
    assert caught.value.where == "acme-notes 1.2"


def test_adapter_without_methods_is_rejected(notes: Callable[..., None], tmp_path: Path) -> None:
    notes(change=("NOTES = Notes()", "NOTES = Notes"))
    with pytest.raises(PluginError) as caught:
        translate(Registry(), files=[file(tmp_path, "notes = 1\n")], overrides=[])
    assert (caught.value.found, caught.value.where) == ("the class Notes", "acme-notes 1.2")


def test_without_adapters_nothing_is_translated(install: Callable[..., None], tmp_path: Path) -> None:
    found = translate(Registry(), files=[file(tmp_path, "seed = 5\n")], overrides=["trainer.steps=2"])
    assert (found.files[0].tree, found.overrides, found.own, found.lines) == ({"seed": 5}, [], ["trainer.steps=2"], [])
    assert len(override_layers(found.own)) == 1


def test_translation_is_printed_with_origins(notes: Callable[..., None], rlcore: Callable[..., Any]) -> None:
    notes()
    result = rlcore("config", "show", "--origin", "--json", "-p", "toy", "notes.seeds=3")
    assert result.status == 0
    assert result.err.splitlines() == ["notes.seeds=3 -> seed"]
    assert json.loads(result.out)["seed"] == {"value": 3, "origin": "command line: notes.seeds=3"}
