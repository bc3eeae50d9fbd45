"""What checks find: before a run, and of ``rlcore doctor``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import BaseModel

from rlcore.config.layers import DEFAULT
from rlcore.config.messages import Problem, ProblemsError
from rlcore.config.origins import KeyPath
from rlcore.errors import UserError
from rlcore.plugin_calls import value_text

if TYPE_CHECKING:
    from rlcore.config.resolved import Resolved

MOST_FINDINGS = 1000
"""The most findings of a check. A generator may never end."""
Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding of a check. Before a run, ``fail`` rejects the run, and the text of another status is printed."""

    status: Status
    text: str
    fix: str = ""
    key: str = ""
    """The dotted key of the configuration that it is about, such as ``rollout.group_size``."""
    value: str = ""
    """The part of its value that is wrong; empty for the whole value."""
    kind: str = "bad value"
    """The kind of a failure, as in `rlcore.config.messages.Problem`."""
    where: str = ""
    """File and line, if the value of the key does not say it."""


def failure(key: str, text: str, fix: str = "", *, value: str = "", kind: str = "bad value") -> Finding:
    """A finding about a key that rejects a run."""
    return Finding(status="fail", key=key, text=text, fix=fix, value=value, kind=kind)


def warning(text: str, key: str = "") -> Finding:
    """A finding that a run prints when it starts."""
    return Finding(status="warn", text=text, key=key)


def failure_of(error: UserError, key: str = "") -> Finding:
    """An error as a finding about a key."""
    return failure(key, f"{error.message}: {error.found}" if error.found else error.message, error.fix or "")


def setting(resolved: Resolved, key: str) -> tuple[Any, bool]:
    """The value of a dotted key, an id for a component, and whether it differs from the default; None if unknown."""
    table, *path = key.split(".")
    for holder in (resolved.options.get(table), getattr(resolved.config, table, None)):
        for name in path[:-1]:
            holder = getattr(holder, name, None)
        field = getattr(type(holder), "model_fields", {}).get(path[-1]) if path else None
        if field is not None:
            value = getattr(holder, path[-1])
            return getattr(value, "id", value), value != field.get_default(call_default_factory=True)
    return None, False


def is_set(resolved: Resolved, key: str) -> bool:
    """Whether the value of a dotted key differs from its default: a resumed run contains every key."""
    return setting(resolved, key)[1]


def unread(resolved: Resolved, table: str, keys: Iterable[str], text: str, fix: str) -> Iterator[Finding]:
    """A failure about each key of a table that is set, but has no effect in this run."""
    paths = (f"{table}.{key}" for key in keys)
    return (failure(path, text, fix) for path in paths if is_set(resolved, path))


def raise_failures(resolved: Resolved, findings: Iterable[Finding]) -> list[str]:
    """Raise the failures among findings as one error, or return the texts of the other findings.

    Raises:
        ProblemsError: lists every failure with the value of its key and the origin of this value.
    """
    notes, problems = [], []
    for one in findings:
        if one.status != "fail":
            notes.append(one.text)
            continue
        value, _ = setting(resolved, one.key)
        problems.append(
            Problem(
                kind=one.kind,
                path=one.key,
                value=one.value or (None if value is None or isinstance(value, BaseModel) else str(value)),
                origin=one.where or _origin(resolved, tuple(one.key.split("."))),
                reason=f"{one.text}\nfix: {one.fix}" if one.fix else one.text,
            )
        )
    if problems:
        raise ProblemsError(problems)
    return notes


def _origin(resolved: Resolved, path: KeyPath) -> str:
    """The origin of a component's id, of the key itself, or of a value in its table."""
    if (origin := resolved.origin((*path, "id"))) != DEFAULT:
        return origin
    below = (origin for known, origin in resolved.origins.items() if known[: len(path)] == path)
    return next(below, DEFAULT)


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
        texts = (found.text, found.fix, found.key, found.value, found.kind, found.where)
        if found.status not in get_args(Status) or not all(isinstance(text, str) for text in texts):
            raise TypeError(f"it returned a Finding with a field of the wrong type: {value_text(found)}")
    return findings
