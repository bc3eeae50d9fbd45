"""A trajectory that is still growing, and how it ends."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from numbers import Real

from rlcore.types import ChatCompletion, Completion, EndReason, Message, Step, ToolSchema, Turn


class End(Exception):
    """The trajectory is over."""

    def __init__(self, reason: EndReason, error: str | None = None):
        self.reason, self.error = reason, error
        super().__init__(reason)


@dataclass(slots=True)
class Record:
    """What has happened so far. Without tokens, where the engine speaks messages, all turns have start = end = 0."""

    token_ids: list[int] = field(default_factory=list)
    loss_mask: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    tools: tuple[ToolSchema, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)
    context_tokens: int = 0
    """Length of the conversation up to the last answer, as an engine that speaks messages counted it."""

    @property
    def messages(self) -> list[Message]:
        """The conversation so far."""
        return [message for turn in self.turns for message in turn.messages]

    def shown(self, messages: tuple[Message, ...], ids: list[int]) -> None:
        """Append what the model is shown; no ids stand for messages that it never saw."""
        start = len(self.token_ids)
        self.token_ids += ids
        self.loss_mask += [False] * len(ids)
        self.logprobs += [0.0] * len(ids)
        self.turns.append(Turn(kind="observation", start=start, end=len(self.token_ids), messages=messages))

    def sampled(self, completion: Completion, message: Message) -> None:
        """Append what the model wrote, as tokens."""
        start = len(self.token_ids)
        self.token_ids += completion.token_ids
        self.loss_mask += [True] * len(completion.token_ids)
        self.logprobs += completion.logprobs
        turn = Turn(
            kind="policy",
            start=start,
            end=len(self.token_ids),
            messages=(message,),
            finish_reason=completion.finish_reason,
            policy_version=completion.policy_version,
        )
        self.turns.append(turn)
        self.add("turns", 1.0)

    def said(self, completion: ChatCompletion) -> None:
        """Append what the model wrote, as a message; ``metrics`` has its tokens where the engine counts them."""
        place = len(self.token_ids)
        turn = Turn(
            kind="policy",
            start=place,
            end=place,
            messages=(completion.message,),
            finish_reason=completion.finish_reason,
        )
        self.turns.append(turn)
        self.add("turns", 1.0)
        self.context_tokens = (completion.prompt_tokens or 0) + (completion.completion_tokens or 0)
        for name in ("prompt_tokens", "completion_tokens"):
            count = getattr(completion, name)
            if count is not None:
                self.add(name, float(count))

    def judged(self, step: Step) -> None:
        """Keep a step's reward on the turn that earned it, and the numbers of its info."""
        if step.reward is not None:
            if not (isinstance(step.reward, Real) and math.isfinite(step.reward)):
                raise End(
                    EndReason.ENVIRONMENT_ERROR, f"step gave the reward {step.reward!r}, which is no finite number"
                )
            self.turns[-1] = replace(self.turns[-1], reward=float(step.reward))
            self.add("step_reward", float(step.reward))
        for name, value in step.info.items():
            if isinstance(value, Real) and math.isfinite(value):
                self.add(name, float(value))

    def add(self, name: str, value: float) -> None:
        """Add to a metric."""
        self.metrics[name] = self.metrics.get(name, 0.0) + value
