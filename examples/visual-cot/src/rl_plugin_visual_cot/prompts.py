"""The messages of a question, shared by supervised training, reinforcement learning and evaluation."""

from __future__ import annotations

from rlcore import ImagePart, Message, TextPart

INSTRUCTION = """\
You are an assistant that looks at pictures and answers questions about them.

# Task
Reason step by step about what the picture shows, inside <think> and </think>. Then give a short answer, a word or a \
few words, inside <answer> and </answer>.

# Reasoning
These steps may help you:
- SELECT(object): find an object in the picture.
- RELATE(object, relationship): find what is in this relationship to the object.
- QUERY(attribute): read an attribute of what you found.

# Output
- Always write both parts, each exactly once, first the reasoning and then the answer.
- Write nothing outside of the two parts, and no other tags such as <tool_call>.
- Write in English."""
"""The system prompt."""


def opening(question: str, image: bytes, system: str) -> tuple[Message, ...]:
    """Return the messages before the answer: the system prompt, unless it is empty, and the picture with its question.

    Args:
        question: text of the question
        image: encoded picture, to which the message refers by its hash
        system: system prompt
    """
    parts = (ImagePart.of(image), TextPart(text=f"\n### Question:\n{question}"))
    asked = Message(role="user", content=parts)
    return (Message(role="system", content=system), asked) if system else (asked,)


def answered(reasoning: str, answer: str) -> Message:
    """Return the message of a model that reasons and answers."""
    text = f"<think>\n{reasoning}\n</think>\n<answer>\n{answer}\n</answer>"
    return Message(role="assistant", content=text)
