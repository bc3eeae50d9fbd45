"""What checks of ``rlcore doctor`` find."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Literal, get_args

from rlcore.plugin_calls import value_text

MOST_FINDINGS = 1000
"""The most findings of a check. A generator may never end."""
Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding of a check."""

    status: Status
    text: str
    fix: str = ""


def findings_of(answer: object) -> list[Finding]:
    """The findings that a check returned. Raises `TypeError` for anything else."""
    if answer is None:
        return []
    if not isinstance(answer, Iterable) or isinstance(answer, (str, bytes)):
        raise TypeError(f"it returned {value_text(answer)}, expected Finding objects")
    findings = list(islice(answer, MOST_FINDINGS))
    for found in findings:
        if not isinstance(found, Finding):
            raise TypeError(f"it returned {value_text(found)}, expected Finding objects")
        if found.status not in get_args(Status) or not all(isinstance(text, str) for text in (found.text, found.fix)):
            raise TypeError(f"it returned a Finding with a field of the wrong type: {value_text(found)}")
    return findings
