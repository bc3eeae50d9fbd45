"""What ``rlcore data prepare`` reports: counts, reasons with examples, and when they are an error."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from rlcore.console.wording import counted
from rlcore.errors import DataError

from rlcore_gui.prepare.pseudo_labels import PseudoLabels

EXAMPLES = 3
LABEL_FLAWS = ("null", "repeated", "unreadable", "without a summary")
FEW = 0.5
"""Share of steps with a label below which the summary warns."""


class Report:
    """Counts what happened to the steps of a data set."""

    def __init__(self, *, labels: PseudoLabels | None = None, memory: bool = False) -> None:
        self.labels, self.memory = labels, memory
        self.rows = 0
        self._groups: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._examples: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        self._labelled: Counter[bool] = Counter()
        self._remembered: Counter[bool] = Counter()

    def episode(self, group: str, *, steps: int, rows: int) -> None:
        """Count a readable episode."""
        counts = self._groups[group]
        counts["episodes"] += 1
        counts["steps"] += steps
        counts["rows"] += rows
        self.rows += rows

    def skip(self, reason: str, row_id: str) -> None:
        """Count a step that is no row."""
        self._count("skipped", reason, row_id)

    def unreadable(self, reason: str, place: str) -> None:
        """Count an item of a source file that is no episode."""
        self._count("unreadable", reason, place)

    def note(self, what: str, example: str) -> None:
        """Count something unusual that is no error."""
        self._count("note", what, example)

    def add_notes(self, notes: Mapping[str, int]) -> None:
        """Count unusual steps of a chunk."""
        self._counts["note"].update(notes)

    def label(self, found: bool) -> None:
        """Count a row with or without a label of its own."""
        self._labelled[found] += 1

    def remember(self, found: bool) -> None:
        """Count a row, not the first step of its episode, with or without a label of the step before."""
        self._remembered[found] += 1

    def check(self, *, strict: bool) -> None:
        """Raise `DataError` if no step can be used, no label belongs to a step, or, if strict, anything was wrong."""
        steps = sum(counts["steps"] for counts in self._groups.values())
        if not self.rows:
            found = "; ".join(self._lines("skipped") + self._lines("unreadable"))
            raise DataError(
                "no step can be used",
                found=found or counted(steps, "step"),
                fix="correct source and images: the names of screenshots are relative to the folder images",
            )
        if self.labels is not None and (self._none(self._labelled) or self._none(self._remembered)):
            raise DataError(
                "no pseudo-label belongs to a step",
                found=f"{counted(self.labels.counts['lines'], 'line')}, {self._label_flaws() or 'all readable'}"
                + (f"; the first label is of {self.labels.example}" if self.labels.example else ""),
                where=str(self.labels.path),
                fix="use the labels of these episodes: annotation_id must be the id of an episode, step_id its step",
            )
        if strict:
            wrong = self._lines("skipped") + self._lines("unreadable")
            if self.labels is not None and (flaws := self._label_flaws()):
                wrong.append(f"labels: {flaws}")
            if self._remembered[False]:
                wrong.append(f"steps without memory: {self._remembered[False]:,}")
            if wrong:
                fix = "correct the data, or omit strict"
                raise DataError("the data is not complete", found="\n".join(wrong), fix=fix)

    def summary(self) -> dict[str, object]:
        """The table that the command prints."""
        totals = sum(self._groups.values(), Counter[str]())
        table: dict[str, object] = {"episodes": totals["episodes"], "steps": totals["steps"], "rows": totals["rows"]}
        if len(self._groups) > 1:
            for group, counts in self._groups.items():
                rows, steps, episodes = (counted(counts[f"{word}s"], word) for word in ("row", "step", "episode"))
                table[f"  {group or '(no group)'}"] = f"{rows} of {steps} in {episodes}"
        table["not rows, kept in the history"] = "; ".join(self._lines("skipped")) or "none"
        if unreadable := self._lines("unreadable"):
            table["not episodes"] = "; ".join(unreadable)
        if notes := self._lines("note"):
            table["notes"] = "; ".join(notes)
        if self.labels is not None:
            flaws = self._label_flaws()
            table["rows with a label"] = _share(self._labelled) + (f" ({flaws})" if flaws else "")
            if self.labels.unused:
                table["labels of no step"] = self.labels.unused
        if self.memory:
            table["rows with a memory"] = f"{_share(self._remembered)} after the first step"
        if self.labels is not None and self._labelled[True] < FEW * self._labelled.total():
            table["warning"] = "most rows have no label; check that the labels belong to this data"
        return table

    def _label_flaws(self) -> str:
        counts = self.labels.counts if self.labels is not None else Counter[str]()
        return ", ".join(f"{counts[name]:,} {name}" for name in LABEL_FLAWS if counts[name])

    @staticmethod
    def _none(found: Counter[bool]) -> bool:
        return bool(found[False]) and not found[True]

    def _count(self, kind: str, reason: str, example: str) -> None:
        self._counts[kind][reason] += 1
        if len(self._examples[kind, reason]) < EXAMPLES:
            self._examples[kind, reason].append(example)

    def _lines(self, kind: str) -> list[str]:
        lines = []
        for reason, count in self._counts[kind].most_common():
            examples = ", ".join(self._examples[kind, reason])
            more = ", ..." * (count > EXAMPLES)
            lines += [f"{reason}: {count:,}" + (f" ({examples}{more})" if examples else "")] if count else []
        return lines


def _share(found: Counter[bool]) -> str:
    return f"{found[True]:,} of {found.total():,}"


__all__ = ["Report"]
