"""The Qwen formats against the models' own templates and tokenizers, where RLCORE_DATA has them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rlcore.episodes.tool import tool
from rlcore.types import Message, ToolCall, ToolSchema, thaw
from rlcore_rollout.chat.qwen import Qwen3Format, Qwen25Format
from tokenizers import Tokenizer

pytestmark = pytest.mark.slow

Chat = Qwen25Format | Qwen3Format


@tool
def calculator(expression: str, digits: int = 3, mode: Literal["exact", "résumé"] | None = None) -> str:
    """Compute an <arithmetic> expression & say "it".

    Args:
        expression: such as 2 × 3
    """
    return expression


@tool
def now() -> str:
    """The time."""
    return ""


TOOLS = (calculator.schema, now.schema)
TOOL_CHOICES: list[tuple[ToolSchema, ...]] = [(), TOOLS]


class Official:
    """A model's own rendering: its template by jinja2, its tokenizer by the tokenizers library."""

    def __init__(self, folder: Path) -> None:
        jinja2 = pytest.importorskip("jinja2", reason="jinja2 renders the models' own templates")
        environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
        environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        self.template = environment.from_string(config["chat_template"])
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def ids(self, messages: Sequence[Message], tools: Sequence[ToolSchema], *, generate: bool) -> list[int]:
        text = self.template.render(
            messages=plain(messages), tools=[tool.as_json() for tool in tools] or None, add_generation_prompt=generate
        )
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids


def plain(messages: Sequence[Message]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for message in messages:
        row: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.tool_calls:
            calls = [{"name": call.name, "arguments": thaw(call.arguments)} for call in message.tool_calls]
            row["tool_calls"] = [{"type": "function", "function": call} for call in calls]
        rows.append(row)
    return rows


@pytest.fixture(scope="module")
def qwen25(real_folder: Callable[[str], Path]) -> tuple[Chat, Official]:
    folder = real_folder("qwen2.5-instruct")
    return Qwen25Format(folder), Official(folder)


@pytest.fixture(scope="module")
def qwen3(real_folder: Callable[[str], Path]) -> tuple[Chat, Official]:
    folder = real_folder("qwen3")
    return Qwen3Format(folder), Official(folder)


@pytest.fixture(params=["qwen25", "qwen3"])
def pair(request: pytest.FixtureRequest) -> tuple[Chat, Official]:
    made: tuple[Chat, Official] = request.getfixturevalue(request.param)
    return made


def system(content: str) -> Message:
    return Message(role="system", content=content)


def user(content: str) -> Message:
    return Message(role="user", content=content)


def said(content: str, *arguments: dict[str, Any]) -> Message:
    calls = tuple(ToolCall(name="calculator", arguments=given) for given in arguments)
    return Message(role="assistant", content=content, tool_calls=calls)


def answer(content: str) -> Message:
    return Message(role="tool", content=content, name="calculator")


def agree(pair: tuple[Chat, Official], messages: Sequence[Message], tools: Sequence[ToolSchema] = TOOLS) -> None:
    chat, official = pair
    assert chat.conversation(messages, tools)[0] == official.ids(messages, tools, generate=False)
    if messages[-1].role != "assistant":
        assert chat.prompt(messages, tools) == official.ids(messages, tools, generate=True)


TEXTS = [
    "What is 2 + 2?", "", " ", "\n", "\n\nhi\n\n", "  hi  ", "hi \n", "\t\r\nhi\r\n", "été 日本語 العربية", "😀👩‍👩‍👧",
    "e\u0301 A\u030a", "\u0301first", "１２３", "12345.678", "a" * 300, "<|im", "<tool>", "it's 'LL", "\x00\x7f\u200b",
    "def f():\n    return 1\n", '{"a": "\\u00e9"}', "\u3000ideographic\u3000", "-\n-", "\n \n x",
]  # fmt: skip


@pytest.mark.parametrize("tools", TOOL_CHOICES, ids=["without tools", "with tools"])
@pytest.mark.parametrize("text", TEXTS)
def test_first_prompts_equal_the_template(pair: tuple[Chat, Official], text: str, tools: Sequence[ToolSchema]) -> None:
    agree(pair, [user(text)], tools)
    agree(pair, [system(text), user(text)], tools)
    agree(pair, [system("Be brief."), user(text), system(text), user("go on")], tools)


@pytest.mark.parametrize("text", TEXTS)
def test_conversations_with_tools_equal_the_template(pair: tuple[Chat, Official], text: str) -> None:
    messages = [user(text), said("", {"expression": text}), answer(text)]
    agree(pair, messages)
    call = said(
        "Let me see.", {"expression": "1", "mode": None, "digits": 2}, {"expression": text, "list": [1, {"é": 2.5}]}
    )
    messages += [call, answer(text), answer("2"), answer(text)]
    agree(pair, messages)
    agree(pair, [system(text), *messages])


ADDED = ["<|", "<tool_", "</tool_", "<think", "</think"]
harmless = st.text(st.characters(codec="utf-8"), max_size=30).filter(lambda text: not any(bad in text for bad in ADDED))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(first=harmless, second=harmless, third=harmless)
def test_harmless_text_equals_the_template(pair: tuple[Chat, Official], first: str, second: str, third: str) -> None:
    agree(pair, [system(second), user(first), said("", {"expression": third}), answer(second), answer(third)])


def test_finished_conversations_equal_the_template_of_qwen25(qwen25: tuple[Chat, Official]) -> None:
    agree(
        qwen25,
        [
            user("2 + 2?"),
            said("", {"expression": "2 + 2"}),
            answer("4"),
            said("It is 4.\n"),
            user("sure?"),
            said("yes"),
        ],
    )


def test_finished_conversations_with_thoughts_equal_the_template_of_qwen3(qwen3: tuple[Chat, Official]) -> None:
    thought = "<think>\nI add them.\n</think>\n\n"
    agree(qwen3, [user("2 + 2?"), said(thought, {"expression": "2 + 2"}), answer("4"), said(f"{thought}It is 4.")][:1])
    agree(
        qwen3,
        [user("2 + 2?"), said(f"{thought}I call.", {"expression": "2 + 2"}), answer("4"), said(f"{thought}It is 4.")],
    )


def test_rollouts_equal_the_template_for_their_messages(pair: tuple[Chat, Official]) -> None:
    chat, official = pair
    thought = "<think>\nhm\n</think>\n\n" if isinstance(chat, Qwen3Format) else ""
    messages = [user("2 + 2?")]
    ids = chat.prompt(messages, TOOLS)
    for number in range(4):
        written = said(f"{thought}Step {number}.", {"expression": f"{number} + 1"}, {"expression": "é"})
        text = f"{written.text}\n" + "\n".join(chat.parser.render(call) for call in written.tool_calls) + "<|im_end|>"
        sampled = official.tokenizer.encode(text, add_special_tokens=False).ids
        ids += sampled
        messages += [written, answer(f"{number + 1}\n"), answer("é")]
        ids += chat.observation(messages[-2:], sampled)
        assert ids == official.ids(messages, TOOLS, generate=True)


def test_difference_untrusted_text_is_never_a_special_token(pair: tuple[Chat, Official]) -> None:
    chat, official = pair
    messages = [user("<|im_end|>")]
    theirs = official.ids(messages, (), generate=True)
    assert theirs.count(chat.stop_token_ids[0]) == chat.prompt(messages).count(chat.stop_token_ids[0]) + 1
    assert chat.decode(chat.prompt(messages)) == chat.decode(theirs)


def test_difference_leading_line_break_is_not_merged_with_the_header(
    qwen25: tuple[Chat, Official],
) -> None:
    chat, official = qwen25
    messages = [user("hi"), said("\nhello")]
    ours, theirs = chat.conversation(messages)[0], official.ids(messages, (), generate=False)
    assert ours != theirs
    assert ours[: len(chat.prompt(messages[:1]))] == chat.prompt(messages[:1])
    assert chat.decode(ours) == chat.decode(theirs)


def test_difference_qwen3_keeps_the_thoughts_of_earlier_turns(qwen3: tuple[Chat, Official]) -> None:
    chat, official = qwen3
    messages = [user("hi"), said("<think>\nhm\n</think>\n\nhello")]
    before = official.ids(messages, (), generate=False)
    messages.append(user("bye"))
    after = official.ids(messages, (), generate=True)
    assert after[: len(before)] != before  # the template's longer rendering does not begin with its shorter one
    ours = chat.prompt(messages)
    assert ours[: len(before)] == before
    assert chat.decode(after) == chat.decode(ours).replace("<think>\nhm\n</think>\n\n", "")


def test_difference_qwen3_adds_no_empty_thought_to_the_last_turn(qwen3: tuple[Chat, Official]) -> None:
    chat, official = qwen3
    messages = [user("hi"), said("hello")]
    theirs = official.ids(messages, (), generate=False)
    assert chat.decode(theirs).replace("<think>\n\n</think>\n\n", "") == chat.decode(chat.conversation(messages)[0])


def test_difference_qwen3_keeps_the_line_breaks_around_thoughts(qwen3: tuple[Chat, Official]) -> None:
    chat, official = qwen3
    messages = [user("hi"), said("<think>hm</think>hello")]
    assert chat.decode(chat.conversation(messages)[0]).endswith("\n<think>hm</think>hello<|im_end|>\n")
    assert chat.decode(official.ids(messages, (), generate=False)).endswith(
        "<think>\nhm\n</think>\n\nhello<|im_end|>\n"
    )


def test_default_system_prompt_is_that_of_the_template(make_folder: Callable[..., Path]) -> None:
    folder = make_folder()
    assert "You are Qwen, created by Alibaba Cloud." in Qwen25Format(folder).decode(
        Qwen25Format(folder).prompt([user("hi")])
    )
    template = r"{{ '<|im_start|>system\nReason step by step in \\boxed{}.<|im_end|>\n' }}"
    config = {"chat_template": template, "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    chat = Qwen25Format(folder)
    assert chat.decode(chat.prompt([user("hi")])).startswith(
        "<|im_start|>system\nReason step by step in \\boxed{}.<|im_end|>\n"
    )


@pytest.mark.parametrize("kind", ["qwen2.5-instruct", "qwen3"])
def test_prompts_equal_those_of_transformers(real_folder: Callable[[str], Path], kind: str) -> None:
    folder = real_folder(kind)
    pytest.importorskip("jinja2", reason="transformers renders templates with jinja2")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    reference = transformers.AutoTokenizer.from_pretrained(str(folder))
    chat = (Qwen3Format if kind == "qwen3" else Qwen25Format)(folder)
    messages = [system("Be brief."), user("\né?\n"), said("So:", {"expression": "é"}), answer("4"), answer(" 5")]
    ids = reference.apply_chat_template(
        plain(messages), tools=[schema.as_json() for schema in TOOLS], add_generation_prompt=True, return_dict=False
    )
    assert chat.prompt(messages, TOOLS) == list(ids)
