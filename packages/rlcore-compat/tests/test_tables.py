"""The fields of an entry decide what a key sets, and only what the table lists is accepted."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rlcore.errors import PluginError
from rlcore_compat.tables import Meaning, Refused, Several, Table
from rlcore_compat.verl import VERL

TABLE = """
[first]
batch = {ours = "trainer.tasks_per_step", read = "rlcore_compat.verl:never_is_zero"}
"lab.on" = {ours = "model.device", values = [[true, "cuda"], ["null", "cpu"]], only = ["mps"], refuse = "no {value}"}

[second]
batch = {why = "counted"}
'lab.off'={why = "on"}

[second."lab.rate"]
ours = "trainer.learning_rate"
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package for files with keys."""
    (tmp_path / "lab_keys").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "lab_keys"
    sys.modules.pop("lab_keys", None)


def outcome(meaning: Meaning, value: Any, **words: Any) -> Any:
    try:
        return meaning.translate(value, words)
    except Refused as refusal:
        return str(refusal)


def test_entries_are_read_from_the_tables_of_a_file(package: Path) -> None:
    (package / "keys.toml").write_text(TABLE)
    table = Table("lab_keys:keys.toml")
    assert list(table) == ["batch", "lab.on", "lab.off", "lab.rate"]
    assert all(key in table for key in table)
    assert "lab" not in table
    assert (table["batch"].ours, table["batch"].why) == (None, "counted")
    assert Table("lab_keys:keys.toml", "first")["batch"].translate(-2, {}) == 0
    device = table["lab.on"]
    assert [outcome(device, value) for value in (True, None, "mps", 1)] == ["cuda", "cpu", "mps", "no 1"]


def test_errors_name_the_entry_and_the_file(package: Path) -> None:
    (package / "keys.toml").write_text('[a]\nbatch = {our = "seed"}\n')
    with pytest.raises(ValueError, match=r"batch in lab_keys:keys\.toml: .*'our'"):
        len(Table("lab_keys:keys.toml"))
    (package / "broken.toml").write_text("[a]\nbatch = {ours = }\n")
    with pytest.raises(ValueError, match=r"lab_keys:broken\.toml: .*line 2"):
        len(Table("lab_keys:broken.toml"))
    (package / "other.toml").write_text('[a]\nbatch = {ours = "seed", read = "rlcore_compat.verl:never"}\n')
    with pytest.raises(PluginError, match=r"the function of batch in lab_keys:other\.toml"):
        len(Table("lab_keys:other.toml"))


def test_conditions_select_when_a_key_is_used() -> None:
    only = Meaning(ours="seed", only_with={"mode": ["fast", "absent"]})
    never = Meaning(ours="seed", not_with={"mode": ["fast", True]})
    used = [(outcome(only, 3, **words), outcome(never, 3, **words)) for words in ({}, {"mode": "fast"}, {"mode": 1})]
    assert used == [(3, 3), (3, Several()), (Several(), 3)]
    assert outcome(Meaning(ours="seed", unset=[None, -1]), -1) == Several()
    assert outcome(Meaning(refuse="not supported"), 3) == "not supported"


def test_text_of_the_table_is_never_taken_for_a_key() -> None:
    assert all(VERL.claims(key) for key in VERL.keys)
    for key in ("trainer.learning_rate", "trainer", 'x" = 1\n"trainer.nnodes', 'trainer.nnodes" = {why'):
        assert not VERL.claims(key)
