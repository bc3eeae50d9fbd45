"""Stored trajectories come back equal."""

from __future__ import annotations

import base64
import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore.errors import DataError, UserError
from rlcore.rollouts.records import BlobStore, read_groups, trajectory_from_json, trajectory_to_json, write_groups
from rlcore.types import (
    Boundary,
    Failure,
    Group,
    ImagePart,
    MediaSpan,
    Message,
    RewardResult,
    Segment,
    Stop,
    Task,
    TextPart,
    ToolCall,
    ToolSchema,
    Trajectory,
    Turn,
    VersionSpan,
    freeze,
    media_hash,
)

texts = st.text(max_size=8)
plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(texts, inner, max_size=2)),
    max_leaves=4,
)
tables = st.dictionaries(texts, plain, max_size=2).map(freeze)
numbers = st.dictionaries(texts, st.floats(allow_nan=False), max_size=2)
calls = st.builds(ToolCall, name=texts, arguments=st.none() | tables, error=st.none() | texts, id=texts)
parts = st.builds(TextPart, text=texts) | st.builds(ImagePart, sha256=texts)
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=texts | st.lists(parts, max_size=2).map(tuple),
    tool_calls=st.lists(calls, max_size=2).map(tuple),
    name=st.none() | texts,
    tool_call_id=st.none() | texts,
)
versions = st.lists(st.builds(VersionSpan, st.integers(0, 9), st.integers(1, 9)), max_size=2).map(tuple)
turns = st.builds(
    lambda versions, start, **rest: Turn(
        start=start, end=start + sum(span.tokens for span in versions), versions=versions, **rest
    ),
    versions,
    kind=st.sampled_from(["observation", "policy"]),
    start=st.integers(0, 9),
    messages=st.lists(messages, max_size=2).map(tuple),
    reward=st.none() | st.floats(allow_nan=False),
    finish_reason=st.sampled_from([None, "stop", "length"]),
    policy_version=st.integers(0, 9),
)
rewards = st.builds(
    RewardResult,
    value=st.none() | st.floats(allow_nan=False),
    components=numbers.map(freeze),
    error=st.none() | texts,
)
segments = st.lists(
    st.tuples(st.integers(0, 10**6), st.booleans(), st.floats(allow_nan=False, max_value=0)), max_size=3
).flatmap(
    lambda tokens: st.builds(
        Segment,
        token_ids=st.just([token[0] for token in tokens]),
        loss_mask=st.just([token[1] for token in tokens]),
        logprobs=st.just([token[2] for token in tokens]),
        turns=st.lists(turns, max_size=2).map(tuple),
        context=st.lists(messages, max_size=1).map(tuple),
        media=st.lists(
            st.builds(MediaSpan, sha256=texts, offset=st.integers(0, 9), length=st.integers(0, 9)), max_size=1
        ).map(tuple),
    )
)
failures = st.builds(Failure, boundary=st.sampled_from(Boundary), message=texts)
trajectories = st.builds(
    Trajectory,
    task_id=texts,
    sibling=st.integers(0, 9),
    segments=st.lists(segments, max_size=2).map(tuple),
    stop=st.sampled_from(Stop),
    failure=st.none() | failures,
    tools=st.lists(st.builds(ToolSchema, name=texts, description=texts, parameters=tables), max_size=1).map(tuple),
    images=st.dictionaries(texts, st.binary(max_size=8), max_size=1),
    rewards=st.dictionaries(texts, rewards, max_size=2),
    reward=st.none() | st.floats(allow_nan=False),
    metrics=numbers,
)


@settings(max_examples=60)
@given(trajectories)
def test_stored_trajectory_is_restored(trajectory: Trajectory) -> None:
    assert trajectory_from_json(trajectory_to_json(trajectory)) == trajectory


IMAGE = b"\x89PNG" * 1000
SHA256 = media_hash(IMAGE)


def group(reward: float | None = 1.0, images: tuple[bytes, ...] = ()) -> Group:
    task = Task(
        id="a",
        messages=(Message(role="user", content="\ud800 1+1?"),),
        fields={"x": [1, {"y": None}]},
        images=images,
    )
    segment = Segment(
        token_ids=(1, 2),  # type: ignore[arg-type]
        loss_mask=(False, True),  # type: ignore[arg-type]
        logprobs=(0.0, -3.140625),  # type: ignore[arg-type]
        turns=(Turn(kind="observation", start=0, end=1, messages=task.messages),),
    )
    trajectory = Trajectory(
        task_id="a",
        sibling=0,
        segments=(segment,),
        images={media_hash(image): image for image in images},
        reward=reward,
    )
    return Group(task=task, trajectories=(trajectory, trajectory.replace(sibling=1)))


def test_siblings_with_one_image_store_it_once_and_share_it(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    write_groups(path, [group(images=(IMAGE,))])
    (blob,) = [file for file in (tmp_path / "media").rglob("*") if file.is_file()]
    assert (blob.name, blob.read_bytes()) == (SHA256, IMAGE)
    text = path.read_text("utf-8", "surrogatepass")
    assert base64.b64encode(IMAGE).decode() not in text
    assert len(text) < 2500 < len(IMAGE)
    (found,) = read_groups(path)
    assert found == group(images=(IMAGE,))
    first, second = found.trajectories
    assert first.images[SHA256] is second.images[SHA256] is found.task.images[0]


def test_images_of_a_run_are_in_its_media_folder(tmp_path: Path) -> None:
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "config.toml").touch()
    path = tmp_path / "rollouts" / "train-000001.jsonl.gz"
    write_groups(path, [group(images=(IMAGE,))])
    assert (tmp_path / "media" / SHA256[:2] / SHA256).is_file()
    assert next(read_groups(path)).task.images == (IMAGE,)


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"other")])
def test_missing_or_damaged_image_is_named(damage: Callable[[Path], Any], tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    write_groups(path, [group(images=(IMAGE,))])
    damage(tmp_path / "media" / SHA256[:2] / SHA256)
    with pytest.raises(DataError, match=SHA256) as raised:
        list(read_groups(path))
    assert SHA256 in str(raised.value.where)
    write_groups(path, [group(images=(IMAGE,))])  # repairs it
    assert list(read_groups(path)) == [group(images=(IMAGE,))]


@pytest.mark.parametrize("name", ["../../x", SHA256.upper(), SHA256[:-1], "", f"{SHA256}/..", f"{SHA256}\n"])
def test_invalid_image_name_is_rejected(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="64 hexadecimal digits"):
        BlobStore(tmp_path).get(name)


def test_pipe_in_place_of_an_image_is_not_read(tmp_path: Path) -> None:
    path = BlobStore(tmp_path).path(SHA256)
    path.parent.mkdir()
    os.mkfifo(path)
    with pytest.raises(DataError, match="not a regular file"):
        BlobStore(tmp_path).get(SHA256)


def test_failed_blob_write_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / SHA256[:2]).touch()
    with pytest.raises(UserError, match="cannot be written"):
        BlobStore(tmp_path).put(IMAGE)
    assert [path.name for path in tmp_path.iterdir()] == [SHA256[:2]]


def test_stored_groups_are_restored_and_files_are_deterministic(tmp_path: Path) -> None:
    groups = [group(), group(None)]
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        write_groups(tmp_path / name, groups)
    assert list(read_groups(tmp_path / "a.jsonl.gz")) == groups
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl.gz", "b.jsonl.gz"]


def test_failed_write_keeps_the_earlier_record_and_no_partial_file(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.gz"
    write_groups(path, [group()])
    before = path.read_bytes()
    (tmp_path / ".x.jsonl.gz.partial").symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"x\.jsonl\.gz cannot be written") as raised:
        write_groups(path, [group(None)])
    assert raised.value.found == "No space left on device"
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["x.jsonl.gz"]


def test_invalid_record_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.gz"
    write_groups(path, [group()])
    path.write_bytes(path.read_bytes() + gzip.compress(b'{"task": 1}\n'))
    with pytest.raises(DataError, match=r"x\.jsonl\.gz:2"):
        list(read_groups(path))
    path.write_bytes(b"not gzip")
    with pytest.raises(DataError, match="cannot read"):
        list(read_groups(path))
