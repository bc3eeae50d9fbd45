"""Trajectories as logs of Inspect: one file for each purpose and step.

A log is a zip archive of JSON files, whose contents https://inspect.aisi.org.uk/eval-logs.html describes. It is written
without the library, whose writer takes a whole log at once; here, only one sample is in memory with its images.
"""

from __future__ import annotations

import json
import math
import statistics
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

from rlcore.console.escaping import printable
from rlcore.errors import RlcoreError
from rlcore.export.columns import numbered
from rlcore.export.selection import Selected, Selection
from rlcore.images.encoding import data_uri
from rlcore.plain_json import plain
from rlcore.report.answers import expected_answer
from rlcore.runs.directory import asked_of, config_layer
from rlcore.types import Message, TextPart, Trajectory, thaw

VERSION = 2
"""Of the format."""
LONGEST_ID = 200
"""Limit of the id of a sample, which names its file in the archive."""
TOTAL = "total"
"""The score with the weighted sum of the rewards."""
ATTACHMENT = "attachment://"


def write(selection: Selection, folder: Path) -> None:
    """Write a log for each file of rollouts."""
    for path, unfinished, samples in selection.records():
        first = next(samples)
        facts = _facts(selection, first, path)
        with zipfile.ZipFile(folder / f"{first.record}.eval", "w", zipfile.ZIP_DEFLATED) as archive:
            _put(archive, "_journal/start.json", {"version": VERSION, "eval": facts, "plan": {}})
            summaries = []
            epochs: dict[str, int] = {}
            for one in chain([first], samples):
                sample = _sample(selection, one, str(facts["model"]), epochs)
                inside = "/".join("__" if part == ".." else part for part in str(sample["id"]).split("/"))
                _put(archive, f"samples/{inside}_epoch_{sample['epoch']}.json", sample)
                summaries.append(_summary(sample))
            _put(archive, "summaries.json", summaries)
            header = {
                "version": VERSION,
                "status": "started" if unfinished else "success",
                "eval": facts,
                "plan": {},
                "results": _results(summaries),
                "stats": {"started_at": facts["created"], "completed_at": "" if unfinished else facts["created"]},
            }
            _put(archive, "header.json", header)


def _put(archive: zipfile.ZipFile, name: str, value: Any) -> None:
    # The time is fixed, so that equal trajectories give equal logs. NaN is how the format marks an unscored sample.
    entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, json.dumps(value, ensure_ascii=False))


def _facts(selection: Selection, first: Selected, path: Path) -> dict[str, Any]:
    """What the log says about the run. A file outside of a run, or a damaged configuration, has no model."""
    run, model, recipe = selection.run, "", ""
    if run is not None:
        with suppress(RlcoreError):
            table = config_layer(run).tree.get("model")
            model = str(table.get("path", "")) if isinstance(table, Mapping) else ""
            recipe = asked_of(run).recipe
    name = run.name if run is not None else path.name
    known = path if path.exists() else path.parent.parent  # a step that only trained on earlier groups has no record
    created = datetime.fromtimestamp(known.stat().st_mtime, UTC).isoformat(timespec="seconds")
    found = {
        "eval_id": f"{name}-{first.record}",
        "run_id": name,
        "created": created,
        "task": recipe or first.task.environment or name,
        "task_id": f"{name}-{first.record}",
        "task_version": 0,
        "task_args": {"rollouts": first.record},
        "model": model or "unknown",
        "dataset": {"name": name},
        "config": {},
    }
    return dict(plain(found))


def _sample(selection: Selection, one: Selected, model: str, epochs: dict[str, int]) -> dict[str, Any]:
    """A trajectory as a sample. Its siblings are epochs; those of another group of the same task follow."""
    trajectory, id = one.trajectory, plain(printable(one.task.key))[:LONGEST_ID]
    epochs[id] = max(trajectory.sibling, epochs.get(id, 0)) + 1
    attachments: dict[str, str] = {}
    messages = [_message(*each, selection, attachments) for each in numbered(trajectory.messages)]
    start = [_message(*each, selection, attachments) for each in numbered(one.task.messages)]
    answer = next((message for message in reversed(messages) if message["role"] == "assistant"), None)
    reasons = [turn.finish_reason for turn in trajectory.turns if turn.kind == "policy"]
    stop = "max_tokens" if reasons[-1:] == ["length"] else "stop"
    sample = plain(
        {
            "id": id,
            "epoch": epochs[id],
            "input": start or id,
            "target": expected_answer(one.task.fields) or "",
            "messages": messages,
            "output": {"model": model, "choices": [{"message": answer, "stop_reason": stop}] if answer else []},
            "metadata": one.row,
            "attachments": attachments,
        }
    )
    if trajectory.failure is not None:
        sample["error"] = {"message": plain(str(trajectory.failure)), "traceback": "", "traceback_ansi": ""}
    return {**sample, "scores": _scores(trajectory)}


def _scores(trajectory: Trajectory) -> dict[str, Any]:
    found = {plain(id): _score(one.value, one.text or one.error) for id, one in trajectory.rewards.items()}
    return {**found, TOTAL: _score(trajectory.reward, None)}


def _score(value: float | None, explanation: str | None) -> dict[str, Any]:
    scored = value is not None and math.isfinite(value)
    return {"value": value if scored else math.nan, "explanation": plain(explanation)}


def _message(
    message: Message, ids: list[str], answered: str, selection: Selection, attachments: dict[str, str]
) -> dict[str, Any]:
    """A message. Each image is stored once in the attachments of the sample, as the library does."""
    found: dict[str, Any] = {"role": message.role, "content": message.content}
    if not isinstance(message.content, str):
        found["content"] = [
            {"type": "text", "text": part.text}
            if isinstance(part, TextPart)
            else _image(part.sha256, selection, attachments)
            for part in message.content
        ]
    if ids:
        found["tool_calls"] = [
            {
                "id": id,
                "function": call.name,
                "arguments": thaw(call.arguments or {}),
                "type": "function",
                "parse_error": call.error,
            }
            for id, call in zip(ids, message.tool_calls, strict=True)
        ]
    if message.role == "tool":
        found |= {"tool_call_id": answered or None, "function": message.name}
    return found


def _image(sha256: str, selection: Selection, attachments: dict[str, str]) -> dict[str, str]:
    if sha256 not in attachments:
        data = selection.image(sha256)
        if data is None:
            return {"type": "text", "text": f"[image {printable(sha256[:12])}: missing or damaged]"}
        attachments[sha256] = data_uri(data)
    return {"type": "image", "image": f"{ATTACHMENT}{sha256}"}


def _summary(sample: dict[str, Any]) -> dict[str, Any]:
    """The line of a sample in the list of a log, which has no images."""
    given = sample["input"]
    if not isinstance(given, str):
        contents = [message["content"] for message in given]
        parts = [[{"text": each}] if isinstance(each, str) else each for each in contents]
        given = "\n".join(part.get("text", "[image]") for each in parts for part in each)
    kept = {name: sample[name] for name in ("id", "epoch", "target", "scores")}
    error = {"error": sample["error"]["message"]} if "error" in sample else {}
    return {**kept, "input": given[:LONGEST_ID], "completed": True, "message_count": len(sample["messages"]), **error}


def _results(summaries: list[dict[str, Any]]) -> dict[str, Any]:
    values: dict[str, list[float]] = {}
    for summary in summaries:
        for name, score in summary["scores"].items():
            values.setdefault(name, []).extend([] if math.isnan(score["value"]) else [score["value"]])
    scores = [
        {"name": name, "scorer": name, "metrics": {"mean": {"name": "mean", "value": statistics.fmean(scored)}}}
        for name, scored in values.items()
        if scored
    ]
    return {"total_samples": len(summaries), "completed_samples": len(summaries), "scores": scores}


__all__ = ["write"]
