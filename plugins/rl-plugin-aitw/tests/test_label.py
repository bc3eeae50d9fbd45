"""A teacher labels the steps of AITW, and the labels fit the steps that data preparation writes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httpx2", reason="the extra label is not installed")

from chat_server import KEY, Endpoint, failing, reply
from PIL import Image
from rl_plugin_aitw.dataset import LabelConfig, label
from rlcore.cli import main
from rlcore_gui.labels import StepLabels
from rlcore_gui.labels.prompt import sections
from rlcore_gui.prepare.pseudo_labels import PseudoLabels

REAL = Path(os.environ.get("RLCORE_DATA", "missing")) / "aitw"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    server.answer = lambda body: reply(sections(StepLabels(progress="a", reasoning="b", summary=asked(body)[-40:])))
    yield server
    server.close()


def asked(body: dict[str, Any]) -> str:
    text: str = body["messages"][1]["content"][1]["text"]
    return text


def labelled(endpoint: Endpoint, source: Path, images: Path, out: Path, **options: Any) -> dict[str, Any]:
    values = {"model": "m", "base_url": [endpoint.url], "source": [str(source)], "images": str(images), "out": str(out)}
    return dict(label(LabelConfig(**{**values, **options})))


@pytest.mark.skipif(not REAL.is_dir(), reason="RLCORE_DATA is not set")
def test_real_episode_is_labelled_and_its_labels_are_found(endpoint: Endpoint, tmp_path: Path) -> None:
    source, out = REAL / "aitw_data_sample.json", tmp_path / "labels.jsonl"
    steps = [step for episodes in json.loads(source.read_text("utf-8")).values() for each in episodes for step in each]
    found = labelled(endpoint, source, REAL / "images", out)
    assert found["labelled"] == len(steps) > 0
    assert "on an Android phone" in endpoint.bodies[0]["messages"][0]["content"]
    assert f"Task: {steps[0]['goal']}\n" in asked(endpoint.bodies[0])
    keys = [(str(step["ep_id"]), step["step"]) for step in steps]
    assert all(PseudoLabels(out).find(*key) for key in keys)
    before = asked(endpoint.bodies[0])[-40:].strip()
    assert f"Summary of the earlier steps: {before}" in asked(endpoint.bodies[1])


def test_unusual_steps_are_counted_and_not_asked(endpoint: Endpoint, tmp_path: Path) -> None:
    step = {
        "ep_id": 7,
        "goal": "Open it",
        "img_filename": "missing",
        "action_type_id": 6,
        "action_type_text": "press home",
    }
    unknown = {**step, "action_type_id": 99, "action_type_text": "dance"}
    source = tmp_path / "aitw.json"
    source.write_text(json.dumps({"install": [[{**step, "step": 0}, {**unknown, "step": 1}], []]}), encoding="utf-8")
    found = labelled(endpoint, source, tmp_path, tmp_path / "labels.jsonl", dry_run=True)
    assert (found["steps"], found["requests"], found["unreadable episodes: not a list of steps"]) == (2, 0, 1)
    assert endpoint.bodies == []


def test_option_names_of_earlier_scripts_are_accepted() -> None:
    flags = {"aitw_data_path": "source", "imgs_dir": "images", "output_path": "out"}
    assert flags.items() <= LabelConfig.FLAGS.items()


def test_command_ends_with_status_2_when_the_key_is_rejected(
    endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Image.new("RGB", (20, 40), "red").save(tmp_path / "a.png")
    step = {"ep_id": "7", "goal": "Open it", "img_filename": "a", "action_type_id": 6, "action_type_text": "press home"}
    (tmp_path / "aitw.json").write_text(json.dumps({"install": [[{**step, "step": n} for n in range(3)]]}), "utf-8")
    arguments = ["--aitw_data_path", f"{tmp_path}/aitw.json", "--imgs_dir", str(tmp_path), f"out={tmp_path}/l.jsonl"]
    arguments += ["model=m", f"base_url={endpoint.url}", "api_key_env=MY_KEY", "--json"]
    monkeypatch.setenv("MY_KEY", KEY)
    monkeypatch.setattr(sys, "argv", ["rlcore", "data", "label", "aitw", *arguments])
    teach = endpoint.answer
    assert teach is not None
    endpoint.answer = lambda body: teach(body) if len(endpoint.bodies) < 3 else failing(401, f"wrong: {KEY}")
    assert main() == 2
    said = capsys.readouterr()
    assert "the endpoint rejected the key" in said.err
    assert "2 steps are labelled" in said.err
    assert KEY not in said.out + said.err
    endpoint.answer = teach
    assert main() == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["labelled before"], found["labelled"], found["episodes"]) == (2, 1, 1)
