"""Stored trajectories come back equal."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore.errors import DataError, UserError
from rlcore.records import read_groups, trajectory_from_json, trajectory_to_json, write_groups
from rlcore.types import (
    EndReason,
    Group,
    ImagePart,
    Message,
    RewardResult,
    Task,
    TextPart,
    ToolCall,
    ToolSchema,
    Trajectory,
    Turn,
    freeze,
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
turns = st.builds(
    Turn,
    kind=st.sampled_from(["observation", "policy"]),
    start=st.integers(0, 9),
    end=st.integers(0, 9),
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
trajectories = st.builds(
    Trajectory,
    task_id=texts,
    sibling=st.integers(0, 9),
    token_ids=st.lists(st.integers(0, 10**6), max_size=3).map(tuple),
    loss_mask=st.lists(st.booleans(), max_size=3).map(tuple),
    logprobs=st.lists(st.floats(allow_nan=False, max_value=0), max_size=3).map(tuple),
    turns=st.lists(turns, max_size=2).map(tuple),
    end_reason=st.sampled_from(EndReason),
    error=st.none() | texts,
    tools=st.lists(st.builds(ToolSchema, name=texts, description=texts, parameters=tables), max_size=1).map(tuple),
    images=st.dictionaries(texts, st.binary(max_size=8), max_size=1),
    rewards=st.dictionaries(texts, rewards, max_size=2),
    reward=st.none() | st.floats(allow_nan=False),
    metrics=numbers,
)


@settings(max_examples=60)
@given(trajectories)
def test_a_trajectory_comes_back_equal(trajectory: Trajectory) -> None:
    assert trajectory_from_json(trajectory_to_json(trajectory)) == trajectory


def group(reward: float | None = 1.0) -> Group:
    task = Task(
        id="a",
        messages=(Message(role="user", content="\ud800 1+1?"),),
        fields={"x": [1, {"y": None}]},
        images=(b"\x89PNG",),
    )
    trajectory = Trajectory(
        task_id="a",
        sibling=0,
        token_ids=(1, 2),
        loss_mask=(False, True),
        logprobs=(0.0, -math.pi),
        turns=(Turn(kind="observation", start=0, end=1, messages=task.messages),),
        end_reason=EndReason.DONE,
        reward=reward,
    )
    return Group(task=task, trajectories=(trajectory, trajectory.replace(sibling=1)))


def test_groups_come_back_equal_and_equal_groups_give_equal_files(tmp_path: Path) -> None:
    groups = [group(), group(None)]
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        write_groups(tmp_path / name, groups)
    assert list(read_groups(tmp_path / "a.jsonl.gz")) == groups
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl.gz", "b.jsonl.gz"]


def test_a_record_that_cannot_be_written_keeps_the_earlier_one_and_leaves_no_half(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.gz"
    write_groups(path, [group()])
    before = path.read_bytes()
    (tmp_path / ".x.jsonl.gz.partial").symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"x\.jsonl\.gz cannot be written") as raised:
        write_groups(path, [group(None)])
    assert raised.value.found == "No space left on device"
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["x.jsonl.gz"]


def test_a_file_that_is_no_record_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.gz"
    write_groups(path, [group()])
    path.write_bytes(path.read_bytes() + gzip.compress(b'{"task": 1}\n'))
    with pytest.raises(DataError, match=r"x\.jsonl\.gz:2"):
        list(read_groups(path))
    path.write_bytes(b"not gzip")
    with pytest.raises(DataError, match="cannot read"):
        list(read_groups(path))
