"""What went wrong at an endpoint, in words: for one trajectory, or for all of them."""

from __future__ import annotations

from collections.abc import Sequence

import openai
from rlcore.errors import ContextFullError, EngineError, UserError

from rlcore_rollout.engines.openai.config import OpenAIEngineConfig
from rlcore_rollout.engines.openai.wire import excerpt

UNREACHABLE = {"ConnectError", "ConnectTimeout"}
"""Errors of the HTTP library, by name: clients of different versions bring different ones."""


def failure_of(error: openai.APIError) -> EngineError:
    """The failure of one request, after its retries."""
    if isinstance(error, openai.APIStatusError):
        text = f"the endpoint answered {error.status_code}: {said(error)}"
        return ContextFullError(text) if _is_full(error) else EngineError(text)
    cause = error.__cause__ or error
    return EngineError(f"the endpoint cannot be reached: {type(cause).__name__}: {excerpt(str(cause))}")


def is_hopeless(error: openai.APIError) -> bool:
    """Whether no other request can fare better: nobody listens, the key is refused, the model is unknown."""
    if isinstance(error, openai.APIStatusError):
        return error.status_code in {401, 403, 404}
    return type(error.__cause__).__name__ in UNREACHABLE


def refusal_of(error: openai.APIError, config: OpenAIEngineConfig, models: Sequence[str] | None) -> UserError:
    """The sentence that ends the command. ``models`` are what the endpoint offers, None when it does not tell."""
    where = f"rollout.openai.base_url={config.base_url}"
    variable = config.api_key_env or "OPENAI_API_KEY"
    if not isinstance(error, openai.APIStatusError):
        found = excerpt(str(error.__cause__ or error))
        mend = "start the endpoint, or mend the address"
        return UserError("nothing answers at the endpoint's address", found=found, where=where, mend=mend)
    found = f"{error.status_code}: {said(error)}"
    if error.status_code in {401, 403}:
        mend = f"export {variable}=... with a valid key, or name another variable: rollout.openai.api_key_env=NAME"
        return UserError("the endpoint refused the key", found=found, where=where, mend=mend)
    if models is None:
        mend = "mend the address: most end with /v1"
        return UserError("the endpoint has no chat completions there", found=found, where=where, mend=mend)
    offered = ", ".join(excerpt(name) for name in models[:20]) or "none"
    return UserError(
        f"the endpoint does not answer for the model {config.model!r}",
        found=f"{found}; it offers {offered}",
        where=where,
        mend="set rollout.openai.model to one that it offers",
    )


def said(error: openai.APIStatusError) -> str:
    """The endpoint's own sentence about an error."""
    body = error.body
    inner = body.get("error", body) if isinstance(body, dict) else body
    message = inner.get("message") if isinstance(inner, dict) else inner
    return excerpt(message if isinstance(message, str) and message else error.response.text)


def _is_full(error: openai.APIStatusError) -> bool:
    """OpenAI and llama.cpp have a code for it, vLLM has a sentence."""
    text = error.response.text[:4000].lower()
    hints = ("context_length_exceeded", "exceed_context_size", "maximum context length")
    return error.status_code == 400 and any(hint in text for hint in hints)
