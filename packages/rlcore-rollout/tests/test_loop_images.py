"""Images in the agent loop: hashed and stored once, spans where the chat format places them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from image_files import animation, huge, picture
from rlcore.images import ImageProcessor, image_size
from rlcore.types import (
    Boundary,
    ImagePart,
    MediaSpan,
    Message,
    Observation,
    Step,
    Stop,
    Task,
    TextPart,
    TokenIds,
    Trajectory,
    media_hash,
)
from rlcore_rollout.chat.plain import PlainFormat
from rlcore_rollout.images import ImagePool
from rlcore_rollout.media import check_media
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
    names = {pool.add(CAT, lasting=True) for _ in range(8)}
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


LARGE = picture(1000, 400, "green")


def question(*images: bytes) -> Task:
    parts = tuple(ImagePart.of(data) for data in images)
    return Task(id="t", messages=(Message(role="user", content=(TextPart(text="what?"), *parts)),), images=images)


def test_model_and_trajectory_get_the_fitted_image(play: Play) -> None:
    trajectory = play(Chat, task=question(LARGE, CAT))
    fitted = PROCESSOR.fit(LARGE)
    assert image_size(fitted) != image_size(LARGE)
    (segment,) = trajectory.segments
    names = (media_hash(fitted), media_hash(CAT))
    assert tuple(span.sha256 for span in segment.media) == names
    assert segment.turns[0].messages[0].images == names
    assert trajectory.images == {names[0]: fitted, names[1]: CAT}
    assert play.engine.prompts[0].images == trajectory.images


def test_each_image_is_fitted_once_for_all_siblings(tiny_folder: Path) -> None:
    fitted: list[bytes] = []

    def fit(data: bytes) -> bytes:
        fitted.append(data)
        return PROCESSOR.fit(data)

    class Again(Chat):
        """Shows an equal image in every turn."""

        async def step(self, action: Message) -> Step:
            step = await super().step(action)
            message = Message(role="tool", content=(ImagePart.of(LARGE),))
            return Step(
                observation=Observation(messages=(message,), images=(fresh(LARGE),)), terminated=step.terminated
            )

    async def siblings() -> list[Trajectory]:
        pool = ImagePool(fit)
        plays = [Play(tiny_folder, PlainFormat(tiny_folder, images=PROCESSOR)) for _ in range(4)]
        return await asyncio.gather(*(one.go(Again, task=question(LARGE), images=pool) for one in plays))

    trajectories = asyncio.run(siblings())
    assert fitted == [LARGE]
    assert {trajectory.stop for trajectory in trajectories} == {Stop.DONE}
    assert len({id(data) for trajectory in trajectories for data in trajectory.images.values()}) == 1


def test_rewritten_context_refers_to_fitted_images(play: Play) -> None:
    class Rewriting(Chat):
        turns = 2

        async def step(self, action: Message) -> Step:
            step = await super().step(action)
            known, new = (Message(role="user", content=(ImagePart.of(data),)) for data in (LARGE, DOG))
            if step.terminated:
                return step
            return Step(observation=Observation(messages=(new,), images=(DOG,), context=(known,)))

    trajectory = play(Rewriting, task=question(LARGE))
    second = trajectory.segments[1]
    assert second.context[0].images == (media_hash(PROCESSOR.fit(LARGE)),)
    assert [span.sha256 for span in second.media] == [media_hash(PROCESSOR.fit(LARGE)), media_hash(DOG)]


unusable_images = pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "readable PNG"),
        (CAT[:60], "readable PNG"),
        (b"<svg></svg>", "readable PNG"),
        (animation(), "one frame"),
        (huge(), "at most 100,000,000 pixels"),
        (picture(900, 2), "at most 200 times"),
    ],
    ids=["empty", "truncated", "another format", "animated", "huge", "extreme"],
)


@unusable_images
def test_unreadable_image_is_a_failure_of_the_environment(play: Play, data: bytes, expected: str) -> None:
    trajectory = play(Chat, task=question(data))
    assert failed(trajectory) is Boundary.ENVIRONMENT
    assert expected in str(trajectory.failure)
    assert f"the image {media_hash(data)[:12]}… in a user message is unusable" in str(trajectory.failure)
    assert "\n" not in str(trajectory.failure)


@unusable_images
def test_unusable_image_of_a_tool_is_an_error_that_the_model_reads(play: Play, data: bytes, expected: str) -> None:
    class Crops(Chat):
        """Returns an unusable image beside a usable one, once."""

        turns = 2

        async def step(self, action: Message) -> Step:
            step = await super().step(action)
            if step.terminated:
                return step
            parts = (TextPart(text="both parts"), ImagePart.of(data), ImagePart.of(DOG))
            shown = Observation(messages=(Message(role="tool", content=parts),), images=(data, DOG))
            return Step(observation=shown, info={"tool_calls": 2.0, "tool_errors": 0.0})

    trajectory = play(Crops, task=TASK)
    assert (trajectory.stop, trajectory.failure) == (Stop.DONE, None)
    assert trajectory.metrics["tool_errors"] == 1.0
    assert [span.sha256 for span in trajectory.segments[0].media] == [media_hash(CAT), media_hash(DOG)]
    read = play.chat.decode(play.engine.prompts[1].token_ids)
    assert "both parts\nError: the image cannot be shown; " in read
    assert expected in read


def test_unusable_image_after_the_last_answer_does_not_fail_the_episode(play: Play) -> None:
    class Last(Chat):
        turns = 1

        async def step(self, action: Message) -> Step:
            message = Message(role="tool", content=(ImagePart.of(b""),))
            return Step(observation=Observation(messages=(message,), images=(b"",)), terminated=True)

    trajectory = play(Last, task=TASK)
    assert (trajectory.stop, trajectory.failure) == (Stop.DONE, None)
    assert "cannot be shown" in trajectory.segments[0].turns[-1].messages[0].text


def test_placeholders_that_the_policy_writes_are_counted_tokens(play: Play) -> None:
    trajectory = play(Zoom, task=TASK, replies=(f"look {PLACEHOLDER}{PLACEHOLDER}", "done"))
    assert (trajectory.stop, trajectory.failure) == (Stop.DONE, None)
    assert trajectory.metrics["placeholder_tokens"] == 2.0
    (segment,) = trajectory.segments
    placeholder = play.chat.tokenizer.added[PLACEHOLDER]
    written = [token for token, kept in zip(segment.token_ids, segment.loss_mask, strict=True) if kept]
    assert written.count(placeholder) == 2
    assert [span.sha256 for span in segment.media] == [media_hash(data) for data in (CAT, DOG, CAT)]


IDS = TokenIds((7, 1, 1, 1, 8, 1, 1, 1))
SPANS = tuple(
    MediaSpan(sha256=media_hash(data), offset=offset, length=3, rows=1, columns=3)
    for data, offset in ((CAT, 1), (DOG, 5))
)


@pytest.mark.parametrize(
    ("ids", "media", "expected"),
    [
        (IDS, SPANS, None),
        (IDS, SPANS[:1], "6 placeholders in the tokens, but 3 in the images"),
        (IDS, SPANS[::-1], "after the end of the previous image"),
        (IDS[:7], SPANS, "in 7 tokens"),
        (IDS, (replace(SPANS[0], offset=0), SPANS[1]), "does not consist of the placeholder"),
        (IDS, (replace(SPANS[0], rows=3, columns=1), SPANS[1]), "3 rows and 1 columns, but its size gives 1 and 3"),
        (IDS, (replace(SPANS[0], length=2), SPANS[1]), "its size gives"),
        (IDS, (replace(SPANS[0], sha256="0" * 64), SPANS[1]), "is not in the messages"),
    ],
    ids=["right", "not covered", "order", "outside", "other tokens", "turned", "length", "unknown"],
)
def test_spans_that_do_not_match_the_tokens_are_rejected(
    ids: TokenIds, media: Sequence[MediaSpan], expected: str | None
) -> None:
    images = {media_hash(data): data for data in (CAT, DOG)}
    with pytest.raises(ValueError, match=expected) if expected else nullcontext():
        check_media(ids, media, images, placeholder=1, processor=PROCESSOR)


def test_misaligned_prompt_ends_the_episode_with_a_failure(play: Play) -> None:
    correct = play.chat.prompt_with_images

    def shifted(*arguments: Any) -> Any:
        ids, media = correct(*arguments)
        return ids, [replace(span, offset=span.offset + 1) for span in media]

    play.chat.prompt_with_images = shifted
    trajectory = play(Zoom, task=TASK)
    assert failed(trajectory) is Boundary.ENVIRONMENT
    assert "does not consist of the placeholder" in str(trajectory.failure)
    assert trajectory.sampled_tokens == 0
