"""Error messages for an endpoint: failures of one trajectory, and errors that end the command."""

from __future__ import annotations

from collections.abc import Sequence

import openai
from rlcore.endpoints.answers import excerpt
from rlcore.errors import ContextFullError, EngineError, UserError

from rlcore_rollout.engines.openai.config import OpenAIEngineConfig

UNREACHABLE = {"ConnectError", "ConnectTimeout"}
"""Errors of the HTTP library, by name, because client versions use different libraries."""


def failure_of(error: openai.APIError) -> EngineError:
    """The failure of one request, after its retries."""
    if isinstance(error, openai.APIStatusError):
        text = f"the endpoint answered {error.status_code}: {said(error)}"
        return ContextFullError(text) if _is_full(error) else EngineError(text)
    cause = error.__cause__ or error
    return EngineError(f"the endpoint cannot be reached: {type(cause).__name__}: {excerpt(str(cause))}")


def is_hopeless(error: openai.APIError) -> bool:
    """Whether no request can succeed: no server, a refused key, an unknown model."""
    if isinstance(error, openai.APIStatusError):
        return error.status_code in {401, 403, 404}
    return type(error.__cause__).__name__ in UNREACHABLE


def refusal_of(error: openai.APIError, config: OpenAIEngineConfig, models: Sequence[str] | None) -> UserError:
    """The error that ends the command. ``models`` are those of the endpoint; None when it does not list them."""
    where = f"rollout.openai.base_url={config.base_url}"
    variable = config.api_key_env or "OPENAI_API_KEY"
    if not isinstance(error, openai.APIStatusError):
        found = excerpt(str(error.__cause__ or error))
        fix = "start the endpoint, or correct the URL"
        return UserError("the endpoint does not respond", found=found, where=where, fix=fix)
    found = f"{error.status_code}: {said(error)}"
    if error.status_code in {401, 403}:
        fix = f"export {variable}=... with a valid key, or use another variable: rollout.openai.api_key_env=NAME"
        return UserError("the endpoint rejected the key", found=found, where=where, fix=fix)
    if models is None:
        fix = "correct the URL: most end with /v1"
        return UserError("the URL does not provide chat completions", found=found, where=where, fix=fix)
    offered = ", ".join(excerpt(name) for name in models[:20]) or "none"
    return UserError(
        f"the endpoint does not provide the model {config.model!r}",
        found=f"{found}; available models: {offered}",
        where=where,
        fix="set rollout.openai.model to an available model",
    )


def said(error: openai.APIStatusError) -> str:
    """The endpoint's own message about an error."""
    body = error.body
    inner = body.get("error", body) if isinstance(body, dict) else body
    message = inner.get("message") if isinstance(inner, dict) else inner
    return excerpt(message if isinstance(message, str) and message else error.response.text)


def _is_full(error: openai.APIStatusError) -> bool:
    """Whether the context is full: OpenAI and llama.cpp return a code, vLLM returns a message."""
    text = error.response.text[:4000].lower()
    hints = ("context_length_exceeded", "exceed_context_size", "maximum context length")
    return error.status_code == 400 and any(hint in text for hint in hints)
