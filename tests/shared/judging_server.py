"""A chat-completions server that plays a judge: it reads the question that it is asked."""

from __future__ import annotations

import re
from typing import Any

from chat_server import Reply, reply

_PART = re.compile(
    r"^\[(Question|Reference|Answer|Candidate) ([0-9a-f]{8})\]\n(.*?)(?=^\[\w+ \2\]$)", re.DOTALL | re.MULTILINE
)


def parts(body: dict[str, Any]) -> dict[str, str]:
    """The question, the reference and the answer of the last case in a request."""
    asked = next(message["content"] for message in reversed(body["messages"]) if "[End " in message["content"])
    found = _PART.findall(asked)
    code = found[-1][1]
    return {name.lower(): text.strip() for name, own, text in found if own == code}


def is_right(body: dict[str, Any]) -> bool:
    """Whether the answer contains the reference, as an honest judge would say."""
    case = parts(body)
    answer = case.get("answer", case.get("candidate", ""))
    return case["reference"].lower() in answer.lower()


def judged(body: dict[str, Any]) -> Reply:
    """The verdict, after some reasoning that names other verdicts."""
    right = is_right(body)
    text = body["messages"][-1]["content"]
    said = f"Verdict: {'TRUE' if right else 'FALSE'}" if "Verdict:" in text else f"Judgement: {int(right)}"
    if "Score:" in text:
        said = f"Score: {float(right)}"
    return reply(f"<think>It could be 0, or 1. Judgement: {int(not right)}?</think>\n{said}")
