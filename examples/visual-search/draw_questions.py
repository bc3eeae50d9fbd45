"""Write questions about drawn pictures in the schema of published files: ``questions.jsonl`` and ``pictures/``.

    python examples/visual-search/draw_questions.py data/drawn --questions 64

Half of the questions are multiple choices, whose first option is right, as in published files.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rl_plugin_visual_search.config import DataConfig
from rl_plugin_visual_search.drawn.marks import ROWS
from rl_plugin_visual_search.drawn.source import drawn_rows


def main() -> None:
    """Read the arguments and write the files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--questions", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    pictures = options.folder / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    config = DataConfig(drawn=options.questions, seed=options.seed)
    with (options.folder / "questions.jsonl").open("w") as file:
        for number, row in enumerate(drawn_rows(config, "train")):
            (pictures / f"{number}.png").write_bytes(row.images[0])
            record: dict[str, Any] = {"image_path": f"pictures/{number}.png", "question": row.question}
            record |= {"data_source": "drawn", "answer": row.answer, "ability": "free"}
            if number % 2:
                others = sorted(set(ROWS) - {row.answer})
                record |= {"options": [row.answer, *others], "answer": "A", "ability": "choice"}
            file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
