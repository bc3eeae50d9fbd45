"""Tries out what a chat template can show, before a run depends on it.

Short conversations are rendered. In each of them, the rendering of the whole must begin with the rendering of every
earlier part, and the text after a turn must not depend on what precedes that turn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rlcore.contracts import ToolCallParser
from rlcore.errors import UserError
from rlcore.types import Message, ToolCall, ToolSchema, thaw

from rlcore_rollout.chat.template import ChatTemplate
from rlcore_rollout.chat.tokenizer import ChatTokenizer
from rlcore_rollout.parsers.harmony import HarmonyParser
from rlcore_rollout.parsers.hermes import HermesParser
from rlcore_rollout.parsers.llama3_json import Llama3JsonParser
from rlcore_rollout.parsers.mistral import MistralParser
from rlcore_rollout.parsers.qwen3_coder import Qwen3CoderParser
from rlcore_rollout.parsers.think import OPEN, ThinkParser

TOOLS, CALLS = "tools", "calls of tools"
RESULTS, ANSWERED = "results of tools", "messages after an answer"
ANSWER, SYSTEM = "an answer after its header", "a system message"
SEVERAL, LATER = "several calls in one turn", "questions after results of tools"
NO_TOOLS = "it shows no tools"
PARSERS: Mapping[str, Callable[[], ToolCallParser]] = {
    "hermes": HermesParser,
    "qwen3-coder": Qwen3CoderParser,
    "mistral": MistralParser,
    "harmony": HarmonyParser,
    "llama3-json": Llama3JsonParser,
}
"""The parsers that are tried on a call that the template writes, by id."""
TEMPLATE_LINE = "chat      template of the model folder"
FIX = "set model.chat_template=FILE to a changed copy of the template, or model.chat_format to another format"
FIX_TOOLS = f"{FIX}; with model.hide_tools=true, the model is shown no tools"

_TOOL = ToolSchema(
    name="look_up",
    description="Look a word up.",
    parameters={
        "type": "object",
        "properties": {"query": {"type": "string", "description": "The word."}, "limit": {"type": "integer"}},
        "required": ["query"],
    },
)
_QUESTION = Message(role="user", content="First question")
_ANSWER = Message(role="assistant", content="Some answer")
_CALLS = tuple(
    ToolCall(name=_TOOL.name, arguments={"query": query, "limit": 3}, id=f"call_{place}")
    for place, query in enumerate(("red car", "blue car"))
)
_CALL = Message(role="assistant", tool_calls=_CALLS[:1])
_RESULTS = tuple(
    Message(role="tool", content=text, name=_TOOL.name, tool_call_id=call.id)
    for text, call in zip(("17", "18"), _CALLS, strict=True)
)
_NEXT = Message(role="user", content="Second question")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a template can show."""

    ends: tuple[str, ...]
    """The tokens that end an assistant's turn; the first follows an answer."""
    parser: ToolCallParser
    parser_id: str
    """The id of a detected parser; empty if it was given, or if the template shows no tools."""
    missing: Mapping[str, str]
    """What the template cannot show, with the reason or the place of the first difference."""

    def description(self) -> list[str]:
        """Return lines for the log."""
        shown = f"tool calls {self.parser_id}" if self.parser_id else "tool calls as configured"
        lines = [f"{TEMPLATE_LINE}, {shown if self.missing.keys().isdisjoint((TOOLS, CALLS)) else 'no tools'}"]
        reasons = {name: reason for name, reason in self.missing.items() if reason != NO_TOOLS}
        return lines + [f"chat      the template cannot show {name}: {reason}" for name, reason in reasons.items()]


def prove(template: ChatTemplate, tokenizer: ChatTokenizer, parser: ToolCallParser | None) -> Proof:
    """Try out a template.

    Args:
        template: the template
        tokenizer: its tokenizer, with the tokens that may end a turn
        parser: the parser of tool calls; None detects it

    Raises:
        UserError: the template cannot show an answer, or does not end it with a special token.
    """
    ends = _ends(template, tokenizer)
    missing: dict[str, str] = {}
    parser_id = ""
    if (reason := _without_tools(template)) is not None:
        missing[TOOLS] = reason
    else:
        turn, end, reason = _turn_of_call(template, tokenizer)
        ends = tuple(dict.fromkeys((*ends, *end)))
        if parser is None and reason is None:
            parser_id, parser, reason = _detected(template, tokenizer, turn)
        if reason is not None:
            missing[CALLS] = reason
    tools = () if TOOLS in missing else (_TOOL,)
    pattern = any_of(ends)
    both = Message(role="assistant", tool_calls=_CALLS)
    system = Message(role="system", content="Some rules")
    for name, messages, known in (
        (ANSWER, (_QUESTION, _ANSWER), ()),
        (SYSTEM, (system, _QUESTION, _ANSWER), ()),
        (ANSWERED, (_QUESTION, _ANSWER, _NEXT, _ANSWER), ()),
        (RESULTS, (_QUESTION, _CALL, _RESULTS[0], _CALL, _RESULTS[0], _ANSWER), tools),
        (SEVERAL, (_QUESTION, both, *_RESULTS, _ANSWER), tools),
        (LATER, (_QUESTION, _CALL, _RESULTS[0], _ANSWER, _NEXT, _ANSWER), tools),
    ):
        if name in (SEVERAL, LATER) and TOOLS in missing:
            continue
        if reason := _difference(template, messages, known, pattern):
            missing[name] = NO_TOOLS if name == RESULTS and TOOLS in missing else reason
    if LATER in missing and (RESULTS in missing or ANSWERED in missing):
        del missing[LATER]  # for the same reason
    if ANSWER in missing and missing.get(SYSTEM) == missing[ANSWER]:
        del missing[SYSTEM]
    return Proof(ends=ends, parser=parser or HermesParser(), parser_id=parser_id, missing=missing)


def after_turn(template: ChatTemplate, messages: Sequence[Message], ends: re.Pattern[str]) -> str:
    """Return the rendered text of messages after an assistant's turn and its end token, with the next header."""
    turn = _ANSWER
    if messages and messages[0].role == "tool":
        call = ToolCall(name=messages[0].name or _TOOL.name, arguments={}, id=messages[0].tool_call_id or "call_0")
        turn = Message(role="assistant", tool_calls=(call,))
    header = template.render((_QUESTION,), (), header=True)
    text = template.render((_QUESTION, turn, *messages), (), header=True)
    if not text.startswith(header):
        raise UserError(
            "the chat template renders a question differently when messages follow",
            found=first_difference(template, header, text),
            where=str(template.where),
            fix=FIX,
        )
    end = ends.search(text, len(header))
    if end is None:
        raise UserError(
            "the chat template does not end an assistant's turn with a special token",
            where=str(template.where),
            fix=FIX,
        )
    return text[end.end() :]


def first_difference(template: ChatTemplate, earlier: str, later: str) -> str:
    """Describe the first place where a longer conversation does not begin with a shorter one."""
    earlier, later = template.readable(earlier), template.readable(later)
    place = next(
        (i for i, (a, b) in enumerate(zip(earlier, later, strict=False)) if a != b), min(len(earlier), len(later))
    )
    shorter, longer = earlier[place : place + 40], later[place : place + 40]
    return f"{shorter!r} becomes {longer!r} at character {place}, after {earlier[max(0, place - 30) : place]!r}"


def any_of(tokens: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern for the tokens."""
    return re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True))))


def _ends(template: ChatTemplate, tokenizer: ChatTokenizer) -> tuple[str, ...]:
    text = template.render((_QUESTION, _ANSWER), (), header=False)

    def unusable(found: str) -> UserError:
        message = "the chat template must show an answer, and end it with a special token"
        return UserError(message, found=found, where=str(template.where), fix=FIX)

    place = text.find(_ANSWER.text)
    if place < 0:
        raise unusable("it does not show the text of the answer")
    visible = _visible(tokenizer)
    end = any_of(visible).search(text, place) if visible else None
    if end is None:
        raise unusable(f"{template.readable(text[place:])[:80]!r} without a special token of the tokenizer")
    others = (token for token, index in tokenizer.added.items() if index in tokenizer.end_token_ids)
    return tuple(dict.fromkeys((end[0], *others)))


def _without_tools(template: ChatTemplate) -> str | None:
    """Return why a prompt does not show tools; None if it does."""
    try:
        text = template.readable(template.render((_QUESTION,), (_TOOL,), header=True))
    except UserError as error:
        return _reason(error)
    return None if _TOOL.name in text and "limit" in text else "the name of a tool is not in its prompt"


def _turn_of_call(template: ChatTemplate, tokenizer: ChatTokenizer) -> tuple[str, list[str], str | None]:
    """Return the text of a turn with a call, the token that ends it, if any, and the reason if there is no turn."""
    try:
        header = template.render((_QUESTION,), (_TOOL,), header=True)
        text = template.render((_QUESTION, _CALL), (_TOOL,), header=False)
    except UserError as error:
        return "", [], _reason(error)
    if not text.startswith(header):
        return "", [], first_difference(template, header, text)
    turn = text[len(header) :].rstrip()
    end = [token for token in _visible(tokenizer) if turn.endswith(token)][:1]
    return template.readable(turn.removesuffix(end[0]) if end else turn), end, None


def _detected(
    template: ChatTemplate, tokenizer: ChatTokenizer, turn: str
) -> tuple[str, ToolCallParser | None, str | None]:
    """Return the id and the parser that reads a call as the template writes it, or the reason why there is none."""
    thinks = OPEN in template.source or OPEN in tokenizer.added
    for id, make in PARSERS.items():
        parser = ThinkParser(make()) if thinks else make()
        _, calls = parser.parse(turn)
        if [(call.name, thaw(call.arguments)) for call in calls] == [(_TOOL.name, thaw(_CALLS[0].arguments))]:
            return id, parser, None
    return "", None, f"no parser reads the call that it writes, {turn[:80]!r}; set model.tool_parser"


def _visible(tokenizer: ChatTokenizer) -> list[str]:
    """Return the added tokens that are more than white space."""
    return [token for token in tokenizer.added if token.strip(" \t\r\n\u2581")]


def _reason(error: UserError) -> str:
    return error.found or str(error).split("\n")[0]


def _difference(
    template: ChatTemplate, messages: Sequence[Message], tools: Sequence[ToolSchema], ends: re.Pattern[str]
) -> str | None:
    """Return the first difference between a conversation and its earlier parts; None if it begins with all of them."""
    places = [place for place, message in enumerate(messages) if message.role == "assistant"]
    done = ""
    try:
        for place, following in zip(places, [*places[1:], len(messages)], strict=True):
            header = template.render(messages[:place], tools, header=True)
            if not header.startswith(done):
                return first_difference(template, done, header)
            turn = template.render(messages[: place + 1], tools, header=False)
            if not turn.startswith(header):
                return first_difference(template, header, turn)
            end = ends.search(turn, len(header))
            if end is None:
                return "an assistant's turn does not end with a special token"
            done = turn[: end.end()]
            if following < len(messages):
                later = template.render(messages[:following], tools, header=True)
                if not later.startswith(done):
                    return first_difference(template, done, later)
                expected = done + after_turn(template, messages[place + 1 : following], ends)
                if later != expected:
                    return first_difference(template, expected, later)
    except UserError as error:
        return _reason(error)
    return None
