"""Small pictures in the rows of tables."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from rlcore_view.errors import NotFoundError
from rlcore_view.library import Library
from rlcore_view.routes import media
from rlcore_view.thumbnails import SIDE


def picture(run: Path, place: str) -> Image.Image:
    data, kind = media(Library([run.parent]), f"first/small/{place}")
    assert kind == "image/jpeg"
    return Image.open(io.BytesIO(data))


def test_first_image_of_a_conversation_is_shown_in_small(run: Path) -> None:
    assert picture(run, "evaluation/0/0/0").size == (SIDE, SIDE)


def test_end_of_a_film_is_shown(run: Path) -> None:
    shown = picture(run, "train/3/0/0")
    assert shown.size == (6, 4)
    assert shown.resize((1, 1)).getpixel((0, 0))[0] > 80  # the first frame is darker: its bytes are 0 to 71


def test_trajectory_without_a_picture_has_none(run: Path) -> None:
    for place in ("train/1/0/0", "train/3/0/9"):
        with pytest.raises(NotFoundError):
            picture(run, place)


def test_page_knows_whether_rows_have_pictures(ask: Callable[..., Any]) -> None:
    steps = [f"runs/first/{place}" for place in ("evaluation/0", "train/1", "train/3")]
    assert [ask(step)["pictures"] for step in steps] == [True, False, True]
    assert ask("runs/first/find", purpose="evaluation")["pictures"]
    assert not ask("runs/first/find", where="reward is None")["pictures"]
