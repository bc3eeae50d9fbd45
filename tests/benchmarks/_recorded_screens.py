"""Generated steps in the format of AITW, with a screenshot file and a pseudo-label for each."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

DOMAINS = ("general", "single", "webshopping", "install", "googleapps")
KINDS = ((4, "click"), (4, "click"), (4, "click"), (4, "scroll down"), (3, "type"), (5, "press back"))


def write_steps(folder: Path, count: int) -> None:
    """Write ``data.json``, ``labels.jsonl`` and ``images/`` with at least this many steps in episodes of 3 to 12."""
    rng = random.Random(0)
    domains: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in DOMAINS}
    png, written = _png(rng), 0
    with (folder / "labels.jsonl").open("w", encoding="utf-8") as labels:
        while written < count:
            episode = f"{rng.getrandbits(60)}"
            domain = DOMAINS[written % 5]
            (folder / "images" / domain / episode).mkdir(parents=True)
            steps = [_step(rng, episode, index, domain) for index in range(min(rng.randint(3, 12), count - written))]
            for step in steps:
                (folder / "images" / f"{step['img_filename']}.png").write_bytes(png)
                labels.write(json.dumps(_label(step)) + "\n")
            domains[domain].append(steps)
            written += len(steps)
    (folder / "data.json").write_text(json.dumps(domains), encoding="utf-8")


def _step(rng: random.Random, episode: str, index: int, domain: str) -> dict[str, Any]:
    number, text = rng.choice(KINDS)
    touch = [rng.random(), rng.random()]
    return {
        "ep_id": episode,
        "step": index,
        "goal": f"open the settings of app {episode[:4]} and turn on its notifications",
        "img_filename": f"{domain}/{episode}/{episode}_{index}",
        "action_type_id": number,
        "action_type_text": text,
        "annot_position": [rng.random() for _ in range(4 * rng.randint(10, 30))],
        "touch": touch,
        "lift": touch,
        "type_text": "notifications" if text == "type" else "",
    }


def _label(step: dict[str, Any]) -> dict[str, Any]:
    texts = {
        "progress_estimation": "The app is open, and its settings are not visible yet. One or two steps are left.",
        "decision_reasoning": f"The entry of the settings is visible, so {step['action_type_text']} is next.",
        "history_summary": f"Opened the app and went through {step['step'] + 1} screens. The settings come next.",
    }
    return {"annotation_id": step["ep_id"], "step_id": step["step"], "pseudo_labels": texts}


def _png(rng: random.Random) -> bytes:
    """A screen with coloured boxes, as large as most screenshots of AITW."""
    screen = Image.new("RGB", (270, 600), "white")
    draw = ImageDraw.Draw(screen)
    for _ in range(20):
        x, y = rng.randrange(230), rng.randrange(560)
        draw.rectangle((x, y, x + 40, y + 40), fill=(rng.randrange(256), rng.randrange(256), rng.randrange(256)))
    written = io.BytesIO()
    screen.save(written, "PNG")
    return written.getvalue()
