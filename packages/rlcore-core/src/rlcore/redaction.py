"""Secrets: recognise them by their keys, remember their values, and mask both in everything that is shown or written.

A key such as ``password`` or ``api_key`` marks its value as a secret at any depth, and so does a field of type
``SecretStr``. The user and password in a URL are secrets too. Configuration layers remember the secrets that they
contain, so that a later message of any component cannot show them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

MASK = "**********"
"""The mask that pydantic uses for a ``SecretStr``."""
SECRET_VALUE = "secret_value"
"""The type of a `PydanticCustomError` for a value that must not be shown, whatever its key."""
SHORTEST = 8
"""Shorter values are masked only at their keys: as parts of other texts they are often ordinary words."""

_NAME = re.compile(
    r"(?:^|_)(?:api_?key|access_?key|secret_?key|private_?key|signing_?key|encryption_?key|secrets?|client_?secret"
    r"|password|passwd|pwd|passphrase|credentials?|authorization|cookie)$"
    r"|^(?:token|auth)$"
    r"|(?:^|_)(?:access|refresh|auth|api|hf|hub|bearer|session|security|id|user|bot|github|gitlab|wandb)_?token$"
)
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_KEY_INSIDE = re.compile(r"(?<![\w.-])([\w.-]+)[\"']?\s*[=:]")
_USER_IN_URL = re.compile(
    r"((?:https?|wss?)://)[^/\s\"'<>?#]+@|(\w[\w+.-]{0,30}://)[^/\s\"'<>?#:]*:[^/\s\"'<>?#]*@", re.I
)
_QUERY = re.compile(r"([?&;]([\w.-]+)=)[^&\s#\"'<>;]+")

_known: tuple[tuple[str, str], ...] = ()
"""Texts that must not be shown, the longest first, and what is shown instead."""
_fields: frozenset[str] = frozenset()
"""Names of the fields with a secret type, whose overrides are masked."""


def is_secret(key: str, value: object = None) -> bool:
    """Whether a part of the dotted key, or a masked value, indicates a secret."""
    return value == MASK or any(_names_secret(part) for part in key.split("."))


def _names_secret(part: str) -> bool:
    name = _CAPITAL.sub("_", part.lstrip("-")).replace("-", "_").lower()
    return bool(_NAME.search(name))


def remember(text: str, shown: str = MASK) -> None:
    """Mask a text in everything that this process shows or writes from now on, also in its quoted forms."""
    global _known
    if len(text) < SHORTEST:
        return
    quoted = json.dumps(text, ensure_ascii=False)[1:-1]
    forms = {text, quoted, json.dumps(text)[1:-1], repr(text)[1:-1], quote(text, safe="", errors="replace")}
    known = {**dict(_known), **dict.fromkeys(forms, shown)}
    _known = tuple(sorted(known.items(), key=lambda item: -len(item[0])))


def remember_field(name: str) -> None:
    """Mask the value of every argument that sets a field of this name."""
    global _fields
    _fields |= {name}


def remember_secrets(value: object, key: str = "") -> None:
    """Remember every secret in plain data: all values below a secret key, and the passwords of URLs."""
    _remember(value, is_secret(key))


def _remember(value: object, secret: bool) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            _remember(item, secret or is_secret(str(key)))
    elif isinstance(value, (list, tuple)):
        for item in value:
            _remember(item, secret)
    elif secret and value is not None and not isinstance(value, bool):
        remember(str(value))
    elif isinstance(value, str):
        for found in _USER_IN_URL.finditer(value):
            user, _, password = found[0].partition("://")[2].removesuffix("@").partition(":")
            remember(password or user)


def remember_arguments(arguments: Sequence[str]) -> None:
    """Remember the secrets in command-line arguments, and mask these arguments wherever they are repeated."""
    for argument, masked in zip(arguments, mask_arguments(arguments), strict=True):
        key, _, value = argument.partition("=")
        remember_secrets(value.strip("\"'"), key)
        if masked != argument:
            remember(argument, masked)


def forget() -> None:
    """Forget all secrets, before another command of the same process."""
    global _known, _fields
    _known, _fields = (), frozenset()


def redact(text: str) -> str:
    """A text without the remembered secrets, and without users, passwords and secret parameters of URLs."""
    text = without_known(text)
    if "://" not in text:
        return text
    text = _USER_IN_URL.sub(lambda found: f"{found[1] or found[2]}{MASK}@", text)
    return _QUERY.sub(lambda found: f"{found[1]}{MASK}" if is_secret(found[2]) else found[0], text)


def without_known(text: str) -> str:
    """A text without the remembered secrets."""
    for known, shown in _known:
        if known in text:
            text = text.replace(known, shown)
    return text


def redacted(value: Any, *, secret: bool = False) -> Any:
    """Plain data with `MASK` in place of every secret. Booleans, null and empty texts are kept."""
    if isinstance(value, Mapping):
        return {key: redacted(item, secret=secret or is_secret(str(key))) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redacted(item, secret=secret) for item in value]
    if secret and value is not None and value != "" and not isinstance(value, bool):
        return MASK
    return redact(value) if isinstance(value, str) else value


def holds_mask(value: object) -> bool:
    """Whether a value is a masked secret, or contains one."""
    if isinstance(value, (list, tuple)):
        return any(map(holds_mask, value))
    return isinstance(value, str) and MASK in value


def mask_arguments(arguments: Sequence[str]) -> list[str]:
    """Command-line arguments without secrets: by key, by a key inside the value, by value and in URLs."""
    masked: list[str] = []
    follows = False
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if follows:
            shown = MASK
        elif equals and any(map(_sets_secret, (key, *_KEY_INSIDE.findall(value)))):
            shown = f"{key}={MASK}"
        else:
            shown = argument
        follows = not follows and not equals and argument.startswith("-") and is_secret(argument)
        masked.append(redact(shown))
    return masked


def _sets_secret(key: str) -> bool:
    return is_secret(key) or key.rpartition(".")[2] in _fields
