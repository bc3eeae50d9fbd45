"""Small recorded episodes in the formats of AITW and Mind2Web, with their screenshots."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

SIZE = (90, 200)


def screenshot(folder: Path, name: str, *, size: tuple[int, int] = SIZE) -> Path:
    """Write a grey screenshot. The suffix of the name chooses the format."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    written = io.BytesIO()
    Image.new("RGB", size, "grey").save(written, "PNG" if path.suffix == ".png" else "JPEG")
    path.write_bytes(written.getvalue())
    return path


def aitw_step(episode: str | int, index: int, **changes: Any) -> dict[str, Any]:
    """A click on the middle of the screen, in AITW's format."""
    return {
        "ep_id": episode,
        "step": index,
        "goal": 'open "Clock"',
        "img_filename": f"{episode}/{episode}_{index}",
        "action_type_id": 4,
        "action_type_text": "click",
        "annot_position": [0.4, 0.4, 0.1, 0.2],
        "touch": [0.5, 0.25],
        "lift": [0.5, 0.25],
        "type_text": "",
        **changes,
    }


def write_aitw(folder: Path, domains: Mapping[str, Sequence[Sequence[Any]]], *, missing: Sequence[str] = ()) -> Path:
    """Write ``data.json`` with these domains of episodes, and the screenshots of all steps except the missing ones."""
    for step in (step for episodes in domains.values() for episode in episodes for step in episode):
        name = step.get("img_filename") if isinstance(step, dict) else None
        if isinstance(name, str) and len(name) < 200 and ".." not in name and name not in missing:
            screenshot(folder / "images", f"{name}.png")
    return written(folder / "data.json", domains)


def mind2web_action(uid: str | None, **changes: Any) -> dict[str, Any]:
    """A click on a box in pixels, in Mind2Web's format."""
    operation = {"op": "CLICK", "original_op": "CLICK", "value": ""}
    box = {"x": 10.0, "y": 20.0, "width": 40.0, "height": 60.0}
    return {"action_uid": uid, "operation": operation, "bbox": box, **changes}


def mind2web_episode(id: str | int, actions: Sequence[Any], **changes: Any) -> dict[str, Any]:
    """An episode of these actions, in Mind2Web's format."""
    return {
        "annotation_id": id,
        "confirmed_task": "find a photographer",
        "website": "thumbtack",
        "domain": "Service",
        "subdomain": None,
        "action_reprs": [f"[button]  Element {number} -> CLICK" for number in range(len(actions))],
        "actions": list(actions),
        **changes,
    }


def write_mind2web(folder: Path, episodes: Sequence[Any], *, name: str = "mind2web_data_train.json") -> Path:
    """Write a file with these episodes, and the screenshots of all actions."""
    for episode in episodes:
        for action in episode["actions"]:
            if isinstance(action, dict) and action.get("action_uid"):
                screenshot(folder / "images", f"{episode['annotation_id']}-{action['action_uid']}.jpg")
    return written(folder / name, episodes)


def label(episode: str | int, step: str | int, summary: str | None = None) -> dict[str, Any]:
    """A line of a file of pseudo-labels; None as the summary of a teacher that failed."""
    texts = {"progress_estimation": "Started.", "decision_reasoning": "It is the clock.", "history_summary": summary}
    return {"annotation_id": episode, "step_id": step, "pseudo_labels": texts if summary is not None else None}


def write_labels(folder: Path, lines: Sequence[Any]) -> Path:
    """Write ``labels.jsonl``. Texts are written as they are."""
    path = folder / "labels.jsonl"
    path.write_text(
        "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines), encoding="utf-8"
    )
    return path


def written(path: Path, tree: Any) -> Path:
    """Write JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(tree), encoding="utf-8")
    return path
