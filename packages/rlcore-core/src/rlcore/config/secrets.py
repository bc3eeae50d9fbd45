"""Detect secrets, which are never written to files or shown on screen."""

from __future__ import annotations

import re

MASK = "**********"
"""The mask that pydantic uses for a ``SecretStr``."""
SECRET_VALUE = "secret_value"
"""The type of a `PydanticCustomError` for a value that must not be shown, whatever its key."""
_NAME = re.compile(
    r"(^|_)(api_?key|secret|password|passphrase|credentials?|private_key)$|^token$|(^|_)(access|auth|api|hf|bearer)_token$",
    re.IGNORECASE,
)
_USER_IN_URL = re.compile(r"(\w+://)[^/\s@]+@")


def is_secret(key: str, value: object = None) -> bool:
    """Whether the name of the key, or a masked value, indicates a secret."""
    return value == MASK or bool(_NAME.search(key.rpartition(".")[2].lstrip("-").replace("-", "_")))


def mask_arguments(arguments: list[str]) -> list[str]:
    """Command-line arguments with secrets, and credentials in URLs, masked."""
    masked = []
    for argument in arguments:
        key, equals, _ = argument.partition("=")
        shown = f"{key}={MASK}" if equals and is_secret(key) else argument
        masked.append(_USER_IN_URL.sub(rf"\1{MASK}@", shown))
    return masked
