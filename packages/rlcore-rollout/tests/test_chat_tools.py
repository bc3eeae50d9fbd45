"""Tools where the template of the model folder shows none: ChatML turns, other turns, and hidden tools."""

from __future__ import annotations

import string
from collections.abc import Sequence
from pathlib import Path

import pytest
from chat_folders import CHATML, TEMPLATES, write_chat_folder
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore.episodes.tool import tool
from rlcore.errors import UserError
from rlcore.types import Message, ToolCall
from rlcore_rollout.chat.detect import detect_chat_format
from rlcore_rollout.chat.jinja import TemplateFormat
from rlcore_rollout.chat.qwen import Qwen25Format
from rlcore_rollout.parsers.react import ReactParser


@tool
def calculator(expression: str) -> str:
    """Compute."""
    return expression


TOOLS = (calculator.schema,)
SYSTEM = Message(role="system", content="Be short.")
USER = Message(role="user", content="What is 2 + 2?")
CALL = Message(
    role="assistant", tool_calls=(ToolCall(name="calculator", arguments={"expression": "2 + 2"}, id="call_0"),)
)
RESULT = Message(role="tool", content="4", name="calculator", tool_call_id="call_0")
ANSWER = Message(role="assistant", content="It is 4.")
NEXT = Message(role="user", content="And 3 + 3?")
SPOKEN = ("<|im_end|>", "<|im_start|>system\n", "\n", " ", "<tool_call>", *string.ascii_letters)
texts = st.lists(st.sampled_from(SPOKEN), max_size=6).map("".join)


def folder_with(tmp_path: Path, template: str, bos: str = "<|im_start|>") -> Path:
    return write_chat_folder(tmp_path / "model", template, bos, "<|im_end|>")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_with(tmp_path_factory.mktemp("chatml"), CHATML)


def test_tools_of_a_chatml_model_have_the_tokens_of_qwen25(folder: Path) -> None:
    assert detect_chat_format(folder) == "template"
    chat, qwen = TemplateFormat(folder), Qwen25Format(folder)
    whole = (USER, CALL, RESULT, ANSWER, NEXT, ANSWER)
    for messages in (whole, (SYSTEM, *whole)):
        before = messages[: messages.index(CALL)]
        assert chat.prompt(before, TOOLS) == qwen.prompt(before, TOOLS)
        assert chat.conversation(messages, TOOLS) == qwen.conversation(messages, TOOLS)
    for done in ([5, chat.stop_token_ids[0]], [5]):
        assert chat.observation((RESULT,), done) == qwen.observation((RESULT,), done)
    shown = chat.decode(chat.prompt((USER,), TOOLS))
    assert shown.startswith("<|im_start|>system\nYou are a small assistant.\n\n# Tools\n")
    assert "calculator" in shown
    assert chat.description() == [
        "chat      template of the model folder, which shows no tools: they are shown as in the chat format qwen2.5"
    ]


def test_chatml_turns_with_tools_end_at_the_end_token_and_are_parsed(folder: Path) -> None:
    chat = TemplateFormat(folder)
    assert chat.stop_token_ids == (chat.tokenizer.added["<|im_end|>"],)
    ids, mask = chat.conversation((USER, CALL), TOOLS)
    sampled = [index for index, counts in zip(ids, mask, strict=True) if counts]
    assert sampled[-1] == chat.stop_token_ids[0]
    assert chat.parse(sampled, "stop") == CALL
    react = TemplateFormat(folder, ReactParser())
    ids, mask = react.conversation((USER, CALL), TOOLS)
    sampled = [index for index, counts in zip(ids, mask, strict=True) if counts]
    assert react.decode(sampled).startswith("Action: calculator")
    assert react.parse(sampled, "stop").tool_calls[0].name == "calculator"


@settings(deadline=None)
@given(question=texts, result=texts, more=texts, tools=st.sampled_from([(), TOOLS]))
def test_rollouts_of_a_chatml_model_have_the_tokens_of_conversations(
    folder: Path, question: str, result: str, more: str, tools: Sequence[object]
) -> None:
    chat = TemplateFormat(folder)
    asked = (Message(role="user", content=question),)
    shown = [(Message(role="tool", content=result, name="calculator"), Message(role="user", content=more))]
    turns = [(CALL, shown[0]), (ANSWER, asked), (ANSWER, ())] if tools else [(ANSWER, asked), (ANSWER, ())]
    messages, rollout = asked, chat.prompt(asked, tools)  # type: ignore[arg-type]
    for written, following in turns:
        ids, mask = chat.conversation((*messages, written), tools)  # type: ignore[arg-type]
        assert ids[: len(rollout)] == rollout
        completion = [index for index, counts in zip(ids[len(rollout) :], mask[len(rollout) :], strict=True) if counts]
        rollout = rollout + completion
        messages = (*messages, written, *following)
        if following:
            rollout = rollout + chat.observation(following, completion)
            assert chat.prompt(messages, tools) == rollout  # type: ignore[arg-type]


def test_what_a_template_writes_before_the_first_turn_is_kept(tmp_path: Path) -> None:
    chat = TemplateFormat(folder_with(tmp_path, "{{ bos_token }}" + CHATML, bos="<s>"))
    plain, tooled = chat.prompt((USER,)), chat.prompt((USER,), TOOLS)
    assert plain[0] == tooled[0] == chat.tokenizer.added["<s>"]
    assert tooled[1] == plain[1] == chat.tokenizer.added["<|im_start|>"]


def test_a_model_without_a_default_system_message_gets_only_the_tools(tmp_path: Path) -> None:
    template = CHATML.replace("loop.first and", "false and")
    chat = TemplateFormat(folder_with(tmp_path, template))
    assert chat.decode(chat.prompt((USER,), TOOLS)).startswith("<|im_start|>system\n# Tools\n")


OTHERS = {
    "trimmed": CHATML.replace("message.content", "message.content|trim"),
    "roles": CHATML.replace("+ message.role", "+ message.role|replace('system', 'user')"),
    "header": CHATML.replace("assistant\n' }}{% endif %}", "assistant\nWell: ' }}{% endif %}"),
    "phi": TEMPLATES["phi"][0],
}
"""Templates without tools whose turns are not those of ChatML."""


@pytest.mark.parametrize("name", OTHERS)
def test_other_templates_without_tools_refuse_tools_and_calls(name: str, tmp_path: Path) -> None:
    assert OTHERS[name] != CHATML
    chat = TemplateFormat(folder_with(tmp_path, OTHERS[name]))
    assert chat.prompt((USER,))
    for refused in (
        lambda: chat.prompt((USER,), TOOLS),
        lambda: chat.conversation((USER, ANSWER), TOOLS),
        lambda: chat.conversation((USER, CALL, RESULT, ANSWER)),
    ):
        with pytest.raises(UserError, match="cannot show tools") as raised:
            refused()
        assert "model.hide_tools=true" in str(raised.value.fix)
    assert "no tools" in chat.description()[0]


@pytest.mark.parametrize("template", [CHATML, TEMPLATES["phi"][0], TEMPLATES["coder"][0]])
def test_hidden_tools_are_left_out(template: str, tmp_path: Path) -> None:
    folder = folder_with(tmp_path, template)
    chat, shown = TemplateFormat(folder, hide_tools=True), TemplateFormat(folder)
    assert chat.prompt((USER,), TOOLS) == shown.prompt((USER,))
    assert chat.conversation((USER, ANSWER), TOOLS) == shown.conversation((USER, ANSWER))
    assert "tools are hidden (model.hide_tools)" in chat.description()[0]
    assert chat.decode(chat.observation((RESULT,), [chat.stop_token_ids[0]])).count("4") == 1
    if template != TEMPLATES["coder"][0]:  # which shows calls
        with pytest.raises(UserError, match="cannot show tools"):
            chat.conversation((USER, CALL, RESULT, ANSWER), TOOLS)
