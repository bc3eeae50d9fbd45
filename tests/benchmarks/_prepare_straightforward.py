"""The straightforward way to prepare AITW: every row in a list, histories joined again for each step, one process.

The rows become a data set, then a data frame and then parquet, in the layout that training scripts for verl read, as
in the published script.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
from PIL import Image
from rl_plugin_aitw.actions import PROMPT
from rlcore_gui.prompts import instructions, step_text

INSTRUCTIONS = instructions(PROMPT)


def prepare(source: Path, images: Path, labels: Path | None, out: Path) -> int:
    """Write all rows, and return their number."""
    known: dict[tuple[str, int], dict[str, str]] = {}
    if labels is not None:
        with labels.open(encoding="utf-8") as file:
            known = {(row["annotation_id"], row["step_id"]): row["pseudo_labels"] for row in map(json.loads, file)}
    rows: list[dict[str, Any]] = []
    with source.open(encoding="utf-8") as file:
        domains = json.load(file)
    for episodes in domains.values():
        for episode in episodes:
            actions: list[dict[str, Any]] = []
            for index, step in enumerate(episode):
                image = images / f"{step['img_filename']}.png"
                if not image.exists():
                    continue
                with Image.open(image) as opened:
                    width, height = opened.size
                action = action_of(step)
                history = "".join(
                    f"Step{number}, previous action: {earlier}. " for number, earlier in enumerate(actions)
                )
                before = known.get((step["ep_id"], step["step"] - 1))
                memory = before["history_summary"] if before else ""
                question = step_text(INSTRUCTIONS, task=step["goal"], memory=memory)
                extra = {
                    "id": f"aitw_{len(rows)}",
                    "answer": str(action),
                    "question": question,
                    "history": history,
                    "bbox_ref": step["annot_position"],
                    "step": step,
                    "input_summary": memory,
                    "is_first": not actions,
                    "is_last": index == len(episode) - 1,
                    "task": step["goal"],
                    "image_size": [width, height],
                }
                rows.append(
                    {
                        "data_source": "aitw",
                        "prompt": [{"role": "user", "content": f"<image>{question}"}],
                        "images": [{"image": str(image), "min_pixels": 215040, "max_pixels": 1290240}],
                        "ability": "gui",
                        "reward_model": {"style": "rule", "ground_truth": str(action)},
                        "extra_info": extra,
                    }
                )
                actions.append(action)
    datasets.Dataset.from_list(rows).to_pandas().to_parquet(out, index=False)
    return len(rows)


def action_of(step: dict[str, Any]) -> dict[str, Any]:
    """The action of a step."""
    position = None
    if step["action_type_text"] == "click":
        position = [round((start + end) / 2, 3) for start, end in zip(step["touch"], step["lift"], strict=True)]
    value = step["type_text"] if step["action_type_id"] == 3 else None
    return {"action": step["action_type_text"].upper(), "value": value, "position": position}
