from __future__ import annotations

import json
import os
import re
import resource
from pathlib import Path

import pytest
from rl_plugin_gsm8k_tools import problems
from rl_plugin_gsm8k_tools.config import DataConfig, PrepareConfig
from rl_plugin_gsm8k_tools.dataset import Gsm8kData
from rl_plugin_gsm8k_tools.demonstrations import demonstrate
from rl_plugin_gsm8k_tools.prepare import prepare
from rlcore.data.chat import ChatData, ChatDataConfig
from rlcore.errors import DataError

GOOD = {"question": "Half of 48?", "answer": "It is 48/2 = <<48/2=24>>24.\n#### 24", "level": 1}
WRONG = {"question": "Half of 50?", "answer": "It is <<50/2=26>>26.\n#### 26"}


def test_prepared_file_is_read_for_training(tmp_path: Path) -> None:
    source, out = tmp_path / "train.jsonl", tmp_path / "deep" / "out.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in (GOOD, WRONG)), encoding="utf-8")
    summary = prepare(PrepareConfig(source=str(source), out=str(out)))
    assert (summary["rows"], summary["with a demonstration"]) == (2, 1)
    assert "<<50/2=26>> should be 25" in str(summary["examples"])
    data = Gsm8kData(DataConfig(train=[str(out)], evaluation=[str(out)]))
    first, second = data.tasks("train")
    assert (first.fields["answer"], first.fields["level"]) == ("24", 1)
    assert "demonstration" not in second.fields
    (shown,) = data.demonstrations(1, seed=0)
    assert [message.role for message in shown.messages] == ["user", "assistant", "tool", "assistant"]
    assert shown.messages[-1].text == "24.\n#### 24"


def test_existing_output_is_kept_without_overwrite(tmp_path: Path) -> None:
    source, out = tmp_path / "train.jsonl", tmp_path / "out.jsonl"
    source.write_text(json.dumps(GOOD) + "\n{oops\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        prepare(PrepareConfig(source=str(source), out=str(out)))
    assert caught.value.where == f"{source}, line 2"
    assert [path.name for path in tmp_path.iterdir()] == ["train.jsonl"]
    out.write_text("existing", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        prepare(PrepareConfig(source=str(source), out=str(out), on_error="skip"))
    assert caught.value.where == str(out)
    assert "overwrite=true" in str(caught.value.fix)
    assert out.read_text(encoding="utf-8") == "existing"
    summary = prepare(PrepareConfig(source=str(source), out=str(out), on_error="skip", overwrite=True))
    assert (summary["rows"], summary["skipped"]) == (1, 1)


def test_full_disk_raises_and_keeps_the_existing_file(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("existing", encoding="utf-8")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # simulates a full disk
    try:
        with pytest.raises(DataError) as caught:
            prepare(PrepareConfig(source="generated", out=str(out), limit=100, overwrite=True))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.message == f"{out} cannot be written"
    assert "File too large" in str(caught.value.found)
    assert "free disk space" in str(caught.value.fix)
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]
    assert out.read_text(encoding="utf-8") == "existing"


def test_prepared_rows_can_be_prepared_again(tmp_path: Path) -> None:
    source, once, twice = (tmp_path / name for name in ("a.jsonl", "b.jsonl", "c.jsonl"))
    source.write_text(json.dumps(GOOD) + "\n", encoding="utf-8")
    prepare(PrepareConfig(source=str(source), out=str(once)))
    prepare(PrepareConfig(source=str(once), out=str(twice)))
    assert once.read_text(encoding="utf-8") == twice.read_text(encoding="utf-8")


def test_demonstrations_become_conversations(tmp_path: Path) -> None:
    source, out = tmp_path / "train.jsonl", tmp_path / "chat.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in (GOOD, WRONG)), encoding="utf-8")
    summary = prepare(PrepareConfig(source=str(source), out=str(out), conversations=True))
    assert (summary["rows"], summary["with a demonstration"]) == (1, 1)
    (shown,) = ChatData(ChatDataConfig(train=[str(out)])).conversations("train")
    (known,) = Gsm8kData(DataConfig(train=[str(source)])).demonstrations(1, seed=0)
    assert shown.messages == known.messages
    assert shown.tools == known.tools
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text(json.dumps(WRONG) + "\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        prepare(PrepareConfig(source=str(wrong), out=str(tmp_path / "none.jsonl"), conversations=True))
    assert caught.value.where == str(wrong)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Natalia sold 48/2 = ", "Natalia sold"),
        ("Weng earns 48 / 2 = $", "Weng earns"),
        ("In 2 weeks he ate 48 / 2 = ", "In 2 weeks he ate"),
        ("That is $48/2 = $", "That is"),
        ("48/2=", ""),
        ("He had 48 hours/2 = ", "He had 48 hours/2 ="),
        ("It is 1+48/2 = ", "It is 1+48/2 ="),
        ("B48/2 = ", "B48/2 ="),
        ("It is 48/2, or ", "It is 48/2, or"),
        ("It is ", "It is"),
    ],
)
def test_expression_before_its_annotation_is_dropped(text: str, shown: str) -> None:
    conversation = demonstrate("?", f"{text}<<48/2=24>>24.\n#### 24", "24")
    assert conversation[1].text == shown
    assert [call.arguments for call in conversation[1].tool_calls] == [{"expression": "48/2"}]


def test_rows_with_many_calculations_are_left_out(tmp_path: Path) -> None:
    twice = {"question": "?", "answer": "<<1+1=2>>2 and <<2+2=4>>4\n#### 4"}
    source, out = tmp_path / "train.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in (GOOD, twice, WRONG)), encoding="utf-8")
    for conversations in (False, True):
        for most, rows in ((1, 1), (2, 2)):
            config = PrepareConfig(
                source=str(source),
                out=str(out),
                overwrite=True,
                max_calculations=most,
                conversations=conversations,
            )
            assert prepare(config)["rows"] == rows
            assert len(out.read_text(encoding="utf-8").splitlines()) == rows


def test_generated_problems_are_written(tmp_path: Path) -> None:
    rows, chats = tmp_path / "rows.jsonl", tmp_path / "chats.jsonl"
    for split in ("train", "evaluation"):
        prepare(PrepareConfig(source="generated", out=str(rows), split=split, limit=20, overwrite=True))
        written = Gsm8kData(DataConfig(train=[str(rows)])).tasks("train")
        made = Gsm8kData(DataConfig(limit=20)).tasks(split)
        assert [(task.messages, task.fields) for task in written] == [(task.messages, task.fields) for task in made]
        prepare(
            PrepareConfig(source="generated", out=str(chats), conversations=True, split=split, limit=30, overwrite=True)
        )
        shown = ChatData(ChatDataConfig(train=[str(chats)])).conversations("train")
        assert len(shown) == 30
        numbers = {tuple(map(int, re.findall(r"\d+", one.messages[0].text))) for one in shown}
        assert numbers <= set(problems.pairs(split))
    with pytest.raises(DataError) as caught:
        prepare(PrepareConfig(source=str(rows), out=str(tmp_path / "x.jsonl"), split="evaluation"))
    assert caught.value.found == "split=evaluation"


@pytest.mark.long
def test_gsm8k_training_file_is_prepared(tmp_path: Path) -> None:
    folder = os.environ.get("RLCORE_DATA")
    if not folder:
        pytest.skip("RLCORE_DATA is not set")
    out = tmp_path / "train.jsonl"
    summary = prepare(PrepareConfig(source=str(Path(folder, "gsm8k", "train.jsonl")), out=str(out)))
    assert summary["rows"] == 7473
    assert int(str(summary["with a demonstration"])) > 7000
    assert len(Gsm8kData(DataConfig(train=[str(out)])).tasks("train")) == 7473
