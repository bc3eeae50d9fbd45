"""Check the fields of values that plugins make, because dataclasses accept anything.

Each function returns what is wrong with a value, such as ``messages that are None``, or None when it is valid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any, get_args

from rlcore.types.generation import ChatCompletion, Completion, FinishReason, VersionSpan
from rlcore.types.messages import ImagePart, Message, Role, TextPart, ToolCall, ToolSchema
from rlcore.types.sandbox import CodeResult, CodeStatus
from rlcore.types.steps import Observation, Step, Stop
from rlcore.types.tasks import Demonstration, Preference, Task

ROLES = get_args(Role)
FINISH_REASONS = get_args(FinishReason)
CODE_STATUSES = get_args(CodeStatus)
LARGEST_LOGPROB = 1e-2
"""Log-probabilities are at most 0, except for rounding errors in bfloat16."""


def flaw_in_task(task: Task) -> str | None:
    """Of a row of a dataset."""
    if not isinstance(task.id, str):
        return f"an id of type {_kind(task.id)}"
    if not isinstance(task.fields, Mapping):
        return f"fields of type {_kind(task.fields)}"
    return flaw_in_messages(task.messages) or _flaw_in_images(task.images)


def flaw_in_demonstration(demonstration: Demonstration) -> str | None:
    """Of a conversation for imitation."""
    return (
        flaw_in_messages(demonstration.messages)
        or _flaw_in_tools(demonstration.tools)
        or _flaw_in_images(demonstration.images)
    )


def flaw_in_preference(preference: Preference) -> str | None:
    """Of a prompt with two answers."""
    for name in ("prompt", "chosen", "rejected"):
        if flaw := flaw_in_messages(messages := getattr(preference, name)):
            return f"{name} with {flaw}"
        if name != "prompt" and (not messages or messages[0].role != "assistant"):
            return f"{name} that does not begin with an assistant message"
    if preference.chosen == preference.rejected:
        return "two equal answers"
    if not is_finite(preference.margin):
        return "a margin that is not a finite number"
    return _flaw_in_tools(preference.tools) or _flaw_in_images(preference.images)


def flaw_in_observation(observation: Observation) -> str | None:
    """Of the answer of ``reset``."""
    return (
        flaw_in_messages(observation.messages)
        or _flaw_in_tools(observation.tools)
        or _flaw_in_images(observation.images)
        or (None if observation.context is None else flaw_in_messages(observation.context))
    )


def flaw_in_code_result(result: CodeResult) -> str | None:
    """Of the answer of a sandbox."""
    if result.status not in CODE_STATUSES:
        return f"the status {str(result.status)[:40]!r}"
    for name in ("stdout", "stderr", "value", "error"):
        if not isinstance(text := getattr(result, name), str):
            return f"{name} of type {_kind(text)}"
    if flaw := _flaw_in_images(result.images):
        return flaw
    names = result.image_names
    if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
        return "image_names that are not a tuple of texts"
    if len(names) != len(result.images):
        return f"{len(names)} image_names for {len(result.images)} images"
    if isinstance(result.omitted_images, bool) or not isinstance(result.omitted_images, int):
        return f"omitted_images of type {_kind(result.omitted_images)}"
    return None if is_finite(result.seconds) else "seconds that are not a finite number"


def flaw_in_step(step: Step) -> str | None:
    """Of the answer of ``step``."""
    if not isinstance(step.observation, Observation):
        return f"an observation of type {_kind(step.observation)}"
    if step.reward is not None and not is_finite(step.reward):
        return "a reward that is not a finite number"
    if step.stop is not None and not isinstance(step.stop, Stop):
        return f"a stop of type {_kind(step.stop)}"
    for name, value in (("terminated", step.terminated), ("truncated", step.truncated)):
        if _kind(value) not in ("bool", "bool_"):  # numpy has a type of its own
            return f"{name} of type {_kind(value)}"
    if not isinstance(step.info, Mapping):
        return f"info of type {_kind(step.info)}"
    return flaw_in_observation(step.observation)


def flaw_in_completion(completion: object) -> str | None:
    """Of the answer of an engine."""
    if not isinstance(completion, Completion):
        return f"a {_kind(completion)} instead of a Completion"
    count = len(completion.token_ids)
    if count == 0:
        return "no token"
    if len(completion.logprobs) != count:
        return f"{count} tokens with {len(completion.logprobs)} log-probabilities"
    logprobs = completion.logprobs.tolist()
    if not math.isfinite(sum(logprobs)) and not all(map(math.isfinite, logprobs)):  # the sum is faster
        return "a log-probability that is not finite"
    if (largest := max(logprobs)) > LARGEST_LOGPROB:
        return f"a log-probability of {largest:g}"
    if type(completion.policy_version) is not int:
        return f"a policy_version of type {_kind(completion.policy_version)}"
    return _flaw_in_versions(completion, count) or _flaw_in_finish_reason(completion.finish_reason)


def _flaw_in_versions(completion: Completion, count: int) -> str | None:
    spans = completion.versions
    if not isinstance(spans, tuple) or not all(isinstance(one, VersionSpan) for one in spans):
        return "versions that are not VersionSpans"
    if not all(type(one.version) is int and type(one.tokens) is int and one.tokens > 0 for one in spans):
        return "versions that are not positive numbers of tokens"
    if not spans:
        return None
    if (total := sum(one.tokens for one in spans)) != count:
        return f"versions of {total} tokens for {count} tokens"
    if spans[0].version != completion.policy_version:
        return f"versions that begin with {spans[0].version} instead of policy_version={completion.policy_version}"
    return None


def flaw_in_chat_completion(completion: object) -> str | None:
    """Of the answer of an engine that takes messages."""
    if not isinstance(completion, ChatCompletion):
        return f"a {_kind(completion)} instead of a ChatCompletion"
    for name in ("prompt_tokens", "completion_tokens"):
        if (value := getattr(completion, name)) is not None and not (type(value) is int and value >= 0):
            return f"{name} that are not a number"
    return _flaw_in_finish_reason(completion.finish_reason) or flaw_in_answer(completion.message)


def flaw_in_answer(message: object) -> str | None:
    """Of the message of a policy."""
    if (flaw := _flaw_in_message(message)) is not None:
        return flaw
    return None if isinstance(message, Message) and message.role == "assistant" else "a message of another role"


def _flaw_in_finish_reason(reason: object) -> str | None:
    known = isinstance(reason, str) and reason in FINISH_REASONS
    return None if known else f"a finish_reason other than {' and '.join(map(repr, FINISH_REASONS))}"


def flaw_in_messages(messages: Any) -> str | None:
    """Of the messages of a conversation."""
    if not isinstance(messages, (list, tuple)):
        return f"messages of type {_kind(messages)}"
    for message in messages:
        if flaw := _flaw_in_message(message):
            return flaw
    return None


def flaw_in_numbers(numbers: Any, what: str) -> str | None:
    """Of a mapping from names to finite numbers."""
    if not isinstance(numbers, Mapping):
        return f"{what} of type {_kind(numbers)}"
    for name, value in numbers.items():
        if not isinstance(name, str):
            return f"{what} with a name of type {_kind(name)}"
        if not is_finite(value):
            return f"{what} whose {name[:40]!r} is not a finite number"
    return None


def is_finite(value: object) -> bool:
    """Whether a value is a finite number."""
    if not isinstance(value, (float, int, Real)):  # Real alone is slow to check
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond the range of a float
        return False


def _flaw_in_message(message: Any) -> str | None:
    if not isinstance(message, Message):
        return f"a message of type {_kind(message)}"
    if message.role not in ROLES:
        return "a message with an unknown role"
    if not isinstance(message.content, str):
        if not isinstance(message.content, (list, tuple)):
            return f"a message whose content is of type {_kind(message.content)}"
        for part in message.content:
            if not (isinstance(part, TextPart) and isinstance(part.text, str)) and not (
                isinstance(part, ImagePart) and isinstance(part.sha256, str)
            ):
                return f"a message with an invalid part of type {_kind(part)}"
    if not isinstance(message.tool_calls, (list, tuple)):
        return f"a message whose tool calls are of type {_kind(message.tool_calls)}"
    for call in message.tool_calls:
        if not isinstance(call, ToolCall) or not isinstance(call.name, str):
            return f"a message with an invalid tool call of type {_kind(call)}"
        if call.arguments is not None and not isinstance(call.arguments, Mapping):
            return "a tool call with invalid arguments"
    for text in (message.name, message.tool_call_id):
        if text is not None and not isinstance(text, str):
            return f"a message with a name of type {_kind(text)}"
    return None


def _flaw_in_tools(tools: Any) -> str | None:
    return _flaw_in_items(tools, ToolSchema, "tools")


def _flaw_in_images(images: Any) -> str | None:
    return _flaw_in_items(images, bytes, "images")


def _flaw_in_items(values: Any, kind: type, what: str) -> str | None:
    if not isinstance(values, (list, tuple)):
        return f"{what} of type {_kind(values)}"
    for value in values:
        if not isinstance(value, kind):
            return f"{what} that contain a {_kind(value)}"
    return None


def _kind(value: object) -> str:
    return type(value).__name__


__all__ = [
    "flaw_in_answer",
    "flaw_in_chat_completion",
    "flaw_in_completion",
    "flaw_in_demonstration",
    "flaw_in_messages",
    "flaw_in_numbers",
    "flaw_in_observation",
    "flaw_in_step",
    "flaw_in_task",
    "is_finite",
]
