"""Trajectories made of messages, without a tokenizer, for tests of rewards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby

from rlcore.types import EndReason, Message, ToolSchema, Trajectory, Turn


def make_trajectory(
    *messages: Message | str,
    task_id: str = "task",
    sibling: int = 0,
    end_reason: EndReason = EndReason.DONE,
    tools: Iterable[ToolSchema] = (),
    metrics: Mapping[str, float] | None = None,
) -> Trajectory:
    """A trajectory of these messages; a plain text is an answer of the assistant.

    Assistant messages are policy turns, all others observations. The tokens are the bytes of the texts: they have the
    right shape and mean nothing.
    """
    chat = [Message(role="assistant", content=item) if isinstance(item, str) else item for item in messages]
    token_ids: list[int] = []
    loss_mask: list[bool] = []
    turns: list[Turn] = []
    for sampled, run in groupby(chat, key=lambda message: message.role == "assistant"):
        for turn in [(message,) for message in run] if sampled else [tuple(run)]:
            start = len(token_ids)
            token_ids += "".join(message.text for message in turn).encode("utf-8", "surrogatepass") or b"\0"
            loss_mask += [sampled] * (len(token_ids) - start)
            kind, finish = ("policy", "stop") if sampled else ("observation", None)
            turns.append(
                Turn(kind=kind, start=start, end=len(token_ids), messages=turn, finish_reason=finish)  # type: ignore[arg-type]
            )
    return Trajectory(
        task_id=task_id,
        sibling=sibling,
        token_ids=tuple(token_ids),
        loss_mask=tuple(loss_mask),
        logprobs=(0.0,) * len(token_ids),
        turns=tuple(turns),
        end_reason=end_reason,
        tools=tuple(tools),
        metrics=dict(metrics or {}),
    )
