"""``rlcore eval`` of an endpoint, as a person types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("httpx2", reason="the extra openai is not installed")

import chat_server
from chat_endpoint import HERE, KEY, Endpoint, call, failing, reply
from rlcore.rollouts.records import read_groups

pytestmark = pytest.mark.slow

WITHOUT_TORCH = """
import sys
from rlcore.cli import main
status = main()
heavy = {"torch", "transformers", "tokenizers", "numpy", "huggingface_hub"} & set(sys.modules)
assert not heavy, heavy
sys.exit(status)
"""
CONFIG = f"""
environment = {{ id = "{HERE}:Sums" }}
data = {{ id = "{HERE}:Tasks" }}
reward = [{{ id = "{HERE}:right" }}]
rollout = {{ engine = "openai", openai = {{ model = "m" }} }}
"""


def rlcore(folder: Path, *arguments: str, code: int = 0, **environment: str) -> str:
    """What the command printed, on both outputs."""
    (folder / "config.toml").write_text(CONFIG, encoding="utf-8")
    command, *rest = arguments
    if command in {"eval", "run"}:
        rest = ["-c", "config.toml", *rest]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, command, *rest],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(chat_server.__file__).parent), **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    printed = done.stdout + done.stderr
    assert done.returncode == code, printed
    assert "Traceback" not in printed
    return printed


def test_endpoint_is_evaluated_without_model_folder_or_torch(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.answers = [reply(None, calls=[call('{"a": 2, "b": 2}')], usage=(9, 6)), reply("it is 4", usage=(20, 4))]
    address = f"rollout.openai.base_url={endpoint.url}"
    printed = rlcore(tmp_path, "eval", address, "evaluation.tasks=1", "--save", "kept.jsonl.gz")
    assert "model     m, provided by the engine 'openai'" in printed
    assert "1.000" in printed
    assert "2.0 turns, 1.0 tool calls, 10 tokens" in printed
    (group,) = read_groups(tmp_path / "kept.jsonl.gz")
    assert group.trajectories[0].final_response == "it is 4"
    shown = rlcore(tmp_path, "data", "show", "kept.jsonl.gz")
    assert "trajectory 1 of 1: done, 39 tokens" in shown
    assert '→ add({"a": 2, "b": 2})' in shown
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.toml", "kept.jsonl.gz"]


def test_json_output_names_the_model_of_the_endpoint(endpoint: Endpoint, tmp_path: Path) -> None:
    printed = rlcore(tmp_path, "eval", f"rollout.openai.base_url={endpoint.url}", "--json")
    numbers = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
    assert (numbers["model"], numbers["accuracy"], numbers["tasks"], numbers["tokens"]) == ("m", 1.0, 6, 3.0)


def test_unusable_endpoint_exits_with_2_and_a_message(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.answers = [failing(401, f"no: {KEY}")]
    address = f"rollout.openai.base_url={endpoint.url}"
    printed = rlcore(tmp_path, "eval", address, "--save", "kept.jsonl.gz", code=2, OPENAI_API_KEY=KEY)
    assert "error: the endpoint rejected the key" in printed
    assert "export OPENAI_API_KEY" in printed
    assert KEY not in printed
    assert not (tmp_path / "kept.jsonl.gz").exists()


def test_endpoint_that_fails_every_request_exits_with_1(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.answers = [failing(400, "tools need --enable-auto-tool-choice")]
    printed = rlcore(tmp_path, "eval", f"rollout.openai.base_url={endpoint.url}", code=1)
    assert "error: the engine failed in all 6 trajectories: the endpoint answered 400: tools need" in printed


@pytest.mark.parametrize("place", ["kept.json", "nowhere/kept.jsonl.gz"])
def test_invalid_save_path_is_rejected_before_any_request(endpoint: Endpoint, tmp_path: Path, place: str) -> None:
    printed = rlcore(tmp_path, "eval", f"rollout.openai.base_url={endpoint.url}", "--save", place, code=2)
    assert "--save" in printed
    assert endpoint.bodies == []


def test_model_folder_with_an_endpoint_is_rejected(endpoint: Endpoint, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for folder in ("mine", "model=mine"):
        printed = rlcore(tmp_path, "eval", folder, f"rollout.openai.base_url={endpoint.url}", code=2)
        assert "error: the engine 'openai' provides its own model, m" in printed
    assert endpoint.bodies == []


def test_key_on_the_command_line_is_rejected_and_not_shown(endpoint: Endpoint, tmp_path: Path) -> None:
    for override in (f"rollout.openai.api_key={KEY}", f"rollout.openai.api_key_env={KEY}"):
        printed = rlcore(tmp_path, "eval", override, code=2)
        assert override.partition("=")[0] in printed
        assert KEY not in printed
