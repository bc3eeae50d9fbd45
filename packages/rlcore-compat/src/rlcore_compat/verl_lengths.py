"""verl's keys for lengths in tokens."""

from __future__ import annotations

from typing import Any

from rlcore_compat.tables import Refused, Several, Words

_ROLLOUT = "actor_rollout_ref.rollout"
_PROMPT = ("data.max_prompt_length", f"{_ROLLOUT}.prompt_length")
_RESPONSE = ("data.max_response_length", f"{_ROLLOUT}.response_length")
_TURN = f"{_ROLLOUT}.agent.single_response_max_tokens"
_MODEL = (f"{_ROLLOUT}.max_model_len", f"{_ROLLOUT}.engine_kwargs.vllm.max_model_len")
_DEFAULT = 512
"""Of both lengths in verl."""


def _length(words: Words, names: tuple[str, ...]) -> int | None:
    """The length that the last of the given keys sets; those of the rollout take precedence over those of the data."""
    found = None
    for name in names:
        value = words.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise Refused(f"{name} must be a positive integer", of=name)
        found = value
    return found


def generation(value: Any, words: Words) -> int:
    """The longest generation: the response, or less if the limit of a turn is lower."""
    response, turn = _length(words, _RESPONSE) or _DEFAULT, _length(words, (_TURN,))
    return min(response, turn or response)


def response(value: Any, words: Words) -> Several:
    """The longest response, which limits each generation and the context."""
    found = Several({"rollout.max_new_tokens": generation(value, words)})
    if _length(words, _PROMPT) is not None:
        found["rollout.max_context_tokens"] = context(value, words)
    return found


def context(value: Any, words: Words) -> int:
    """The longest prompt and the longest response, or less if the engine's limit is lower."""
    prompt, response, limit = _length(words, _PROMPT), _length(words, _RESPONSE), _length(words, _MODEL)
    both = (prompt or _DEFAULT) + (response or _DEFAULT)
    if prompt is None and response is None:
        both = limit or both
    return min(both, limit or both)


def longest_prompt(value: Any, words: Words) -> Any:
    """The longest prompt, if verl removes longer ones."""
    if not isinstance(value, bool):
        raise Refused("data.filter_overlong_prompts must be true or false")
    return _length(words, _PROMPT) or _DEFAULT if value else Several()
