"""``rlcore data prepare visual-cot``: write generated pictures and questions as files."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from rlcore import DataError
from rlcore.atomic_files import write_whole
from rlcore.json_files import to_line

from rl_plugin_visual_cot.config import PrepareConfig
from rl_plugin_visual_cot.questions import generate
from rl_plugin_visual_cot.rows import SUFFIX
from rl_plugin_visual_cot.scenes import picture


def prepare(config: PrepareConfig) -> Mapping[str, object]:
    """Write three files of rows in the format of the chain-of-thought files, and their pictures.

    ``dev_data.jsonl`` and ``test.jsonl`` are different held-out questions.
    """
    out = Path(config.out).expanduser()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError("the output folder is not empty", where=str(out), fix="choose another out=FOLDER")
    parts = {
        "train_data": ("images", config.questions),
        "dev_data": ("images", config.held_out),
        "test": ("test_images", config.held_out),
    }
    for name, (folder, count) in parts.items():
        (out / folder).mkdir(parents=True, exist_ok=True)
        rng = random.Random(f"files {name} {config.drawn_seed}")
        stream = generate(
            rng, kinds=config.kinds, most=config.objects, held_out=name != "train_data", others=config.others
        )
        rows = []
        for number, asked in enumerate(islice(stream, count)):
            question = asked.question
            image_id = f"{name}-{number}"
            (out / folder / (image_id + SUFFIX)).write_bytes(picture(asked.scene, form="JPEG"))
            row = {
                "imageId": image_id,
                "instruction": question.text,
                "cot": [{"text": question.reasoning}],
                "answer": question.answer,
            }
            rows.append(to_line(row) + "\n")
        write_whole(out / f"{name}.jsonl", "".join(rows))
    return {"training questions": config.questions, "held-out questions": 2 * config.held_out, "written": str(out)}
