from __future__ import annotations

from rlcore.testing import check_plugin


def test_plugin_conforms() -> None:
    check_plugin("visual-search")
