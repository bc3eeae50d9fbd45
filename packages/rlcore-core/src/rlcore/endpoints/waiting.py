"""How long to wait before a request is repeated."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime

FIRST_S = 0.5
LONGEST_S = 60.0


def backoff_s(retries: int) -> float:
    """Seconds before the next retry: doubled with each one, up to a minute, and shortened at random by up to half."""
    return min(LONGEST_S, FIRST_S * 2.0 ** min(retries, 16)) * random.uniform(0.5, 1.0)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that a response asks to wait, as a number or as a date; None if it does not say.

    https://www.rfc-editor.org/rfc/rfc9110#field.retry-after
    """
    with suppress(KeyError, ValueError):
        return _positive(float(headers["retry-after-ms"]) / 1000)
    value = headers.get("retry-after", "")
    with suppress(ValueError):
        return _positive(float(value))
    try:
        return _positive(parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def _positive(seconds: float) -> float | None:
    return max(0.0, seconds) if seconds < float("inf") else None
