"""The dataset ``preferences``: rows in TRL's forms, and invalid rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlcore.data.chat import ChatData, ChatDataConfig
from rlcore.data.preferences import PreferenceData, PreferenceDataConfig
from rlcore.errors import DataError
from rlcore.types import Preference

ASKED = {"role": "user", "content": "Is the sky blue?"}
YES, NO = ({"role": "assistant", "content": text} for text in ("Yes, it is.", "No."))
FORMS: dict[str, dict[str, Any]] = {
    "explicit messages": {"prompt": [ASKED], "chosen": [YES], "rejected": [NO]},
    "explicit texts": {"prompt": ASKED["content"], "chosen": YES["content"], "rejected": NO["content"]},
    "implicit messages": {"chosen": [ASKED, YES], "rejected": [ASKED, NO]},
    "a prompt beside conversations": {
        "prompt": ASKED["content"],
        "chosen": [ASKED, YES],
        "rejected": [ASKED, NO],
        "messages": [ASKED, YES],
    },
}


def written(path: Path, *rows: Any) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def read(path: str, **options: Any) -> PreferenceData:
    return PreferenceData(PreferenceDataConfig(train=[path], **options))


@pytest.mark.parametrize("form", FORMS)
def test_forms_are_equivalent(form: str, tmp_path: Path) -> None:
    data = read(written(tmp_path / "pairs.jsonl", {**FORMS[form], "margin": 1.5, "source": "a"}))
    (one,) = data.preferences("train")
    assert isinstance(one, Preference)
    texts = [[(message.role, message.text) for message in side] for side in (one.prompt, one.chosen, one.rejected)]
    assert texts == [[("user", "Is the sky blue?")], [("assistant", "Yes, it is.")], [("assistant", "No.")]]
    assert one.margin == 1.5
    (task,) = data.tasks("train")
    assert task.messages == one.prompt
    assert task.fields == {"source": "a"}
    assert data.preferences("evaluation") == []


def test_common_beginning_of_two_texts_is_the_prompt(tmp_path: Path) -> None:
    row = {"chosen": "Human: Hi\nAssistant: Hello", "rejected": "Human: Hi\nAssistant: Hey you"}
    (one,) = read(written(tmp_path / "pairs.jsonl", row)).preferences("train")
    assert [one.prompt[0].text, one.chosen[0].text, one.rejected[0].text] == [
        "Human: Hi\nAssistant: ",
        "Hello",
        "Hey you",
    ]


def test_prompt_may_contain_turns_and_answers_may_use_tools(tmp_path: Path) -> None:
    call = {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "sky", "arguments": "{}"}}]}
    result = {"role": "tool", "tool_call_id": "1", "content": "blue"}
    row = {"prompt": [ASKED, NO, ASKED], "chosen": [call, result, YES], "rejected": [NO], "tools": [{"name": "sky"}]}
    (one,) = read(written(tmp_path / "pairs.jsonl", row)).preferences("train")
    assert [message.role for message in one.prompt] == ["user", "assistant", "user"]
    assert [message.role for message in one.chosen] == ["assistant", "tool", "assistant"]
    assert one.chosen[1].name == "sky"
    assert one.tools[0].name == "sky"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "a", "chosen": "b"}, "needs the field 'rejected'"),
        ({"messages": [ASKED, YES]}, "needs the field 'chosen'"),
        ({"prompt": "a", "chosen": "b", "rejected": "b"}, "are equal"),
        ({"prompt": "a", "chosen": " ", "rejected": "b"}, "chosen answer is empty"),
        ({"prompt": "a", "chosen": "b", "rejected": []}, "two texts, or two lists"),
        ({"prompt": "a", "chosen": [YES], "rejected": []}, "rejected answer is empty"),
        ({"prompt": 3, "chosen": "b", "rejected": "c"}, "'prompt' must be"),
        ({"chosen": "b c", "rejected": "d e"}, "begin with the same prompt"),
        ({"chosen": [ASKED, YES], "rejected": [ASKED]}, "rejected answer must begin"),
        ({"chosen": [ASKED, YES], "rejected": [{**ASKED, "content": "?"}, NO]}, "must begin with a message of the"),
        ({"prompt": "a", "chosen": [{"role": "assistant"}], "rejected": [NO]}, "prompt and chosen answer: message 2"),
        ({"prompt": "a", "chosen": "b", "rejected": "c", "margin": "large"}, "'margin' must be"),
        ([1], "must be an object"),
    ],
)
def test_invalid_row_is_reported_with_its_line(row: Any, message: str, tmp_path: Path) -> None:
    path = written(tmp_path / "pairs.jsonl", FORMS["explicit texts"], row)
    with pytest.raises(DataError, match=message) as raised:
        read(path).preferences("train")
    assert str(raised.value.where) == f"{path}, line 2"
    skipping = read(path, on_error="skip")
    assert len(skipping.preferences("train")) == skipping.skipped("train") == 1


def test_data_of_the_other_kind_is_named(tmp_path: Path) -> None:
    pairs, chats = (
        written(tmp_path / "a.jsonl", FORMS["implicit messages"]),
        written(tmp_path / "b.jsonl", {"messages": [ASKED, YES]}),
    )
    with pytest.raises(DataError) as raised:
        ChatData(ChatDataConfig(train=[pairs])).conversations("train")
    assert "trainer.id=preference" in str(raised.value.fix)
    with pytest.raises(DataError) as raised:
        read(chats).preferences("train")
    assert "trainer.id=sft" in str(raised.value.fix)


def test_rows_are_shown(rlcore: Callable[..., Any], tmp_path: Path) -> None:
    path = written(tmp_path / "pairs.jsonl", FORMS["explicit messages"])
    for arguments in ([path], ["preferences", f"train={path}"]):
        shown = rlcore("data", "show", *arguments).out
        assert "chosen" in shown
        assert "assistant: Yes, it is." in shown
        assert "assistant: No." in shown
