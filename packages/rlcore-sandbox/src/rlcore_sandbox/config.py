"""Options of the sandbox ``http``, in the table ``[sandbox]`` beside the limits."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field
from rlcore.config.schema import Count, Table
from rlcore.endpoints.options import BaseUrl, KeyVariable, NoKey, read_key

ROUTES = ("/run_code", "/run_jupyter")


def _without_route(url: str) -> str:
    for route in ROUTES:
        url = url.removesuffix(route)
    return url


class HttpSandboxConfig(Table):
    """A service with the interface of SandboxFusion, and the limits for requests."""

    base_url: Annotated[BaseUrl, AfterValidator(_without_route)]
    """URL of the service, such as ``http://localhost:8080``."""
    api_key_env: KeyVariable = ""
    """Environment variable with a key, which is sent as a bearer token; empty for a service without keys."""
    api_key: NoKey = None
    """Not allowed: keys are read only from the environment."""
    concurrency: Count = 32
    """Maximum number of requests at a time."""
    max_retries: Annotated[int, Field(ge=0, le=20)] = 4
    """Number of retries after a failure of the service. Code that fails is a result, and is not retried."""
    wait_s: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    """Seconds that a request may take in addition to the time limits of its code."""

    def key(self) -> str | None:
        """The key; None for a service without keys.

        Raises:
            UserError: it is missing or invalid.
        """
        return read_key(self.api_key_env, [self.base_url], keys="sandbox.")


__all__ = ["HttpSandboxConfig"]
