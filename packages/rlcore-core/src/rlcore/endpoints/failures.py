"""Failures of single questions to an endpoint."""

from __future__ import annotations

from typing import Literal

from rlcore.errors import EngineError

FailureKind = Literal[
    "connection",
    "time-out",
    "rate limit",
    "server error",
    "unreadable answer",
    "content filter",
    "rejected request",
    "full context",
]
TRANSIENT: frozenset[FailureKind] = frozenset(
    {"connection", "time-out", "rate limit", "server error", "unreadable answer"}
)
"""Failures that a later request may not have."""


class EndpointFailure(EngineError):
    """A question without a usable answer, after its retries."""

    def __init__(self, text: str, kind: FailureKind = "unreadable answer") -> None:
        super().__init__(text)
        self.kind: FailureKind = kind
