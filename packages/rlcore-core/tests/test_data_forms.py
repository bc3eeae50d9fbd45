"""Rows as other systems write them, in files, folders and the hub's cache."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlcore.data.chat import ChatData, ChatDataConfig
from rlcore.data.files import data_files
from rlcore.data.forms import task_row
from rlcore.data.hub import HubData, HubDataConfig
from rlcore.errors import DataError

QUESTION = [{"role": "user", "content": "2+2?"}]
PAIR = [*QUESTION, {"role": "assistant", "content": "4"}]
FORMS: dict[str, tuple[dict[str, Any], str]] = {
    "verl": (
        {
            **{"data_source": "openai/gsm8k", "prompt": QUESTION, "ability": "math"},
            **{"reward_model": {"style": "rule", "ground_truth": "4"}, "extra_info": {"index": 0, "split": "train"}},
        },
        "verl: reward_model.ground_truth -> answer",
    ),
    "trl": ({"prompt": QUESTION, "completion": PAIR[1:]}, "TRL: completion -> answer"),
    "trl texts": ({"prompt": "2+2?", "completion": "4"}, "TRL: completion -> answer"),
    "trl prompt": ({"prompt": QUESTION, "ground_truth": "4"}, "ground_truth -> answer"),
    "chat": ({"messages": PAIR}, "chat: messages -> prompt, messages[-1].content -> answer"),
    "sharegpt": (
        {"conversations": [{"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "4"}]},
        "ShareGPT: conversations -> prompt, conversations[-1].value -> answer",
    ),
    "alpaca": (
        {"instruction": "2+2?", "input": "", "output": "4"},
        "Alpaca: instruction -> prompt, output -> answer",
    ),
}
TRAINABLE = {name: row for name, (row, _) in FORMS.items() if name not in ("verl", "trl prompt")}


@pytest.mark.parametrize("name", FORMS)
def test_rows_of_other_systems_become_tasks(name: str) -> None:
    row, mapping = FORMS[name]
    found = task_row(row)
    assert found.mapping == mapping
    assert found.row["prompt"] in (QUESTION, "2+2?")
    assert found.row["answer"] == "4"
    assert row.keys() - found.row.keys() <= {"messages", "conversations", "instruction"}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"question": "2+2?", "answer": "4"}, {"question": "2+2?", "answer": "4"}),
        ({"prompt": "2+2?", "completion": "Four.", "answer": "4"}, {"prompt": "2+2?", "answer": "4"}),
        ({"messages": [*PAIR, *QUESTION], "answer": "4"}, {"prompt": [*PAIR, *QUESTION], "answer": "4"}),
        ({"prompt": "2+2?", "reward_model": {"style": "model"}}, {"prompt": "2+2?"}),
        (
            {"instruction": "Add.", "input": "2+2", "output": "4", "system": "Be brief.", "history": [["1+1", "2"]]},
            {
                "prompt": [
                    {"role": "system", "content": "Be brief."},
                    *({"role": "user", "content": "1+1"}, {"role": "assistant", "content": "2"}),
                    {"role": "user", "content": "Add.\n\n2+2"},
                ],
                "answer": "4",
            },
        ),
        ({"messages": "no list"}, {"messages": "no list"}),
    ],
)
def test_answers_and_unusual_rows_are_kept(row: dict[str, Any], expected: dict[str, Any]) -> None:
    assert expected.items() <= task_row(row).row.items()


def written(path: Path, rows: list[dict[str, Any]]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
@pytest.mark.parametrize("name", TRAINABLE)
def test_conversations_of_all_forms_and_files_are_trained_on(name: str, suffix: str, tmp_path: Path) -> None:
    data = ChatData(ChatDataConfig(train=[written(tmp_path / f"rows{suffix}", [TRAINABLE[name]])]))
    (one,) = data.conversations("train")
    assert [(message.role, message.text) for message in one.messages] == [("user", "2+2?"), ("assistant", "4")]
    assert list(data.mappings("train")) == [FORMS[name][1]]


def test_show_says_how_rows_are_read(rlcore: Callable[..., Any], tmp_path: Path) -> None:
    row, mapping = FORMS["trl"]
    file = written(tmp_path / "rows.jsonl", [row])
    assert rlcore("data", "show", "chat", f"train={file}").out.startswith(f"rows      {mapping}\nrow 1\n")
    assert "data.path must be the name of a data set" in rlcore("data", "show", "hub", f"path={file}").err


@pytest.mark.parametrize("name", FORMS)
def test_data_sets_of_all_forms_are_read_as_tasks(name: str, tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    written(tmp_path / "data" / "train.parquet", [FORMS[name][0]])
    data = HubData(HubDataConfig(path=str(tmp_path / "data")))
    (task,) = data.tasks("train")
    assert (task.messages[0].text, task.fields["answer"]) == ("2+2?", "4")
    assert list(data.mappings("train")) == [FORMS[name][1]]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(pytest.importorskip("huggingface_hub.constants"), "HF_HUB_CACHE", str(tmp_path))
    kept = tmp_path / "datasets--openai--gsm8k"
    (kept / "refs").mkdir(parents=True)
    (kept / "refs" / "main").write_text("b" * 40, encoding="utf-8")
    for revision in "ab":
        for name in ("main/train-00000-of-00001", "main/test-00000-of-00001", "socratic/train-00000-of-00001"):
            written(kept / "snapshots" / (revision * 40) / f"{name}.jsonl", [{"revision": revision, "file": name}])
    return kept


@pytest.mark.parametrize(
    ("name", "split", "found"),
    [
        ("openai/gsm8k", "train", "main, socratic"),
        ("openai/gsm8k/socratic", "evaluation", "train-00000-of-00001.jsonl"),
        ("openai/absent", "train", "no data set in the hub's cache"),
        ("rows.csv", "train", "rows.csv"),
    ],
)
def test_unclear_names_are_refused_with_what_there_is(name: str, split: str, found: str, cache: Path) -> None:
    with pytest.raises(DataError) as caught:
        data_files(name, split)
    assert found in str(caught.value)
    assert caught.value.fix


@pytest.mark.parametrize(
    ("source", "split", "shown"),
    [
        ("openai/gsm8k/main", "train", "file: main/train-00000-of-00001"),
        ("openai/gsm8k/main", "evaluation", "file: main/test-00000-of-00001"),
        ("openai/gsm8k", "evaluation", "file: main/test-00000-of-00001"),
        ("openai/gsm8k/main/test-00000-of-00001.jsonl", "train", "file: main/test-00000-of-00001"),
        ("openai/gsm8k", "test", "the split must be train or evaluation"),
        ("openai/gsm8k", "train", "the folder has several data sets"),
        ("openai/absent", "train", "hf download --repo-type dataset openai/absent"),
    ],
)
def test_rows_of_the_cache_are_shown_by_name(
    source: str, split: str, shown: str, cache: Path, rlcore: Callable[..., Any]
) -> None:
    done = rlcore("data", "show", source, "--split", split)
    assert shown in done.out + done.err
    assert (done.status, "revision: b" in done.out) == ((0, True) if shown.startswith("file") else (2, False))
    assert not list(cache.rglob("*.images"))


def test_rows_of_a_folder_are_shown(cache: Path, rlcore: Callable[..., Any]) -> None:
    done = rlcore("data", "show", str(cache / "snapshots" / ("a" * 40) / "main"))
    assert (done.status, "revision: a" in done.out) == (0, True)


def test_data_set_in_the_cache_of_the_hub_is_read_without_a_network(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pytest.importorskip("datasets").config, "HF_HUB_OFFLINE", True)
    rows = [FORMS["trl"][0]]
    for revision in "ab":
        written(cache / "snapshots" / (revision * 40) / "data" / "train.parquet", rows * (1 + (revision == "a")))
    assert len(HubData(HubDataConfig(path="openai/gsm8k/data")).tasks("train")) == 1
    assert len(HubData(HubDataConfig(path="openai/gsm8k/data", revision="a" * 40)).tasks("train")) == 2
    with pytest.raises(DataError):
        HubData(HubDataConfig(path="openai/gsm8k/data", revision="c" * 40)).tasks("train")
