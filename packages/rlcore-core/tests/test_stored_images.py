"""Images of stored trajectories: rescoring, copies, resumed runs, and what the Python API shows of them."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pictured_groups import groups
from rlcore.api.trajectories import Stored, Trajectories
from rlcore.errors import DataError
from rlcore.report.notebook import gallery
from rlcore.rollouts.records import BlobStore, read_groups, write_groups
from rlcore.types import media_hash

Call = Callable[..., Any]
REWARDS = '''
import io
from PIL import Image

def looks(trajectory, task):
    """1 if the picture in the trajectory is the one of the task."""
    shown = trajectory.messages[1].images[0]
    with Image.open(io.BytesIO(trajectory.images[shown])) as image:
        return float(image.size == (112, 112) and task.images[0] == trajectory.images[shown])
'''


@pytest.fixture
def stored(toy: Any) -> Path:
    """A file of four tasks with two trajectories each."""
    write_groups(Path("seen.jsonl.gz"), groups(4, siblings=2))
    Path("rewards.py").write_text(REWARDS, encoding="utf-8")
    return Path("seen.jsonl.gz")


def test_each_picture_is_stored_once_and_shared_when_read(stored: Path) -> None:
    distinct = {name for group in groups(4, siblings=2) for one in group.trajectories for name in one.images}
    assert {path.name for path in Path("media").rglob("*") if path.is_file()} == distinct
    with gzip.open(stored) as file:
        assert b"iVBOR" not in file.read()  # a PNG in base64
    for group in read_groups(stored):
        picture = group.task.images[0]
        assert all(one.images[media_hash(picture)] is picture for one in group.trajectories)


def test_rewards_get_the_stored_pictures_when_scored_again(rlcore: Call, stored: Path) -> None:
    done = rlcore("data", "rescore", stored, "reward.0.id=rewards.py:looks", "out=again", "--json")
    assert done.status == 0, done.err
    assert json.loads(done.out)["seen"]["now"]["mean"] == 1.0
    (again,) = Path("again").glob("*.jsonl.gz")
    before, after = list(read_groups(stored)), list(read_groups(again))
    assert [group.task.images for group in after] == [group.task.images for group in before]
    assert {path.name for path in Path("again/media").rglob("*") if path.is_file()} == {
        path.name for path in Path("media").rglob("*") if path.is_file()
    }


def test_missing_picture_is_an_error_that_names_it_when_scored_again(rlcore: Call, stored: Path) -> None:
    picture = next(read_groups(stored)).task.images[0]
    BlobStore(Path("media")).path(media_hash(picture)).unlink()
    done = rlcore("data", "rescore", stored, "reward.0.id=rewards.py:looks")
    assert done.status == 2
    assert media_hash(picture) in done.err
    assert "copy the folder media/" in done.err
    with pytest.raises(DataError):
        list(read_groups(stored))


def test_sweep_removes_only_unfinished_pictures(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "media")
    name = store.put(b"whole")
    unfinished = store.path(name).with_name(f".{name}.1-ab.partial")
    unfinished.write_bytes(b"wh")
    store.sweep()
    assert not unfinished.exists()
    assert store.get(name) == b"whole"
    store.path(name).write_bytes(b"cut")  # by a full disk, before it was renamed
    assert store.put(b"whole") == name
    assert store.get(name) == b"whole"


def test_table_of_trajectories_counts_and_shows_pictures() -> None:
    def read() -> Any:
        return (Stored("evaluation", 10, group) for group in groups(12, siblings=2))

    trajectories = Trajectories(read)
    counts = [row["images"] for row in trajectories.rows()]
    assert set(counts) == {1, 2}
    shown = trajectories._repr_html_()
    assert shown.count("data:image/png;base64,") == 8
    assert "Which colour has the largest" in shown


def test_table_of_pictures_escapes_texts() -> None:
    (group,) = groups(1)
    evil = "<script>alert(1)</script>\x1b"
    one = group.trajectories[0]
    turns = one.segments[0].turns
    said = dataclasses.replace(turns[-1], messages=(dataclasses.replace(turns[-1].messages[0], content=evil),))
    changed = one.replace(segments=(dataclasses.replace(one.segments[0], turns=(*turns[:-1], said)),))
    shown = gallery([dataclasses.replace(group, trajectories=(changed,))])
    assert "<script" not in shown
    assert "&lt;script&gt;" in shown
    assert "\x1b" not in shown


def test_trajectories_without_pictures_have_a_plain_view() -> None:
    assert Trajectories(lambda: iter(()))._repr_html_().startswith("<code>")
