"""Logs of ``rlcore data export --format inspect``, read by Inspect itself.

Requires the project ``inspect`` in this folder.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pictured_groups import groups as pictured
from rlcore.export import Selection, export
from rlcore.rollouts.writing import Unfinished, write_record
from rlcore.testing import make_trajectory
from rlcore.types import Boundary, Failure, Group, Message, RewardResult, Task, ToolCall

sys.path.insert(0, str(Path(__file__).parent))

import peers

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(peers.missing("inspect")), reason=peers.missing("inspect"))]
HOSTILE = "../<script>\x00\x1b\u202e\ud800"


def with_tools(id: str) -> Group:
    asked = Message(role="user", content=f"1 + 2? {HOSTILE}")
    calls = (ToolCall(name="add", arguments={"a": 1}, id="x"), ToolCall(name="add", error="unreadable", id="x"))
    called = Message(role="assistant", content="", tool_calls=calls)
    answers = [Message(role="tool", name="add", tool_call_id="x", content=text) for text in ("3", "unreadable")]
    right = make_trajectory(asked, called, *answers, "3", task_id=id)
    judged = {"judge": RewardResult(value=1.0, text="Right.")}
    failed = make_trajectory(asked, "", task_id=id, sibling=1, failure=Failure(boundary=Boundary.TOOL, message="gone"))
    unscored = {"judge": RewardResult(value=None, error="no score")}
    both = (right.replace(reward=1.0, rewards=judged), failed.replace(rewards=unscored))
    return Group(task=Task(id=id, messages=(asked,), fields={"answer": "3"}), trajectories=both)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    run = tmp_path_factory.mktemp("runs") / "it"
    (run / "rollouts").mkdir(parents=True)
    (run / "config.toml").write_text('[model]\npath = "builtin:tiny"\n')
    write_record(
        run / "rollouts" / "evaluation-000001.jsonl.gz", [with_tools("sum"), with_tools(HOSTILE), *pictured(1)]
    )
    growing = Unfinished(run, "train", 2)
    growing.add(with_tools("sum"))
    growing.close()
    out = run.with_name("logs")
    export(Selection(run), "inspect", out)
    command = peers.command("inspect", "read_logs.py", str(out))
    done = subprocess.run(command, env=peers.environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_header_has_model_scores_and_status(logs: Any) -> None:
    assert sorted(logs) == ["evaluation-000001.eval", "train-000002.eval"]
    header = logs["evaluation-000001.eval"]["header"]
    assert (header["status"], header["eval"]["model"]) == ("success", "builtin:tiny")
    assert [score["name"] for score in header["results"]["scores"]][:2] == ["judge", "total"]
    assert logs["train-000002.eval"]["header"]["status"] == "started"


def test_samples_have_messages_scores_and_images(logs: Any) -> None:
    log = logs["evaluation-000001.eval"]
    assert sorted(log["alone"]) == sorted([one["id"], one["epoch"]] for one in log["samples"])
    samples = {(one["id"], one["epoch"]): one for one in log["samples"]}
    right, failed, picture = samples["sum", 1], samples["sum", 2], samples["scenes/0", 1]
    first, second = right["messages"][1]["tool_calls"]
    assert [message["tool_call_id"] for message in right["messages"][2:4]] == [first["id"], second["id"]]
    assert (first["arguments"], second["parse_error"]) == ({"a": 1}, "unreadable")
    assert (right["scores"]["judge"]["value"], right["scores"]["judge"]["explanation"]) == (1.0, "Right.")
    assert (right["target"], right["output"]["completion"]) == ("3", "3")
    assert failed["error"]["message"] == "tool: gone"
    assert picture["input"][1]["content"][0]["image"].startswith("data:image/png;base64,")
