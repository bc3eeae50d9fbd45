"""The openai engine against an endpoint in the chat-completions format."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

pytest.importorskip("httpx2", reason="the extra openai is not installed")

from chat_endpoint import KEY, Endpoint, ask, call, collect, failing, only, reply
from image_files import picture
from rlcore.errors import ConfigError, EngineError, UserError
from rlcore.types import Boundary, ImagePart, Message, Sampling, Stop, Task, TextPart, ToolCall
from rlcore_rollout.engines.openai.wire import to_wire


def test_tools_are_sent_and_their_answers_refer_to_calls_by_id(endpoint: Endpoint) -> None:
    calls = [call('{"a": 2, "b": 2}', id="first"), call('{"a": 1, "b": 1}', id="second")]
    endpoint.answers = [reply(None, calls=calls, usage=(11, 5)), reply("so 4", usage=(21, 2))]
    trajectory = only(collect(endpoint))
    first, second = endpoint.bodies
    assert [offered["function"]["name"] for offered in first["tools"]] == ["add"]
    assert first["tools"] == second["tools"]
    sent = second["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool"]
    assert [made["id"] for made in sent[1]["tool_calls"]] == ["first", "second"]
    assert json.loads(sent[1]["tool_calls"][0]["function"]["arguments"]) == {"a": 2, "b": 2}
    assert [(message["tool_call_id"], message["content"]) for message in sent[2:]] == [("first", "4"), ("second", "2")]
    assert (trajectory.stop, trajectory.reward, trajectory.final_response) == (Stop.DONE, 1.0, "so 4")
    assert [len(segment) for segment in trajectory.segments] == [0]
    assert {(turn.start, turn.end) for turn in trajectory.turns} == {(0, 0)}
    assert trajectory.metrics["prompt_tokens"] == 32
    assert trajectory.metrics["completion_tokens"] == 7
    assert trajectory.metrics["turns"] == 2


def pictured(data: bytes) -> Task:
    content = (TextPart(text="what?"), ImagePart.of(data))
    return Task(id="t", messages=(Message(role="user", content=content),), images=(data,))


@pytest.mark.parametrize(("kind", "media_type"), [("PNG", "png"), ("JPEG", "jpeg"), ("WEBP", "webp"), ("BMP", "bmp")])
def test_images_are_sent_unchanged_as_data_uris(endpoint: Endpoint, kind: str, media_type: str) -> None:
    data = picture(1000, 300, kind=kind)
    endpoint.answers = [reply("one", calls=[call('{"a": 2, "b": 2}')]), reply("two")]
    collect(endpoint, environment="Pictures", tasks=[pictured(data)])
    shown = {"type": "image_url", "image_url": {"url": f"data:image/{media_type};base64,{b64encode(data).decode()}"}}
    first, second = (body["messages"] for body in endpoint.bodies)
    assert first == [{"role": "user", "content": [{"type": "text", "text": "what?"}, shown]}]
    assert second[:1] == first
    assert second[2] == {"role": "tool", "tool_call_id": "call_x", "content": [shown, {"type": "text", "text": "more"}]}


def test_unreadable_image_is_not_sent(endpoint: Endpoint) -> None:
    trajectory = only(collect(endpoint, environment="Pictures", tasks=[pictured(b"no image")]))
    assert trajectory.failure is not None
    assert trajectory.failure.boundary is Boundary.ENVIRONMENT
    assert "must be a readable PNG" in trajectory.failure.message
    assert endpoint.bodies == []


def test_sampling_parameters_are_sent(endpoint: Endpoint) -> None:
    sampling = Sampling(max_new_tokens=5, temperature=0.5, top_p=0.9, seed=2**40 + 3, stop=("END",))
    ask(endpoint, sampling=sampling, extra_body={"chat_template_kwargs": {"enable_thinking": False}})
    (body,) = endpoint.bodies
    assert {key: body[key] for key in ("model", "max_tokens", "temperature", "top_p", "seed")} == {
        "model": "m",
        "max_tokens": 5,
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 3,
    }
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert body["stop"] == ["END"]
    assert "tools" not in body
    ask(endpoint, extra_body={"max_completion_tokens": 8})
    assert endpoint.bodies[-1]["max_completion_tokens"] == 8
    assert "max_tokens" not in endpoint.bodies[-1]


def test_key_is_sent_and_optional_for_a_local_endpoint(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(endpoint)
    monkeypatch.setenv("MY_KEY", KEY)
    ask(endpoint, api_key_env="MY_KEY")
    assert KEY not in (endpoint.keys[0] or "")
    assert endpoint.keys[1] == f"Bearer {KEY}"
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    ask(endpoint, api_key_env="")
    assert KEY not in (endpoint.keys[2] or "")


def test_remote_endpoint_without_a_key_is_rejected_before_any_request(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UserError, match="needs a key") as caught:
        ask(endpoint, base_url="https://example.org/v1")
    assert "rollout.openai.api_key_env" in str(caught.value)
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\x07é")
    with pytest.raises(UserError, match="is not a valid key") as caught:
        ask(endpoint, base_url="https://example.org/v1")
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"api_key": KEY},
        {"api_key_env": KEY},
        {"base_url": f"http://me:{KEY}@localhost/v1"},
        {"base_url": f"http://localhost/v1?key={KEY}"},
        {"extra_body": {"deep": [{"api_key": KEY}]}},
    ],
)
def test_key_in_the_configuration_is_rejected_and_not_shown(endpoint: Endpoint, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="environment") as caught:
        collect(endpoint, **options)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"base_url": "localhost:8000"}, "must be a URL"),
        ({"base_url": "http://localhost/v1/chat/completions"}, "must not include"),
        ({"base_url": "http://localhost:99999/v1"}, "is not a valid URL"),
        ({"extra_body": {"stream": True}}, "cannot set stream"),
        ({"model": ""}, "at least 1 character"),
        ({"requests_per_minute": 0}, "greater than 0"),
    ],
)
def test_other_invalid_options_are_reported_with_their_key(
    endpoint: Endpoint, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        collect(endpoint, **options)
    assert f"rollout.openai.{next(iter(options))}" in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ('{"a": 2', "not valid JSON"),
        ('{"a": 2} and more', "unexpected text after the JSON"),
        ("[1, 2]", "must be an object, found an array"),
        ("[" * 100_000, "not valid JSON"),
        ("NaN", "not valid JSON"),
    ],
)
def test_unparsable_arguments_are_reported_to_the_model(endpoint: Endpoint, arguments: str, sentence: str) -> None:
    endpoint.answers = [reply(None, calls=[call(arguments)]), reply("4")]
    trajectory = only(collect(endpoint))
    answer = endpoint.bodies[1]["messages"][-1]
    assert (answer["role"], answer["tool_call_id"]) == ("tool", "call_x")
    assert sentence in answer["content"]
    assert json.loads(endpoint.bodies[1]["messages"][1]["tool_calls"][0]["function"]["arguments"]) == {}
    assert (trajectory.stop, trajectory.reward) == (Stop.DONE, 1.0)


@pytest.mark.parametrize("given", [None, 7, {"id": "x"}, {"function": "add"}, {"function": {"name": 5}}, call(3)])
def test_malformed_call_is_unreadable(endpoint: Endpoint, given: Any) -> None:
    endpoint.answers = [reply("hm", calls=[given])]
    (made,) = ask(endpoint).message.tool_calls
    assert made.arguments is None
    assert made.error


def test_arguments_can_be_missing_or_an_object(endpoint: Endpoint) -> None:
    endpoint.answers = [reply(None, calls=[call(""), call({"a": 1}), call(None, id=None)])]
    made = ask(endpoint).message.tool_calls
    assert [(each.arguments, each.error, each.id) for each in made] == [
        ({}, None, "call_x"),
        ({"a": 1}, None, "call_x"),
        ({}, None, "call_2"),
    ]


def test_length_limit_ends_the_trajectory_without_parsing_calls(endpoint: Endpoint) -> None:
    endpoint.answers = [reply("4 and", calls=[call('{"a"')], reason="length")]
    trajectory = only(collect(endpoint))
    assert (trajectory.stop, trajectory.reward) == (Stop.LENGTH, 1.0)
    assert trajectory.messages[-1].tool_calls == ()


def test_full_context_ends_as_length_and_oversized_task_fails(endpoint: Endpoint) -> None:
    full = failing(400, "This model's maximum context length is 512 tokens, your request has 600 input tokens.")
    endpoint.answers = [reply(None, calls=[call('{"a": 2, "b": 2}')]), full]
    assert only(collect(endpoint)).stop is Stop.LENGTH
    endpoint.answers = [full]
    with pytest.raises(EngineError, match="maximum context length is 512"):
        collect(endpoint)


def test_context_limit_of_the_run_uses_reported_token_counts(endpoint: Endpoint) -> None:
    endpoint.answers = [reply(None, calls=[call('{"a": 2, "b": 2}')], usage=(90, 5)), reply("4", usage=(97, 1))]
    only(collect(endpoint, rollout={"max_context_tokens": 100}))
    assert [body["max_tokens"] for body in endpoint.bodies] == [100, 5]
    endpoint.answers = [reply(None, calls=[call('{"a": 2, "b": 2}')], usage=(90, 20))]
    assert only(collect(endpoint, rollout={"max_context_tokens": 100})).stop is Stop.LENGTH


def test_content_other_than_plain_text_is_read(endpoint: Endpoint) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "odd"}, "?", {"type": "text", "text": "b"}]
    endpoint.answers = [reply(None), reply(None, refusal="I will not"), reply(parts), reply("\ud800!", usage=None)]
    assert [ask(endpoint).message.text for _ in range(4)] == ["", "I will not", "ab", "?!"]
    endpoint.answers = [reply(usage=(-1, 10**30)), reply(usage=(True, "3"))]
    counts = [(done.prompt_tokens, done.completion_tokens) for done in (ask(endpoint), ask(endpoint))]
    assert counts == [(None, None), (None, None)]


def test_messages_without_a_call_and_calls_without_arguments_are_sent() -> None:
    unreadable = ToolCall(name="", error="what?", id="call_0")
    sent = to_wire([Message(role="assistant", tool_calls=(unreadable,)), Message(role="tool", content="\udc80")])
    assert sent[0]["tool_calls"][0]["function"] == {"name": "unreadable", "arguments": "{}"}
    assert sent[1] == {"role": "user", "content": "?"}
    json.dumps(sent).encode("utf-8")
