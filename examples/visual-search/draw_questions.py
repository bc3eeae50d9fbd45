"""Write questions about drawn pictures in the schema of published files: ``questions.jsonl`` and ``pictures/``.

    python examples/visual-search/draw_questions.py data/drawn --questions 64 --conversations 256

Half of the questions are multiple choices, whose first option is right, as in published files. ``--conversations`` adds
``conversations.jsonl``: solved questions with code and the pictures that it returned, for supervised training.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rl_plugin_visual_search.config import DataConfig
from rl_plugin_visual_search.drawn.marks import ROWS
from rl_plugin_visual_search.drawn.source import drawn_demonstrations, drawn_rows
from rlcore import Message, TextPart


def main() -> None:
    """Read the arguments and write the files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--questions", type=int, default=64)
    parser.add_argument("--conversations", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    (options.folder / "pictures").mkdir(parents=True, exist_ok=True)
    config = DataConfig(drawn=options.questions, drawn_seed=options.seed, style="plain")
    write_questions(options.folder, config)
    if options.conversations:
        write_conversations(options.folder, config, options.conversations)


def write_questions(folder: Path, config: DataConfig) -> None:
    """Write the questions of training."""
    with (folder / "questions.jsonl").open("w") as file:
        for number, row in enumerate(drawn_rows(config, "train")):
            (folder / "pictures" / f"{number}.png").write_bytes(row.images[0])
            record: dict[str, Any] = {"image_path": f"pictures/{number}.png", "question": row.question}
            record |= {"data_source": "drawn", "answer": row.answer, "ability": "free"}
            if number % 2:
                others = sorted(set(ROWS) - {row.answer})
                record |= {"options": [row.answer, *others], "answer": "A", "ability": "choice"}
            file.write(json.dumps(record) + "\n")


def write_conversations(folder: Path, config: DataConfig, count: int) -> None:
    """Write solved questions about other pictures."""
    with (folder / "conversations.jsonl").open("w") as file:
        for number, one in enumerate(drawn_demonstrations(config, count, seed=0)):
            paths = [f"pictures/conversation-{number}-{place}.png" for place in range(len(one.images))]
            for path, image in zip(paths, one.images, strict=True):
                (folder / path).write_bytes(image)
            messages = [{"role": message.role, "content": marked(message)} for message in one.messages]
            file.write(json.dumps({"messages": messages, "images": paths}) + "\n")


def marked(message: Message) -> str:
    """The text of a message, with ``<image>`` at the place of each picture."""
    if isinstance(message.content, str):
        return message.content
    return "".join(part.text if isinstance(part, TextPart) else "<image>" for part in message.content)


if __name__ == "__main__":
    main()
