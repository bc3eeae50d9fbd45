"""Options of the openai engine, the table ``rollout.openai``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from rlcore.config.schema import Table
from rlcore.endpoints.options import OFFICIAL, BaseUrl, ExtraBody, KeyVariable, NoKey


class OpenAIEngineConfig(Table):
    """The endpoint, its model and the limits for requests."""

    model: Annotated[str, Field(min_length=1)]
    """Name of the model at the endpoint."""
    base_url: BaseUrl = OFFICIAL
    """URL of the endpoint, such as ``http://localhost:8000/v1``."""
    api_key_env: KeyVariable = "OPENAI_API_KEY"
    """Environment variable with the key; empty for an endpoint without keys. For localhost, it may be unset."""
    api_key: NoKey = None
    """Not allowed: keys are read only from the environment."""
    max_retries: Annotated[int, Field(ge=0, le=20)] = 4
    """Number of retries after a lost connection, an unreadable answer or status 408, 409, 425, 429 or 5xx."""
    requests_per_minute: Annotated[float, Field(gt=0)] | None = None
    """Maximum number of requests per minute, including retries; None is unlimited."""
    extra_body: ExtraBody = {}
    """Additional keys of the request for this endpoint. They override those of the engine."""
