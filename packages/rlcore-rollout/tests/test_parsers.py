from __future__ import annotations

import random
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rlcore.contracts import ToolCallParser
from rlcore.types import Message, ToolCall, ToolSchema, thaw
from rlcore_rollout.parsers.code_fence import CodeFenceParser
from rlcore_rollout.parsers.declared_types import with_declared_types
from rlcore_rollout.parsers.harmony import HarmonyParser
from rlcore_rollout.parsers.hermes import HermesParser
from rlcore_rollout.parsers.llama3_json import Llama3JsonParser
from rlcore_rollout.parsers.mistral import MistralParser
from rlcore_rollout.parsers.qwen3_coder import Qwen3CoderParser
from rlcore_rollout.parsers.react import ReactParser
from rlcore_rollout.parsers.think import ThinkParser

JSON_PARSERS: list[ToolCallParser] = [
    HermesParser(),
    ThinkParser(),
    Llama3JsonParser(),
    ReactParser(),
    MistralParser(),
    HarmonyParser(),
]
PARSERS: list[ToolCallParser] = [*JSON_PARSERS, CodeFenceParser(), Qwen3CoderParser()]
NAMES = {type(parser).__name__: parser for parser in PARSERS}

FRAGMENTS = [
    "<tool_call>", "</tool_call>", "<think>", "</think>", '{"name": "f", "arguments": {"x": 1}}', '{"name":', "{", "}",
    "[", "]", '"', "\\", ":", ",", ";", "\n", " ", "```", "```python\n", "`", "Action: f\n", "Action Input: {}\n",
    "Action Input:", "Observation: x\n", "Final Answer: 4", '{"name": "f", "parameters": {}}', "<|python_tag|>", "NaN",
    "-Infinity", "1e999", "9" * 5000, "é", "\ud800", "\x00", "[TOOL_CALLS]",
    '[TOOL_CALLS] [{"name": "f", "arguments": {}}]',
    "f[ARGS]{}", "<|channel|>commentary to=functions.f <|constrain|>json<|message|>", "<|message|>",
    "<|end|>", "<|start|>",
    "<|channel|>analysis", "<|call|>", "to=f", "<function=f>", "</function>", "<parameter=x>", "</parameter>",
    "<parameter=",
]  # fmt: skip
hostile = st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=5)), max_size=25).map("".join)


def parse(parser: ToolCallParser, text: str) -> tuple[str, list[tuple[str, Any, bool]]]:
    content, calls = parser.parse(text)
    assert [call.id for call in calls] == [f"call_{index}" for index in range(len(calls))] or isinstance(
        parser, MistralParser
    )
    assert len({call.id for call in calls}) == len(calls)
    for call in calls:
        assert (call.arguments is None) == (call.error is not None)
    return content, [(call.name, thaw(call.arguments), call.error is None) for call in calls]


def error_of(parser: ToolCallParser, text: str) -> str:
    (call,) = parser.parse(text)[1]
    assert call.error is not None
    return call.error


@pytest.mark.parametrize("parser", PARSERS, ids=NAMES)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=hostile)
def test_arbitrary_text_does_not_raise(parser: ToolCallParser, text: str) -> None:
    parse(parser, text)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("parser", JSON_PARSERS, ids=lambda parser: type(parser).__name__)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(arguments=st.dictionaries(st.text(), values, max_size=4))
def test_rendered_calls_are_parsed_back(parser: ToolCallParser, arguments: dict[str, Any]) -> None:
    call = ToolCall(name="calculator", arguments=arguments)
    assert parse(parser, parser.render(call)) == ("", [("calculator", arguments, True)])


names = st.text("abcdefghijklmnopqrstuvwxyz_0123456789", min_size=1, max_size=20)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(arguments=st.dictionaries(names, values | hostile, max_size=4))
def test_rendered_coder_calls_are_parsed_back_for_any_value(arguments: dict[str, Any]) -> None:
    parser = Qwen3CoderParser()
    call = ToolCall(name="calculator", arguments=arguments)
    assert parse(parser, parser.render(call)) == ("", [("calculator", arguments, True)])


def test_mistral_parses_lists_and_named_calls_with_their_ids() -> None:
    listed = '[{"name": "f", "arguments": {"x": 1}, "id": "abcDEF123"}, {"name": "g", "arguments": {}}]'
    content, calls = MistralParser().parse(f"Let me see.[TOOL_CALLS] {listed}")
    assert (content, [call.name for call in calls], [call.id for call in calls]) == (
        "Let me see.", ["f", "g"], ["abcDEF123", "call_1"],
    )  # fmt: skip
    named = MistralParser().parse('[TOOL_CALLS]f[CALL_ID]abc123XYZ[ARGS]{"x": [1]}[TOOL_CALLS]g[ARGS]{}')[1]
    assert [(call.name, thaw(call.arguments)) for call in named] == [("f", {"x": [1]}), ("g", {})]
    assert [call.id for call in named] == ["abc123XYZ", "call_1"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[TOOL_CALLS]", "not valid JSON"),
        ('[TOOL_CALLS]{"name": "f"}', "a list of calls"),
        ('[TOOL_CALLS][{"name": "f"}]', '"arguments" is missing'),
        ("[TOOL_CALLS]f[ARGS][1]", "an array"),
        ("[TOOL_CALLS]f[ARGS]{", "not valid JSON"),
    ],
)
def test_mistral_explains_an_unreadable_call(text: str, said: str) -> None:
    assert said in error_of(MistralParser(), text)


def test_harmony_keeps_the_answer_and_drops_the_reasoning() -> None:
    text = "<|channel|>analysis<|message|>2+2<|end|><|start|>assistant<|channel|>final<|message|>It is 4."
    assert HarmonyParser().parse(text) == ("It is 4.", ())
    assert HarmonyParser().parse("no markup") == ("no markup", ())


@pytest.mark.parametrize(
    "text",
    [
        ' to=functions.f<|channel|>commentary json<|message|>{"x": "<|end|>"}',
        '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"x": "<|end|>"}<|call|>',
        "<|channel|>analysis<|message|>to=functions.g<|end|><|start|>assistant"
        '<|channel|>commentary to=functions.f<|message|>{"x": "<|end|>"}',
    ],
)
def test_harmony_parses_calls_wherever_the_recipient_stands(text: str) -> None:
    assert parse(HarmonyParser(), text) == ("", [("f", {"x": "<|end|>"}, True)])


def test_harmony_explains_an_unreadable_call() -> None:
    assert "not valid JSON" in error_of(HarmonyParser(), "<|channel|>commentary to=functions.f<|message|>{x}<|call|>")


def test_coder_parses_typed_values_and_keeps_the_other_text() -> None:
    text = (
        "I look.\n<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\nTrue\n</parameter>\n"
        '<parameter=c>\ntwo\nlines\n</parameter>\n<parameter=d>\n{"k": [null]}\n</parameter>\n</function>\n</tool_call>'
    )
    arguments = {"a": 1, "b": True, "c": "two\nlines", "d": {"k": [None]}}
    assert parse(Qwen3CoderParser(), text) == ("I look.", [("f", arguments, True)])
    assert parse(Qwen3CoderParser(), "<function=f></function>") == ("", [("f", {}, True)])


@pytest.mark.parametrize("text", ["18", "true", "null", "None", "[1, 2]", '{"a": 1}', "1e5", "3.50"])
def test_coder_values_are_texts_where_the_tool_declares_text(text: str) -> None:
    kinds = {"answer": {"type": "string"}, "either": {"anyOf": [{"type": "string"}, {"type": "null"}]}}
    kinds |= {"number": {"type": "number"}, "list": {"type": ["string", "null"]}}
    tool = ToolSchema(name="submit", description="Submit.", parameters={"type": "object", "properties": kinds})
    written = "".join(f"<parameter={name}>\n{text}\n</parameter>\n" for name in (*kinds, "unknown"))
    content, calls = Qwen3CoderParser().parse(f"<function=submit>\n{written}</function>")
    (call,) = with_declared_types(Message(role="assistant", content=content, tool_calls=calls), [tool]).tool_calls
    guess = call.arguments["unknown"] if call.arguments else None
    optional = None if guess is None else text
    wanted = {"answer": text, "either": optional, "number": guess, "list": optional, "unknown": guess}
    assert (call.arguments, call.texts) == (wanted, None)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"enum": ["1", "2"]}, "1"),
        ({"enum": ["a", 1]}, 1),
        ({"enum": [1.5, None]}, 1),
        ({"const": "1"}, "1"),
        ({"const": 1}, 1),
        ({"oneOf": [{"type": "string"}, {"const": None}]}, "1"),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, 1),
        ({"anyOf": [{"type": "string"}, True]}, 1),
        ({"allOf": [{"type": ["string", "integer"]}, {"enum": ["1"]}]}, "1"),
        ({"allOf": [{"type": ["string", "integer"]}, {"minLength": 1}]}, 1),
        ({"type": ["string", "integer"], "enum": ["1"]}, "1"),
        ({"$ref": "#/$defs/a~1b"}, "1"),
        ({"anyOf": [{"$ref": "#/$defs/a~1b"}, {"type": "null"}]}, "1"),
        ({"$ref": "#/$defs/loop"}, 1),
        ({"$ref": "#/$defs/missing"}, 1),
        ({"$ref": "https://example.com/#/$defs/a~1b"}, 1),
        ({"description": "anything"}, 1),
    ],
)
def test_coder_value_is_a_text_where_the_schema_accepts_only_texts(schema: dict[str, Any], value: Any) -> None:
    definitions = {"a/b": {"$ref": "#/$defs/text"}, "text": {"type": "string"}, "loop": {"$ref": "#/$defs/loop"}}
    parameters = {"type": "object", "properties": {"x": schema}, "$defs": definitions}
    calls = Qwen3CoderParser().parse("<function=f><parameter=x>1</parameter></function>")[1]
    tool = ToolSchema(name="f", description="", parameters=parameters)
    (call,) = with_declared_types(Message(role="assistant", content="", tool_calls=calls), [tool]).tool_calls
    assert (call.arguments, call.texts) == ({"x": value}, None)


CLOSED = "</parameter>\n</function>"
IN_TAGS = f"<tool_call>\n<function=f>\n<parameter=x>\n%s\n{CLOSED}\n</tool_call>"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (f"<function=f><parameter=x>a{CLOSED}b{CLOSED}", [f"a{CLOSED}b"]),
        (IN_TAGS % f"a{CLOSED}b", [f"a{CLOSED}b"]),
        (IN_TAGS % f"a{CLOSED}b<function=g>", [f"a{CLOSED}b<function=g>"]),
        (IN_TAGS % f"a{CLOSED}</tool_call>b", [f"a{CLOSED}</tool_call>b"]),
        (IN_TAGS % (IN_TAGS % "a" + '"""'), [IN_TAGS % "a" + '"""']),
        (f"{IN_TAGS % f'a{CLOSED}b'} and\n{IN_TAGS % 'c'}", [f"a{CLOSED}b", "c"]),
        (f"{IN_TAGS % 'a'}\n{IN_TAGS % f'b{CLOSED}c'}\nSo.", ["a", f"b{CLOSED}c"]),
        ((IN_TAGS % "a").removesuffix("</tool_call>") + " and " + IN_TAGS % "b", ["a", "b"]),
        (IN_TAGS % "a" + (IN_TAGS % "b").removeprefix("<tool_call>"), ["a", "b"]),
        (f"<function=f><parameter=x>a{CLOSED} and <function=f><parameter=x>b{CLOSED}", ["a", "b"]),
    ],
)
def test_coder_call_ends_at_the_last_closing_tags_before_the_next_call(text: str, values: list[str]) -> None:
    assert [call[1] for call in parse(Qwen3CoderParser(), text)[1]] == [{"x": value} for value in values]


def test_coder_value_with_closing_tags_may_have_others_after_it() -> None:
    text = IN_TAGS % f"a{CLOSED}b\n</parameter>\n<parameter=y>\n2"
    assert parse(Qwen3CoderParser(), text) == ("", [("f", {"x": f"a{CLOSED}b", "y": 2}, True)])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<tool_call><function=f>", "</function> is missing"),
        ("<tool_call><function=", "the name of the tool is missing"),
        ("<function=f><parameter=x>1</function>", "</parameter> is missing"),
        ("<function=f>text</function>", "text outside"),
    ],
)
def test_coder_explains_an_unreadable_call(text: str, said: str) -> None:
    assert said in error_of(Qwen3CoderParser(), text)


def test_think_removes_the_reasoning_before_another_parser() -> None:
    text = "<think><function=g></function></think><function=f></function>"
    assert parse(ThinkParser(Qwen3CoderParser()), text) == ("", [("f", {}, True)])


def test_rendered_code_is_parsed_back() -> None:
    call = ToolCall(name="python", arguments={"code": "x = 1\n\nprint(x)"})
    assert parse(CodeFenceParser(), CodeFenceParser().render(call)) == ("", [("python", call.arguments, True)])


BOMBS = [
    "<tool_call>", "<tool_call>{", '<tool_call>{"', '<tool_call>"', "<tool_call>[", "</tool_call>", "<tool_call>  \n",
    '<tool_call>{"a":"', '{"name": ', '{"name": "f"', "[", '{"a":', "<think>", "</think>", "<think></think>", "```\n",
    "````\n```\n", "```python\n", "``` x\n", "Action:\n", "Action: f\nAction Input: ", "Action Input: {\n", "Input:\n",
    "Action:", " ", "\n", ";", "\\", '"', '{"name": "f", "parameters": {}};', "`", '{"name":"a"} ', "9", "<tool_call>9",
    '<tool_call>{"name": "f", "arguments": {}}</tool_call>', '<tool_call>{"":"\\"', '<tool_call>{}',
    "[TOOL_CALLS]", "[TOOL_CALLS][", '[TOOL_CALLS][{"name":"f","arguments":{}}]', "[TOOL_CALLS]f[ARGS]",
    "f[ARGS]{}", "<|message|>",
    "<|channel|>commentary to=functions.f<|message|>", "to=f<|message|>{", "<|message|><|end|>", "<function=",
    "<function=f>",
    "<function=f></function>", "<function=f><parameter=x>", "<parameter=x>1</parameter>", "</parameter>",
    "<tool_call>\n", "to=", "</parameter></function>", "<tool_call><function=f><parameter=x>1</parameter></function>9",
    "<function=f><parameter=x>1</parameter></function></tool_call>",
]  # fmt: skip


def seconds(parser: ToolCallParser, text: str) -> float:
    start = time.process_time()
    parser.parse(text)
    return time.process_time() - start


def is_linear(parser: ToolCallParser, text: str) -> bool:
    """Whether four times the text takes about four times as long, where it takes long enough to tell: not sixteen."""
    whole = seconds(parser, text)
    if whole < 0.1:
        return True
    quarter = min(seconds(parser, text[: len(text) // 4]) for _ in range(3))
    return min(whole, seconds(parser, text)) < 10 * quarter


@pytest.mark.slow
@pytest.mark.parametrize("parser", PARSERS, ids=NAMES)
def test_hostile_text_is_parsed_in_linear_time(parser: ToolCallParser) -> None:
    for bomb in BOMBS:
        for prefix in ("", "<tool_call>", "Action: f\nAction Input: ", "```python\n"):
            assert is_linear(parser, prefix + bomb * (200_000 // len(bomb))), prefix + bomb


@pytest.mark.parametrize("parser", PARSERS, ids=NAMES)
def test_random_hostile_text_is_parsed_in_linear_time(parser: ToolCallParser) -> None:
    for seed in range(5):
        chosen = random.Random(seed)
        assert is_linear(parser, "".join(chosen.choice(FRAGMENTS[:22]) for _ in range(20_000))), seed


def test_hermes_parses_every_call_and_keeps_the_other_text() -> None:
    text = (
        "Let me see.\n<tool_call>\n"
        '{"name": "add", "arguments": {"a": 1, "b": "</tool_call>"}}\n</tool_call>\nand\n'
        '<tool_call>{"arguments": {}, "name": "now"}</tool_call> so.'
    )
    assert parse(HermesParser(), text) == (
        "Let me see.\nand\nso.",
        [("add", {"a": 1, "b": "</tool_call>"}, True), ("now", {}, True)],
    )


@pytest.mark.parametrize("text", ['{"name": "add", "arguments": {}}', "", "  \n4 ", "</tool_call>", "<tool call>{}"])
def test_hermes_requires_tags_around_calls(text: str) -> None:
    assert parse(HermesParser(), text) == (text, [])


@pytest.mark.parametrize(
    ("body", "name", "said"),
    [
        ('{"name": "add", "arguments": {"a": 1,}}', "add", "not valid JSON: "),
        ("{'name': 'add'}", "", "at character 1; expected <tool_call>"),
        ('{"name": "add", "arguments": {"a": NaN}}', "add", "NaN is not a JSON value"),
        ('{"name": "add"}', "add", '"arguments" is missing, the keys are "name"'),
        ('{"name": "add", "parameters": {}}', "add", 'the keys are "name", "parameters"'),
        ('{"name": "add", "arguments": "{}"}', "add", '"arguments" must be an object, found a string'),
        ('{"name": 3, "arguments": {}}', "", '"name" must be the name of a tool, found a number'),
        ('{"arguments": {}}', "", 'the keys are "arguments"'),
        ("[1]", "", "the call is an array, not an object"),
        ('{"name": "add", "arguments": {}} {"name": "add", "arguments": {}}', "add", "more than one JSON object"),
        ("", "", "not valid JSON"),
        ("[" * 5000, "", "nested too deeply"),
    ],
)
def test_hermes_explains_an_unreadable_call(body: str, name: str, said: str) -> None:
    text = f"before <tool_call>\n{body}\n</tool_call> after"
    (call,) = HermesParser().parse(text)[1]
    assert call.name == name
    assert said in (call.error or "")
    assert '{"name": <tool name>, "arguments": {...}}' in (call.error or "")
    assert HermesParser().parse(text)[0] == "before\nafter"


def test_hermes_missing_closing_tag_affects_only_its_own_call() -> None:
    text = '<tool_call>{"name": "a", "arguments": {}}<tool_call>{"name": "b", "arguments": {}}</tool_call>'
    assert parse(HermesParser(), text) == ("", [("a", None, False), ("b", {}, True)])
    assert "</tool_call> is missing" in error_of(HermesParser(), '<tool_call>{"name": "a", "arguments": {}}')
    assert "</tool_call> is missing" in error_of(HermesParser(), "<tool_call>{")


def test_think_ignores_reasoning_and_calls_inside_it() -> None:
    call = '<tool_call>{"name": "a", "arguments": {}}</tool_call>'
    assert parse(ThinkParser(), f"<think>\n{call}\n</think>\n\n4 {call}") == ("4", [("a", {}, True)])
    assert parse(ThinkParser(), f"thinking {call}</think>4") == ("4", [])
    assert parse(ThinkParser(), f"3 <think>{call}") == ("3", [])
    assert parse(ThinkParser(), "<think>a</think>1<think>b</think>2") == ("12", [])
    assert parse(ThinkParser(), "no thought") == ("no thought", [])


CODES = ("print('<think>')", "x = '</think>'", "<think></think>", "'<tool_call>'", "</tool_call>", "<function=f>")
THOUGHTS = [
    *((parser, "<think>", "</think>") for parser in (HermesParser, Qwen3CoderParser, Llama3JsonParser, ReactParser)),
    *((parser, "<think>", "</think>") for parser in (CodeFenceParser,)),
    (MistralParser, "[THINK]", "[/THINK]"),
]


@pytest.mark.parametrize(
    "code", [*CODES, "[THINK]", "[/THINK]", "[TOOL_CALLS]", "</parameter>", "".join(CODES), "</parameter>\n</function>"]
)
@pytest.mark.parametrize(("make", "opening", "closing"), THOUGHTS)
def test_tags_in_the_arguments_of_a_call_are_arguments(make: Any, opening: str, closing: str, code: str) -> None:
    parser: ToolCallParser = make() if make is MistralParser else ThinkParser(make())
    written = parser.render(ToolCall(name="python", arguments={"code": code}))
    if make is Qwen3CoderParser:  # as models write it, without the escapes of `render`
        written = f"<tool_call>\n<function=python>\n<parameter=code>\n{code}\n</parameter>\n</function>\n</tool_call>"
    for before in ("", f"{opening}Let me see.{closing}", f"Let me see.{closing}", f"{opening}\n{written}\n{closing}"):
        content, calls = parser.parse(f"{before}\n{written}")
        assert [(call.name, thaw(call.arguments), call.error) for call in calls] == [("python", {"code": code}, None)]
        assert content == ""


def test_mistral_ignores_calls_in_its_reasoning() -> None:
    call = '[TOOL_CALLS][{"name": "a", "arguments": {}}]'
    assert parse(MistralParser(), f"[THINK]maybe {call}[/THINK]4") == ("4", [])
    assert parse(MistralParser(), f"[THINK]yes[/THINK]{call}") == ("", [("a", {}, True)])


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity"])
def test_numbers_that_are_not_finite_are_errors(number: str) -> None:
    text = f'<tool_call>{{"name": "f", "arguments": {{"x": {number}}}}}</tool_call>'
    assert parse(HermesParser(), text) == ("", [("f", None, False)])
    assert number.lstrip("-") in error_of(HermesParser(), text)


def test_llama3_parses_bare_calls_and_ignores_other_json() -> None:
    one = '{"name": "add", "parameters": {"a": 1}}'
    typed = '{"type": "function", "name": "add", "parameters": {"a": 1}}'
    good = ("add", {"a": 1}, True)
    assert parse(Llama3JsonParser(), f" {one}; {typed}\n{one}") == ("", [good, good, good])
    assert parse(Llama3JsonParser(), f"<|python_tag|>{one}") == ("", [good])
    for text in ('{"answer": 4}', f"I call {one}", "4", ""):
        assert parse(Llama3JsonParser(), text) == (text, [])


def test_llama3_reports_errors_in_a_call() -> None:
    assert "not valid JSON" in error_of(Llama3JsonParser(), '{"name": "add", "parameters": {')
    assert '"parameters" is missing' in error_of(Llama3JsonParser(), '{"name": "add", "arguments": {}}')
    assert "nothing follows" in error_of(Llama3JsonParser(), "<|python_tag|>")


def test_react_parses_every_action_and_keeps_the_thoughts() -> None:
    text = (
        "Thought: add them\nAction: add\nAction Input: {\n"
        '  "a": 1\n}\nThought: again\nAction: add\nAction Input: {"a": 2}\nObservation: 3'
    )
    assert parse(ReactParser(), text) == (
        "Thought: add them\nThought: again\nObservation: 3",
        [("add", {"a": 1}, True), ("add", {"a": 2}, True)],
    )
    assert parse(ReactParser(), "Action: add\nInput: {}") == ("", [("add", {}, True)])
    assert parse(ReactParser(), "Final Answer: 4") == ("Final Answer: 4", [])
    assert parse(ReactParser(), "Input: 4") == ("Input: 4", [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Action: add", 'has no "Action Input:" line'),
        ("Action Input: {}", 'follows no "Action:"'),
        ("Action: add\nAction Input: 1 + 1", "there is text after"),
        ("Action: add\nAction Input: 4", "must be a JSON object, found a number"),
        ("Action: add\nAction Input: a", "not valid JSON"),
        ("Action: add\nAction Input:", "not valid JSON"),
    ],
)
def test_react_explains_an_unreadable_call(text: str, said: str) -> None:
    assert said in error_of(ReactParser(), text)
    assert "expected a line" in error_of(ReactParser(), text)


def test_code_fence_parses_every_block_of_its_languages() -> None:
    text = "First\n```python\nprint(1)\n```\nthen\n````py\n```\nx\n````\n```json\n{}\n```\nend"
    assert parse(CodeFenceParser(), text) == (
        "First\nthen\n```json\n{}\n```\nend",
        [("python", {"code": "print(1)"}, True), ("python", {"code": "```\nx"}, True)],
    )
    assert parse(CodeFenceParser(tool="run", argument="script", languages=["sh"]), "```sh\nls\n```") == (
        "",
        [("run", {"script": "ls"}, True)],
    )


def test_code_fence_reports_an_unclosed_block() -> None:
    assert "not closed with ```" in error_of(CodeFenceParser(), "```python\nprint(1)")
    assert parse(CodeFenceParser(), "```json\n{}") == ("```json\n{}", [])


def test_hermes_stops_after_too_many_unreadable_calls() -> None:
    good = '<tool_call>{"name": "a", "arguments": {}}</tool_call>'
    assert len(HermesParser().parse(good * 100)[1]) == 100
    assert len(HermesParser().parse("<tool_call>{</tool_call>" * 100 + good)[1]) == 32
