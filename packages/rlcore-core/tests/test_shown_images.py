"""`rlcore data show` writes images as files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pictured_groups import group, groups
from rlcore.rollouts.records import write_groups
from rlcore.types import media_hash

Call = Callable[..., Any]


@pytest.fixture
def stored(toy: Any) -> Path:
    """A file of rollouts; each first trajectory shows one picture or two."""
    write_groups(Path("seen.jsonl.gz"), groups(2, siblings=2))
    return Path("seen.jsonl.gz").absolute()


def test_images_of_a_file_are_written_beside_it(rlcore: Call, stored: Path) -> None:
    done = rlcore("data", "show", stored, "-n", "1")
    assert done.status == 0, done.err
    picture = group(0, siblings=2).task.images[0]
    path = Path(f"{stored}.images/{media_hash(picture)[:12]}.png")
    assert f"[image {media_hash(picture)[:12]}, 112 x 112, {path}]" in done.out
    assert "Which colour has the largest" in done.out
    assert path.read_bytes() == picture


def test_images_option_names_the_folder(rlcore: Call, stored: Path) -> None:
    assert rlcore("data", "show", stored, "--images", "out/pictures").status == 0
    assert list(Path("out/pictures").glob("*.png"))
    assert not Path(f"{stored}.images").exists()


def test_missing_and_damaged_pictures_are_named(rlcore: Call, stored: Path) -> None:
    for path in Path("media").rglob("*"):
        if path.is_file():
            path.write_bytes(b"damaged")
    done = rlcore("data", "show", stored, "-n", "2")
    assert done.status == 0, done.err
    assert "is damaged" in done.out
    assert not Path(f"{stored}.images").exists()


def test_pictures_of_a_data_set_are_written_where_asked(rlcore: Call, toy: Any) -> None:
    picture = group(0).task.images[0]
    Path("scene.png").write_bytes(picture)
    Path("rows.jsonl").write_text('{"image": "scene.png", "prompt": "Which?", "completion": "red"}\n', encoding="utf-8")
    shown = rlcore("data", "show", "chat", "train=rows.jsonl")
    assert shown.status == 0, shown.err
    assert "112 x 112; --images DIR writes it to a file" in shown.out
    assert rlcore("data", "show", "chat", "train=rows.jsonl", "--images", "out").status == 0
    assert [path.read_bytes() for path in Path("out").iterdir()] == [picture]


def test_image_parts_of_a_data_file_are_shown_as_text(rlcore: Call, toy: Any) -> None:
    part = '{"type": "image", "image": "scene.png"}'
    row = f'{{"messages": [{{"role": "user", "content": [{part}, {{"type": "text", "text": "Which?"}}]}}]}}\n'
    Path("rows.jsonl").write_text(row, encoding="utf-8")
    done = rlcore("data", "show", "rows.jsonl")
    assert '{"type": "image", "image": "scene.png"}\n      Which?' in done.out


def test_conversations_of_a_data_set_without_tasks_are_shown(rlcore: Call, toy: Any) -> None:
    call = '{"id": "c", "function": {"name": "look", "arguments": "{}"}}'
    turns = f'{{"role": "assistant", "content": "I look.", "tool_calls": [{call}]}}, {{"role": "tool", "content": "7"}}'
    row = f'{{"messages": [{turns}, {{"role": "assistant", "content": "Seven."}}]}}\n'
    Path("rows.jsonl").write_text(row, encoding="utf-8")
    done = rlcore("data", "show", "chat", "train=rows.jsonl")
    assert done.status == 0, done.err
    mapping, *lines = [line.strip() for line in done.out.splitlines()]
    assert mapping.startswith("rows      chat: messages")
    assert lines == ["row 1", "messages", "assistant: I look.", "→ look({})", "tool: 7", "assistant: Seven."]
