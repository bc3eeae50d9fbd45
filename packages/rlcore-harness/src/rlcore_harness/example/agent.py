"""An agent with a loop of its own: it opens boxes that the policy chooses, and reads the note in each.

It uses the standard library, as an agent in any framework could. Copy it to begin your own.
"""

from __future__ import annotations

import json
import urllib.request
from typing import Any

TOOL = {
    "type": "function",
    "function": {
        "name": "open",
        "description": "Open a box.",
        "parameters": {"type": "object", "properties": {"box": {"type": "string"}}, "required": ["box"]},
    },
}


def solve(task: Any, policy: Any) -> float:
    """Open boxes until the last note, and return the share of right ones.

    Args:
        task: its field ``path`` has the right boxes in order
        policy: where the policy answers
    """
    messages, path, right = list(task.messages), task.fields["path"], 0
    for place, box in enumerate(path):
        answer = ask(policy, messages)
        if not answer.get("tool_calls"):
            break
        call = answer["tool_calls"][0]
        right += json.loads(call["function"]["arguments"]).get("box") == box
        messages += [answer, {"role": "tool", "tool_call_id": call["id"], "content": note(path[place + 1 :])}]
    return right / len(path)


def note(path: list[str]) -> str:
    """The note in a box.

    Args:
        path: the boxes that follow
    """
    return f"The note says {path[0]}." if path else "This was the last box."


def ask(policy: Any, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The next message of the assistant."""
    body = json.dumps({"model": "policy", "messages": messages, "tools": [TOOL]}).encode()
    headers = {"Authorization": "Bearer " + policy.key, "Content-Type": "application/json"}
    request = urllib.request.Request(policy.base_url + "/chat/completions", body, headers)
    with urllib.request.urlopen(request) as answer:
        message: dict[str, Any] = json.load(answer)["choices"][0]["message"]
    return message
