"""``rlcore plugins new``: names, messages, and packages that are written completely or not at all."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlcore.plugins.creation import NAMES

Call = Callable[..., Any]


@pytest.mark.parametrize("kind", NAMES)
def test_nothing_of_the_old_name_remains(rlcore: Call, kind: str) -> None:
    done = rlcore("plugins", "new", "my-own-part", "--kind", kind)
    assert done.status == 0, done.err
    folder = Path("rl-plugin-my-own-part")
    files = [path for path in folder.rglob("*") if path.is_file()]
    texts = [str(path) for path in files] + [path.read_text("utf-8") for path in files]
    old = re.compile(re.sub("-", "[-_]", NAMES[kind]))
    assert not [text for text in texts if old.search(text)]
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == "rl-plugin-my-own-part"
    assert project["entry-points"]["rlcore.plugins"] == {"my-own-part": "rl_plugin_my_own_part.plugin"}
    for path in files:
        if path.suffix == ".py":
            compile(path.read_text("utf-8"), path, "exec")


def test_printed_commands_name_the_folder(rlcore: Call) -> None:
    done = rlcore("plugins", "new", "my-game", "--kind", "environment", "--output", "my games")
    *_, install, check, run = [line[10:] for line in done.out.splitlines()]
    assert shlex.split(install) == ["pip", "install", "-e", "./my games[dev]"]
    assert shlex.split(check) == ["rlcore", "plugins", "list", "--check", "&&", "pytest", "my games"]
    assert shlex.split(run) == ["rlcore", "run", "-p", "my-game"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("My Game", "did you mean 'my-game'?"),
        ("my_game", "did you mean 'my-game'?"),
        ("../game", "did you mean 'game'?"),
        ("2048", "such as 'my-game'"),
        ("-game", "No such option"),
        ("my--game", "did you mean 'my-game'?"),
        ("g" * 61, "at most 60 characters"),
        ("", "such as 'my-game'"),
        ("spiel\n", "did you mean 'spiel'?"),
        ("über", "did you mean"),
        ("rl-plugin-game", "rlcore plugins new game"),
        ("class", "a keyword of Python"),
        ("json", "standard library"),
        ("core", "a name of rlcore"),
        ("rlcore-core", "a name of rlcore"),
        ("trainer", "a name of rlcore"),
        ("world-model", "a name of rlcore"),
        ("calculator", "a name of rlcore"),
        ("jsonl", "tracker 'jsonl' of the plugin core"),
        ("toy", "the installed plugin toy"),
        ("adder", "tool 'adder' of the plugin toy"),
    ],
)
def test_names_that_cannot_be_used_are_rejected(rlcore: Call, name: str, reason: str) -> None:
    done = rlcore("plugins", "new", name, "--kind", "environment")
    assert done.status == 2
    assert reason in done.err
    assert list(Path().glob("rl-plugin-*")) == []


def test_folders_that_are_not_free_are_rejected(rlcore: Call) -> None:
    Path("full").mkdir()
    Path("full/notes.txt").write_text("mine", encoding="utf-8")
    for folder, reason in (
        ("full", "files in it"),
        ("full/notes.txt", "a file"),
        ("absent/game", "mkdir -p"),
        (".", "the current folder"),
    ):
        done = rlcore("plugins", "new", "my-game", "--kind", "tool", "--output", folder)
        assert done.status == 2
        assert reason in done.err
    assert [str(path) for path in Path("full").rglob("*")] == ["full/notes.txt"]


def test_empty_folder_is_used(rlcore: Call) -> None:
    Path("empty").mkdir()
    assert rlcore("plugins", "new", "my-game", "--kind", "tool", "--output", "empty").status == 0
    assert Path("empty/pyproject.toml").is_file()


@pytest.mark.skipif(sys.platform != "linux", reason="root may write everywhere else")
def test_folder_that_cannot_be_written_is_an_error(rlcore: Call) -> None:
    done = rlcore("plugins", "new", "my-game", "--kind", "tool", "--output", "/proc/game")
    assert done.status == 2
    assert "error: the package cannot be written" in done.err


def test_missing_kind_is_an_error_with_the_kinds(rlcore: Call) -> None:
    done = rlcore("plugins", "new", "my-game")
    assert done.status == 2
    assert "    environment," in done.err.splitlines()


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt(), 130), (OSError(28, "No space left"), 2)])
def test_interrupted_write_leaves_nothing(
    rlcore: Call, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int
) -> None:
    before, write = sorted(Path().iterdir()), Path.write_text

    def fail(path: Path, text: str, **options: Any) -> int:
        if path.suffix == ".toml":
            raise error
        return write(path, text, **options)

    monkeypatch.setattr(Path, "write_text", fail)
    assert rlcore("plugins", "new", "my-game", "--kind", "environment").status == status
    assert sorted(Path().iterdir()) == before
