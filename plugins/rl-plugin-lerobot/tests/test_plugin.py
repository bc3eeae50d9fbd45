from __future__ import annotations

from rlcore.testing import check_plugin


def test_plugin_passes_the_conformance_checks() -> None:
    check_plugin("lerobot")
