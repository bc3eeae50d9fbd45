"""``rlcore doctor`` calls the judge."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from chat_server import Endpoint, failing, free_port, reply
from judging_server import judged
from rlcore.checks import Finding
from rlcore.config.layers import override_layers
from rlcore.plugins.registry import Registry
from rlcore.session.reward_probes import probe_plugin


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    endpoint = Endpoint()
    endpoint.answer = judged
    yield endpoint
    endpoint.close()


def doctor(*words: str) -> list[Finding]:
    """The findings about the judge."""
    found = probe_plugin(Registry(), "llm-judge", override_layers(words))
    assert found is not None
    return [finding for _, finding in found]


def test_doctor_judges_a_right_and_a_wrong_answer_with_each_server(server: Endpoint) -> None:
    gone = f"http://127.0.0.1:{free_port()}/v1"
    good, bad = doctor(f'reward.0.base_url=["{server.url}", "{gone}"]', "reward.0.template=graded")
    assert (good.status, bad.status) == ("ok", "fail")
    assert "a right answer scores 1, a wrong one 0" in good.text
    assert gone in bad.text
    assert "start the endpoint" in bad.fix
    assert len(server.bodies) == 2


@pytest.mark.parametrize(
    ("answer", "fix"),
    [
        (reply("Judgement: 1"), "larger model"),
        (reply("perhaps"), "max_tokens"),
        (failing(500), "log of the server"),
        (failing(400), "server refuses"),
    ],
)
def test_doctor_names_a_judge_that_cannot_judge(server: Endpoint, answer: Any, fix: str) -> None:
    server.answer = lambda body: answer
    (found,) = doctor(f"reward.0.base_url={server.url}", "reward.0.max_retries=0")
    assert found.status == "fail"
    assert fix in found.fix


@pytest.mark.parametrize("words", [["reward.0.modle=x"], ["reward.0.api_key=sk-12345678"], ["runs/x"], ["lr=1"]])
def test_invalid_overrides_are_errors(words: list[str]) -> None:
    command = [sys.executable, "-m", "rlcore", "doctor", "-p", "llm-judge", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 2, done.stderr
    assert "12345678" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
