"""Translation of verl's keys for lengths in tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore_compat.vocabulary import Meaning, Refused, Several, Words, nothing

_ROLLOUT = "actor_rollout_ref.rollout"
_PROMPT = ("data.max_prompt_length", f"{_ROLLOUT}.prompt_length")
_RESPONSE = ("data.max_response_length", f"{_ROLLOUT}.response_length")
_TURN = f"{_ROLLOUT}.agent.single_response_max_tokens"
_MODEL = (f"{_ROLLOUT}.max_model_len", f"{_ROLLOUT}.engine_kwargs.vllm.max_model_len")
_DEFAULT = 512
"""Of both lengths in verl."""
_TRUNCATIONS = ("error", "left", "right", "middle")


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


def _generation(words: Words) -> int:
    """The longest generation: the response, or less if the limit of a turn is lower."""
    response, turn = _length(words, _RESPONSE) or _DEFAULT, _length(words, (_TURN,))
    return min(response, turn or response)


def _response(value: Any, words: Words) -> Several:
    found = Several({"rollout.max_new_tokens": _generation(words)})
    return found if _length(words, _PROMPT) is None else Several({**found, **_context(value, words)})


def _context(value: Any, words: Words) -> Several:
    """The longest prompt and the longest response, or less if the engine's limit is lower."""
    prompt, response, limit = _length(words, _PROMPT), _length(words, _RESPONSE), _length(words, _MODEL)
    both = (prompt or _DEFAULT) + (response or _DEFAULT)
    if prompt is None and response is None:
        both = limit or both
    return Several({"rollout.max_context_tokens": min(both, limit or both)})


def _filter(value: Any, words: Words) -> Several:
    """The longest prompt, if verl removes longer ones."""
    if not isinstance(value, bool):
        raise Refused("data.filter_overlong_prompts must be true or false")
    return Several({"rollout.max_prompt_tokens": _length(words, _PROMPT) or _DEFAULT} if value else {})


_SUM = "prompt and response length; the limit of all turns of a trajectory together"
_PER_TURN = "per generation, or agent.single_response_max_tokens"
_UNFILTERED = "a prompt that leaves no room in rollout.max_context_tokens ends its trajectory, which trains nothing"

LENGTHS: Mapping[str, Meaning] = {
    "data.max_prompt_length": Meaning(ours="rollout.max_context_tokens", why=_SUM, read=_context),
    "data.max_response_length": Meaning(ours="rollout.max_new_tokens", why=_PER_TURN, read=_response),
    "data.truncation": nothing(
        f"prompts are never truncated; {_UNFILTERED}",
        only=_TRUNCATIONS,
        otherwise=f"must be one of {', '.join(_TRUNCATIONS)}",
    ),
    "data.filter_overlong_prompts": Meaning(
        ours="rollout.max_prompt_tokens", why="if true, the prompt length; images count, tools do not", read=_filter
    ),
    "data.filter_overlong_prompts_workers": nothing("prompts are counted in one process"),
    f"{_ROLLOUT}.prompt_length": Meaning(ours="rollout.max_context_tokens", why=_SUM, read=_context),
    f"{_ROLLOUT}.response_length": Meaning(ours="rollout.max_new_tokens", why=_PER_TURN, read=_response),
    _TURN: Meaning(
        ours="rollout.max_new_tokens",
        why="per generation, at most the response length",
        read=lambda value, words: _generation(words),
    ),
    f"{_ROLLOUT}.max_model_len": Meaning(ours="rollout.max_context_tokens", why=f"at most {_SUM}", read=_context),
    f"{_ROLLOUT}.engine_kwargs.vllm.max_model_len": Meaning(
        ours="rollout.max_context_tokens", why=f"at most {_SUM}", read=_context
    ),
}
"""By key of verl."""
