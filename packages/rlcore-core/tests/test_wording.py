from __future__ import annotations

import pytest
from rlcore.console.wording import counted


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (0, "row", "0 rows"),
        (1, "row", "1 row"),
        (2_000, "row", "2,000 rows"),
        (1, "trajectory", "1 trajectory"),
        (8, "trajectory", "8 trajectories"),
        (2, "play", "2 plays"),
        (3, "loss", "3 losses"),
        (37, "diagnosis", "37 diagnoses"),
        (1, "diagnosis", "1 diagnosis"),
        (2, "sandbox", "2 sandboxes"),
        (1.0, "epoch", "1 epoch"),
        (1.25, "epoch", "1.25 epochs"),
    ],
)
def test_counted_uses_singular_or_plural(number: float, noun: str, text: str) -> None:
    assert counted(number, noun) == text
