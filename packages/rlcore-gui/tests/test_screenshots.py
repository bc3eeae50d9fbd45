"""Sizes of screenshots, and the reasons why one cannot be used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from PIL import Image
from recorded_episodes import screenshot
from rlcore.errors import DataError
from rlcore_gui.prepare import screenshots
from rlcore_gui.prepare.screenshots import ImageFolder, Prober


def test_sizes_equal_those_of_pillow_without_decoding(tmp_path: Path) -> None:
    screenshot(tmp_path, "a/b.png", size=(31, 17))
    screenshot(tmp_path, "c.jpg", size=(640, 480))
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.new("RGB", (20, 10)).save(tmp_path / "turned.jpg", exif=turned)
    Image.new("RGB", (20, 10)).save(tmp_path / "turned.png", exif=turned)
    whole = (tmp_path / "a/b.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[:45])  # its pixels are missing, which only decoding would find
    sizes = ImageFolder(tmp_path).sizes(["a/b.png", "c.jpg", "turned.jpg", "turned.png", "cut.png"])
    assert sizes == [(31, 17), (640, 480), (10, 20), (10, 20), (31, 17)]


def test_every_unusable_screenshot_has_its_reason(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    screenshot(folder, "ok.png")
    screenshot(tmp_path, "secret.png")
    (folder / "out.png").symlink_to(tmp_path / "secret.png")
    (folder / "away").symlink_to(tmp_path)
    (folder / "inside.png").symlink_to("ok.png")
    (folder / "text.png").write_text("no image", encoding="utf-8")
    (folder / "empty.png").touch()
    (folder / "folder.png").mkdir()
    os.mkfifo(folder / "pipe.png")
    expected = {
        "ok.png": (90, 200),
        "inside.png": (90, 200),
        None: "no image",
        "none.png": "image missing",
        "none/none.png": "image missing",
        "ok.png/none.png": "image missing",
        "a\0.png": "image missing",
        "x" * 300 + ".png": "image name too long",
        "out.png": "image outside of its folder",
        "away/secret.png": "image outside of its folder",
        "../secret.png": "image outside of its folder",
        "x/../../secret.png": "image outside of its folder",
        str(tmp_path / "secret.png"): "image outside of its folder",
        "text.png": "image unreadable",
        "empty.png": "image unreadable",
        "folder.png": "image unreadable",
        "pipe.png": "image unreadable",
    }
    assert dict(zip(expected, ImageFolder(folder).sizes(list(expected)), strict=True)) == expected


def test_sizes_are_in_the_order_of_the_names(tmp_path: Path) -> None:
    names = [f"{number}.png" for number in range(100)]
    for number, name in enumerate(names, start=1):
        screenshot(tmp_path, name, size=(number, 1))
    assert ImageFolder(tmp_path).sizes(names) == [(number, 1) for number in range(1, 101)]


def test_large_headers_and_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screenshot(tmp_path, "a.jpg", size=(640, 480))
    monkeypatch.setattr(screenshots, "HEADER", 100)
    assert ImageFolder(tmp_path).sizes(["a.jpg"]) == [(640, 480)]
    monkeypatch.setattr(screenshots, "LARGEST_FILE", 100)
    assert ImageFolder(tmp_path).sizes(["a.jpg"]) == ["image unreadable"]
    huge = Image.new("1", (20_000, 20_000))
    huge.save(tmp_path / "huge.png")
    monkeypatch.undo()
    assert ImageFolder(tmp_path).sizes(["huge.png"]) == ["image unreadable"]


@pytest.mark.parametrize("process", [False, True])
def test_second_process_returns_sizes_and_reasons(tmp_path: Path, process: bool) -> None:
    screenshot(tmp_path, "ok.png", size=(31, 17))
    (tmp_path / "text.png").write_text("no image", encoding="utf-8")
    with Prober(ImageFolder(tmp_path), process=process) as probing:
        for _ in range(2):
            probing.begin(["ok.png", None, "none.png", "text.png"])
            assert probing.result() == [(31, 17), "no image", "image missing", "image unreadable"]


def test_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must be in a folder"):
        ImageFolder(tmp_path / "none")
