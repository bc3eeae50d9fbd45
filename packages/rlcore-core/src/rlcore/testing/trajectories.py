"""Creates trajectories from messages, without a tokenizer, for tests of rewards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby

from rlcore.types import Failure, Message, Segment, Stop, ToolSchema, Trajectory, Turn, media_hash


def make_trajectory(
    *messages: Message | str,
    task_id: str = "task",
    sibling: int = 0,
    stop: Stop = Stop.DONE,
    failure: Failure | None = None,
    tools: Iterable[ToolSchema] = (),
    images: Iterable[bytes] = (),
    metrics: Mapping[str, float] | None = None,
) -> Trajectory:
    """Return a trajectory of these messages in one segment. A plain text is an answer of the assistant.

    Assistant messages are policy turns, all others are observations. The tokens are the bytes of the texts; only their
    shape is meaningful.
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
    segment = Segment(
        token_ids=token_ids,  # type: ignore[arg-type]
        loss_mask=loss_mask,  # type: ignore[arg-type]
        logprobs=(0.0,) * len(token_ids),  # type: ignore[arg-type]
        turns=tuple(turns),
    )
    return Trajectory(
        task_id=task_id,
        sibling=sibling,
        segments=(segment,),
        stop=stop,
        failure=failure,
        tools=tuple(tools),
        images={media_hash(image): image for image in images},
        metrics=dict(metrics or {}),
    )
