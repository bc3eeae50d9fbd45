"""Write drawn episodes in the published formats of AITW or Mind2Web, with screenshots and labels of a teacher.

    python examples/gui/draw_episodes.py aitw data/aitw
    python examples/gui/draw_episodes.py mind2web data/mind2web --episodes 200

An episode has two screens, and its task names what to do on each of them. The folder receives ``train.json``,
``labels.jsonl`` and ``images/``, the input of ``rlcore data prepare``.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import random
from pathlib import Path
from typing import Any

from PIL import Image
from rlcore_gui.drawn.pictures import picture
from rlcore_gui.drawn.screens import COLORS, SIDE, Screen, center, draw_screen
from rlcore_gui.drawn.steps import answer

DOMAINS = ("general", "single", "webshopping", "install", "googleapps")


def main() -> None:
    """Read the arguments and write the files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("plugin", choices=["aitw", "mind2web"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    kinds = list(importlib.import_module(f"rl_plugin_{options.plugin}.dataset").KINDS.values())
    write = _write_aitw if options.plugin == "aitw" else _write_mind2web
    rng = random.Random(options.seed)
    episodes = [
        [draw_screen(rng, kind, rng.randint(1, 3), targets=list(COLORS)) for kind in rng.sample(kinds, 2)]
        for _ in range(options.episodes)
    ]
    (options.folder / "images").mkdir(parents=True, exist_ok=True)
    names = [f"drawn-{number:05d}" for number in range(len(episodes))]
    source = write(options.folder / "images", dict(zip(names, episodes, strict=True)), rng)
    (options.folder / "train.json").write_text(json.dumps(source), encoding="utf-8")
    labels = [
        {"annotation_id": name, "step_id": number, "pseudo_labels": _label(screens[: number + 1])}
        for name, screens in zip(names, episodes, strict=True)
        for number in range(len(screens))
    ]
    (options.folder / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in labels), encoding="utf-8")


def _task(screens: list[Screen]) -> str:
    return ", then ".join(screen.instruction for screen in screens)


def _label(screens: list[Screen]) -> dict[str, str]:
    """The label of the last screen. Its summary contains everything that was done."""
    given = [answer(screen, screen.target.cell) for screen in screens]
    return {
        "progress_estimation": " ".join(one.summary for one in given[:-1]) or given[-1].progress,
        "decision_reasoning": given[-1].reasoning,
        "history_summary": " ".join(one.summary for one in given),
    }


def _write_aitw(images: Path, episodes: dict[str, list[Screen]], rng: random.Random) -> dict[str, list[Any]]:
    source: dict[str, list[Any]] = {domain: [] for domain in DOMAINS}
    for number, (name, screens) in enumerate(episodes.items()):
        (images / name).mkdir(exist_ok=True)
        steps = []
        for step, screen in enumerate(screens):
            (images / name / f"{step}.png").write_bytes(picture(screen, rng))
            place = list(center(screen.target.cell))
            steps.append(
                {
                    "ep_id": name,
                    "step": step,
                    "goal": _task(screens),
                    "img_filename": f"{name}/{step}",
                    "action_type_id": 4,
                    "action_type_text": "click",
                    "touch": place,
                    "lift": place,
                    "type_text": "",
                    "annot_position": [part for element in screen.elements for part in element.box],
                }
            )
        source[DOMAINS[number % len(DOMAINS)]].append(steps)
    return source


def _write_mind2web(images: Path, episodes: dict[str, list[Screen]], rng: random.Random) -> list[dict[str, Any]]:
    source = []
    for name, screens in episodes.items():
        actions = []
        for step, screen in enumerate(screens):
            image = Image.open(io.BytesIO(picture(screen, rng)))
            image.save(images / f"{name}-{step}.jpg", quality=95, subsampling=0)
            top, left, height, width = (SIDE * part for part in screen.target.box)
            operation = {"op": screen.kind.action, "original_op": screen.kind.action, "value": screen.value or ""}
            box = {"x": left, "y": top, "width": width, "height": height}
            actions.append({"action_uid": str(step), "operation": operation, "bbox": box})
        source.append(
            {
                "annotation_id": name,
                "confirmed_task": _task(screens),
                "website": "drawn",
                "domain": "Drawn",
                "subdomain": screens[0].kind.name,
                "action_reprs": [f"[{one.kind.name}]  {one.target.color} -> {one.kind.action}" for one in screens],
                "actions": actions,
            }
        )
    return source


if __name__ == "__main__":
    main()
