"""``rlcore data prepare gsm8k-tools``: convert GSM8K rows for training."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

from rlcore.console.wording import counted
from rlcore.data.files import data_files
from rlcore.errors import DataError
from rlcore.json_files import to_line
from rlcore.types import Message, thaw

from rl_plugin_gsm8k_tools import problems
from rl_plugin_gsm8k_tools.calculator import calculator
from rl_plugin_gsm8k_tools.config import PrepareConfig
from rl_plugin_gsm8k_tools.dataset import GENERATED
from rl_plugin_gsm8k_tools.demonstrations import UnusableSolution, as_rows, calculations, demonstrate, messages_of
from rl_plugin_gsm8k_tools.rows import BadRow, Row, read_rows

EXAMPLES = 3


def prepare(config: PrepareConfig) -> Mapping[str, object]:
    """Write one JSON object per line: ``question``, ``answer`` (the number), other fields, ``demonstration``.

    With ``conversations`` only rows with a demonstration are written, as ``messages`` and ``tools``. A row without
    correct annotations has no demonstration, but can still be used for reinforcement learning. The summary counts these
    rows and shows the first ones. Nothing is written if an error occurs.
    """
    out = Path(config.out).expanduser()
    if out.suffix.lower() != ".jsonl":
        raise DataError("prepared data is written as JSONL", found=out.name, where="out", fix="use the suffix .jsonl")
    if out.exists() and not config.overwrite:
        raise DataError(
            "the output file already exists", where=str(out), fix="choose another out, or add overwrite=true"
        )
    if config.source == GENERATED:
        rows = _generated(config)
        _write(out, "".join(to_line(row) + "\n" for row in rows))
        return {"rows": len(rows), "written": str(out)}
    if config.split != "train":
        raise DataError(
            "only generated problems have splits",
            found=f"split={config.split}",
            fix="omit split, or use source=generated",
        )
    rows, unusable, skipped, demonstrated = [], list[str](), 0, 0
    for row in chain.from_iterable(map(read_rows, data_files(config.source, config.split))):
        if isinstance(row, BadRow):
            if config.on_error == "raise":
                row.error.fix = row.error.fix or "correct the row, or skip invalid rows with on_error=skip"
                raise row.error
            skipped += 1
            continue
        line, problem = _prepared(row)
        demonstrated += problem is None
        if problem is not None:
            unusable.append(f"row {demonstrated + len(unusable) + skipped + 1}: {problem}")
        messages = messages_of(line)
        if config.max_calculations is not None and not 0 < calculations(messages or ()) <= config.max_calculations:
            continue
        if not config.conversations:
            rows.append(line)
        elif messages is not None:
            rows.append(_conversation(messages))
        if config.limit is not None and len(rows) >= config.limit:
            break
    if not rows:
        without = "no row with a demonstration" if unusable else "no rows"
        found = counted(skipped, "invalid row") if skipped else without
        raise DataError("there is no valid row", found=found, where=config.source)
    _write(out, "".join(to_line(row) + "\n" for row in rows))
    return {
        "rows": len(rows),
        "with a demonstration": demonstrated,
        "without a demonstration, because an annotation is wrong or missing": len(unusable),
        "examples": "; ".join(unusable[:EXAMPLES]) or "none",
        "skipped": skipped,
        "written": str(out),
    }


def _generated(config: PrepareConfig) -> list[dict[str, Any]]:
    """Generated problems, or conversations with demonstrations."""
    count = config.limit or problems.COUNTS[config.split]
    if config.conversations:
        demonstrations = problems.demonstrations(count, seed=0, split=config.split)
        return [_conversation(messages) for messages in demonstrations]
    tasks = islice(problems.tasks(config.split), count)
    return [{"question": task.messages[0].text, **thaw(task.fields)} for task in tasks]


def _conversation(messages: tuple[Message, ...]) -> dict[str, Any]:
    """A demonstration in the format of the chat completions API."""
    function = {
        "name": calculator.schema.name,
        "description": calculator.schema.description,
        "parameters": thaw(calculator.schema.parameters),
    }
    return {"messages": list(_chat_messages(messages)), "tools": [{"type": "function", "function": function}]}


def _chat_messages(messages: tuple[Message, ...]) -> Iterator[dict[str, Any]]:
    for row in as_rows(messages):
        calls = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": json.dumps(call["arguments"], ensure_ascii=False)},
            }
            for call in row.pop("tool_calls", ())
        ]
        yield {**row, "tool_calls": calls} if calls else row


def _prepared(row: Row) -> tuple[dict[str, object], str | None]:
    """The line to write, and the reason if it has no demonstration."""
    single = len(row.messages) == 1
    opening: dict[str, object] = (
        {"question": row.messages[0].text}
        if single
        else {"messages": [{"role": message.role, "content": message.text} for message in row.messages]}
    )
    line = {**opening, **thaw(row.fields)}
    solution = row.fields.get("solution")
    if "demonstration" in line:
        return line, None
    if not isinstance(solution, str) or not single:
        return line, "there is no worked solution"
    try:
        messages = demonstrate(row.messages[0].text, solution, str(row.fields["answer"]))
    except UnusableSolution as error:
        return line, str(error)
    return {**line, "demonstration": as_rows(messages)}, None


def _write(out: Path, text: str) -> None:
    """Write to a temporary file and rename it, so that readers never see a partial file."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.", suffix=".tmp")
    except OSError as error:
        raise DataError("the output folder cannot be used", found=str(error), where=str(out.parent)) from None
    beside = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        beside.chmod(0o644)
        beside.replace(out)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise DataError(
            f"{out} cannot be written",
            found=error.strerror or str(error),
            fix="free disk space, grant the permission, or choose another out=FILE",
        ) from None
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
