from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from rl_plugin_gsm8k_tools.config import DataConfig
from rl_plugin_gsm8k_tools.dataset import Gsm8kData
from rlcore.errors import DataError, UserError

NATALIA = {
    "question": "Natalia sold clips to 48 of her friends in April, and half as many in May. How many in all?",
    "answer": "In May 48/2 = <<48/2=24>>24 clips.\nIn all 48+24 = <<48+24=72>>72 clips.\n#### 72",
}


def written(path: Path, *rows: object) -> str:
    text = json.dumps(list(rows)) if path.suffix == ".json" else "".join(json.dumps(row) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")
    return str(path)


def data_of(path: str, **keys: object) -> Gsm8kData:
    return Gsm8kData(DataConfig.model_validate({"train": path, "evaluation": path, **keys}))


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
def test_other_fields_are_in_the_task(tmp_path: Path, suffix: str) -> None:
    path = written(tmp_path / f"rows{suffix}", {"question": "2+2?", "answer": "4", "level": 3, "tags": ["a"]})
    (task,) = data_of(path).tasks("train")
    assert task.id == "rows:1"
    assert task.messages[0].text == "2+2?"
    assert dict(task.fields) == {"answer": "4", "level": 3, "tags": ("a",)}


@pytest.mark.parametrize("name", ["question", "prompt", "problem", "instruction"])
def test_question_field_has_aliases(tmp_path: Path, name: str) -> None:
    (task,) = data_of(written(tmp_path / "rows.json", {name: "2+2?", "answer": 4})).tasks("evaluation")
    assert task.messages[0].text == "2+2?"
    assert task.fields["answer"] == 4


def test_messages_are_unchanged(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]
    (task,) = data_of(written(tmp_path / "rows.json", {"messages": messages, "answer": "4"})).tasks("train")
    assert [(m.role, m.text) for m in task.messages] == [("system", "Be brief."), ("user", "2+2?")]


def test_original_gsm8k_answers_are_parsed(tmp_path: Path) -> None:
    long = {**NATALIA, "answer": NATALIA["answer"].replace("#### 72", "#### 1,072")}
    first, second = data_of(written(tmp_path / "rows.jsonl", NATALIA, long)).tasks("train")
    assert first.fields["answer"] == "72"
    assert second.fields["answer"] == "1072"
    assert first.fields["solution"] == NATALIA["answer"]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"text": "2+2?", "answer": "4"}, ["'question'", "answer, text"]),
        ({"question": "2+2?"}, ["'answer'"]),
        ({"question": "2+2?", "answer": None}, ["'answer'", "an empty value"]),
        ({"question": 4, "answer": "4"}, ["'question'", "int 4"]),
        ({"question": "2+2?", "answer": [4]}, ["'answer'", "list [4]"]),
        ({"question": "2+2?", "answer": "so ####"}, ["'answer'", "so ####"]),
        ({"question": "5/2?", "answer": "so #### 2,5"}, ["'answer'", "separate thousands", "2,5"]),
        ({"question": "5/2?", "answer": "so #### 1,00"}, ["'answer'", "separate thousands"]),
        ({"question": "5/2?", "answer": "so #### 1,234,5"}, ["'answer'", "separate thousands"]),
        (["2+2?", "4"], ["list ['2+2?', '4']"]),
        ({"messages": [{"role": "judge", "content": ""}], "answer": "4"}, ["'messages'", "judge"]),
        ({"question": "2+2?", "answer": "4", "demonstration": [{"content": 1}]}, ["'demonstration'"]),
    ],
)
def test_invalid_row_raises_with_file_and_line(tmp_path: Path, row: object, expected: list[str]) -> None:
    path = written(tmp_path / "rows.jsonl", NATALIA, row, NATALIA)
    with pytest.raises(DataError) as caught:
        data_of(path).tasks("train")
    assert caught.value.where == f"{path}, line 2"
    for text in expected:
        assert text in f"{caught.value.message} {caught.value.found}"
    kept = data_of(path, on_error="skip")
    assert [task.id for task in kept.tasks("train")] == ["rows:1", "rows:3"]
    assert kept.skipped("train") == 1


def test_invalid_json_line_can_be_skipped(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(NATALIA) + "\n{oops\n\n" + json.dumps(NATALIA) + "\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        data_of(str(path)).tasks("train")
    assert caught.value.where == f"{path}, line 2"
    assert len(data_of(str(path), on_error="skip").tasks("train")) == 2


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("missing.jsonl", None),
        ("rows.csv", "a,b"),
        ("rows.json", '{"question": "2+2?"}'),
        ("rows.json", '{"a": 1}\n{"a": 2}'),
        ("rows.jsonl", ""),
        ("rows.parquet", "PAR1"),
    ],
)
def test_invalid_file_raises_with_its_path(tmp_path: Path, name: str, text: str | None) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        data_of(str(path)).tasks("train")
    assert str(caught.value.where).split(", line ")[0] == str(path)


def test_message_of_an_invalid_row(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.jsonl", {"text": "2+2?", "answer": "4"})
    with pytest.raises(DataError) as caught:
        data_of(path).tasks("train")
    assert str(caught.value).splitlines() == [
        "a row needs a field 'question'",
        "  found  the fields answer, text",
        f"  from   {path}, line 1",
        "  fix    rename the field to 'question', 'prompt', 'problem' or 'instruction', or add 'messages'",
    ]


def test_parquet_is_read(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow (the extra 'parquet') is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.Table.from_pylist([NATALIA]), path)
    assert data_of(str(path)).tasks("train")[0].fields["answer"] == "72"


def test_limit_uses_the_first_rows(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.json", NATALIA, NATALIA, NATALIA)
    assert len(data_of(path, limit=2).tasks("train")) == 2


def test_annotated_solutions_become_demonstrations(tmp_path: Path) -> None:
    data = data_of(written(tmp_path / "rows.jsonl", NATALIA))
    shown = list(data.demonstrations(3, seed=0))
    assert len(shown) == 3
    user, first, answer, second, last, final = shown[0].messages
    assert user.text == NATALIA["question"]
    assert first.tool_calls[0].arguments == {"expression": "48/2"}
    assert (answer.role, answer.text, answer.tool_call_id) == ("tool", "24", first.tool_calls[0].id)
    assert second.text == "24 clips.\nIn all"
    assert last.text == "72"
    assert final.text == "72 clips.\n#### 72"
    assert shown[0].tools[0].name == "calculator"


def test_demonstrations_without_solutions_raise(tmp_path: Path) -> None:
    data = data_of(written(tmp_path / "rows.json", {"question": "2+2?", "answer": "4"}))
    with pytest.raises(DataError) as caught:
        next(iter(data.demonstrations(1, seed=0)))
    assert caught.value.where == str(tmp_path / "rows.json")
    assert "rlcore data prepare gsm8k-tools" in str(caught.value.fix)


def test_texts_contain_the_tool_and_its_calls() -> None:
    texts = list(Gsm8kData(DataConfig()).texts())
    assert texts[0] == "tools: calculator(expression)"
    assert any('{"name": "calculator", "arguments": {"expression": "' in text for text in texts)


def test_agentfly_rows_are_read() -> None:
    folder = os.environ.get("RLCORE_DATA")
    if not folder:
        pytest.skip("RLCORE_DATA is not set")
    data = data_of(str(Path(folder, "gsm8k", "gsm8k_train_64_agentfly.json")))
    assert len(data.tasks("train")) == 64
    assert data.tasks("train")[0].fields["answer"] == "72"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('{"question": "2+2?", "answer": NaN}', "float nan"),
        ("[" * 100_000, "nested"),
        ('{"question": 5, "answer": "4"}', "int 5"),
    ],
)
def test_unusual_invalid_lines_raise_with_their_location(tmp_path: Path, line: str, found: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "1+1?", "answer": "2"}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        data_of(str(path)).tasks("train")
    assert found in str(caught.value.found)
    assert caught.value.where == f"{path}, line 2"
    assert "data.on_error=skip" in (caught.value.fix or "")
    kept = data_of(str(path), on_error="skip")
    assert (len(kept.tasks("train")), kept.skipped("train")) == (1, 1)


def test_texts_with_lone_surrogates_can_be_encoded(tmp_path: Path) -> None:
    data = data_of(written(tmp_path / "rows.jsonl", {"question": "half of a pair: \ud83d", "answer": "4"}))
    texts = list(data.texts())
    assert "half of a pair: ?" in texts
    assert all(text.encode() for text in texts)
