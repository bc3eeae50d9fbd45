"""Pseudo-labels by episode and step."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded_episodes import label, write_labels
from rlcore.errors import DataError
from rlcore_gui.prepare.pseudo_labels import SUMMARY, PseudoLabels


def summaries(labels: PseudoLabels, keys: list[tuple[str, int]]) -> list[str | None]:
    return [found and found[SUMMARY] for found in (labels.find(*key) for key in keys)]


def test_ids_and_steps_may_be_numbers_or_texts(tmp_path: Path) -> None:
    lines = [label(7, 0, "a"), label("7", "1", "b"), label("8", 0, "c"), label('q"', 0, "d"), label("ä", 0, "e")]
    labels = PseudoLabels(write_labels(tmp_path, lines))
    keys = [("7", 0), ("7", 1), ("8", 0), ('q"', 0), ("ä", 0), ("8", 1)]
    assert summaries(labels, keys) == ["a", "b", "c", "d", "e", None]
    assert labels.counts["lines"] == 5


def test_null_repeated_and_unreadable_lines_are_counted(tmp_path: Path) -> None:
    lines = [
        label(1, 0, "old"),
        label(1, 1, "kept"),
        label(1, 0, "new"),
        label(1, 1),
        label(1, 2),
        label(1, 3, ""),
        "{",
        '{"annotation_id": "1", "step_id": 5, "pseudo_labels": {"history_summary": "cut',
        "3",
        '{"annotation_id": null, "step_id": 1, "pseudo_labels": {}}',
        '{"step_id": 4, "annotation_id": "1", "pseudo_labels": {"history_summary": "moved"}}',
    ]
    labels = PseudoLabels(write_labels(tmp_path, lines))
    keys = [("1", step) for step in range(6)]
    for _ in range(2):
        assert summaries(labels, keys) == ["new", "kept", None, None, "moved", None]
        flaws = {"null": 2, "repeated": 1, "unreadable": 4, "without a summary": 1}
        assert dict(labels.counts) == {"lines": 11, **flaws}


@pytest.mark.parametrize("end", ["\n", ""])
def test_byte_order_mark_costs_no_label(tmp_path: Path, end: str) -> None:
    path = write_labels(tmp_path, [label(1, 0, "a"), label(1, 1, "b")])
    for lines in (1, 2):
        kept = path.read_text(encoding="utf-8").splitlines()[:lines]
        marked = tmp_path / "marked.jsonl"
        marked.write_text("\n".join(kept) + end, encoding="utf-8-sig")
        labels = PseudoLabels(marked)
        assert summaries(labels, [("1", 0), ("1", 1)]) == ["a", "b" if lines == 2 else None]
        assert dict(labels.counts) == {"lines": lines, "repeated": 0}


def test_labels_that_belong_to_no_step_are_counted(tmp_path: Path) -> None:
    labels = PseudoLabels(write_labels(tmp_path, [label(1, 0, "a"), label(1, 0, "b"), label(1, 1, "c"), label(2, 0)]))
    assert labels.unused == 2
    summaries(labels, [("1", 0), ("1", 5)])
    assert labels.unused == 1


def test_last_repeated_label_with_a_summary_counts(tmp_path: Path) -> None:
    labels = PseudoLabels(write_labels(tmp_path, [label(1, 0, "good"), label(1, 0, "")]))
    assert summaries(labels, [("1", 0)]) == ["good"]


def test_empty_and_missing_files(tmp_path: Path) -> None:
    assert PseudoLabels(write_labels(tmp_path, [])).find("1", 0) is None
    with pytest.raises(DataError, match="cannot be read"):
        PseudoLabels(tmp_path / "none.jsonl")
