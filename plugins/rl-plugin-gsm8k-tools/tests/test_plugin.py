from __future__ import annotations

from rlcore.testing import check_plugin


def test_the_plugin_keeps_the_contracts() -> None:
    check_plugin("gsm8k-tools")
