"""``rlcore serve policy`` answers with the policy of a run, in three APIs."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from preloaded import rlcore_command

QUESTION = [{"role": "user", "content": "Tom has 3 apples and buys 12 more. How many?"}]
REQUESTS = {
    "/v1/chat/completions": ({"messages": QUESTION}, lambda found: found["choices"][0]["message"]["content"]),
    "/v1/responses": ({"input": QUESTION}, lambda found: found["output"][0]["content"][0]["text"]),
    "/v1/messages": ({"messages": QUESTION, "max_tokens": 8}, lambda found: found["content"][0]["text"]),
}


def ask(address: str, route: str, key: str, body: dict[str, Any]) -> Any:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    content = json.dumps({"model": "policy", **body}).encode()
    with urllib.request.urlopen(urllib.request.Request(address + route, content, headers), timeout=60) as answer:
        return json.load(answer)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_policy_of_a_run_is_served(tmp_path: Path) -> None:
    overrides = ("trainer.steps=1", "trainer.tasks_per_step=2", "warmup.steps=2", "evaluation.every=0", "name=run")
    assert rlcore_command(["run", "-p", "gsm8k-tools", *overrides], tmp_path, timeout_s=200).returncode == 0
    command = [sys.executable, "-m", "rlcore", "serve", "policy", "runs/run", "--port", "0", "rollout.max_new_tokens=8"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        printed = "".join(server.stdout.readline() for _ in range(3))
        found = re.search(r"ANTHROPIC_BASE_URL=(\S+) ANTHROPIC_API_KEY=(\S+)", printed)
        assert found is not None, printed
        for route, (body, text_of) in REQUESTS.items():
            assert text_of(ask(found[1], route, found[2], body))
        for route, key, status in (("/v1/messages", "wrong", 401), ("/v1/reward", found[2], 400)):
            with pytest.raises(urllib.error.HTTPError) as refused:
                ask(found[1], route, key, {"value": 1.0, "messages": QUESTION, "max_tokens": 8})
            with refused.value:  # holds the connection
                assert refused.value.code == status
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 0
