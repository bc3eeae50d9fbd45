"""The messages of a question, shared by supervised training, reinforcement learning and evaluation."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore import Message


def opening(
    question: str, images: Sequence[bytes], *, tools: str = "code", style: str = "guided", options: Sequence[str] = ()
) -> tuple[Message, ...]:
    """Return the messages before the first turn.

    Args:
        question: text of the question
        images: encoded pictures, to which the message refers by their hashes
        tools: ``code``, ``zoom`` or ``none``
        style: ``guided``, with all instructions, or ``plain``, the pictures and the question alone
        options: texts of the options of a multiple choice
    """
    raise NotImplementedError
