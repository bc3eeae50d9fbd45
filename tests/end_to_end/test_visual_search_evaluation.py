"""``rlcore eval`` of visual search with a scripted endpoint and a real sandbox: results, table and rollouts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chat_server import Endpoint, Reply, reply
from rl_plugin_visual_search.grammar import answer_turn, code_turn
from rlcore.cli import main
from rlcore_view.library import Library
from rlcore_view.routes import answer
from solid_pictures import picture

CONFIG = """
observers = ["visual-search"]
[environment]
id = "visual-search"
[[reward]]
id = "visual-search"
[[reward]]
id = "visual-search-tools"
weight = 0.1
[data]
train = "questions.jsonl"
evaluation = "questions.jsonl"
[rollout]
engine = "openai"
stop = ["</code>"]
[evaluation]
samples = 2
temperature = 0.7
"""
LOOK = "print(image_clue_0.size)\nplt.imshow(image_clue_0)\nplt.show()"
BROKEN = "print(missing)"


def said(body: dict[str, Any]) -> Reply:
    """What the endpoint answers: it looks, and then names the red option. About signs, it only guesses A."""
    messages = body["messages"]
    asked = "".join(part.get("text", "") for part in messages[0]["content"])
    if "sign" in asked:
        return reply(answer_turn("I guess.", "A"))
    turns = sum(message["role"] == "assistant" for message in messages)
    if turns < 2:
        return reply(code_turn("Let me look.", (BROKEN, LOOK)[turns]))
    found = re.search(r"^([A-D])\. red$", asked, re.MULTILINE)
    assert found is not None
    return reply(answer_turn("It is red.", found[1]))


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    server.answer = said
    yield server
    server.close()


def turns_of(groups: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The turns that the page shows."""
    trajectories = (one for group in groups for one in group["trajectories"])
    return (turn for one in trajectories for segment in one["segments"] for turn in segment["turns"])


@pytest.mark.long
def test_evaluation_reports_types_tools_and_turns(
    endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scene.png").write_bytes(picture())
    options = ["red", "green", "blue", "black"]
    rows = [
        {"image": "scene.png", "question": f"Which color has glove {n}?", "options": options, "category": "attributes"}
        for n in range(3)
    ]
    rows += [{"image": "scene.png", "question": "Which sign?", "options": ["stop", "yield"], "category": "positions"}]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "evaluation.toml").write_text(CONFIG)
    words = [f"rollout.openai.base_url={endpoint.url}", "rollout.openai.model=scripted", "runs=out"]
    monkeypatch.setattr("sys.argv", ["rlcore", "eval", "-c", "evaluation.toml", *words])
    assert main() == 0
    printed = capsys.readouterr().out
    assert "visual search, avg@2 of 4 questions" in printed
    (folder,) = (tmp_path / "out").iterdir()
    results = json.loads((folder / "results.json").read_text())
    assert (results["samples"], results["option_seed"], results["not_scored"]) == (2, 0, 0)
    assert {body["temperature"] for body in endpoint.bodies} == {0.7}, "that of the evaluation"
    assert results["types"]["attributes"]["value"] == 1.0
    assert results["types"]["attributes"]["questions"] == 3
    guessed = results["types"]["positions"]["value"]
    assert guessed in (0.0, 1.0)
    assert results["overall"]["value"] == (3 + guessed) / 4
    low, high = results["overall"]["interval"]
    assert low < results["overall"]["value"] < high or guessed
    assert results["tools"] == {
        "episodes": 8,
        "used": 0.75,
        "calls": 1.5,
        "errors": 0.5,
        "pictures": 0.75,
        "right_with": 1.0,
        "right_without": guessed,
    }
    first = results["episodes"][0]
    assert (first["turns"], first["calls"], first["errors"], first["pictures"], first["stop"]) == (3, 2, 1, 1, "done")
    assert first["reward"] == pytest.approx(1.1)
    assert len({each["expected"][0] for each in results["episodes"]}) > 1
    groups = [answer(Library([folder]), f"runs/{folder.name}/evaluation/0/{number}", {}) for number in range(4)]
    notes = [turn["note"] for turn in turns_of(groups) if turn["note"] is not None]
    assert len(notes) == 6 * 3 + 2
    cells = [cell for note in notes for cell in note["cells"]]
    assert sum(len(cell["pictures"]) == 1 for cell in cells) == 6
    assert sum("NameError" in cell["error"] for cell in cells) == 6
