"""Every public value survives pickle, deepcopy and JSON."""

from __future__ import annotations

import copy
import json
import pickle
import re
import struct
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from rlcore import types
from rlcore.episodes.tool import ToolResult
from rlcore.types import (
    Boundary,
    ChatCompletion,
    CodeResult,
    Completion,
    Demonstration,
    Failure,
    Group,
    ImagePart,
    MediaSpan,
    Message,
    NumberArray,
    Observation,
    Preference,
    Prompt,
    RecordedEpisode,
    RewardResult,
    RolloutKey,
    RolloutRequest,
    Sampling,
    SandboxLimits,
    SandboxSupport,
    Segment,
    Step,
    Stop,
    Task,
    TextPart,
    ToolCall,
    ToolSchema,
    Trajectory,
    Turn,
    VersionSpan,
    from_json,
    media_hash,
    to_json,
)
from rlcore.types.arrays import FORMATS

IMAGE = b"\x89PNG \x00"
SHA256 = media_hash(IMAGE)
CALL = ToolCall(name="look", arguments={"x": [1, {"y": None}]}, error="no", id="1", texts={"x": "1"})
MESSAGE = Message(
    role="tool",
    content=(TextPart(text="a \ud800"), ImagePart.of(IMAGE)),
    tool_calls=(CALL,),
    name="look",
    tool_call_id="1",
)
SCHEMA = ToolSchema(name="look", description="Look.", parameters={"type": "object", "required": ["x"]})
OBSERVATION = Observation(messages=(MESSAGE,), tools=(SCHEMA,), images=(IMAGE,), context=(MESSAGE,))
TASK = Task(id="t", messages=(MESSAGE,), fields={"answer": [1, 0.5, True, None]}, images=(IMAGE,), environment="toy")
SPAN = MediaSpan(sha256=SHA256, offset=1, length=2, rows=1, columns=2)
VERSIONS = (VersionSpan(3, 1), VersionSpan(4, 3))
TURN = Turn(
    kind="policy",
    start=0,
    end=4,
    messages=(MESSAGE,),
    reward=0.5,
    finish_reason="length",
    policy_version=3,
    versions=VERSIONS,
)
NUMBERS = NumberArray(dtype="float32", shape=(4, 2), data=bytes(range(32)))
SEGMENT = Segment(
    token_ids=[1, 2, 2, 7],  # type: ignore[arg-type]
    loss_mask=[False, False, False, True],  # type: ignore[arg-type]
    logprobs=[0.0, 0.0, 0.0, -0.1],  # type: ignore[arg-type]
    turns=(TURN,),
    context=(MESSAGE,),
    media=(SPAN,),
    arrays={"observation/state": NUMBERS},
)
RESULT = RewardResult(value=0.5, components={"part": 1.0}, error="unsure", error_kind="time-out", text="Hm.")
FAILURE = Failure(boundary=Boundary.ENGINE, message="gone")
SAMPLING = Sampling(
    max_new_tokens=4,
    temperature=0.5,
    top_p=0.9,
    top_k=3,
    suppressed_token_ids=(3,),
    stop_token_ids=(7,),
    stop=("end",),
    seed=2**63,
)
TRAJECTORY = Trajectory(
    task_id="t",
    sibling=1,
    role="player-1",
    segments=(SEGMENT, Segment()),
    stop=Stop.CANCELLED,
    failure=FAILURE,
    tools=(SCHEMA,),
    images={SHA256: IMAGE},
    rewards={"r": RESULT},
    reward=-0.5,
    metrics={"turns": 1.0},
    sampling=SAMPLING,
)
FILLED: list[Any] = [
    CALL,
    MESSAGE,
    SCHEMA,
    OBSERVATION,
    TASK,
    SPAN,
    TURN,
    NUMBERS,
    SEGMENT,
    RESULT,
    FAILURE,
    TRAJECTORY,
    SAMPLING,
    TextPart(text="a"),
    ImagePart.of(IMAGE),
    Group(task=TASK, trajectories=(TRAJECTORY,)),
    Demonstration(messages=(MESSAGE,), tools=(SCHEMA,), images=(IMAGE,)),
    Preference(prompt=(MESSAGE,), chosen=(MESSAGE,), rejected=(MESSAGE,), tools=(SCHEMA,), images=(IMAGE,), margin=0.5),
    RecordedEpisode(observations={"state": NUMBERS}, actions=NUMBERS, instruction="Reach."),
    RolloutKey(group_size=2, seed=1, step=3, purpose="baseline", sampling={"temperature": 0.0}),
    RolloutRequest(tasks=[TASK], group_size=2, seed=1, step=3, purpose="baseline", sampling={"temperature": 0.0}),
    Step(observation=OBSERVATION, reward=1.0, terminated=True, truncated=True, stop=Stop.LENGTH, info={"x": 1}),
    Prompt(token_ids=[1, 2], media=(SPAN,), images={SHA256: IMAGE}),  # type: ignore[arg-type]
    Completion(
        token_ids=[1] * 4,  # type: ignore[arg-type]
        logprobs=[-0.5] * 4,  # type: ignore[arg-type]
        finish_reason="length",
        policy_version=3,
        versions=VERSIONS,
    ),
    ChatCompletion(message=MESSAGE, finish_reason="length", prompt_tokens=1, completion_tokens=2),
    CodeResult(
        status="error",
        stdout="a",
        stderr="b",
        value="c",
        error="d",
        images=(IMAGE,),
        image_names=("image_clue_1",),
        omitted_images=2,
        reset=True,
        seconds=0.5,
    ),
    SandboxLimits(cell_s=1.0),
    SandboxSupport(guarantees=("no network",), lacks=("memory",), reason="no kernel", fix="get one"),
    ToolResult("a", images=(IMAGE,), status="final", reward=1.0, info={"x": 1.0}),
]
NAMES = [type(value).__name__ for value in FILLED]


def test_examples_cover_all_public_dataclasses() -> None:
    public = {name for name in types.__all__ if is_dataclass(getattr(types, name))}
    assert public <= set(NAMES)


@pytest.mark.parametrize("value", FILLED, ids=NAMES)
def test_public_values_survive_pickle_deepcopy_and_json(value: Any) -> None:
    plain = json.loads(json.dumps(to_json(value)))
    for again in (pickle.loads(pickle.dumps(value)), copy.deepcopy(value), from_json(type(value), plain)):
        assert again == value
        assert hash(again) == hash(value)
        for field in fields(value):  # also those that do not take part in comparison
            assert getattr(again, field.name) == getattr(value, field.name)
            assert type(getattr(again, field.name)) is type(getattr(value, field.name))


@pytest.mark.parametrize("value", FILLED, ids=NAMES)
def test_examples_set_every_field(value: Any) -> None:
    empty = [field.name for field in fields(value) if getattr(value, field.name) in (None, (), {}, "", 0)]
    assert set(empty) <= {"start", "times"}  # times are not stored


@pytest.mark.parametrize(
    ("cls", "data", "place"),
    [
        (Message, {"role": "robot"}, "Message.role"),
        (Message, {"content": "a"}, "Message"),
        (Message, {"role": "user", "contents": "a"}, "Message"),
        (Message, {"role": "user", "content": [{"text": 1}]}, "Message.content[0].text"),
        (Sampling, {"max_new_tokens": True}, "Sampling.max_new_tokens"),
        (Segment, {"token_ids": ["1"]}, "Segment.token_ids"),
        (Segment, {"token_ids": [1]}, "Segment"),
        (Segment, {"arrays": {"a": {"dtype": "int8", "shape": [2], "data": "AAA="}}}, "Segment"),
        (NumberArray, {"dtype": "int8", "shape": [3], "data": "AAA="}, "NumberArray"),
        (NumberArray, {"dtype": "text", "shape": [2], "data": "AAA="}, "NumberArray"),
        (RewardResult, {"value": "1"}, "RewardResult.value"),
        (Failure, {"boundary": "moon", "message": ""}, "Failure.boundary"),
        (Observation, {"messages": [], "images": ["*"]}, "Observation.images[0]"),
        (Trajectory, [], "Trajectory"),
    ],
)
def test_malformed_data_is_reported_with_its_location(cls: type, data: Any, place: str) -> None:
    with pytest.raises(ValueError, match=re.escape(place)) as raised:
        from_json(cls, data)
    assert str(raised.value).partition(": ")[0] == place


@pytest.mark.parametrize("dtype", sorted(FORMATS.keys() - {"float16"}))  # memoryview cannot cast to it
def test_number_array_has_the_values_of_the_buffer(dtype: str) -> None:
    values = memoryview(struct.pack(f"=4{FORMATS[dtype]}", 0, 1, 1, 0)).cast(FORMATS[dtype], (2, 2))
    numbers = NumberArray.of(values)
    assert (numbers.dtype, numbers.shape, len(numbers)) == (dtype, (2, 2), 2)
    assert numbers[1:].data == values.tobytes()[2 * numbers.itemsize :]
    assert numbers[1:].shape == (1, 2)
    assert NumberArray.of(numbers) is numbers


def test_number_array_of_texts_is_rejected() -> None:
    with pytest.raises(TypeError, match="float32"):
        NumberArray.of(memoryview(b"ab").cast("c"))


@pytest.mark.parametrize(("kind", "zero"), [(types.TokenIds, 0), (types.LossMask, False), (types.Logprobs, 0.0)])
def test_zeros_have_the_type_of_the_array(kind: Any, zero: object) -> None:
    assert kind.zeros(3) == kind([zero] * 3)
    assert kind.zeros(0) == kind()
