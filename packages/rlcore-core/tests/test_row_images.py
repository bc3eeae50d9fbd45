"""Images in rows of the datasets ``chat`` and ``hub``: forms, places, and files that cannot be used."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from rlcore.data.chat import ChatData, ChatDataConfig
from rlcore.data.chat_rows import conversation
from rlcore.data.hub import HubData, HubDataConfig
from rlcore.data.row_images import ImageReader
from rlcore.errors import DataError
from rlcore.images import message_with_images
from rlcore.types import ImagePart, Message, Part, TextPart, media_hash


def png(color: str, side: int = 8) -> bytes:
    written = io.BytesIO()
    Image.new("RGB", (side, side), color).save(written, format="PNG")
    return written.getvalue()


def uri(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


RED, BLUE = png("red"), png("blue")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two pictures."""
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "red.png").write_bytes(RED)
    (tmp_path / "blue.png").write_bytes(BLUE)
    return tmp_path


def row(content: object, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}, {"role": "assistant", "content": "red"}], **fields}


def chat(folder: Path, *rows: Any, **options: Any) -> ChatData:
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    return ChatData(ChatDataConfig(train=[str(file)], **options))


def shape(message: Message) -> list[str]:
    """Texts, and the colours of images."""

    def shown(part: Part) -> str:
        return (
            part.text if isinstance(part, TextPart) else {media_hash(RED): "RED", media_hash(BLUE): "BLUE"}[part.sha256]
        )

    return [message.content] if isinstance(message.content, str) else [shown(part) for part in message.content]


PLACE = {"type": "image"}
LOOK = {"type": "text", "text": "Look: "}


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "pictures/red.png", "detail": "auto"}},
        {"type": "image_url", "image_url": "pictures/red.png"},
        {"type": "image_url", "image_url": {"url": uri(RED)}},
        {"type": "image", "image": "pictures/red.png", "text": None},
        {"type": "image", "path": "pictures/red.png"},
        {"type": "image", "image": uri(RED)},
        {"type": "image", "image": {"bytes": RED, "path": None}},
        {"type": "image", "image": {"bytes": None, "path": "pictures/red.png"}},
        {"type": "image", "image": RED},
        {"type": "image", "image": Image.new("RGB", (8, 8), "red")},
    ],
    ids=[
        *("image_url of a path", "image_url as a text", "image_url of a data URI", "path", "key path", "data URI"),
        *("struct of bytes", "struct of a path", "bytes", "PIL"),
    ],
)
def test_every_form_of_an_image_part_is_read(part: Any, folder: Path) -> None:
    reader = ImageReader(folder)
    one, _ = conversation(row([LOOK, part, {"type": "text", "text": "?"}]), reader)
    assert [len(shown) for shown in one.messages[0].images] == [64]
    assert isinstance(one.messages[0].content, tuple)
    assert [type(item) for item in one.messages[0].content] == [TextPart, ImagePart, TextPart]
    (data,) = one.images
    with Image.open(io.BytesIO(data)) as image:
        assert image.getpixel((0, 0)) == (255, 0, 0)


def test_file_uris_must_be_inside_the_folder(folder: Path) -> None:
    inside = f"file://{folder}/blue.png"
    assert chat(folder, row([{"type": "image", "image": inside}])).conversations("train")[0].images == (BLUE,)
    with pytest.raises(DataError, match="inside its folder"):
        chat(folder, row([{"type": "image", "image": "file:///etc/hostname"}])).conversations("train")


@pytest.mark.parametrize(
    ("content", "column", "expected"),
    [
        (
            [{"type": "image"}, LOOK, {"type": "image"}],
            {"images": ["pictures/red.png", "blue.png"]},
            ["RED", "Look: ", "BLUE"],
        ),
        ("<image>\nColour?", {"images": ["pictures/red.png"]}, ["RED", "\nColour?"]),
        (
            "<image><image> or <image>?",
            {"images": [uri(RED), uri(BLUE), uri(RED)]},
            ["RED", "BLUE", " or ", "RED", "?"],
        ),
        ([{"type": "text", "text": "a <image> b"}], {"image": "blue.png"}, ["a ", "BLUE", " b"]),
        (
            [{"type": "image"}, {"type": "text", "text": "HTML's <image>"}],
            {"image": "blue.png"},
            ["BLUE", "HTML's <image>"],
        ),
        ("HTML's <image>", {}, ["HTML's <image>"]),
        ("No image", {"images": []}, ["No image"]),
        ("No image", {"images": None}, ["No image"]),
    ],
)
def test_places_of_the_images_of_a_column(
    content: object, column: dict[str, Any], expected: list[str], folder: Path
) -> None:
    (one,) = chat(folder, row(content, **column, answer=1)).conversations("train")
    assert shape(one.messages[0]) == expected


def test_sharegpt_rows_with_marks_in_later_turns(folder: Path) -> None:
    turns = [("human", "<image>?"), ("gpt", "an <image>"), ("human", "and <image>?"), ("gpt", "blue")]
    value = {
        "conversations": [{"from": who, "value": text} for who, text in turns],
        "images": ["pictures/red.png", "blue.png"],
    }
    data = chat(folder, value)
    (one,) = data.conversations("train")
    assert [shape(message) for message in one.messages] == [
        ["RED", "?"],
        ["an <image>"],
        ["and ", "BLUE", "?"],
        ["blue"],
    ]
    assert one.images == (RED, BLUE)
    (task,) = data.tasks("train")
    assert (task.images, dict(task.fields)) == ((RED,), {})


def test_images_of_tool_answers(folder: Path) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "crop", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Crop it."},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": [LOOK, {"type": "image", "image": "blue.png"}]},
        {"role": "assistant", "content": "Done."},
    ]
    (one,) = chat(folder, {"messages": messages}).conversations("train")
    assert shape(one.messages[2]) == ["Look: ", "BLUE"]


def test_prompt_that_is_one_text_follows_its_images(folder: Path) -> None:
    pair = {"prompt": "Which colour?", "completion": "red", "images": ["pictures/red.png", "blue.png"]}
    (one,) = chat(folder, pair).conversations("train")
    assert shape(one.messages[0]) == ["RED", "BLUE", "Which colour?"]


@pytest.mark.parametrize(
    ("content", "fields", "words"),
    [
        ("<image> and <image>", {"images": ["blue.png"]}, ["1 in the column of images, 2 marks <image>"]),
        ("nothing", {"images": ["blue.png", "blue.png"]}, ["2 in the column of images, 0 marks", "write <image>"]),
        ([{"type": "image"}], {"images": []}, ['0 in the column of images, 1 parts {"type": "image"}']),
        ([{"type": "image"}], {}, ["an image part must have an image", "add the column images"]),
        ("<image>", {"images": ["gone.png"]}, ["No such file", "gone.png", "data.images"]),
        ("<image>", {"images": ["../blue.png"]}, ["inside its folder"]),
        ("<image>", {"images": ["/etc/hostname"]}, ["inside its folder"]),
        ("<image>", {"images": ["https://example.org/a.png"]}, ["https://example.org/a.png", "download"]),
        ("<image>", {"images": ["broken.png"]}, ["readable PNG"]),
        ("<image>", {"images": ["cut.png"]}, ["readable PNG"]),
        ("<image>", {"images": ["data:image/png;base64,@"]}, ["data URI"]),
        ("<image>", {"images": [7]}, ["int 7"]),
        ("<image>", {"videos": ["a.mp4"]}, ["'videos' is not supported"]),
        ([{"type": "image", "image": "blue.png", "max_pixels": 9}], {}, ["max_pixels", "model.images.max_pixels"]),
    ],
)
def test_unusable_image_is_reported_or_skipped(content: object, fields: Any, words: list[str], folder: Path) -> None:
    inner = folder / "inner"
    inner.mkdir()
    (inner / "blue.png").write_bytes(BLUE)
    (inner / "broken.png").write_bytes(b"GIF and more")
    (inner / "cut.png").write_bytes(png("red", 400)[:-40])
    wrong = row(content, **fields)
    with pytest.raises(DataError) as caught:
        chat(inner, row("fine"), wrong).conversations("train")
    shown = str(caught.value)
    assert "Traceback" not in shown
    assert all(word in shown for word in [*words, "rows.jsonl, line 2"]), shown
    skipping = chat(inner, row("fine"), wrong, on_error="skip")
    assert (len(skipping.conversations("train")), skipping.skipped("train")) == (1, 1)


def test_images_of_assistants_are_rejected(folder: Path) -> None:
    value = {
        "messages": [
            {"role": "user", "content": "Draw."},
            {"role": "assistant", "content": [{"type": "image", "image": "blue.png"}]},
        ]
    }
    with pytest.raises(DataError, match=r"message 2: 'content' must be a string, or a list of text parts"):
        chat(folder, value).conversations("train")


def test_links_out_of_the_folder_are_rejected(folder: Path) -> None:
    inner = folder / "inner"
    inner.mkdir()
    (inner / "link.png").symlink_to(folder / "blue.png")
    with pytest.raises(DataError, match="inside its folder"):
        chat(inner, row("<image>", image="link.png")).conversations("train")
    data = chat(inner, row("<image>", image="blue.png"), images=str(folder))
    assert data.conversations("train")[0].images == (BLUE,)


def test_links_of_a_snapshot_in_the_cache_of_the_hub_are_followed_to_its_contents(folder: Path) -> None:
    kept = folder / "datasets--acme--pictures"
    snapshot = kept / "snapshots" / "abc" / "data"
    snapshot.mkdir(parents=True)
    (kept / "blobs").mkdir()
    (kept / "blobs" / "d1").write_bytes(BLUE)
    (snapshot / "blue.png").symlink_to(kept / "blobs" / "d1")
    (snapshot / "other.png").symlink_to(folder / "blue.png")
    assert chat(snapshot, row("<image>", image="blue.png")).conversations("train")[0].images == (BLUE,)
    with pytest.raises(DataError, match="inside its folder"):
        chat(snapshot, row("<image>", image="other.png")).conversations("train")


def test_rows_with_equal_images_share_their_bytes(folder: Path) -> None:
    (folder / "again.png").write_bytes(BLUE)
    names = ["blue.png", "blue.png", "again.png", uri(BLUE)]
    found = chat(folder, *(row("<image>", image=name) for name in names)).conversations("train")
    assert {id(one.images[0]) for one in found} == {id(found[0].images[0])}


def hub(folder: Path, rows: list[dict[str, Any]], **keys: Any) -> HubData:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed: pip install 'rlcore-core[datasets]'")
    features = datasets.Dataset.from_list(rows).features
    for name in ("image", "images"):
        if name in rows[0]:
            kind = datasets.Image()
            features[name] = datasets.List(kind) if isinstance(rows[0][name], list) else kind
    datasets.Dataset.from_list(rows, features=features).to_parquet(folder / "train.parquet")
    return HubData(HubDataConfig(path=str(folder), evaluation="train", **keys))


def test_images_of_a_hub_data_set_keep_their_bytes(tmp_path: Path) -> None:
    photo = io.BytesIO()
    Image.new("RGB", (32, 32), "red").save(photo, format="JPEG")
    rows = [{"question": "Colour?", "image": {"bytes": photo.getvalue(), "path": "a.jpg"}, "answer": "red"}]
    (task,) = hub(tmp_path, rows, columns={"prompt": "question"}).tasks("train")
    assert task.images == (photo.getvalue(),)
    assert task.messages[0].images == (media_hash(photo.getvalue()),)
    assert (task.messages[0].text, dict(task.fields)) == ("Colour?", {"answer": "red"})


def test_hub_conversations_and_tasks_with_marks(tmp_path: Path) -> None:
    pictures = [{"bytes": RED, "path": None}, {"bytes": BLUE, "path": None}]
    messages = [{"role": "user", "content": "<image> or <image>?"}, {"role": "assistant", "content": "red"}]
    data = hub(tmp_path, [{"messages": messages, "images": pictures}])
    (one,) = data.conversations("train")
    assert shape(one.messages[0]) == ["RED", " or ", "BLUE", "?"]
    (task,) = data.tasks("train")
    assert shape(task.messages[0]) == ["RED", " or ", "BLUE", "?"]
    assert task.images == (RED, BLUE)


def test_wrong_image_of_a_hub_row_is_reported_with_its_row(tmp_path: Path) -> None:
    rows = [{"prompt": "?", "image": {"bytes": data, "path": None}} for data in (RED, b"no image")]
    with pytest.raises(DataError) as caught:
        hub(tmp_path, rows).tasks("train")
    assert "row 1" in str(caught.value)
    assert "readable PNG" in str(caught.value)


def test_authors_write_messages_with_images_in_any_form(folder: Path) -> None:
    cmyk = Image.new("CMYK", (4, 4))
    message, images = message_with_images("Which?", folder / "blue.png", BLUE, uri(RED), cmyk, role="tool")
    assert (message.role, message.text) == ("tool", "Which?")
    assert message.images[:3] == (media_hash(BLUE), media_hash(BLUE), media_hash(RED))
    assert set(map(media_hash, images)) == set(message.images)
    assert len(images) == 3
    with pytest.raises(DataError):
        message_with_images(b"no image")
