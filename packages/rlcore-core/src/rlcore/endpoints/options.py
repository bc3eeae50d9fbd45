"""Options of endpoints. Keys are read only from the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NoReturn
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from rlcore.config.schema import Count, Table
from rlcore.errors import UserError
from rlcore.redaction import SECRET_VALUE, is_secret, remember

OFFICIAL = "https://api.openai.com/v1"
RESERVED = frozenset({"messages", "model", "n", "stream", "tools"})
"""Keys of a request that its sender sets."""
FROM_ENVIRONMENT, NO_PROXY = "environment", "none"
LONGEST_WAIT_S = 86_400.0


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


def _proxy(text: str) -> str:
    if text in {FROM_ENVIRONMENT, NO_PROXY}:
        return text
    parts = urlsplit(text)
    if "@" in text:
        raise _secret("must not contain a user or a password; the environment variable HTTPS_PROXY can")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("must be environment, none, or a URL such as http://proxy.example.org:3128")
    return text


def _body(values: dict[str, Any]) -> dict[str, Any]:
    if any(is_secret(key) for key in _keys(values)):
        raise _secret("must not contain a key or a password: keys are read only from the environment")
    if taken := sorted(RESERVED & set(values)):
        raise ValueError(f"cannot set {', '.join(taken)}: rlcore sets it")
    return values


def _keys(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from _keys(item)
    elif isinstance(value, list):
        for item in value:
            yield from _keys(item)


BaseUrl = Annotated[str, AfterValidator(_address)]
"""The URL of an endpoint, without a user and without the path of a request."""
KeyVariable = Annotated[str, AfterValidator(_variable)]
"""The name of an environment variable."""
NoKey = Annotated[None, BeforeValidator(_no_key), Field(exclude=True)]
"""A field that rejects every value without showing it."""
ExtraBody = Annotated[dict[str, Any], AfterValidator(_body)]
"""Additional keys of a request, without secrets."""


class EndpointTable(Table):
    """A model at one or more endpoints, and the limits for requests."""

    model: Annotated[str, Field(min_length=1)]
    """Name of the model at the endpoint."""
    base_url: Annotated[list[BaseUrl], Field(min_length=1, max_length=64)] = [OFFICIAL]
    """URL of the endpoint, such as ``http://localhost:8000/v1``; several URLs of equal servers share the requests."""
    api_key_env: KeyVariable = "OPENAI_API_KEY"
    """Environment variable with the key; empty for an endpoint without keys. For localhost, it may be unset."""
    api_key: NoKey = None
    """Not allowed: keys are read only from the environment."""
    concurrency: Count = 8
    """Maximum number of requests at a time."""
    requests_per_minute: Annotated[float, Field(gt=0)] | None = None
    """Maximum number of requests per minute, including retries; None is unlimited."""
    max_retries: Annotated[int, Field(ge=0, le=50)] = 6
    """Number of retries after a lost connection, an unreadable answer or status 408, 409, 425, 429 or 5xx."""
    timeout_s: Annotated[float, Field(gt=0, le=LONGEST_WAIT_S)] = 120.0
    """Seconds after which a single request has failed."""
    deadline_s: Annotated[float, Field(gt=0, le=LONGEST_WAIT_S)] = 900.0
    """Seconds after which a question has failed, with all its retries and the waits between them."""
    proxy: Annotated[str, AfterValidator(_proxy)] = FROM_ENVIRONMENT
    """``environment`` uses HTTP_PROXY, HTTPS_PROXY and NO_PROXY, ``none`` uses no proxy; or the URL of a proxy. It
    applies to this client alone. Endpoints on this machine are never reached through a proxy."""
    extra_body: ExtraBody = {}
    """Additional keys of each request for this endpoint."""


def read_key(variable: str, base_urls: Sequence[str], *, keys: str = "") -> str | None:
    """The key of endpoints; None for endpoints without keys. It is masked in all output from now on.

    Args:
        variable: the environment variable; empty if there is no key
        base_urls: the endpoints
        keys: what error messages write before the names of options, such as ``rollout.openai.``

    Raises:
        UserError: the key is missing or invalid.
    """
    value = os.environ.get(variable, "").strip() if variable else ""
    if not value and (not variable or all(map(is_local, base_urls))):
        return None
    where = f"{keys}base_url={', '.join(base_urls)}"
    if not value:
        raise UserError(
            "the endpoint needs a key",
            found=f"the environment variable {variable} is not set",
            where=where,
            fix=f"export {variable}=..., or set {keys}api_key_env='' for an endpoint without keys",
        )
    if not (value.isascii() and value.isprintable()):
        raise UserError(
            f"the value of {variable} is not a valid key",
            found="characters that are not allowed in an HTTP header",
            where=where,
            fix="export it again",
        )
    remember(value)
    return value


def is_local(base_url: str) -> bool:
    """Whether an endpoint runs on this machine."""
    host = urlsplit(base_url).hostname or ""
    return host in {"localhost", "0.0.0.0", "::1"} or host.startswith("127.")
