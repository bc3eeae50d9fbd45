"""What plugins say about turns is shown as data, in the page and in a report."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pictured_groups import groups
from rlcore.errors import DataError
from rlcore.rollouts.records import write_groups
from rlcore_view import trajectories
from rlcore_view.cli import report
from rlcore_view.errors import NotFoundError
from rlcore_view.library import Library
from rlcore_view.routes import answer, media
from rlcore_view.server import Application
from starlette.testclient import TestClient

HOSTILE = "</script><script>alert(1)</script>\u202e\x1b[31m"
PLACE = "runs/answers/evaluation/0/0"
FILM = bytes(range(200))
PLUGIN = f"""
import io
from PIL import Image
from rlcore import hookimpl
from rlcore.report import Cell, Film, Mark, Picture, Table, TurnNote

HOSTILE = {HOSTILE!r}
drawn = io.BytesIO()
Image.new("RGB", (4, 4), "red").save(drawn, format="PNG")
PNG = drawn.getvalue()


@hookimpl
def rlcore_turn_notes(task, trajectory):
"""
NOTE = """
    mark = Mark(kind="given", point=(-1.0, 1e9), label=HOSTILE)
    question = next(name for message in task.messages for name in message.images)
    shown = (Picture(image=question, title=HOSTILE, marks=(mark,)), Picture(image=PNG), Picture(image=b"damaged"))
    return [
        TurnNote(
            marks=(mark,), lines=((HOSTILE, HOSTILE),), right=False, asked=HOSTILE, said=HOSTILE,
            cells=(Cell(code=HOSTILE, output=HOSTILE, error=HOSTILE, pictures=(Picture(image=PNG),)),),
            pictures=shown,
            films=(Film(file="videos/1.mp4", title=HOSTILE), Film(file="videos/none.mp4"), Film(file="linked.mp4")),
            tables=(Table(columns=(HOSTILE, "n"), rows=((HOSTILE, 0.5),), title=HOSTILE),),
        )
    ]
"""


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A file of rollouts with a film beside it, and a link to a film elsewhere."""
    folder = tmp_path / "saved"
    (folder / "videos").mkdir(parents=True)
    (folder / "videos" / "1.mp4").write_bytes(FILM)
    (tmp_path / "elsewhere.mp4").write_bytes(FILM)
    (folder / "linked.mp4").symlink_to(tmp_path / "elsewhere.mp4")
    write_groups(folder / "answers.jsonl.gz", groups(1, siblings=2))
    return folder / "answers.jsonl.gz"


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Installs a plugin whose hook has this body."""

    def install(body: str) -> None:
        information = tmp_path / "acme_notes-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text("Metadata-Version: 2.4\nName: acme-notes\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text("[rlcore.plugins]\nacme-notes = acme_notes\n")
        (tmp_path / "acme_notes.py").write_text(PLUGIN + body, encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "acme_notes", raising=False)
        trajectories._notes.cache_clear()

    yield install
    trajectories._notes.cache_clear()


def group_of(saved: Path) -> Any:
    return json.loads(json.dumps(answer(Library([saved]), PLACE, {})))


def test_notes_are_data_with_addresses_of_their_pictures_and_films(saved: Path, plugin: Callable[[str], None]) -> None:
    plugin(NOTE)
    group = group_of(saved)
    turns = group["trajectories"][0]["segments"][0]["turns"]
    first, *others = [turn["note"] for turn in turns if turn["kind"] == "policy"]
    assert all(note is None for note in others)
    assert first["lines"] == [[HOSTILE, HOSTILE]]
    assert first["marks"][0]["point"] == [-1.0, 1e9]
    assert first["tables"] == [{"title": HOSTILE, "columns": [HOSTILE, "n"], "rows": [[HOSTILE, 0.5]]}]
    (cell,) = first["cells"]
    assert (first["said"], cell["code"], cell["output"], cell["error"]) == (HOSTILE,) * 4
    assert first["films"] == [{"title": HOSTILE, "name": "film/videos/1.mp4"}]
    library = Library([saved])
    names = [picture["name"] for picture in (*cell["pictures"], *first["pictures"])]
    assert len(set(names)) == 4
    in_cell, question, made, damaged = names
    assert media(library, f"answers/{question}")[1] == "image/png"
    assert media(library, f"answers/{in_cell}") == media(library, f"answers/{made}")
    with pytest.raises(DataError):
        media(library, f"answers/{damaged}")
    with pytest.raises(NotFoundError):
        media(library, f"answers/{damaged[:-1]}9")
    for name in ("linked.mp4", "..%2Felsewhere.mp4", "../elsewhere.mp4", "answers.jsonl.gz", "videos", "%00.mp4"):
        with pytest.raises(NotFoundError):
            media(library, f"answers/film/{name}")


def test_films_are_sent_in_the_ranges_that_browsers_ask_for(saved: Path) -> None:
    client = TestClient(Application(Library([saved]), "token", "127.0.0.1", 7080), "http://127.0.0.1:7080")

    def ask(span: str) -> tuple[int, bytes, str | None]:
        found = client.get(
            "/media/answers/film/videos/1.mp4",
            headers={"Authorization": "Bearer token", **({"Range": span} if span else {})},
        )
        return found.status_code, found.content, found.headers.get("content-range")

    assert ask("") == (200, FILM, None)
    assert ask("bytes=0-") == (206, FILM, "bytes 0-199/200")
    assert ask("bytes=50-59") == (206, FILM[50:60], "bytes 50-59/200")
    assert ask("bytes=190-999") == (206, FILM[190:], "bytes 190-199/200")
    assert ask("bytes=200-") == (416, b"", "bytes */200")
    assert ask("bytes=9-1") == (416, b"", "bytes */200")
    assert ask("bytes=x") == (200, FILM, None)


def test_report_has_the_pictures_and_films_of_notes(
    saved: Path, plugin: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin(NOTE)
    monkeypatch.chdir(saved.parent)
    assert CliRunner().invoke(report, [str(saved)]).exit_code == 0
    text = Path("answers.html").read_text(encoding="utf-8")
    assert '"media/answers/film/videos/1.mp4":"data:video/mp4;base64,' in text
    assert text.count('"media/answers/note/evaluation/0/0/0/0/') == 2  # the damaged one is left out
    assert json.dumps(HOSTILE, ensure_ascii=False)[1:-1].replace("<", "\\u003c") in text
    assert "<script>alert" not in text


def test_plugin_that_breaks_is_named_and_the_rest_goes_on(saved: Path, plugin: Callable[[str], None]) -> None:
    plugin("    return 1 / task.nothing")
    group = group_of(saved)
    assert len(group["trajectories"]) == 2
    for one in group["trajectories"]:
        assert "acme-notes" in one["notes_problem"]
        assert "nothing" in one["notes_problem"]
        assert all(turn["note"] is None for turn in one["segments"][0]["turns"])
