"""The reference pages list the keys and metrics of the code."""

from __future__ import annotations

import pytest
from reference_pages import FOLDER, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_reference_page_is_current(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), "run: uv run python tests/repo/reference_pages.py"


def test_reference_names_keys_and_metrics() -> None:
    keys, metrics = ((FOLDER / name).read_text(encoding="utf-8") for name in PAGES)
    for key in ("checkpoint.best.metric: ", "trainer.early_stop.patience: ", "rollout.torch.slots: ", "lora.rank: "):
        assert f"\n{key}" in keys
    assert "| `evaluation/accuracy` |" in metrics
