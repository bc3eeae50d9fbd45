"""What is wrong with answers: limits that cut them, and tool calls that are not read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from rlcore.types import Group, Message, Stop, ToolCall, Trajectory

MARKS = ("<tool_call>", "[TOOL_CALLS]", "<function=", "<|python_tag|>", "to=functions.", "Action Input:")
"""Texts that begin a tool call in the formats of common model families."""
LONGEST_NAME = 64


def cut_by(trajectory: Trajectory, max_new_tokens: int) -> str | None:
    """The limit that cut an answer: ``turn``, or ``context`` for that of the whole segment; None if none did.

    The limit of a turn is ``max_new_tokens``, or the lower one that the requests of an agent set.
    """
    if trajectory.stop is not Stop.LENGTH:
        return None
    if trajectory.sampling is not None:
        max_new_tokens = min(max_new_tokens, trajectory.sampling.max_new_tokens)
    written = [turn for turn in trajectory.turns if turn.kind == "policy"]
    cut = bool(written) and written[-1].finish_reason == "length"
    return "turn" if cut and written[-1].end - written[-1].start >= max_new_tokens else "context"


def written_calls(trajectory: Trajectory) -> list[ToolCall]:
    """The tool calls that the parser recognised; those that it could not read have an ``error``."""
    return [call for message in _written(trajectory) for call in message.tool_calls]


def missed_calls(trajectory: Trajectory) -> Iterator[Message]:
    """Complete messages without a call that contain a mark of `MARKS`, or ``"name": "TOOL"`` with one of the tools.

    Empty for an episode without tools.
    """
    names = "|".join(re.escape(tool.name) for tool in trajectory.tools if len(tool.name) <= LONGEST_NAME)
    if not names:
        return
    called = re.compile(rf'"name"\s{{0,8}}:\s{{0,8}}"(?:{names})"')
    for message in _written(trajectory):
        text = message.text
        if not message.tool_calls and (any(mark in text for mark in MARKS) or called.search(text)):
            yield message


def most_common_share(groups: Sequence[Group]) -> float | None:
    """The share of trajectories with the most common answer to all tasks; None for a single task or without text."""
    answers = Counter[tuple[str, ...]]()
    for group in groups:
        for trajectory in group.trajectories:
            written = tuple(message.text for message in trajectory.messages if message.role == "assistant")
            if any(written):
                answers[written] += 1
    if not answers or len({group.task.id for group in groups}) < 2:
        return None
    return answers.most_common(1)[0][1] / answers.total()


def repeated(group: Group) -> tuple[bool, bool]:
    """Whether all trajectories of a group have the same tokens and images, and whether two of those have other rewards.

    Only trajectories of the same role are compared, and not their rewards, which depend on the other roles. Both are
    False for episodes of a control policy, whose decisions are not tokens.
    """
    if len(roles := group.roles) > 1:
        return all(repeated(of)[0] for of in roles.values()), False
    rewards: dict[tuple[object, ...], set[float | None]] = {}
    for one in group.trajectories:
        if not one.sampled_tokens or any(segment.arrays for segment in one.segments):
            return False, False
        key = tuple((segment.token_ids.tobytes(), segment.media) for segment in one.segments)
        rewards.setdefault(key, set()).add(one.reward)
    contradictory = any(len(found - {None}) > 1 for found in rewards.values())
    return len(rewards) == 1 and len(group.trajectories) > 1, contradictory


def _written(trajectory: Trajectory) -> Iterator[Message]:
    """The messages of the model that it ended itself: others are not parsed."""
    for turn in trajectory.turns:
        if turn.kind == "policy" and turn.finish_reason != "length":
            yield from (message for message in turn.messages if message.role == "assistant")
