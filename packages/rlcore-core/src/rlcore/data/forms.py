"""The forms in which other systems write their rows, recognised by their fields. The only place that knows them.

========  ======================================================  ===================================================
verl      ``prompt``, ``reward_model.ground_truth``               the prompt, and the expected answer
TRL       ``prompt`` (text or messages), with ``completion``      the prompt, and the answer
chat      ``messages`` of OpenAI                                  the messages before the first answer, and the last
ShareGPT  ``conversations`` with ``from`` and ``value``           the same
Alpaca    ``instruction``, ``input``, ``output``                  both texts, and the answer
========  ======================================================  ===================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rlcore.types import Role

ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "tool": "tool",
    "function_response": "tool",
    "observation": "tool",
}
"""Roles of all forms. ``function_call`` is an assistant turn whose text contains its tool calls."""
ANSWERS = ("answer", "ground_truth")
"""Fields with the expected answer of a row, which take precedence over the text of an answering message."""


class Recognised(NamedTuple):
    """A row in the form of a task."""

    row: dict[str, Any]
    """With ``prompt`` (a text or a list of messages) and, if the form has one, ``answer``."""
    mapping: str
    """What became what, such as ``verl: prompt -> prompt, reward_model.ground_truth -> answer``. Empty if nothing did.
    """


def task_row(row: Mapping[str, Any]) -> Recognised:
    """Recognise the form of a row with a prompt, for datasets of tasks. Other fields are kept.

    A row of no known form is returned as it is.
    """
    found, fields, name, source = dict(row), list[str](), "", ""
    if isinstance(reward := row.get("reward_model"), Mapping) and "prompt" in row and "ground_truth" in reward:
        name, prompt, answer, source = "verl", row["prompt"], reward["ground_truth"], "reward_model.ground_truth"
        fields = ["prompt"]
    elif is_alpaca(row):
        name, prompt, answer, source = "Alpaca", alpaca_messages(row)[:-1], row["output"], "output"
        fields = [field for field in ("instruction", "input", "system", "history") if row.get(field)]
    elif isinstance(entries := row.get("conversations"), list):
        name, fields, source = "ShareGPT", ["conversations"], "conversations[-1].value"
        prompt, answer = _before_the_answer([_from_sharegpt(entry) for entry in entries])
    elif isinstance(entries := row.get("messages"), list) and "prompt" not in row:
        name, fields, source = "chat", ["messages"], "messages[-1].content"
        prompt, answer = _before_the_answer(entries)
    elif isinstance(row.get("prompt"), (str, list)) and "completion" in row:
        name, fields, prompt, source, answer = "TRL", ["prompt"], row["prompt"], "completion", row["completion"]
        if isinstance(answer, list):
            _, answer = _before_the_answer(answer)
    else:
        prompt, answer = row.get("prompt"), None
    written = next((field for field in ANSWERS if row.get(field) is not None), None)
    if written is not None:
        answer, source = row[written], written
    for field in fields:
        found.pop(field, None)
    if prompt is not None:
        found["prompt"] = prompt
    if answer is not None:
        found["answer"] = answer
    changes = {f"{' + '.join(fields)} -> prompt": fields not in ([], ["prompt"])}
    changes[f"{source} -> answer"] = answer is not None and source != "answer"
    told = ", ".join(change for change, is_one in changes.items() if is_one)
    return Recognised(found, f"{name}: {told}" if name and told else told)


def is_alpaca(row: Mapping[str, Any]) -> bool:
    """Whether a row has Alpaca's fields."""
    return all(isinstance(row.get(name), str) for name in ("instruction", "output")) and "messages" not in row


def alpaca_messages(row: Mapping[str, Any]) -> list[dict[str, str]]:
    """The conversation of a row of Alpaca, with the earlier turns that LLaMA-Factory adds as ``history``."""
    system, asked = row.get("system"), row["instruction"]
    if row.get("input"):
        asked += f"\n\n{row['input']}"
    pairs = [*(row.get("history") or ()), (asked, row["output"])]
    said = [{"role": "system", "content": system}] if isinstance(system, str) and system else []
    for question, answer in pairs:
        said += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return said


def _from_sharegpt(entry: object) -> object:
    if not isinstance(entry, Mapping) or "from" not in entry:
        return entry
    others = {key: value for key, value in entry.items() if key not in ("from", "value")}
    return {"role": ROLES.get(entry["from"], entry["from"]), "content": entry.get("value"), **others}


def _before_the_answer(entries: Sequence[Any]) -> tuple[list[Any], Any]:
    """The messages before the first one of the assistant, and the text of the last one. All, if another role ends."""
    speakers = [entry.get("role") if isinstance(entry, Mapping) else None for entry in entries]
    if not speakers or speakers[-1] != "assistant":
        return list(entries), None
    text = entries[-1].get("content")
    return list(entries[: speakers.index("assistant")]), text if isinstance(text, str) and text else None
