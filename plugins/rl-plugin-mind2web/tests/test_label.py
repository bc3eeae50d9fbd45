"""A teacher labels the real steps of Mind2Web."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("httpx2", reason="the extra label is not installed")

from chat_server import Endpoint, reply
from rl_plugin_mind2web.dataset import LabelConfig, label
from rlcore_gui.labels import StepLabels
from rlcore_gui.labels.prompt import sections
from rlcore_gui.prepare.pseudo_labels import PseudoLabels

REAL = Path(os.environ.get("RLCORE_DATA", "missing")) / "mind2web"


@pytest.mark.skipif(not REAL.is_dir(), reason="RLCORE_DATA is not set")
def test_real_step_is_labelled_with_its_option_and_page(tmp_path: Path) -> None:
    server, out = Endpoint(), tmp_path / "labels.jsonl"
    server.answers = [reply(sections(StepLabels(progress="a", reasoning="b", summary="c")))]
    try:
        config = LabelConfig(
            model="m",
            base_url=[server.url],
            source=[str(REAL / "mind2web_data_one_step.json")],
            images=str(REAL / "images"),
            out=str(out),
        )
        found = label(config)
    finally:
        server.close()
    assert found["labelled"] == 1
    assert "on web pages" in server.bodies[0]["messages"][0]["content"]
    labels = PseudoLabels(out)
    assert labels.counts["lines"] == 1
    assert labels.example is not None
    assert labels.find(*labels.example) == {
        "progress_estimation": "a",
        "decision_reasoning": "b",
        "history_summary": "c",
    }
