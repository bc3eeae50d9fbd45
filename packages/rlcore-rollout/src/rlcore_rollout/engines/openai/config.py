"""Options of the openai engine, the table ``rollout.openai``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NoReturn
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError
from rlcore.config.secrets import SECRET_VALUE, is_secret
from rlcore.errors import UserError

OFFICIAL = "https://api.openai.com/v1"
RESERVED = frozenset({"messages", "model", "n", "stream", "tools"})
"""What the engine itself decides about a request."""


def _secret(sentence: str) -> PydanticCustomError:
    """A refusal after which the value is not shown."""
    return PydanticCustomError(SECRET_VALUE, sentence)


def _no_key(value: object) -> NoReturn:
    raise _secret("keys come from the environment alone: export OPENAI_API_KEY=..., and leave this out")


def _variable(name: str) -> str:
    if name and not re.fullmatch(r"[A-Z_][A-Z0-9_]*", name):
        raise _secret("should be the name of an environment variable in capitals, never the key itself")
    return name


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"is not an address: {error}") from None
    if "@" in url or parts.query or parts.fragment:
        raise _secret("should hold no user, no password and no query: keys come from the environment alone")
    if parts.scheme not in {"http", "https"} or not host:
        raise ValueError("should be an address such as http://localhost:8000/v1")
    if parts.path.rstrip("/").endswith("/completions"):
        raise ValueError("should end before /chat/completions, mostly with /v1")
    return url.rstrip("/")


def _body(values: dict[str, Any]) -> dict[str, Any]:
    if any(is_secret(key) for key in _keys(values)):
        raise _secret("should hold no key and no password: keys come from the environment alone")
    if taken := sorted(RESERVED & set(values)):
        raise ValueError(f"cannot set {', '.join(taken)}: the engine decides that")
    return values


def _keys(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from _keys(item)
    elif isinstance(value, list):
        for item in value:
            yield from _keys(item)


class OpenAIEngineConfig(BaseModel):
    """Which endpoint is asked for which model, and how politely."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    model: Annotated[str, Field(min_length=1)]
    """The model's name, as the endpoint knows it."""
    base_url: Annotated[str, AfterValidator(_address)] = OFFICIAL
    """Where the endpoint is, such as ``http://localhost:8000/v1``."""
    api_key_env: Annotated[str, AfterValidator(_variable)] = "OPENAI_API_KEY"
    """Environment variable that holds the key; empty for an endpoint that wants none. For localhost it may be unset."""
    api_key: Annotated[None, BeforeValidator(_no_key), Field(exclude=True)] = None
    """Refused: a key comes from the environment alone."""
    max_retries: Annotated[int, Field(ge=0, le=20)] = 4
    """Tries after the first one when a connection is lost or 408, 409, 429 or 5xx come; Retry-After is heeded."""
    requests_per_minute: Annotated[float, Field(gt=0)] | None = None
    """Requests are sent no faster, retries included; None knows no limit."""
    extra_body: Annotated[dict[str, Any], AfterValidator(_body)] = {}
    """Keys of the request that only this endpoint knows; they win over the engine's own."""

    @property
    def local(self) -> bool:
        """Whether the endpoint runs on this machine."""
        host = urlsplit(self.base_url).hostname or ""
        return host in {"localhost", "0.0.0.0", "::1"} or host.startswith("127.")

    def key(self) -> str | None:
        """The key, None for an endpoint that wants none.

        Raises:
            UserError: it is not there, or cannot be one.
        """
        value = os.environ.get(self.api_key_env, "").strip() if self.api_key_env else ""
        if not value and (self.local or not self.api_key_env):
            return None
        where = f"rollout.openai.base_url={self.base_url}"
        if not value:
            raise UserError(
                "the endpoint needs a key",
                found=f"the environment variable {self.api_key_env} is not set",
                where=where,
                mend=f"export {self.api_key_env}=..., or for an endpoint without keys rollout.openai.api_key_env=''",
            )
        if not (value.isascii() and value.isprintable()):
            raise UserError(
                f"the value of {self.api_key_env} cannot be a key",
                found="characters that no HTTP header may hold",
                where=where,
                mend="export it anew",
            )
        return value
