"""The page about attacks on the sandbox lists the tests."""

from __future__ import annotations

from sandbox_page import PAGE, page


def test_the_page_of_attacks_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: uv run python tests/repo/sandbox_page.py"
