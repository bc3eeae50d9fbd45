"""Data sets of the hub, from a folder and from the cache of ``datasets``; nothing is downloaded."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlcore.data.hub import HubData, HubDataConfig
from rlcore.errors import DataError, NotInstalledError, UserError
from rlcore.redaction import forget

Run = Callable[..., Any]
ROWS = [{"question": f"{n}+1?", "answer": str(n + 1), "level": n} for n in range(5)]


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, without a network."""
    datasets = pytest.importorskip("datasets", reason="datasets is not installed: pip install 'rlcore-core[datasets]'")
    cache = tmp_path / "cache"
    for name in ("config.HF_HUB_OFFLINE", "config.HF_DATASETS_OFFLINE"):
        monkeypatch.setattr(datasets.config, name.partition(".")[2], True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)
    return cache


@pytest.fixture
def folder(tmp_path: Path, offline: Path) -> Path:
    """A folder of files, as on the hub."""
    folder = tmp_path / "questions"
    folder.mkdir()
    for name, rows in (("train", ROWS), ("test", ROWS[:2])):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return folder


def hub(path: object, **keys: Any) -> HubData:
    return HubData(HubDataConfig(**{"path": str(path), "columns": {"prompt": "question"}, **keys}))


def test_columns_become_prompt_and_fields(folder: Path) -> None:
    data = hub(folder, columns={"prompt": "question", "expected": "answer"}, train="train[1:3]")
    first, second = data.tasks("train")
    assert [message.text for message in first.messages] == ["1+1?"]
    assert dict(first.fields) == {"expected": "2", "level": 1}
    assert (first.id, second.id) == ("train:0", "train:1")
    assert len(data.tasks("evaluation")) == 2


def test_messages_are_prompts_and_conversations(folder: Path) -> None:
    chat = [{"role": "system", "content": "Count."}, {"role": "user", "content": "1?"}]
    row = {"chat": [*chat, {"role": "assistant", "content": "2"}], "n": 1}
    (folder / "train.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    (folder / "test.jsonl").unlink()
    data = hub(folder, columns={"messages": "chat"})
    (task,) = data.tasks("train")
    assert [message.role for message in task.messages] == ["system", "user"]
    (conversation,) = data.conversations("train")
    assert [message.text for message in conversation.messages] == ["Count.", "1?", "2"]


def test_parquet_files_are_read(folder: Path) -> None:
    datasets = pytest.importorskip("datasets")
    (folder / "train.jsonl").unlink()
    (folder / "test.jsonl").unlink()
    datasets.disable_progress_bars()
    datasets.Dataset.from_list(ROWS).to_parquet(folder / "train.parquet")
    assert len(hub(folder).tasks("train")) == 5


@pytest.fixture
def cached(folder: Path, offline: Path) -> str:
    """A data set of the hub that was loaded before; returns its revision."""
    hub(folder).tasks("train")
    (made,) = (offline / "questions" / "default" / "0.0.0").glob("*/dataset_info.json")
    revision = "0123456789abcdef" * 2 + "01234567"
    target = offline / "acme___questions" / "default" / "0.0.0" / revision
    shutil.copytree(made.parent, target)
    shutil.rmtree(folder)
    return revision


def test_data_set_by_name_is_read_from_the_cache_when_offline(cached: str) -> None:
    assert len(hub("acme/questions").tasks("train")) == 5
    assert len(hub("acme/questions", revision=cached).tasks("evaluation")) == 2


def test_pinned_revision_that_is_not_cached_is_rejected(cached: str) -> None:
    with pytest.raises(DataError) as raised:
        hub("acme/questions", revision="f" * 40).tasks("train")
    assert raised.value.where == f"data.revision={'f' * 40}"
    assert raised.value.found == cached


@pytest.mark.parametrize(
    ("keys", "where"),
    [
        ({"train": "nope"}, "data.train=nope"),
        ({"subset": "nope"}, "data.train=train"),
        ({"columns": {"prompt": "nope"}}, "data.columns.prompt"),
        ({"columns": {}}, "row 0"),
        ({"columns": {"prompt": "level"}}, "row 0"),
    ],
)
def test_wrong_key_is_named(keys: dict[str, Any], where: str, folder: Path) -> None:
    with pytest.raises(DataError) as raised:
        hub(folder, **keys).tasks("train")
    assert where in str(raised.value.where)
    assert raised.value.fix


def test_unknown_data_set_without_a_network_is_an_error(offline: Path) -> None:
    with pytest.raises(DataError) as raised:
        hub("acme/nothing").tasks("train")
    assert "cannot load the data set acme/nothing" in str(raised.value)


def test_code_of_a_data_set_is_not_run(folder: Path, tmp_path: Path) -> None:
    for file in folder.glob("*.jsonl"):
        file.unlink()
    mark = tmp_path / "ran"
    (folder / "questions.py").write_text(f"open({str(mark)!r}, 'w')\n", encoding="utf-8")
    with pytest.raises(UserError):
        hub(folder).tasks("train")
    with pytest.raises(UserError):
        hub(folder / "questions.py").tasks("train")
    assert not mark.exists()


def test_token_is_not_shown(offline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = "hf_abcdefghijklmnop"
    monkeypatch.setenv("HF_TOKEN", token)
    try:
        with pytest.raises(DataError) as raised:
            hub(f"acme/{token}").tasks("train")
        assert token not in str(raised.value.found)
    finally:
        forget()


def test_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(NotInstalledError) as raised:
        hub("acme/questions").tasks("train")
    assert "rlcore-core[datasets]'" in str(raised.value.fix)


def test_dry_run_and_data_show_read_a_data_set(folder: Path, rlcore: Run) -> None:
    keys = ["data.id=hub", f"data.path={folder}", "data.columns.prompt=question", "evaluation.every=0"]
    assert rlcore("run", "-p", "toy", *keys, "--dry-run").status == 0
    shown = rlcore("data", "show", "hub", f"path={folder}", "columns.prompt=question")
    assert "user: 0+1?" in shown.out
    refused = rlcore("run", "-p", "toy", *keys, "data.train=nope", "--dry-run")
    assert refused.status == 2
    assert "data.train=nope" in refused.err
