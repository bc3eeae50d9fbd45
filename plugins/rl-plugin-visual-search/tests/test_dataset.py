"""Questions and conversations from files of the published schemas."""

from __future__ import annotations

import base64
import copy
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rl_plugin_visual_search.config import DataConfig
from rl_plugin_visual_search.data.conversations import conversation_of
from rl_plugin_visual_search.data.rows import row_of
from rl_plugin_visual_search.dataset import VisualSearchData
from rl_plugin_visual_search.grammar import answer_turn, code_turn
from rlcore.data.row_images import ImageReader
from rlcore.errors import DataError
from rlcore.types import Task, media_hash
from solid_pictures import picture

FIRST, SECOND = picture(), picture(color=(1, 2, 3))
SEEN = "<interpreter>\nImage Result:\n<image>\n</interpreter>"


@pytest.fixture
def real() -> Path:
    """The folder of real data, which the paths of its pictures are relative to."""
    folder = Path(os.environ.get("RLCORE_DATA", "missing"))
    if not (folder / "visual_search").is_dir():
        pytest.skip("RLCORE_DATA names no folder with visual_search")
    return folder


def dataset(*files: Path, **options: Any) -> VisualSearchData:
    names = [str(file) for file in files]
    return VisualSearchData(DataConfig.model_validate({"train": names, "evaluation": names, **options}))


def tasks_of(*files: Path, **options: Any) -> list[Task]:
    return list(dataset(*files, **options).tasks("train"))


def written(folder: Path, rows: Any, name: str = "rows.json") -> Path:
    """A file of rows beside two pictures."""
    (folder / "pictures").mkdir(exist_ok=True)
    (folder / "pictures" / "first.png").write_bytes(FIRST)
    (folder / "pictures" / "second.png").write_bytes(SECOND)
    path = folder / name
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        path.write_text(json.dumps(rows))
    return path


def deepeyes(**changes: Any) -> dict[str, Any]:
    """A row of the parquet schema."""
    return {
        "data_source": "vstar",
        "prompt": [{"role": "user", "content": "<image>\nWhat colour is the mug?"}],
        "images": [{"bytes": FIRST, "path": None}],
        "ability": "visual_search",
        "env_name": "visual_toolbox_v2",
        "reward_model": {"ground_truth": "black", "style": "model"},
        "extra_info": {"answer": "dark", "index": 3, "question": "What colour is the mug?", "split": "train"},
        **changes,
    }


QUESTION = {"question": "Which?", "answer": "red", "images": ["pictures/first.png"]}


def test_parquet_rows_have_the_question_and_answer_of_their_schema(tmp_path: Path) -> None:
    (task,) = tasks_of(written(tmp_path, [deepeyes()], "rows.parquet"))
    assert task.id == "rows.parquet:1"
    assert dict(task.fields) == {
        "question": "What colour is the mug?",
        "answer": "black",
        "aliases": (),
        "options": (),
        "data_source": "vstar",
        "category": "visual_search",
        "tools": "code",
        "coordinates": "pixels",
    }
    assert task.images == (FIRST,)
    assert "What colour is the mug?" in task.messages[0].text


@pytest.mark.parametrize(
    "images",
    [
        {"images": ["pictures/first.png", "pictures/second.png"]},
        {"image": [{"path": "pictures/first.png"}, {"bytes": None, "path": "pictures/second.png"}]},
        {"image_path": ["pictures/first.png", "pictures/second.png"]},
        {"mm_hint": {"hint_path": ["pictures/first.png", "pictures/second.png"], "hint_type": "image"}},
        {
            "images": [
                f"data:image/png;base64,{base64.b64encode(FIRST).decode()}",
                {"path": "pictures/second.png"},
            ]
        },
    ],
)
def test_one_or_several_pictures_are_read_by_path_or_bytes(tmp_path: Path, images: dict[str, Any]) -> None:
    row = {"question": "Which?", "answer": "red", **images}
    (task,) = tasks_of(written(tmp_path, [row]))
    assert task.images == (FIRST, SECOND)
    assert [media_hash(FIRST), media_hash(SECOND)] == list(task.messages[0].images)
    single = {"question": "Which?", "answer": "red", "image_path": "pictures/first.png"}
    assert tasks_of(written(tmp_path, [single]))[0].images == (FIRST,)


def test_picture_that_occurs_twice_is_shown_twice_and_stored_once(tmp_path: Path) -> None:
    (task,) = tasks_of(written(tmp_path, [{**QUESTION, "images": ["pictures/first.png"] * 2}]))
    assert task.messages[0].images == (media_hash(FIRST),) * 2
    assert task.images == (FIRST,)


def test_lists_of_answers_and_aliases_are_all_right(tmp_path: Path) -> None:
    rows = [
        {**QUESTION, "aliases": ["crimson"]},
        {**QUESTION, "answer": ["red", "crimson"]},
        {**QUESTION, "answer": 7},
        {"text": "Which? (A) red", "label": "A", "image": "pictures/first.png", "category": "direct_attributes"},
        {**QUESTION, "answer": None, "options": ["red", "blue"]},
    ]
    found = [task.fields for task in tasks_of(written(tmp_path, rows, "rows.jsonl"), option_seed=None)]
    assert [(each["answer"], each["aliases"]) for each in found] == [
        ("red", ("crimson",)),
        ("red", ("crimson",)),
        ("7", ()),
        ("A", ()),
        ("A. red", ()),
    ]
    assert found[3]["category"] == "direct_attributes"
    assert found[4]["options"] == ("red", "blue")


def test_prompt_of_the_row_replaces_the_prompt_of_the_plugin(tmp_path: Path) -> None:
    file = written(tmp_path, [deepeyes()], "rows.parquet")
    (task,) = tasks_of(file, style="row")
    assert task.messages[0].text == "<image_clue_0></image_clue_0>\nWhat colour is the mug?"
    choice = deepeyes(options=["black", "red"], reward_model={"ground_truth": "A"})
    (task,) = tasks_of(written(tmp_path, [choice], "choice.parquet"), style="row")
    assert task.messages[0].text == "<image_clue_0></image_clue_0>\nWhat colour is the mug?"
    assert (task.fields["answer"], task.fields["options"]) == ("A. black", ("black", "red"))
    with pytest.raises(ValueError, match="row"):
        tasks_of(file, style="row", tools="zoom")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("text", "invalid row"),
        ({**QUESTION, "extra_info": "no object"}, "invalid row"),
        ({**QUESTION, "answer": {"text": "red"}}, "invalid row"),
        ({**QUESTION, "question": "x" * 100_001}, "invalid row"),
        ({**QUESTION, "question": "a \ud800"}, "invalid row"),
        ({**QUESTION, "answer": float("nan")}, "invalid row"),
        ({**QUESTION, "options": [str(number) for number in range(27)]}, "invalid row"),
        ({**QUESTION, "prompt": [{"role": "assistant", "content": "red"}]}, "invalid row"),
        ({**QUESTION, "prompt": [{"role": "user", "content": [{"type": "image"}]}]}, "invalid row"),
        ({}, "no question"),
        ({**QUESTION, "question": " "}, "no question"),
        ({**QUESTION, "answer": ""}, "no answer"),
        ({**QUESTION, "images": []}, "missing or unreadable picture"),
        ({**QUESTION, "images": ["pictures/none.png"]}, "missing or unreadable picture"),
        ({**QUESTION, "images": ["rows.json"]}, "missing or unreadable picture"),
        ({**QUESTION, "images": ["../../etc/passwd"]}, "missing or unreadable picture"),
        ({**QUESTION, "images": ["/etc/passwd"]}, "missing or unreadable picture"),
        ({**QUESTION, "images": ["https://example.org/first.png"]}, "missing or unreadable picture"),
        ({**QUESTION, "images": [{"bytes": "AAAA"}]}, "missing or unreadable picture"),
        ({**QUESTION, "images": None, "video_path": "a.mp4"}, "a video"),
        ({**QUESTION, "images": None, "mm_hint": {"hint_path": "a.mp4", "hint_type": "video"}}, "a video"),
    ],
)
def test_unusable_row_stops_the_run_or_is_counted_by_its_reason(tmp_path: Path, row: Any, reason: str) -> None:
    file = written(tmp_path, [QUESTION, row])
    with pytest.raises(DataError) as raised:
        tasks_of(file)
    assert reason in raised.value.message
    assert "row 2" in str(raised.value.where)
    assert ("data.images" in (raised.value.fix or "")) == ("picture" in reason)
    skipping = dataset(file, on_error="skip")
    assert len(skipping.tasks("train")) == 1
    assert (skipping.skipped("train"), dict(skipping.skipped_by_reason("train"))) == (1, {reason: 1})


def test_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside.png"
    outside.write_bytes(FIRST)
    (tmp_path / "data").mkdir()
    file = written(tmp_path / "data", [{**QUESTION, "images": ["pictures/link.png"]}])
    (tmp_path / "data" / "pictures" / "link.png").symlink_to(outside)
    with pytest.raises(DataError, match="picture"):
        tasks_of(file)


@pytest.mark.parametrize("images", ["nowhere", "rows.json"])
def test_folder_of_pictures_must_exist_even_if_rows_are_skipped(tmp_path: Path, images: str) -> None:
    file = written(tmp_path, [QUESTION])
    with pytest.raises(DataError, match=r"data\.images") as raised:
        dataset(file, images=str(tmp_path / images), on_error="skip").tasks("train")
    assert images in str(raised.value.where)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rows.json", "{"),
        ("rows.json", '{"question": 1}'),
        ("rows.json", "[" * 100_000),
        ("rows.jsonl", "{\n"),
        ("rows.parquet", "no parquet"),
        ("rows.csv", "question"),
        ("rows.json", "[]"),
        ("rows.jsonl", "\xff"),
    ],
)
def test_files_that_cannot_be_read_are_errors(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError):
        tasks_of(tmp_path / name)
    with pytest.raises(DataError):
        tasks_of(tmp_path / "missing.json")


def test_rows_are_not_changed_by_reading_them(tmp_path: Path) -> None:
    """An epoch reads the same as the one before it."""
    written(tmp_path, [])
    question = deepeyes(images=["pictures/first.png"], options=["black", "red"])
    recorded = conversation(image_path=["pictures/first.png", "pictures/second.png"])
    del recorded["images"]
    before, reader = copy.deepcopy((question, recorded)), ImageReader(tmp_path)
    epochs = [(row_of(question, "0", reader), conversation_of(recorded, reader)) for _ in range(2)]
    assert epochs[0] == epochs[1]
    assert (question, recorded) == before
    data = dataset(written(tmp_path, [question]))
    (task,) = data.tasks("train")
    with pytest.raises((TypeError, AttributeError)):
        task.fields["answer"] = "red"  # type: ignore[index]
    assert data.tasks("train") == [task]


def test_folder_is_read_in_alphabetical_order_and_limited(tmp_path: Path) -> None:
    for number in (2, 1):
        written(tmp_path, [{**QUESTION, "question": f"{number}?"}] * 2, f"train_{number}.json")
    (tmp_path / "README.md").write_text("not data")
    assert [task.id for task in tasks_of(tmp_path)] == [
        "train_1.json:1",
        "train_1.json:2",
        "train_2.json:1",
        "train_2.json:2",
    ]
    assert len(tasks_of(tmp_path, limit=3)) == 3
    with pytest.raises(DataError, match="folder"):
        tasks_of(tmp_path / "pictures")


def conversation(**changes: Any) -> dict[str, Any]:
    """A recorded conversation in ShareGPT's form."""
    return {
        "conversations": [
            {"from": "human", "value": "<image>Which?"},
            {"from": "gpt", "value": code_turn("Look.", "image_clue_0") + " \n"},
            {"from": "observation", "value": SEEN},
            {"from": "gpt", "value": answer_turn("It is red.", "red") + "\n"},
        ],
        "images": ["pictures/first.png", "pictures/second.png"],
        **changes,
    }


def test_data_set_in_the_cache_of_the_hub_is_read_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pytest.importorskip("huggingface_hub.constants"), "HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "datasets--acme--search" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    for name, count in (("train", 2), ("test", 1)):
        written(snapshot, [deepeyes()] * count, f"{name}.parquet")
    data = VisualSearchData(DataConfig(train=["acme/search"], evaluation=["acme/search"]))
    assert [len(data.tasks(split)) for split in ("train", "evaluation")] == [2, 1]


def test_conversation_has_the_pictures_and_turns_of_the_environment(tmp_path: Path) -> None:
    data = dataset(written(tmp_path, [conversation(), QUESTION], "rows.jsonl"))
    (one,) = data.conversations("train")
    assert [message.role for message in one.messages] == ["user", "assistant", "user", "assistant"]
    assert [message.images for message in one.messages] == [(media_hash(FIRST),), (), (media_hash(SECOND),), ()]
    assert one.images == (FIRST, SECOND)
    assert one.messages[1].text.endswith("</code>")
    assert one.messages[3].text.endswith("</answer>")
    assert len(data.tasks("train")) == 1
    assert list(data.demonstrations(3, seed=0)) == [one] * 3
    assert any("</code>" in text for text in data.texts())


def test_conversation_in_the_form_of_openai_is_read_too(tmp_path: Path) -> None:
    roles = {"human": "user", "gpt": "assistant", "observation": "tool"}
    entries = conversation()["conversations"]
    messages = [{"role": roles[entry["from"]], "content": entry["value"]} for entry in entries]
    rows = [{"messages": messages, "images": ["pictures/first.png", {"bytes": SECOND, "path": None}]}]
    rows = [{**rows[0], "images": ["pictures/first.png", "pictures/second.png"]}]
    (one,) = dataset(written(tmp_path, rows)).conversations("train")
    (other,) = dataset(written(tmp_path, [conversation()], "other.json")).conversations("train")
    assert one == other


@pytest.mark.parametrize(
    ("turns", "reason"),
    [
        (["I see nothing.", answer_turn("", "red")], "a turn without code or answer"),
        ([answer_turn("", "red"), answer_turn("", "red")], "a turn without code or answer"),
        ([code_turn("", "1"), "It is red."], "a turn without code or answer"),
        ([code_turn("", "1"), ""], "invalid conversation"),
    ],
)
def test_conversation_with_other_turns_is_unusable(tmp_path: Path, turns: list[str], reason: str) -> None:
    row = conversation()
    row["conversations"][1]["value"], row["conversations"][3]["value"] = turns
    data = dataset(written(tmp_path, [row, conversation()]), on_error="skip")
    assert len(data.conversations("train")) == 1
    assert dict(data.skipped_by_reason("train")) == {reason: 1}


@pytest.mark.parametrize(
    "changes",
    [
        {"images": ["pictures/first.png"]},
        {"images": ["pictures/first.png", "pictures/none.png"]},
        {"conversations": [{"from": "gpt", "value": 7}]},
        {"conversations": conversation()["conversations"][:3]},
    ],
)
def test_conversation_without_its_pictures_or_answer_is_unusable(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="unusable row"):
        dataset(written(tmp_path, [conversation(**changes)])).conversations("train")


def test_demonstrations_need_conversations(tmp_path: Path) -> None:
    data = dataset(written(tmp_path, [QUESTION]))
    with pytest.raises(DataError, match="conversations"):
        data.demonstrations(1, seed=0)
    assert any("Which?" in text for text in data.texts())


def test_real_parquet_sample_is_read(real: Path) -> None:
    tasks = tasks_of(real / "visual_search" / "deepeyes_schema_sample.parquet", images=str(real))
    assert len(tasks) == 12
    assert {task.fields["data_source"] for task in tasks} == {"vstar", "gqa"}
    assert tasks[0].fields["answer"] == "SIGGRAPH 2016"
    assert "image_clue_0: width 4000, height 2700" in tasks[0].messages[0].text
    own = tasks_of(real / "visual_search" / "deepeyes_schema_sample.parquet", images=str(real), style="row")
    assert [message.role for message in own[0].messages] == ["system", "user"]


def test_real_json_sample_and_questions_of_vstar_are_read(real: Path) -> None:
    folder = real / "visual_search"
    sample = tasks_of(folder / "pyvision_schema_sample.json", images=str(real))
    assert [task.fields["category"] for task in sample[:3]] == ["visual_search"] * 3
    examples = tasks_of(folder / "vstar_examples.jsonl")
    assert examples[0].fields["aliases"] == ("SIGGRAPH",)
    assert examples[0].images == sample[0].images
