"""The openai engine against endpoints that fail, hang and answer garbage."""

from __future__ import annotations

import json
import time

import pytest

pytest.importorskip("httpx2", reason="the extra openai is not installed")

from chat_endpoint import KEY, Endpoint, Reply, ask, call, collect, failing, free_port, only, reply
from rlcore.endpoints.answers import MOST_BYTES
from rlcore.endpoints.pace import Pace
from rlcore.errors import EngineError, UserError
from rlcore.types import Boundary, Failure, Stop
from rlcore_rollout.engines.context import EngineContext


def test_refused_connection_ends_the_command_with_one_sentence(endpoint: Endpoint) -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    with pytest.raises(UserError, match="does not respond") as caught:
        collect(endpoint, 6, base_url=url)
    assert url in str(caught.value)


@pytest.mark.parametrize("status", [401, 403])
def test_rejected_key_names_the_variable_and_hides_the_key(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    endpoint.answers = [failing(status, f"Incorrect API key provided: {KEY}")]
    with pytest.raises(UserError, match="rejected the key") as caught:
        collect(endpoint, 6, api_key_env="MY_KEY")
    assert "export MY_KEY=..." in str(caught.value)
    assert "Incorrect API key provided" in str(caught.value)
    assert KEY not in str(caught.value)
    assert len(endpoint.bodies) == 1, "the first request shows it, the others are not sent"


def test_truncated_key_in_an_excerpt_is_not_shown(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    endpoint.answers = [failing(400, "x" * 280 + KEY)]
    with pytest.raises(EngineError) as caught:
        ask(endpoint)
    assert KEY[:4] not in str(caught.value)


def test_unknown_model_lists_the_available_models(endpoint: Endpoint) -> None:
    endpoint.answers = [failing(404, "The model `m` does not exist.")]
    models = [{"id": name, "object": "model", "created": 0, "owned_by": "x"} for name in ("tiny", "large")]
    endpoint.models = Reply(body=json.dumps({"object": "list", "data": models}).encode())
    with pytest.raises(UserError, match="does not provide the model 'm'") as caught:
        collect(endpoint, 6)
    assert "available models: tiny, large" in str(caught.value)


@pytest.mark.parametrize("models", [Reply(status=404, body=b"<p>no"), Reply(body=b"<html>"), Reply(body=b"[7]")])
def test_address_without_chat_completions_is_reported_with_a_fix(endpoint: Endpoint, models: Reply) -> None:
    endpoint.answers, endpoint.models = [Reply(status=404, body=b"<p>nothing here</p>")], models
    with pytest.raises(UserError, match="does not provide chat completions") as caught:
        collect(endpoint, 6)
    assert "nothing here" in str(caught.value)
    assert "/v1" in str(caught.value)


def test_later_permanent_error_fails_only_its_trajectory(
    endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint.answers = [reply(), failing(404, "gone"), reply()]
    groups = collect(endpoint, 3, rollout={"concurrency": 1})
    assert [group.rewards_G for group in groups] == [(1.0,), (None,), (1.0,)]
    lost = groups[1].trajectories[0]
    assert lost.failure == Failure(boundary=Boundary.ENGINE, message="the endpoint answered 404: gone")
    assert "1 of 3 trajectories was not scored" in "".join(capsys.readouterr())


def test_busy_endpoint_is_retried_after_retry_after(endpoint: Endpoint) -> None:
    endpoint.answers = [failing(429, "slow down", Retry_After="1"), reply()]
    assert ask(endpoint, max_retries=1).message.text == "it is 4"
    first, second = endpoint.times
    assert second - first >= 0.95


def test_transient_error_is_retried(endpoint: Endpoint) -> None:
    endpoint.answers = [failing(500), failing(503), reply()]
    assert ask(endpoint, max_retries=2).message.text == "it is 4"
    assert len(endpoint.bodies) == 3


def test_permanent_error_fails_after_the_retries(endpoint: Endpoint) -> None:
    endpoint.answers = [failing(500, "out of order")]
    with pytest.raises(EngineError, match="500: out of order"):
        collect(endpoint, max_retries=1)
    assert len(endpoint.bodies) == 2


GARBAGE = {
    "nothing": (Reply(body=b""), "not JSON: nothing"),
    "no text at all": (Reply(body=b"\xff\xfe\x00"), "not JSON"),
    "deep": (Reply(body=b"[" * 200_000), "not JSON"),
    "no object": (Reply(body=b"[1]"), "has no choice"),
    "no choices": (Reply(body=b'{"error": {"message": "overloaded"}}'), "no choice.*overloaded"),
    "empty choices": (Reply(body=b'{"choices": []}'), "has no choice"),
    "choices of no form": (Reply(body=b'{"choices": {"0": 1}}'), "has no choice"),
    "no message": (Reply(body=b'{"choices": [{"delta": {}}]}'), "without a message"),
    "null choice": (Reply(body=b'{"choices": [null]}'), "without a message"),
    "odd content": (reply(17), "not text"),
    "odd calls": (reply("x", calls={"function": "add"}), "not a list"),
    "filtered": (reply("x", reason="content_filter"), "content filter"),
    "huge": (Reply(body=b'{"choices": [{"message": {"content": "' + b"a" * MOST_BYTES), "longer than 16 MiB"),
    "control characters": (Reply(body=b"\x1b[2J\x07 gotcha"), r"not JSON: \?\[2J\? gotcha"),
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_invalid_response_fails_only_its_own_request(endpoint: Endpoint, kind: str) -> None:
    answer, sentence = GARBAGE[kind]
    endpoint.answers = [answer]
    with pytest.raises(EngineError, match=sentence) as caught:
        ask(endpoint)
    assert len(str(caught.value)) < 500
    endpoint.answers = [answer, reply()]
    groups = collect(endpoint, 2, rollout={"concurrency": 1})
    assert [group.rewards_G for group in groups] == [(None,), (1.0,)]
    failure = groups[0].trajectories[0].failure
    assert failure is not None
    assert failure.boundary is Boundary.ENGINE


def test_incomplete_answer_is_reported(endpoint: Endpoint) -> None:
    endpoint.answers = [Reply(body=reply().body, headers={"Content_Encoding": "gzip"})]
    with pytest.raises(EngineError, match="is incomplete"):
        ask(endpoint)


def test_answer_without_text_or_calls_is_an_empty_answer(endpoint: Endpoint) -> None:
    endpoint.answers = [reply(None)]
    trajectory = only(collect(endpoint))
    assert (trajectory.stop, trajectory.final_response, trajectory.reward) == (Stop.DONE, "", 0.0)


def test_hanging_endpoint_exceeds_the_generation_timeout(endpoint: Endpoint) -> None:
    endpoint.answers = [Reply(body=b"{}", after_s=30)]
    started = time.monotonic()
    with pytest.raises(EngineError, match=r"all 3 trajectories: .* did not answer within 0.5 s"):
        collect(endpoint, 3, rollout={"engine_timeout_s": 0.5}, max_retries=4)
    assert time.monotonic() - started < 10


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds after which each request was let go. Those between arrivals shrink where the first one is held up."""
    asked: list[float] = []
    turns: list[float] = []
    wait = Pace.turn

    async def noted(self: Pace) -> None:
        asked.append(time.monotonic())
        await wait(self)
        turns.append(time.monotonic() - asked[0])

    monkeypatch.setattr(Pace, "turn", noted)
    return turns


def test_rate_limit_is_respected_without_blocking_the_loop(endpoint: Endpoint, turns: list[float]) -> None:
    endpoint.answers = [reply(None, calls=[call('{"a": 2, "b": 2}')]), reply()]
    collect(endpoint, 4, requests_per_minute=600)
    assert len(endpoint.times) == len(turns) == 5
    assert all(turn >= place * 0.1 - 0.001 for place, turn in enumerate(turns)), turns


def test_retries_count_towards_the_rate_limit(endpoint: Endpoint, turns: list[float]) -> None:
    endpoint.answers = [failing(429, "slow", Retry_After="0.01"), failing(429, "slow", Retry_After="0.01"), reply()]
    ask(endpoint, max_retries=2, requests_per_minute=120)
    assert len(endpoint.times) == len(turns) == 3
    assert turns[-1] >= 0.999


def test_low_rate_limits_concurrent_trajectories(endpoint: Endpoint) -> None:
    from rlcore.models.weights import FolderWeights
    from rlcore_rollout.engines.openai.config import OpenAIEngineConfig
    from rlcore_rollout.engines.openai.engine import OpenAIEngine

    def most(rate: float | None) -> int | None:
        config = OpenAIEngineConfig(model="m", base_url=endpoint.url, requests_per_minute=rate)
        return OpenAIEngine(config, FolderWeights(folder=None), EngineContext(timeout_s=600)).max_concurrency

    assert (most(10), most(0.001), most(None)) == (50, 1, None)
