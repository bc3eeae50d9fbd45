"""The client of chat-completions endpoints, against a real local server."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httpx2", reason="the extra endpoints is not installed")

from chat_server import KEY, Endpoint, Reply, failing, free_port, reply
from rlcore.endpoints import Answer, EndpointFailure, EndpointTable
from rlcore.endpoints.answers import MOST_BYTES, without_key
from rlcore.endpoints.client import ChatEndpoints
from rlcore.endpoints.waiting import backoff_s, retry_after_s
from rlcore.errors import UserError
from rlcore.redaction import forget

LONGEST_S = 120.0
"""A wait that is longer than this is a mistake."""
USER = [{"role": "user", "content": "what is 2 + 2?"}]


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    server = Endpoint()
    yield server
    server.close()
    forget()


def ask(endpoint: Endpoint, count: int = 1, **options: Any) -> list[Answer | BaseException]:
    """The answers to several questions at a time."""

    async def go() -> list[Answer | BaseException]:
        table = EndpointTable(**{"model": "m", "base_url": [endpoint.url], "max_retries": 3, **options})
        async with ChatEndpoints(table) as client:
            questions = [client.ask(USER, max_tokens=9, top_p=1.0, seed=None) for _ in range(count)]
            async with asyncio.timeout(LONGEST_S):
                return list(await asyncio.gather(*questions, return_exceptions=True))

    return asyncio.run(go())


def only(endpoint: Endpoint, **options: Any) -> Answer:
    (found,) = ask(endpoint, **options)
    if isinstance(found, BaseException):
        raise found
    return found


def test_answer_has_text_and_token_counts(endpoint: Endpoint) -> None:
    assert only(endpoint) == Answer(text="it is 4", truncated=False, prompt_tokens=7, completion_tokens=3)
    assert endpoint.bodies == [{"model": "m", "messages": USER, "max_tokens": 9, "top_p": 1.0}]
    assert endpoint.keys == [None]


def test_a_server_that_sends_two_responses_is_asked_again(endpoint: Endpoint) -> None:
    def answered(body: dict[str, Any]) -> Reply:
        told = reply(f"about {body['messages'][0]['content']}").body
        return Reply(body=told, times=2 if len(endpoint.bodies) in (1, 3) else 1)

    endpoint.answer = answered
    endpoint.server.RequestHandlerClass.protocol_version = "HTTP/1.1"  # type: ignore[attr-defined]

    async def go() -> None:
        table = EndpointTable(model="m", base_url=[endpoint.url], max_retries=3)
        async with ChatEndpoints(table) as client:
            for number in range(4):
                found = await client.ask([{"role": "user", "content": str(number)}], max_tokens=9)
                assert found.text == f"about {number}"
            assert client.retried == {"connection": 2}

    asyncio.run(go())


def test_key_comes_from_the_environment_alone(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    only(endpoint, api_key_env="MY_KEY", extra_body={"max_completion_tokens": 5, "think": False})
    assert endpoint.keys == [f"Bearer {KEY}"]
    assert endpoint.bodies[0] | {"messages": []} == {
        "model": "m", "messages": [], "top_p": 1.0, "max_completion_tokens": 5, "think": False,
    }  # fmt: skip
    with pytest.raises(ValueError, match="only from the environment"):
        EndpointTable(model="m", api_key=KEY)
    with pytest.raises(UserError, match="needs a key") as caught:
        ChatEndpoints(EndpointTable(model="m", base_url=["http://example.org/v1"]), keys="reward.0.")
    assert "reward.0.api_key_env" in str(caught.value)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("wrong key sk-proj-Ab3dEf6hIj9l", "wrong key **********"),
        ("wrong key SK-PROJ-AB3DEF6HIJ9L, sk-proj-ab3def6hij9l", "wrong key **********, **********"),
        ("wrong key sk-proj-Ab3d****, ****Ef6hIj9l", "wrong key **************, **************"),
        ("wrong key ***b3dEf6hIj9l, dEf6hIj9 and Ef6hIj9", "wrong key *************, ********** and Ef6hIj9"),
        ("wrong key sk-pr…", "wrong key **********…"),
        ("\u0130 is no key, and the project is unknown", "\u0130 is no key, and the project is unknown"),
    ],
)
def test_a_key_is_masked_in_part_and_in_another_case(said: str, shown: str) -> None:
    assert without_key(said, "sk-proj-Ab3dEf6hIj9l") == shown


def test_words_that_are_parts_of_a_key_are_shown_in_linear_time() -> None:
    said = "the authentication of the project failed; "
    assert without_key(said, "sk-authentication-4711") == said
    assert without_key(said * 10_000, "sk-" + "authentication" * 1000 + "4711") == said * 10_000


@pytest.mark.parametrize("status", [401, 403])
def test_rejected_key_ends_everything_after_one_request(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    endpoint.answers = [failing(status, "x" * 270 + f" wrong key {KEY}")]
    found = ask(endpoint, 6)
    assert {type(error) for error in found} == {UserError}
    assert "rejected the key" in str(found[0])
    assert KEY[:8] not in str(found[0])
    assert len(endpoint.bodies) == 1


def test_key_rejected_later_ends_everything(endpoint: Endpoint) -> None:
    endpoint.answers = [reply(), failing(401)]
    found = ask(endpoint, 5, concurrency=1)
    assert isinstance(found[0], Answer)
    assert {type(error) for error in found[1:]} == {UserError}
    assert len(endpoint.bodies) == 2


def test_used_up_quota_is_not_retried(endpoint: Endpoint) -> None:
    body = json.dumps({"error": {"message": "no credit", "code": "insufficient_quota"}}).encode()
    endpoint.answers = [Reply(status=429, body=body)]
    with pytest.raises(UserError, match="quota"):
        only(endpoint)
    assert len(endpoint.bodies) == 1


def test_unknown_model_lists_the_models_of_the_server(endpoint: Endpoint) -> None:
    endpoint.answers = [failing(404, "no such model")]
    endpoint.models = Reply(body=json.dumps({"data": [{"id": "tiny"}, {"id": "large"}]}).encode())
    with pytest.raises(UserError, match="available models: tiny, large"):
        only(endpoint)
    endpoint.models = Reply(body=b"<p>nothing")
    with pytest.raises(UserError, match="does not provide chat completions"):
        only(endpoint)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (Reply(status=307, body=b"", headers={"Location": "https://example.org/v1?token=12345678"}), "example.org/v1"),
        (failing(405, "POST"), "405"),
        (failing(501, "POST"), "501"),
    ],
)
def test_url_that_is_no_endpoint_ends_everything_at_once(endpoint: Endpoint, answer: Reply, found: str) -> None:
    endpoint.answers = [answer]
    with pytest.raises(UserError) as error:
        only(endpoint)
    assert found in (error.value.found or "")
    assert "12345678" not in str(error.value)
    assert "base_url" in (error.value.fix or "")
    assert len(endpoint.bodies) == 1


def test_page_instead_of_every_answer_ends_everything(endpoint: Endpoint) -> None:
    page = Reply(body=b"\n<html>Sign in</html>")
    endpoint.answers = [page]
    with pytest.raises(UserError, match="does not provide chat completions") as error:
        only(endpoint, max_retries=0)
    assert "Sign in" in (error.value.found or "")
    endpoint.answers = [reply(), page]
    first, second = ask(endpoint, 2, concurrency=1, max_retries=0)
    assert isinstance(first, Answer)
    assert isinstance(second, EndpointFailure), "it may only be busy"


def test_server_that_is_not_there_is_reported_at_once(endpoint: Endpoint) -> None:
    with pytest.raises(UserError, match="does not respond"):
        only(endpoint, base_url=[f"http://127.0.0.1:{free_port()}/v1"], max_retries=50)


def test_missing_server_is_replaced_by_the_others(endpoint: Endpoint) -> None:
    gone = f"http://127.0.0.1:{free_port()}/v1"
    found = ask(endpoint, 6, base_url=[gone, endpoint.url])
    assert all(isinstance(answer, Answer) for answer in found)
    assert len(endpoint.bodies) == 6


def test_busy_server_rests_while_another_answers(endpoint: Endpoint) -> None:
    other = Endpoint()
    other.answers = [failing(429, "slow down", Retry_After="60")]
    try:
        found = ask(endpoint, 6, base_url=[other.url, endpoint.url])
    finally:
        other.close()
    assert all(isinstance(answer, Answer) for answer in found)
    assert (len(other.bodies), len(endpoint.bodies)) == (1, 6)


@pytest.mark.parametrize(
    "first",
    [
        failing(429, Retry_After="0.05"),
        failing(500),
        failing(503, Retry_After="0"),
        Reply(body=b"<html>please wait"),
        Reply(body=reply().body, drops=True),
        Reply(body=reply().body, headers={"Content_Encoding": "gzip"}),
        pytest.param(Reply(body=b"{}", after_s=600), marks=pytest.mark.slow),
    ],
    ids=["429", "500", "503", "html", "dropped", "undecodable", "hangs"],
)
def test_passing_failure_is_retried(endpoint: Endpoint, first: Reply) -> None:
    endpoint.answers = [first, reply()]
    assert only(endpoint, timeout_s=3 if first.after_s else 120).text == "it is 4"
    assert len(endpoint.bodies) == 2


@pytest.mark.parametrize(
    ("answer", "kind", "sent"),
    [
        (failing(429, Retry_After="0"), "rate limit", 2),
        (failing(500, Retry_After="0"), "server error", 2),
        (Reply(body=b'{"choices": []}'), "unreadable answer", 2),
        (Reply(body=reply().body, drops=True), "connection", 2),
        (Reply(body=b"{}", after_s=600), "time-out", 2),
        (failing(400, "too many images"), "rejected request", 1),
        (reply("x", reason="content_filter"), "content filter", 1),
    ],
)
def test_failure_has_a_kind_and_bounded_retries(endpoint: Endpoint, answer: Reply, kind: str, sent: int) -> None:
    endpoint.answers = [answer]
    with pytest.raises(EndpointFailure) as caught:
        only(endpoint, max_retries=1, timeout_s=0.5 if answer.after_s else 120)
    assert caught.value.kind == kind
    assert len(endpoint.bodies) == sent


def test_retry_after_makes_all_requests_wait(endpoint: Endpoint) -> None:
    endpoint.answers = [reply(), failing(429, Retry_After="0.6"), reply()]
    found = ask(endpoint, 4, concurrency=1)
    assert all(isinstance(answer, Answer) for answer in found)
    assert endpoint.times[2] - endpoint.times[1] >= 0.6


def test_wait_beyond_the_deadline_fails_without_waiting(endpoint: Endpoint) -> None:
    endpoint.answers = [failing(429, Retry_After="3600")]
    with pytest.raises(EndpointFailure) as caught:
        only(endpoint, deadline_s=1800)
    assert caught.value.kind == "rate limit"


def test_deadline_ends_a_question_with_retries_left(endpoint: Endpoint) -> None:
    endpoint.answers = [Reply(body=b"{}", after_s=600)]
    with pytest.raises(EndpointFailure, match=r"within 0.5 s") as caught:
        only(endpoint, deadline_s=0.5)
    assert caught.value.kind == "time-out"


def test_concurrency_and_rate_have_limits(endpoint: Endpoint) -> None:
    endpoint.answer = lambda body: Reply(body=reply().body, after_s=0.05)
    ask(endpoint, 8, concurrency=3)
    assert 2 <= endpoint.most_at_once <= 3
    endpoint.times.clear()
    ask(endpoint, 4, requests_per_minute=600)
    assert endpoint.times[3] - endpoint.times[0] >= 0.25


def test_waits_grow_and_differ_and_retry_after_is_read() -> None:
    waits = [backoff_s(3) for _ in range(50)]
    assert 2.0 <= min(waits) < max(waits) <= 4.0
    assert backoff_s(10**9) <= 60.0
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    assert 80 < (retry_after_s({"retry-after": later}) or 0) <= 90
    assert retry_after_s({"retry-after": "-5"}) == 0.0
    assert retry_after_s({"retry-after-ms": "250"}) == 0.25
    assert [retry_after_s({"retry-after": text}) for text in ("soon", "nan", "inf", "")] == [None] * 4


@pytest.mark.slow
def test_deadline_includes_the_wait_for_other_questions(endpoint: Endpoint) -> None:
    endpoint.answer = lambda body: Reply(body=reply().body, after_s=0.8)
    found = ask(endpoint, 4, concurrency=1, deadline_s=2.0)
    kinds = [error.kind for error in found if isinstance(error, EndpointFailure)]
    assert isinstance(found[0], Answer)
    assert "time-out" in kinds
    assert len(endpoint.bodies) < 4


@pytest.mark.slow
def test_server_that_answers_nothing_gets_few_requests_until_it_recovers(endpoint: Endpoint) -> None:
    hung = Endpoint()
    hung.answer = lambda body: Reply(body=b"{}", after_s=600)
    endpoint.answer = lambda body: Reply(body=reply().body, after_s=0.02)
    try:
        found = ask(endpoint, 200, base_url=[hung.url, endpoint.url], concurrency=20, timeout_s=1.0)
        assert all(isinstance(answer, Answer) for answer in found)
        assert len(hung.bodies) <= 20
    finally:
        hung.close()


def test_retry_goes_to_a_server_that_has_answered_others(endpoint: Endpoint) -> None:
    broken = Endpoint()
    broken.answers = [failing(500, Retry_After="0")]
    endpoint.answers = [reply(), *[failing(500, Retry_After="0"), reply()] * 5]
    try:
        found = ask(endpoint, 6, base_url=[broken.url, endpoint.url], concurrency=1, max_retries=2)
    finally:
        broken.close()
    assert all(isinstance(answer, Answer) for answer in found)


@pytest.mark.slow
def test_lost_server_is_asked_whether_it_is_alive_and_used_again(endpoint: Endpoint) -> None:
    broken = Endpoint()
    broken.answers = [failing(500)] * 8 + [reply()]
    endpoint.answer = lambda body: Reply(body=reply().body, after_s=0.1)
    try:
        found = ask(endpoint, 120, base_url=[broken.url, endpoint.url], concurrency=4)
        assert all(isinstance(answer, Answer) for answer in found)
        assert len(broken.bodies) > 9, "it recovered"
    finally:
        broken.close()


@pytest.mark.slow
def test_questions_to_dead_servers_end_at_their_deadline(endpoint: Endpoint) -> None:
    answers = iter([reply()])
    endpoint.answer = lambda body: next(answers, Reply(body=b"{}", after_s=600))
    found = ask(endpoint, 40, concurrency=8, timeout_s=1.0, deadline_s=3.0, max_retries=50)
    assert sum(isinstance(answer, Answer) for answer in found) == 1
    assert {error.kind for error in found if isinstance(error, EndpointFailure)} <= {"time-out", "connection"}


@pytest.mark.parametrize("proxy", ["environment", "none", "url"])
def test_proxy_is_a_setting_of_the_client(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    """The test server plays a proxy: it receives requests for another host."""
    monkeypatch.setenv("HTTP_PROXY", endpoint.url.removesuffix("/v1"))
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    before = dict(os.environ)
    options = {"base_url": ["http://judge.invalid/v1"], "api_key_env": "", "max_retries": 0}
    if proxy == "none":
        with pytest.raises(UserError, match="does not respond") as error:
            only(endpoint, **options, proxy="none")
        assert "proxy" not in (error.value.fix or "")
    else:
        only(endpoint, **options, **({"proxy": endpoint.url.removesuffix("/v1")} if proxy == "url" else {}))
    assert len(endpoint.bodies) == (0 if proxy == "none" else 1)
    assert dict(os.environ) == before


def test_proxy_that_is_not_there_is_named(endpoint: Endpoint) -> None:
    gone = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(UserError, match="does not respond") as error:
        only(endpoint, base_url=["http://judge.invalid/v1"], api_key_env="", max_retries=0, proxy=gone)
    assert "proxy=none" in (error.value.fix or "")


def test_endpoint_on_this_machine_is_reached_without_a_proxy(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert only(endpoint).text == "it is 4"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_certificates_of_servers_are_checked(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = ["-keyout", "key.pem", "-out", "certificate.pem", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subprocess.run([*command, "-subj", "/CN=judge", *made], cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate.pem", tmp_path / "key.pem")
    endpoint.server.socket = context.wrap_socket(endpoint.server.socket, server_side=True)
    options = {"base_url": [endpoint.url.replace("http:", "https:")], "max_retries": 0}
    with pytest.raises(UserError, match="does not respond") as caught:
        only(endpoint, **options)
    assert "CERTIFICATE_VERIFY_FAILED" in str(caught.value)
    assert not endpoint.bodies
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
    found = ask(endpoint, 3, **options)
    assert [answer.text for answer in found if isinstance(answer, Answer)] == ["it is 4"] * 3


def test_connection_that_the_server_closed_is_not_used_again(endpoint: Endpoint) -> None:
    handler = endpoint.server.RequestHandlerClass
    handler.protocol_version, handler.timeout = "HTTP/1.1", 0.2  # type: ignore[attr-defined]

    async def go() -> int:
        async with ChatEndpoints(EndpointTable(model="m", base_url=[endpoint.url], max_retries=0)) as client:
            for wait_s in (0.0, 0.6, 0.0):
                await asyncio.sleep(wait_s)
                await client.ask(USER, max_tokens=9)
            return client.requests

    assert asyncio.run(go()) == 3


def test_answer_of_many_values_is_not_parsed(endpoint: Endpoint) -> None:
    endpoint.answers = [Reply(body=b"[" + b"[]," * 5_000_000 + b"0]")]
    start = time.process_time()
    (found,) = ask(endpoint, max_retries=0)
    assert "not JSON" in str(found)
    assert time.process_time() - start < 2


@pytest.mark.parametrize("compressed", [False, True])
def test_long_answer_is_not_read_to_its_end(endpoint: Endpoint, compressed: bool) -> None:
    body = b" " * (MOST_BYTES + 1)
    endpoint.answers = [
        Reply(body=gzip.compress(body), headers={"Content_Encoding": "gzip"}) if compressed else Reply(body=body)
    ]
    with pytest.raises(EndpointFailure, match="longer than 16 MiB"):
        only(endpoint, max_retries=0)


def test_connection_is_closed_after_a_timeout() -> None:
    closed = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        closed.set()

    async def go() -> None:
        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        table = EndpointTable(model="m", base_url=[url], max_retries=0, timeout_s=0.2)
        async with asyncio.timeout(LONGEST_S), server, ChatEndpoints(table) as client:
            with pytest.raises(EndpointFailure, match="did not answer within"):
                await client.ask(USER, max_tokens=9)
            await closed.wait()

    asyncio.run(go())


@pytest.mark.parametrize("proxy", ["", "direct", "ftp://proxy:1", "http://", "http://me:secretpassword@proxy:3128"])
def test_unusable_proxy_is_rejected_without_showing_a_password(proxy: str) -> None:
    with pytest.raises(ValueError, match="proxy") as caught:
        EndpointTable(model="m", proxy=proxy)
    assert "secretpassword" not in str(caught.value.errors()[0]["msg"])  # type: ignore[attr-defined]
