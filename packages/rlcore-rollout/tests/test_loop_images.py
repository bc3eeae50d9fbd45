"""Images in the agent loop: hashed and stored once, spans where the chat format places them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from image_files import picture
from rlcore.images import ImageProcessor
from rlcore.types import Boundary, ImagePart, Message, Observation, Step, Stop, Task, TextPart, Trajectory, media_hash
from rlcore_rollout.chat.plain import PlainFormat
from rlcore_rollout.images import ImagePool
from scripted_episodes import Chat, Play

PLACEHOLDER, LENGTH = "<|image_pad|>", 3
PROCESSOR = ImageProcessor(min_pixels=28 * 28, max_pixels=28 * 28 * 16)
CAT, DOG = picture(3 * 28, 28, "red"), picture(3 * 28, 28, "blue")
"""Images that are fitted already."""
TASK = Task(
    id="t",
    messages=(Message(role="user", content=(TextPart(text="which animal?"), ImagePart.of(CAT))),),
    images=(CAT,),
)


def fresh(data: bytes) -> bytes:
    """An equal object of its own."""
    return bytes(bytearray(data))


class Zoom(Chat):
    """Shows the task's image, then two more in a tool's message, one of which is known."""

    turns = 2

    async def step(self, action: Message) -> Step:
        step = await super().step(action)
        parts = (ImagePart.of(DOG), TextPart(text=PLACEHOLDER), ImagePart.of(CAT))
        message = Message(role="tool", content=parts)
        observation = Observation(messages=(message,), images=(fresh(DOG), fresh(CAT)))
        return Step(observation=observation, terminated=step.terminated)


@pytest.fixture
def play(tiny_folder: Path) -> Play:
    return Play(tiny_folder, PlainFormat(tiny_folder, images=PROCESSOR))


def test_spans_match_the_placeholder_tokens(play: Play) -> None:
    trajectory = play(Zoom, task=TASK)
    assert (trajectory.stop, trajectory.failure) == (Stop.DONE, None)
    (segment,) = trajectory.segments
    assert [span.sha256 for span in segment.media] == [media_hash(data) for data in (CAT, DOG, CAT)]
    placeholder = play.chat.tokenizer.added[PLACEHOLDER]
    marked = {place for span in segment.media for place in range(span.offset, span.offset + span.length)}
    assert marked == {index for index, token in enumerate(segment.token_ids) if token == placeholder}
    assert len(marked) == 3 * LENGTH, "what the tool wrote is not a placeholder"


def test_trajectory_contains_each_image_once(play: Play) -> None:
    trajectory = play(Zoom, task=TASK)
    assert trajectory.images == {media_hash(CAT): CAT, media_hash(DOG): DOG}
    assert trajectory.images[media_hash(CAT)] is CAT


def test_engine_receives_spans_and_images_with_the_tokens(play: Play) -> None:
    trajectory = play(Zoom, task=TASK)
    first, second = play.engine.prompts
    (segment,) = trajectory.segments
    assert (first.media, second.media) == (segment.media[:1], segment.media)
    assert first.images == {media_hash(CAT): CAT}
    assert second.images == trajectory.images


def test_equal_images_of_siblings_are_one_object(play: Play) -> None:
    pool = ImagePool()
    one, two = (play(Zoom, task=TASK, images=pool) for _ in range(2))
    assert [one.images[name] is two.images[name] for name in one.images] == [True, True]


def test_image_is_hashed_once_for_all_siblings(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[bytes] = []

    def count(data: bytes) -> str:
        hashed.append(data)
        return media_hash(data)

    monkeypatch.setattr("rlcore_rollout.images.media_hash", count)
    pool = ImagePool()
    names = {pool.add(CAT) for _ in range(8)}
    assert (names, hashed) == ({media_hash(CAT)}, [CAT])


def test_different_images_with_equal_tokens_are_different_prompts(play: Play) -> None:
    question = Message(role="user", content=(TextPart(text="which animal?"), ImagePart.of(DOG)))
    other = Task(id="t", messages=(question,), images=(DOG,))
    play(Chat, task=TASK)
    cat = play.engine.prompts[0]
    play(Chat, task=other)
    dog = play.engine.prompts[0]
    assert cat.token_ids == dog.token_ids
    assert cat != dog


def test_rewritten_context_keeps_its_images(play: Play) -> None:
    class Dropping(Zoom):
        """Drops the first image, and refers to an earlier one without giving it again."""

        async def step(self, action: Message) -> Step:
            step = await super().step(action)
            known = Message(role="user", content=(ImagePart.of(DOG),))
            if step.terminated:
                return step
            return Step(observation=Observation(messages=(known,), images=(DOG,), context=(known,)))

    trajectory = play(Dropping, task=TASK)
    first, second = trajectory.segments
    assert [span.sha256 for span in first.media] == [media_hash(CAT)]
    assert [span.sha256 for span in second.media] == [media_hash(DOG)] * 2
    assert second.media[0].offset < second.media[1].offset < second.prompt_length


def failed(trajectory: Trajectory) -> Boundary | None:
    return trajectory.failure and trajectory.failure.boundary


def test_text_format_rejects_images(tiny_folder: Path) -> None:
    trajectory = Play(tiny_folder)(Chat, task=TASK)
    assert failed(trajectory) is Boundary.ENVIRONMENT
    assert "PlainFormat" in str(trajectory.failure)
    assert trajectory.sampled_tokens == 0


@pytest.mark.parametrize("images", [(), (DOG,), ("no bytes",)], ids=["none", "another", "no bytes"])
def test_missing_image_is_a_failure_of_the_environment(play: Play, images: Any) -> None:
    class Missing(Chat):
        async def reset(self, task: Task, *, seed: int) -> Observation:
            return Observation(messages=TASK.messages, images=images)

    assert failed(play(Missing)) is Boundary.ENVIRONMENT


def test_format_that_omits_an_image_is_detected(play: Play) -> None:
    def forget(*arguments: Any) -> Any:
        return [1, 2, 3], []

    play.chat.prompt_with_images = forget
    assert failed(asyncio.run(play.go(Zoom, task=TASK))) is Boundary.ENVIRONMENT
