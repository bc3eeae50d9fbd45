"""The conformance suite with images, and unusable images in every part that reads them."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from typing import Any

import pytest
from PIL import Image
from rlcore import ToolEnvironment, ToolResult, tool
from rlcore.episodes.rewards import SelectedReward
from rlcore.errors import DataError
from rlcore.images import ImageProcessor, check_image, message_with_images, side_by_side
from rlcore.images.encoding import decode_image
from rlcore.report.notebook import gallery
from rlcore.testing import RewardCase, check_environment, check_reward, hostile_images, make_trajectory
from rlcore.types import Group, Message, Observation, Step, Task, ToolCall, Trajectory

HOSTILE = list(hostile_images())
USABLE = {"an image of one pixel"}


def colour(id: str, name: str) -> Task:
    message, images = message_with_images("Which colour?", Image.new("RGB", (56, 56), name))
    return Task(id=id, messages=(message,), images=images, fields={"answer": name})


TASKS = [colour("1", "red"), colour("2", "blue")]


@tool
def crop(left: int, right: int) -> ToolResult:
    """Enlarge columns of a picture.

    Args:
        left: first column
        right: column after the last one
    """
    image = Image.new("RGB", (min(64, max(1, right - left)), 8), "red")
    return ToolResult("Cropped.", images=message_with_images(image)[1])


class Pictured(ToolEnvironment):
    """An environment with pictures in tasks and in answers of a tool."""

    def __init__(self) -> None:
        super().__init__(tools=[crop], max_turns=3)

    def oracle(self, task: Task) -> Sequence[Message]:
        call = ToolCall(name="crop", arguments={"left": 0, "right": 8}, id="1")
        answer = Message(role="assistant", content=str(task.fields["answer"]))
        return [Message(role="assistant", tool_calls=(call,)), answer]


def names_colour(trajectory: Trajectory, task: Task) -> float:
    """1 if the answer is the colour of the picture that the model saw."""
    shown = trajectory.messages[0].images[0]
    pixel: Any = decode_image(trajectory.images[shown]).getpixel((0, 0))
    seen = {(255, 0, 0): "red", (0, 0, 255): "blue"}.get(pixel)
    return float(trajectory.final_response.strip() == seen)


def test_environment_with_pictures_and_a_tool_that_returns_them_passes() -> None:
    reward = SelectedReward(
        id="colour", weight=1.0, scope="trajectory", function=names_colour, minimum=0.0, maximum=1.0
    )
    check_environment(Pictured, tasks=TASKS, rewards=[reward])


def test_reward_that_looks_at_the_picture_passes() -> None:
    right = make_trajectory(*TASKS[0].messages, "red", images=TASKS[0].images)
    check_reward(names_colour, [RewardCase(task=TASKS[0], trajectory=right, value=1.0)])


def test_environment_that_returns_a_damaged_picture_is_rejected() -> None:
    class Damaged(Pictured):
        async def step(self, action: Message) -> Step:
            message, images = message_with_images("Look.", TASKS[0].images[0])
            return Step(observation=Observation(messages=(message,), images=(images[0][:40],)), terminated=True)

    with pytest.raises(AssertionError, match="an image of step cannot be used"):
        check_environment(Damaged, tasks=TASKS, needs_oracle=False)


def test_environment_that_hangs_at_an_unusable_picture_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore.testing.calling.DEADLINE_S", 0.2)

    class Waits(Pictured):
        async def reset(self, task: Task, **keywords: Any) -> Observation:
            import asyncio

            if task.images[0] == HOSTILE[1][1]:
                await asyncio.sleep(60)
            return await super().reset(task, **keywords)

    with pytest.raises(AssertionError, match="a task with an image that is not one gets no answer"):
        check_environment(Waits, tasks=TASKS, needs_oracle=False)


def test_reward_out_of_bounds_for_an_unusable_picture_is_rejected() -> None:
    def careless(trajectory: Trajectory, task: Task) -> float:
        return 2.0 if b"" in trajectory.images.values() else float(trajectory.final_response == "red")

    right = make_trajectory(*TASKS[0].messages, "red", images=TASKS[0].images)
    with pytest.raises(AssertionError, match="an image of no bytes scores 2"):
        check_reward(careless, [RewardCase(task=TASKS[0], trajectory=right, value=1.0)])


@pytest.mark.parametrize(("name", "data"), HOSTILE, ids=[name for name, _ in HOSTILE])
def test_unusable_pictures_are_a_quick_clear_error_everywhere(name: str, data: bytes) -> None:
    started = time.perf_counter()
    if name in USABLE:
        check_image(data)
        ImageProcessor().fit(data)
    else:
        with pytest.raises(DataError):
            ImageProcessor().fit(data)
    message = TASKS[0].messages[0]
    one = make_trajectory(message, "red", images=[data, *TASKS[0].images]).replace(reward=1.0)
    assert "<img" in gallery([Group(task=TASKS[0], trajectories=(one,))])
    assert side_by_side([data, *TASKS[0].images]) is not None
    assert time.perf_counter() - started < 5


def test_hostile_pictures_have_the_sizes_that_they_claim() -> None:
    with Image.open(io.BytesIO(dict(HOSTILE)["an image of one pixel"])) as image:
        assert image.size == (1, 1)
    assert len(dict(HOSTILE)["an image of 3.6 gigapixels in 100 bytes"]) < 200
    with Image.open(io.BytesIO(dict(HOSTILE)["an animated image"])) as image:
        assert getattr(image, "n_frames", 1) == 2
