"""Configuration problems, reported together, each with its origin and a suggestion."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches

from rlcore.console.escaping import printable
from rlcore.console.wording import counted
from rlcore.errors import ConfigError

MOST_SHOWN = 50
"""Limit of the problems in a message."""
LONGEST_ORIGIN = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One configuration problem."""

    kind: str
    """``unknown key``, ``bad value``, ``missing key``, ``not found``, ``bad override`` or ``refused``."""
    path: str
    """The dotted key."""
    origin: str
    """File and line, or the override."""
    reason: str
    value: str | None = None
    """The value as given, when it helps."""
    doc: str | None = None
    """The docstring of the field."""

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """The key and its value, and indented below it the origin, the reason and the docstring. Safe to show."""
        shown = self.path if self.value is None else f"{self.path} = {self.value}"
        origin = self.origin if len(self.origin) <= LONGEST_ORIGIN else f"{self.origin[:LONGEST_ORIGIN]}…"
        rows = [f"from {origin}", *self.reason.split("\n"), *((self.doc or "").split("\n"))]
        return [printable(line) for line in (f"  {self.kind:<11}  {shown}", *(f"      {row}" for row in rows if row))]


class ProblemsError(ConfigError):
    """All problems of a configuration."""

    def __init__(self, problems: Sequence[Problem], *, subject: str = "the run's configuration") -> None:
        self.problems = tuple(problems)
        self._count = f"{counted(len(problems), 'problem')} in {subject}"
        super().__init__("\n".join(self._headline()))

    def _headline(self) -> list[str]:
        more = len(self.problems) - MOST_SHOWN
        rest = ["", f"  and {more:,} more"] if more > 0 else []
        shown = (line for problem in self.problems[:MOST_SHOWN] for line in ("", *problem.lines()))
        return [self._count, *shown, *rest]


def nearest_key(path: str, known: Iterable[str]) -> str | None:
    """The valid key closest to ``path``: a sibling, the same name in another table, or a similar name."""
    known = list(known)
    parent, _, name = path.rpartition(".")
    siblings = {key.rpartition(".")[2]: key for key in known if key.rpartition(".")[0] == parent}
    if near := get_close_matches(name, siblings, n=1, cutoff=0.7):
        return siblings[near[0]]
    if initials := [key for sibling, key in siblings.items() if _initials(sibling) == name]:  # lr, learning_rate
        return initials[0]
    if len(name) > 2 and len(longer := [sibling for sibling in siblings if sibling.startswith(name)]) == 1:
        return siblings[longer[0]]  # temp, temperature
    if same := [key for key in known if key.rpartition(".")[2] == name]:
        return min(same, key=lambda key: (key.count("."), key))
    if initials := [key for key in known if _initials(key.rpartition(".")[2]) == name]:
        return min(initials, key=lambda key: (key.count("."), key))
    names: dict[str, str] = {}
    for key in sorted(known, key=lambda key: (key.count("."), key)):
        names.setdefault(key.rpartition(".")[2], key)
    if near := get_close_matches(name, names, n=1, cutoff=0.75):
        return names[near[0]]
    return None


def most_similar(path: str, candidates: Iterable[str | None]) -> str | None:
    """The candidate that resembles ``path`` most, the first of equals."""
    present = [key for key in candidates if key is not None]
    return max(present, key=lambda key: SequenceMatcher(None, path, key).ratio(), default=None)


def _initials(name: str) -> str:
    return "".join(part[0] for part in name.split("_") if part) if "_" in name else ""
