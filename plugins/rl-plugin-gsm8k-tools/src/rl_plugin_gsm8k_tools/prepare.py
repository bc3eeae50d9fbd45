"""``rlcore data prepare gsm8k-tools``: GSM8K's rows as training reads them."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rlcore.errors import DataError
from rlcore.types import thaw

from rl_plugin_gsm8k_tools.config import PrepareConfig
from rl_plugin_gsm8k_tools.demonstrations import UnusableSolution, as_rows, demonstrate
from rl_plugin_gsm8k_tools.rows import BadRow, Row, read_rows

EXAMPLES = 3


def prepare(config: PrepareConfig) -> Mapping[str, object]:
    """Write one JSON object a line: ``question``, ``answer`` (the number), the row's other fields, ``demonstration``.

    A solution whose marks do not compute keeps its row, which can be trained on by reinforcement, without a
    demonstration; the summary counts these and shows the first. Nothing is written when anything fails.
    """
    source, out = Path(config.source).expanduser(), Path(config.out).expanduser()
    if out.suffix.lower() != ".jsonl":
        raise DataError("prepared data is JSONL", found=out.name, where="out", mend="give out the suffix .jsonl")
    if out.exists() and not config.overwrite:
        raise DataError(
            "the file to write exists already", where=str(out), mend="choose another out, or add overwrite=true"
        )
    lines: list[str] = []
    skipped, demonstrated, unusable = 0, 0, list[str]()
    for row in read_rows(source):
        if isinstance(row, BadRow):
            if config.on_error == "raise":
                raise row.error
            skipped += 1
            continue
        line, problem = _prepared(row)
        demonstrated += problem is None
        if problem is not None:
            unusable.append(f"row {len(lines) + skipped + 1}: {problem}")
        lines.append(json.dumps(line, ensure_ascii=False) + "\n")
        if config.limit is not None and len(lines) >= config.limit:
            break
    if not lines:
        raise DataError("there is no usable row", found=f"{skipped} rows that cannot be used", where=str(source))
    _write(out, "".join(lines))
    return {
        "rows": len(lines),
        "with a demonstration": demonstrated,
        "without, because a mark does not compute or is missing": len(unusable),
        "for example": "; ".join(unusable[:EXAMPLES]) or "none",
        "skipped": skipped,
        "written": str(out),
    }


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
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
