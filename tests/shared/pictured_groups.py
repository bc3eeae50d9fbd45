"""Stored groups with drawn pictures, for tests of everything that shows trajectories."""

from __future__ import annotations

import io
import random

from PIL import Image, ImageDraw
from rlcore.testing import make_trajectory
from rlcore.types import Group, ImagePart, Message, RewardResult, Task, TextPart, ToolCall, ToolSchema, Trajectory

COLORS = ("red", "green", "blue", "orange", "purple")
SHAPES = ("circle", "square", "triangle")
CROP = ToolSchema(name="crop", description="Enlarge a part.", parameters={"type": "object", "properties": {}})


def png(image: Image.Image) -> bytes:
    written = io.BytesIO()
    image.save(written, format="PNG")
    return written.getvalue()


def scene(rng: random.Random, side: int = 112) -> tuple[bytes, str, str]:
    """A picture of three shapes, and the colour and the name of the largest one."""
    image = Image.new("RGB", (side, side), (127, 127, 127))
    draw = ImageDraw.Draw(image)
    names = [(rng.choice(COLORS), rng.choice(SHAPES)) for _ in range(3)]
    for number, (color, shape) in enumerate(reversed(names)):
        size = side * (0.16 if number < 2 else 0.34)
        x, y = (rng.uniform(0.05 * side, 0.95 * side - size) for _ in range(2))
        box = (x, y, x + size, y + size)
        if shape == "circle":
            draw.ellipse(box, fill=color)
        elif shape == "square":
            draw.rectangle(box, fill=color)
        else:
            draw.polygon([(x + size / 2, y), (x, y + size), (x + size, y + size)], fill=color)
    return png(image), *names[0]


def group(number: int, *, siblings: int = 1, side: int = 112, seed: int = 0) -> Group:
    """A task about a picture and its scored trajectories: one with a tool, wrong answers, and one without a score."""
    rng = random.Random(f"{seed}/{number}")
    picture, color, shape = scene(rng, side)
    question = TextPart(text=f"Which colour has the largest {shape}?")
    asked = (
        Message(role="system", content="Think, then answer between <answer> tags."),
        Message(role="user", content=(ImagePart.of(picture), question)),
    )
    task = Task(id=f"scenes/{number}", messages=asked, fields={"answer": color}, images=(picture,))
    return Group(task=task, trajectories=tuple(_trajectory(rng, task, color, index) for index in range(siblings)))


def _trajectory(rng: random.Random, task: Task, color: str, sibling: int) -> Trajectory:
    said = color if rng.random() < 0.6 else rng.choice(COLORS)
    thought = f"<think>\nThe largest shape is near the middle. It looks {said}.\n</think>\n"
    images = list(task.images)
    middle: list[Message] = []
    if rng.random() < 0.4:
        with Image.open(io.BytesIO(task.images[0])) as whole:
            side = whole.width
            part = png(whole.crop((side // 4, side // 4, side // 2, side // 2)).resize((side, side)))
        images.append(part)
        call = ToolCall(name="crop", arguments={"box": [side // 4, side // 4, side // 2, side // 2]})
        middle.append(Message(role="assistant", content="<think>I look closer.</think>", tool_calls=(call,)))
        shown = (TextPart(text="The part, enlarged:"), ImagePart.of(part))
        middle.append(Message(role="tool", name="crop", content=shown))
    trajectory = make_trajectory(
        *task.messages, *middle, f"{thought}<answer>{said}</answer>", task_id=task.id, sibling=sibling, images=images
    ).replace(tools=(CROP,))
    if rng.random() < 0.1:
        missing = {"judge": RewardResult(value=None, error="the judge did not answer")}
        return trajectory.replace(rewards=missing)
    value = float(said == color)
    parts = {"format": 1.0, "answer": value}
    return trajectory.replace(reward=value, rewards={"visual-answer": RewardResult(value=value, components=parts)})


def groups(count: int, *, siblings: int = 1, side: int = 112, seed: int = 0) -> list[Group]:
    """Several tasks."""
    return [group(number, siblings=siblings, side=side, seed=seed) for number in range(count)]


__all__ = ["group", "groups", "png", "scene"]
