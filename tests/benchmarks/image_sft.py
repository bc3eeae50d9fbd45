"""Supervised training on pictures: pictures of 112 x 112 pixels, each with four questions, per core and second.

The model is ``builtin:tiny-qwen2.5-vl`` with one thread. A conversation shows a picture of a coloured object in each
quadrant and asks for the four colours. The trainer reads a file of conversations, and is measured from its first to its
last step: pixels, vision tower, packing, forward and backward passes, and updates, without start-up and encoding. The
budget is a rate of 150 pictures per second of CPU time. The loss must fall below that of guessing.
"""

from __future__ import annotations

import base64
import io
import json
import math
import random
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import torch
from comparison import Comparison
from PIL import Image, ImageDraw
from rlcore.session.session import RunSession
from rlcore_trainer.supervised.trainer import SupervisedTrainer

VERSIONS = ("rlcore-trainer", "torch", "transformers")
RATE = 150
"""Pictures per second and core."""
SIDE, PER_STEP = 112, 32
GUESSING = math.log(4) / 2
"""Loss in nats per token of a model that does not see the pictures: each answer is a colour and a certain end token."""
COLORS = ("red", "lime", "blue", "yellow")
PLACES = {"top left": (0, 0), "top right": (56, 0), "bottom left": (0, 56), "bottom right": (56, 56)}


def conversation(numbers: random.Random) -> dict[str, object]:
    """A row of the dataset ``chat``: a picture and four questions with their answers."""
    image = Image.new("RGB", (SIDE, SIDE), "gray")
    canvas, messages = ImageDraw.Draw(image), list[dict[str, object]]()
    for place, (left, top) in PLACES.items():
        color, x, y = numbers.choice(COLORS), left + numbers.randint(2, 14), top + numbers.randint(2, 14)
        canvas.ellipse((x, y, x + 40, y + 40), fill=color)
        messages += [{"role": "user", "content": place}, {"role": "assistant", "content": color}]
    written = io.BytesIO()
    image.save(written, format="PNG", compress_level=1)
    url = f"data:image/png;base64,{base64.b64encode(written.getvalue()).decode()}"
    shown = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": messages[0]["content"]}]
    messages[0] = {"role": "user", "content": shown}
    return {"messages": messages}


class Noted(RunSession):
    """A run that stores its metrics."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Store them."""
        self.__dict__.setdefault("noted", []).append(dict(metrics))


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """One epoch of conversations against the time of the rate."""
    _KEPT.append(tempfile.TemporaryDirectory())
    numbers, count = random.Random(0), 2 * PER_STEP if smoke else 40 * PER_STEP
    rows = Path(_KEPT[-1].name) / "rows.jsonl"
    rows.write_text("".join(f"{json.dumps(conversation(numbers))}\n" for _ in range(count)), encoding="utf-8")

    def ours() -> float:
        torch.set_num_threads(1)
        trainer_keys = {"id": "sft", "conversations_per_step": PER_STEP, "learning_rate": 3e-3, "betas": [0.9, 0.99]}
        run = Noted.create(
            {
                "model": {"path": "builtin:tiny-qwen2.5-vl"},
                "data": {"id": "chat", "train": [str(rows)]},
                "trainer": trainer_keys,
                "evaluation": {"every": 0},
            }
        )
        trainer = SupervisedTrainer(run)
        assert all(len(one.media) == 1 for one in trainer.data.train)
        started = time.process_time()
        trainer.train()
        seconds = time.process_time() - started
        losses = [metrics["loss"] for metrics in run.noted]
        assert len(losses) == count // PER_STEP
        assert losses[-1] < (losses[0] if smoke else GUESSING / 2), losses[-1]
        print(f"  {count / seconds:,.0f} pictures per CPU second, loss {losses[0]:.2f} to {losses[-1]:.2f}", flush=True)
        return seconds

    return [Comparison(name="four-questions", ours=ours, peer=count / RATE, floor=1.0)]


_KEPT: list[tempfile.TemporaryDirectory[str]] = []
"""Temporary folders, removed at the end of the process."""
