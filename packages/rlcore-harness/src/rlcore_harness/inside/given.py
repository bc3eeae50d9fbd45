"""What the function ``solve(task, policy)`` of an agent receives."""

from __future__ import annotations

import json
import urllib.request
from typing import Any, NamedTuple


class Task:
    """A task.

    Attributes:
        id: from the dataset
        messages: the prompt as messages of the chat-completions API, with images as data URIs
        fields: every other field of the row, such as the expected answer
    """

    def __init__(self, id: str, messages: list[dict[str, Any]], fields: dict[str, Any]) -> None:
        self.id, self.messages, self.fields = id, messages, fields

    @property
    def text(self) -> str:
        """The text of the last message."""
        content = self.messages[-1]["content"] if self.messages else ""
        return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


class Place(NamedTuple):
    """Where the policy answers in an episode."""

    base_url: str
    root_url: str
    key: str
    seed: int


class Policy:
    """The policy. The variables of the OpenAI and Anthropic SDKs name the same place.

    Attributes:
        base_url: for OpenAI SDKs, with ``/v1``
        root_url: for Anthropic SDKs
        key: the API key
        seed: for the agent's own random choices
    """

    def __init__(self, place: Place) -> None:
        self.base_url, self.root_url, self.key, self.seed = place

    def reward(self, value: float) -> None:
        """Add to the reward of the last answer of the policy."""
        headers = {"Authorization": "Bearer " + self.key, "Content-Type": "application/json"}
        body = json.dumps({"value": value}).encode()
        urllib.request.urlopen(urllib.request.Request(self.base_url + "/reward", body, headers)).close()
