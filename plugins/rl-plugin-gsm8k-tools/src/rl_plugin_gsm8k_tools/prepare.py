"""``rlcore data prepare gsm8k-tools``: GSM8K's rows as training reads them."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from rlcore.errors import DataError
from rlcore.types import Message, thaw
from rlcore.wording import counted

from rl_plugin_gsm8k_tools import problems
from rl_plugin_gsm8k_tools.calculator import calculator
from rl_plugin_gsm8k_tools.config import PrepareConfig
from rl_plugin_gsm8k_tools.dataset import GENERATED
from rl_plugin_gsm8k_tools.demonstrations import UnusableSolution, as_rows, demonstrate, messages_of
from rl_plugin_gsm8k_tools.rows import BadRow, Row, read_rows

EXAMPLES = 3


def prepare(config: PrepareConfig) -> Mapping[str, object]:
    """Write one JSON object a line: ``question``, ``answer`` (the number), the row's other fields, ``demonstration``.

    With ``conversations`` it is ``messages`` and ``tools`` instead, of the rows that have a demonstration. A solution
    whose marks do not compute has none; its row can be trained on by reinforcement all the same. The summary counts
    these and shows the first. Nothing is written when anything fails.
    """
    source, out = Path(config.source).expanduser(), Path(config.out).expanduser()
    if out.suffix.lower() != ".jsonl":
        raise DataError("prepared data is JSONL", found=out.name, where="out", mend="give out the suffix .jsonl")
    if out.exists() and not config.overwrite:
        raise DataError(
            "the file to write exists already", where=str(out), mend="choose another out, or add overwrite=true"
        )
    if config.source == GENERATED:
        rows = _generated(config)
        _write(out, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        return {"rows": len(rows), "written": str(out)}
    if config.split != "train":
        raise DataError(
            "only generated problems have splits",
            found=f"split={config.split}",
            mend="leave split out, or source=generated",
        )
    rows, unusable, skipped, demonstrated = [], list[str](), 0, 0
    for row in read_rows(source):
        if isinstance(row, BadRow):
            if config.on_error == "raise":
                raise row.error
            skipped += 1
            continue
        line, problem = _prepared(row)
        demonstrated += problem is None
        if problem is not None:
            unusable.append(f"row {demonstrated + len(unusable) + skipped + 1}: {problem}")
        if not config.conversations:
            rows.append(line)
        elif (messages := messages_of(line)) is not None:
            rows.append(_conversation(messages))
        if config.limit is not None and len(rows) >= config.limit:
            break
    if not rows:
        useless = "no demonstration in any" if unusable else "none"
        found = f"{counted(skipped, 'row')} that cannot be used" if skipped else useless
        raise DataError("there is no usable row", found=found, where=str(source))
    _write(out, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return {
        "rows": len(rows),
        "with a demonstration": demonstrated,
        "without, because a mark does not compute or is missing": len(unusable),
        "for example": "; ".join(unusable[:EXAMPLES]) or "none",
        "skipped": skipped,
        "written": str(out),
    }


def _generated(config: PrepareConfig) -> list[dict[str, Any]]:
    """Problems made on the spot, or conversations of their demonstrator."""
    count = config.limit or problems.COUNTS[config.split]
    if config.conversations:
        told = problems.demonstrations(count, seed=0, split=config.split)
        return [_conversation(messages) for messages in told]
    tasks = islice(problems.tasks(config.split), count)
    return [{"question": task.messages[0].text, **thaw(task.fields)} for task in tasks]


def _conversation(messages: tuple[Message, ...]) -> dict[str, Any]:
    """A demonstration as the chat-completions API has it."""
    function = {
        "name": calculator.schema.name,
        "description": calculator.schema.description,
        "parameters": thaw(calculator.schema.parameters),
    }
    return {"messages": list(_spoken(messages)), "tools": [{"type": "function", "function": function}]}


def _spoken(messages: tuple[Message, ...]) -> Iterator[dict[str, Any]]:
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
    """The line to write, and why it has no demonstration."""
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
    """Beside it first, then in its place: a reader never sees half a file."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.", suffix=".tmp")
    except OSError as error:
        raise DataError("the folder to write to cannot be used", found=str(error), where=str(out.parent)) from None
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
            mend="make room or give the permission, or another out=FILE",
        ) from None
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
