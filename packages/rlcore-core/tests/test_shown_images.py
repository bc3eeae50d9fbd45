"""`rlcore data show` draws images in terminals that can, and otherwise writes them as files."""

from __future__ import annotations

import base64
import fcntl
import io
import os
import pty
import re
import select
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pictured_groups import group, groups
from PIL import Image
from rlcore.cli.drawing import drawn
from rlcore.runs.records import write_groups
from rlcore.types import media_hash

Call = Callable[..., Any]
SIXEL = re.compile(r'\x1bPq"1;1;(\d+);(\d+)(.*)\x1b\\', re.DOTALL)


@pytest.fixture
def stored(toy: Any) -> Path:
    """A file of rollouts; each first trajectory shows one picture or two."""
    write_groups(Path("seen.jsonl.gz"), groups(2, siblings=2))
    return Path("seen.jsonl.gz").absolute()


def _with_terminal() -> None:
    """Give a new process its standard input as the terminal that it controls."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def on_terminal(toy: Any, *arguments: object, attributes: bytes = b"", **variables: str) -> str:
    """The output of a command on a terminal, which answers a question about its attributes."""
    ours, theirs = pty.openpty()
    unset = ("NO_COLOR", "TMUX", "STY", "TERM_PROGRAM", "LC_TERMINAL", "KITTY_WINDOW_ID")
    environment = {name: value for name, value in toy.environment().items() if name not in unset}
    process = subprocess.Popen(
        [sys.executable, "-m", "rlcore", *map(str, arguments)],
        env={**environment, "TERM": "xterm-256color", **variables},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        preexec_fn=_with_terminal,
    )
    os.close(theirs)
    output = b""
    while select.select([ours], [], [], 60)[0]:
        try:
            output += os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if output.endswith(b"\x1b[c") and attributes:
            os.write(ours, attributes)
    process.wait(30)
    os.close(ours)
    return output.decode().replace("\r\n", "\n")


def test_pipe_gets_paths_and_no_escape_sequence(rlcore: Call, stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-kitty")
    done = rlcore("data", "show", stored, "-n", "1")
    assert done.status == 0, done.err
    assert "\x1b" not in done.out
    picture = group(0, siblings=2).task.images[0]
    path = Path(f"{stored}.images/{media_hash(picture)[:12]}.png")
    assert f"[image {media_hash(picture)[:12]}, 112 x 112, {path}]" in done.out
    assert "Which colour has the largest" in done.out
    assert path.read_bytes() == picture


def test_images_option_names_the_folder(rlcore: Call, stored: Path) -> None:
    assert rlcore("data", "show", stored, "--images", "out/pictures").status == 0
    assert list(Path("out/pictures").glob("*.png"))
    assert not Path(f"{stored}.images").exists()


@pytest.mark.parametrize(
    ("variables", "start"),
    [
        ({"TERM": "xterm-kitty"}, "\x1b_Ga=T,f=100,q=2,c="),
        ({"TERM_PROGRAM": "iTerm.app"}, "\x1b]1337;File=inline=1;width="),
        ({}, '\x1bPq"1;1;'),
    ],
)
def test_terminals_draw_with_their_own_protocol(variables: Any, start: str, toy: Any, stored: Path) -> None:
    out = on_terminal(toy, "data", "show", stored, "-n", "1", attributes=b"\x1b[?62;4;22c", **variables)
    assert start in out, out
    assert not Path(f"{stored}.images").exists()
    if variables:
        sent = "".join(re.findall(r"(?:m=[01];|Ratio=1:)([A-Za-z0-9+/=]*)", out.partition("\n      [image")[2])[:1])
        assert base64.b64decode(sent[: len(sent) // 4 * 4]).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "variables",
    [{"NO_COLOR": "1", "TERM": "xterm-kitty"}, {"TERM": "dumb"}, {"TMUX": "x", "TERM_PROGRAM": "iTerm.app"}],
)
def test_terminals_that_cannot_draw_get_paths(variables: Any, toy: Any, stored: Path) -> None:
    out = on_terminal(toy, "data", "show", stored, "-n", "1", attributes=b"\x1b[?62;22c", **variables)
    assert "seen.jsonl.gz.images" in out, out
    assert not re.search(r"\x1b[P_\]]", out)


def test_missing_and_damaged_pictures_are_named(rlcore: Call, stored: Path) -> None:
    for path in Path("media").rglob("*"):
        if path.is_file():
            path.write_bytes(b"damaged")
    done = rlcore("data", "show", stored, "-n", "2")
    assert done.status == 0, done.err
    assert "is damaged" in done.out
    assert not Path(f"{stored}.images").exists()


@pytest.mark.parametrize("size", [(112, 112), (2000, 40), (40, 2000), (1, 1)])
def test_drawn_images_are_small(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    image = Image.effect_noise(size, 90).convert("RGB")
    sent = drawn(image, "iterm2")
    columns, data = re.findall(r"width=(\d+);preserveAspectRatio=1:(.*)\a", sent)[0]
    assert 1 <= int(columns) <= 48
    with Image.open(io.BytesIO(base64.b64decode(data))) as png:
        assert max(png.width / 2 / 8 / 48, png.height / 2 / 16 / 18) <= 1.01
    kitty = drawn(image, "kitty")
    assert max(map(len, re.findall(r"\x1b_G[^\x1b]*\x1b", kitty))) < 4200
    assert kitty.count("m=0;") == 1


def test_sixel_image_has_its_pixels() -> None:
    image = Image.new("RGB", (20, 13), "red")
    image.paste((0, 0, 255), (10, 0, 20, 13))
    found = SIXEL.search(drawn(image, "sixel"))
    assert found is not None
    width, height, body = int(found[1]), int(found[2]), found[3]
    palette = {number: tuple(map(int, rgb.split(";"))) for number, rgb in re.findall(r"#(\d+);2;(\d+;\d+;\d+)", body)}
    pixels: dict[tuple[int, int], tuple[int, ...]] = {}
    for band, lines in enumerate(re.sub(r"#\d+;2;\d+;\d+;\d+", "", body).split("-")):
        for number, line in re.findall(r"#(\d+)([^#$]*)", lines):
            row = re.sub(r"!(\d+)(.)", lambda run: run[2] * int(run[1]), line)
            for column, character in enumerate(row):
                for bit in range(6):
                    if ord(character) - 63 >> bit & 1:
                        pixels[column, 6 * band + bit] = palette[number]
    assert pixels == {(x, y): ((100, 0, 0) if x < 10 else (0, 0, 100)) for x in range(width) for y in range(height)}


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
    lines = [line.strip() for line in done.out.splitlines()]
    assert lines == ["row 1", "messages", "assistant: I look.", "→ look({})", "tool: 7", "assistant: Seven."]
