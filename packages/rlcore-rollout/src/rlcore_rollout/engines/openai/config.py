"""Options of the openai engine, the table ``rollout.openai``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NoReturn
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError
from rlcore.config.schema import Table
from rlcore.errors import UserError
from rlcore.secrecy import SECRET_VALUE, is_secret, remember

OFFICIAL = "https://api.openai.com/v1"
RESERVED = frozenset({"messages", "model", "n", "stream", "tools"})
"""Keys of a request that the engine sets."""


def _secret(sentence: str) -> PydanticCustomError:
    """A validation error that does not show the value."""
    return PydanticCustomError(SECRET_VALUE, sentence)


def _no_key(value: object) -> NoReturn:
    raise _secret("is not allowed: keys are read only from the environment; use export OPENAI_API_KEY=...")


def _variable(name: str) -> str:
    if name and not re.fullmatch(r"[A-Z_][A-Z0-9_]*", name):
        raise _secret("must be the name of an environment variable in upper case, not the key itself")
    return name


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"is not a valid URL: {error}") from None
    if "@" in url or parts.query or parts.fragment:
        raise _secret("must not contain a user, a password or a query: keys are read only from the environment")
    if parts.scheme not in {"http", "https"} or not host:
        raise ValueError("must be a URL such as http://localhost:8000/v1")
    if parts.path.rstrip("/").endswith("/completions"):
        raise ValueError("must not include /chat/completions; most URLs end with /v1")
    return url.rstrip("/")


def _body(values: dict[str, Any]) -> dict[str, Any]:
    if any(is_secret(key) for key in _keys(values)):
        raise _secret("must not contain a key or a password: keys are read only from the environment")
    if taken := sorted(RESERVED & set(values)):
        raise ValueError(f"cannot set {', '.join(taken)}: the engine sets it")
    return values


def _keys(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from _keys(item)
    elif isinstance(value, list):
        for item in value:
            yield from _keys(item)


class OpenAIEngineConfig(Table):
    """The endpoint, its model and the limits for requests."""

    model: Annotated[str, Field(min_length=1)]
    """Name of the model at the endpoint."""
    base_url: Annotated[str, AfterValidator(_address)] = OFFICIAL
    """URL of the endpoint, such as ``http://localhost:8000/v1``."""
    api_key_env: Annotated[str, AfterValidator(_variable)] = "OPENAI_API_KEY"
    """Environment variable with the key; empty for an endpoint without keys. For localhost, it may be unset."""
    api_key: Annotated[None, BeforeValidator(_no_key), Field(exclude=True)] = None
    """Not allowed: keys are read only from the environment."""
    max_retries: Annotated[int, Field(ge=0, le=20)] = 4
    """Number of retries after a lost connection or status 408, 409, 429 or 5xx. Retry-After is respected."""
    requests_per_minute: Annotated[float, Field(gt=0)] | None = None
    """Maximum number of requests per minute, including retries; None is unlimited."""
    extra_body: Annotated[dict[str, Any], AfterValidator(_body)] = {}
    """Additional keys of the request for this endpoint. They override those of the engine."""

    @property
    def local(self) -> bool:
        """Whether the endpoint runs on this machine."""
        host = urlsplit(self.base_url).hostname or ""
        return host in {"localhost", "0.0.0.0", "::1"} or host.startswith("127.")

    def key(self) -> str | None:
        """The key; None for an endpoint without keys.

        Raises:
            UserError: it is missing or invalid.
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
                fix=f"export {self.api_key_env}=..., or set rollout.openai.api_key_env='' for an endpoint without keys",
            )
        if not (value.isascii() and value.isprintable()):
            raise UserError(
                f"the value of {self.api_key_env} is not a valid key",
                found="characters that are not allowed in an HTTP header",
                where=where,
                fix="export it again",
            )
        remember(value)
        return value
