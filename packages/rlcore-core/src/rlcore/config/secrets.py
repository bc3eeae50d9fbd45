"""Which values are secrets: they reach no file and no screen."""

from __future__ import annotations

import re

MASK = "**********"
"""What pydantic shows for a ``SecretStr``."""
SECRET_VALUE = "secret_value"
"""The type of a `PydanticCustomError` about a value that must not be shown, whatever its key is called."""
_NAME = re.compile(
    r"(^|_)(api_?key|secret|password|passphrase|credentials?|private_key)$|^token$|(^|_)(access|auth|api|hf|bearer)_token$",
    re.IGNORECASE,
)
_USER_IN_URL = re.compile(r"(\w+://)[^/\s@]+@")


def is_secret(key: str, value: object = None) -> bool:
    """Whether the key's name, or the masked value, says secret."""
    return value == MASK or bool(_NAME.search(key.rpartition(".")[2].lstrip("-").replace("-", "_")))


def mask_arguments(arguments: list[str]) -> list[str]:
    """Command-line arguments with the values of secrets and users in addresses masked."""
    masked = []
    for argument in arguments:
        key, equals, _ = argument.partition("=")
        shown = f"{key}={MASK}" if equals and is_secret(key) else argument
        masked.append(_USER_IN_URL.sub(rf"\1{MASK}@", shown))
    return masked
