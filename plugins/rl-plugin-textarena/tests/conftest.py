from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rl_plugin_textarena import games

sys.path.insert(0, str(Path(__file__).parent))  # for the page of games


@pytest.fixture(scope="module")
def hostile_host() -> games.Host:
    return games.Host(command=[sys.executable, str(Path(__file__).with_name("hostile_games.py"))])


@pytest.fixture
def misbehaving(monkeypatch: pytest.MonkeyPatch, hostile_host: games.Host) -> Iterator[None]:
    """The games of ``hostile_games`` exist beside those of textarena."""
    with monkeypatch.context() as patched:
        patched.setattr(games, "_host", lambda process: hostile_host)
        yield
