"""The chat format of a folder's own template: tokens, prefixes, proofs, forging, limits."""

from __future__ import annotations

import json
import os
import string
import time
import tracemalloc
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from chat_folders import CODER, GEMMA, LLAMA, TEMPLATES, write_chat_folder
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2.exceptions import SecurityError
from rlcore.episodes.tool import tool
from rlcore.errors import UserError
from rlcore.types import Message, ToolCall
from rlcore_rollout.chat.detect import detect_chat_format
from rlcore_rollout.chat.jinja import TemplateFormat
from rlcore_rollout.chat.qwen import Qwen3Format
from rlcore_rollout.chat.safe_jinja import TemplateSandbox
from rlcore_rollout.chat.template_checks import ANSWER as ANSWER_AFTER_HEADER
from rlcore_rollout.chat.template_checks import ANSWERED, LATER, RESULTS, SEVERAL, TOOLS
from rlcore_rollout.parsers.hermes import HermesParser

Make = Callable[..., TemplateFormat]


@tool
def calculator(expression: str, digits: int = 2) -> str:
    """Compute.

    Args:
        expression: what to compute
        digits: how many digits
    """
    return expression


TOOL = calculator.schema
USER = Message(role="user", content="What is 2 + 2?")
CALL = Message(
    role="assistant", tool_calls=(ToolCall(name="calculator", arguments={"expression": "2 + 2"}, id="call_0"),)
)
RESULT = Message(role="tool", content="4\nexactly", name="calculator", tool_call_id="call_0")
ANSWER = Message(role="assistant", content="It is 4.")
NEXT = Message(role="user", content="And 3 + 3?")
SYSTEM = Message(role="system", content="Be short.")
TOOLED = ("llama", "mistral", "harmony", "coder")


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Makes the format of a family, or of a changed template."""

    def made(family: str, source: str | None = None, **options: Any) -> TemplateFormat:
        own, bos, eos = TEMPLATES[family]
        return TemplateFormat(write_chat_folder(tmp_path_factory.mktemp(family), source or own, bos, eos), **options)

    return made


def conversations(family: str) -> list[tuple[tuple[Message, ...], tuple[Any, ...]]]:
    plain: list[tuple[tuple[Message, ...], tuple[Any, ...]]] = [((SYSTEM, USER, ANSWER), ())]
    if family != "harmony":
        plain.append(((USER, ANSWER, NEXT, ANSWER), ()))
    if family in TOOLED:
        plain.append(((SYSTEM, USER, CALL, RESULT, CALL, RESULT, ANSWER), (TOOL,)))
    return plain


@pytest.mark.parametrize("family", TEMPLATES)
def test_tokens_equal_those_of_transformers(family: str, make: Make) -> None:
    transformers = pytest.importorskip("transformers")
    chat = make(family)
    reference = transformers.AutoTokenizer.from_pretrained(chat.tokenizer.folder)
    for messages, tools in conversations(family):
        if family == "llama":  # its template states the date
            reference.chat_template = LLAMA.replace("strftime_now('%d %b %Y')", "'26 Jul 2024'")
        shown = [
            {"role": m.role, "content": m.content}
            | ({"tool_call_id": "call00000", "name": m.name} if m.role == "tool" else {})
            | (
                {
                    "tool_calls": [
                        {
                            "id": "call00000",
                            "type": "function",
                            "function": {"name": c.name, "arguments": dict(c.arguments or {})},
                        }
                        for c in m.tool_calls
                    ]
                }
                if m.tool_calls
                else {}
            )
            for m in messages
        ]
        asked = {"tools": [tool.as_json() for tool in tools] or None, "return_dict": False}
        expected = reference.apply_chat_template(shown[:-1], add_generation_prompt=True, **asked)
        assert chat.prompt(messages[:-1], tools) == list(expected)
        whole = list(reference.apply_chat_template(shown, **asked))
        ids, mask = chat.conversation(messages, tools)
        assert ids == whole
        assert len(ids) == len(mask)


@pytest.mark.parametrize("kind", ["swallowing", "metaspace"])
def test_tokens_of_unusual_tokenizers_equal_those_of_transformers(kind: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folder = write_chat_folder(tmp_path, *TEMPLATES["phi"])
    definition = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    if kind == "swallowing":
        for token in definition["added_tokens"]:
            token["rstrip"] = True
    else:
        definition["pre_tokenizer"] = {
            "type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False,
        }  # fmt: skip
        definition["normalizer"], definition["decoder"] = None, {"type": "Fuse"}
        size = max(token["id"] for token in definition["added_tokens"]) + 1
        letters = "\u2581\n?.+" + string.ascii_letters + string.digits
        definition["model"]["vocab"] |= {letter: size + i for i, letter in enumerate(letters)}
        definition["model"]["merges"] = []
    (folder / "tokenizer.json").write_text(json.dumps(definition), encoding="utf-8")
    reference = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), eos_token="<|endoftext|>"
    )
    reference.chat_template = TEMPLATES["phi"][0]
    for messages in ([USER], [USER, ANSWER, Message(role="user", content="  and 3?  ")]):
        shown = [{"role": m.role, "content": m.content} for m in messages]
        expected = reference.apply_chat_template(shown, add_generation_prompt=True, return_dict=False)
        assert TemplateFormat(folder).prompt(messages) == list(expected)


@pytest.mark.parametrize("family", TEMPLATES)
def test_rollouts_have_the_tokens_of_conversations(family: str, make: Make) -> None:
    chat = make(family)
    for messages, tools in conversations(family):
        ids, mask = chat.conversation(messages, tools)
        turns = [place for place, message in enumerate(messages) if message.role == "assistant"]
        rollout = chat.prompt(messages[: turns[0]], tools)
        for place, following in zip(turns, [*turns[1:], len(messages)], strict=True):
            end = next(i for i in range(len(rollout), len(mask) + 1) if i == len(mask) or not mask[i])
            completion = ids[len(rollout) : end]
            assert completion[-1] in chat.stop_token_ids
            parsed = chat.parse(completion, "stop")
            assert parsed.content.strip() == messages[place].content
            assert [(c.name, c.arguments) for c in parsed.tool_calls] == [
                (c.name, c.arguments) for c in messages[place].tool_calls
            ]
            rollout += completion
            if following < len(messages):
                rollout += chat.observation(messages[place + 1 : following], completion)
        assert rollout == ids[: len(rollout)]
        assert not any(mask[len(rollout) :])  # what the template writes after the last turn


@pytest.mark.parametrize("family", TOOLED)
def test_truncated_turns_are_ended_before_an_observation(family: str, make: Make) -> None:
    chat = make(family)
    whole, cut = chat.observation([RESULT], [chat.stop_token_ids[0]]), chat.observation([RESULT], [5])
    assert cut == [chat.stop_token_ids[0], *whole]


@pytest.mark.parametrize(
    ("family", "parser", "missing"),
    [
        ("llama", "llama3-json", {SEVERAL}),
        ("mistral", "mistral", {LATER}),
        ("gemma", "", {TOOLS, RESULTS}),
        ("phi", "", {TOOLS}),
        ("harmony", "harmony", {ANSWERED}),
        ("coder", "qwen3-coder", set()),
    ],
)
def test_proof_finds_the_parser_and_what_is_missing(family: str, parser: str, missing: set[str], make: Make) -> None:
    chat = make(family)
    assert chat.proof.parser_id == parser
    assert set(chat.proof.missing) == missing
    assert len(chat.description()) == 1 + len(missing - ({RESULTS} if TOOLS in missing else set()))


PUBLISHED: dict[str, tuple[str, set[str]]] = {
    "llama3_2.jinja": ("llama3-json", {SEVERAL}),
    "qwen2_5.jinja": ("hermes", set()),
    "qwen3.jinja": ("hermes", {ANSWERED, RESULTS, SEVERAL}),
    "qwen3_instruct_2507.jinja": ("hermes", set()),
    "qwen3_training.jinja": ("hermes", set()),
    "qwen3_vl.jinja": ("hermes", set()),
    "qwen2_5_vl.jinja": ("", {TOOLS}),
}


@pytest.mark.skipif("RLCORE_DATA" not in os.environ, reason="RLCORE_DATA names no folder with published templates")
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_templates_are_proven_or_explained(name: str, tmp_path: Path) -> None:
    source = (Path(os.environ["RLCORE_DATA"]) / "chat_templates" / name).read_text(encoding="utf-8")
    _, bos, eos = TEMPLATES["llama" if "llama" in name else "coder"]
    chat = TemplateFormat(write_chat_folder(tmp_path, source, bos, eos))
    assert (chat.proof.parser_id, set(chat.proof.missing)) == PUBLISHED[name]


def test_changed_earlier_turns_are_reported_with_their_place(make: Make) -> None:
    changing = CODER.replace(
        "'<|im_start|>' + message.role", "'<|im_start|>' + ('' if loop.last else '!') + message.role"
    )
    assert {ANSWERED, RESULTS} <= set(make("coder", changing).proof.missing)
    with pytest.raises(UserError) as raised:
        make("coder", changing).conversation([USER, ANSWER])
    assert "becomes" in str(raised.value.found)
    dropping = CODER.replace(
        "+ message.content }}", "+ (message.content if loop.last or message.role != 'assistant' else '-') }}", 1
    )
    chat = make("coder", dropping)
    assert "'Some answer" in chat.proof.missing[ANSWERED]
    with pytest.raises(UserError, match=ANSWERED):
        chat.observation([NEXT], [chat.stop_token_ids[0]])
    with pytest.raises(UserError) as raised:
        chat.conversation([USER, ANSWER, NEXT, ANSWER])
    assert "becomes" in str(raised.value.found)
    assert sum(chat.conversation([USER, ANSWER])[1])


def test_tools_that_a_template_ignores_are_rejected(make: Make) -> None:
    with pytest.raises(UserError, match=TOOLS):
        make("gemma").prompt([USER], [TOOL])


def test_messages_that_a_template_rejects_are_explained(make: Make) -> None:
    with pytest.raises(UserError) as raised:
        make("gemma").prompt([USER, NEXT])
    assert "take turns" in str(raised.value.found)


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{{ m.content }}",
        "{{ messages[0].nothing.at.all }}",
        "no messages",
        "",
        "{% for m in messages %}{{ m.content }}{% endfor %}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{% include '/etc/passwd' %}",
        "{{ messages.append(1) }}",
        "{{ 'a' * 10000000000 }}",
        "{{ 'a'|center(10000000000) }}",
        "{{ 'a'.ljust(10000000000) }}",
        "{{ 'a'|indent(10000000000) }}",
        "{{ '%10000000000d' % 1 }}",
        "{% set n = namespace(s='a') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}",
        "{% set n = namespace(s='a') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
        "{% set n = namespace(s='a') %}{% for i in range(99) %}{% set n.s = n.s.replace('a', 'aaaa') %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) if false %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{% set x = range(99999)|list %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for i in range(9999) %}{{ 'aaaaaaaaaa' * 1000 }}{% endfor %}",
        "{{ " + "(" * 500 + ")" * 500 + " }}",
        "{{ 1 }}" * 30_000,
    ],
)
def test_useless_and_hostile_templates_end_in_one_sentence(template: str, tmp_path: Path) -> None:
    start = time.process_time()
    with pytest.raises(UserError) as raised:
        TemplateFormat(write_chat_folder(tmp_path, template, "<s>", "</s>"))
    assert raised.value.where is not None
    assert time.process_time() - start < 20


LARGE = "{% set n = namespace(a='ab\n', i=0) %}{% for i in range(19) %}{% set n.a = n.a + n.a %}{% endfor %}"


@pytest.mark.parametrize(
    "template",
    [
        *[
            "{% set n = namespace(a=[1]) %}{% for i in range(40) %}{% set n.a = "
            f"{made} %}}{{% endfor %}}{{{{ n.a|{used} }}}}"
            for made, used in [
                ("[n.a, n.a]", "string"),
                ("(n.a, n.a)", "tojson"),
                ("[n.a] + [n.a]", "join"),
                ("[n.a]*2", "length"),
                ("{1: n.a, 2: n.a}", "tojson(indent=2)"),
                ("[n.a, n.a]|list", "map('string')|join"),
                ("n.a|batch(1)|list + n.a|batch(1)|list", "string"),
                ("namespace(x=n.a, y=n.a)", "string"),
                ("dict(x=n.a, y=n.a)", "string"),
            ]
        ],
        "{% macro f() %}{{ varargs }}{% endmacro %}"
        "{% set n = namespace(a=[1]) %}{% for i in range(40) %}{% set n.a = f(n.a, n.a) %}{% endfor %}",
        *[
            LARGE + used
            for used in [
                "{{ n.a|join(n.a) }}",
                "{{ n.a|list|length }}",
                "{{ n.a|indent(1000) }}",
                "{{ n.a|indent(n.a) }}",
                "{{ [n.a]|tojson(separators=[n.a, n.a]) }}",
                "{{ range(9999)|list|tojson(indent=1000) }}",
                "{{ ([[1]] * 99999)|sum(start=[])|length }}",
                "{{ ([n.a] * 99999)|length }}",
                "{{ range(99999)|map('default', n.a)|map('string')|list|length }}",
                "{{ [1]|batch(1000, n.a)|list|length }}",
                "{{ (1).to_bytes(3000000000, 'big')|length }}",
                "{{ n.a.rfind(n.a[:700000] + 'c' + n.a[:700000]) }}",
                "{{ n.a.strip('c' * 700000 + 'ab') }}",
                "{{ n.a|trim('c' * 700000 + 'ab') }}",
                "{{ strftime_now(n.a) }}",
                "{{ '{:1000000000}'.format(1)|length }}",
                "{{ '{a:1000000000}'.format_map({'a': 1})|length }}",
                "{{ ('{0}' * 1000).format(n.a)|length }}",
                "{{ n.a|int(base=16) + ('f' * 4000000)|int(base=16) }}",
                "{{ (('f' * 4000000)|int(base=16) // ('e' * 2000000)|int(base=16)) > 0 }}",
                "{{ (('f' * 4000000)|int(base=16) % ('e' * 2000000)|int(base=16)) > 0 }}",
                *[
                    "".join(f"{{% set x{i} = {value} %}}" for i in range(1000)) + "{{ x0 }}"
                    for value in ("n.a[1:]", "n.a.upper()", "n.a == n.a.lower()")
                ],
                "{% set x %}" + "{{ [n.a] }}" * 500 + "{% endset %}{{ x|length }}",
            ]
        ],
    ],
)
def test_large_values_are_limited_while_they_are_made(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore_rollout.chat.safe_jinja.LONGEST_TIME_S", 2)
    sandbox = TemplateSandbox()
    compiled = sandbox.from_string(template)
    start = time.process_time()
    tracemalloc.start()
    try:
        with suppress(Exception):  # also the right result, if that is small
            sandbox.render(compiled, {})
        assert tracemalloc.get_traced_memory()[1] < 300_000_000
    finally:
        tracemalloc.stop()
    assert time.process_time() - start < 10


@pytest.mark.parametrize(
    "made",
    [
        *["'1' ~ '0' * 20", "1e30", "0xfffffffffffffffff - 1", "x + 1", "x // 3", "x % 3", "x / 3"],
        *["4294967296 * 4294967296", "18446744073709551615 + 1", "-18446744073709551615 - 1", "[x, x]|sum"],
    ],
)
def test_integers_have_a_limit(made: str) -> None:
    sandbox = TemplateSandbox()
    with pytest.raises(SecurityError, match="64 bits"):
        sandbox.render(sandbox.from_string(f"{{{{ ({made})|int }}}}"), {"x": 2**64})
    assert sandbox.render(sandbox.from_string("{{ '12'|int * 3 // 5 - 7 % 4 }}"), {}) == "4"


FORGERIES = [
    "<|im_end|>",
    "<|im_start|>",
    "<tool_call>",
    "<",
    "|im_end|>",
    "<|",
    "\n",
    " ",
    "[INST]",
    "\U0010f000",
    "a",
]
hostile = st.lists(st.one_of(st.sampled_from(FORGERIES), st.text(max_size=3)), max_size=6).map("".join)


@pytest.fixture(scope="module")
def coder(make: Make) -> TemplateFormat:
    return make("coder")


@settings(deadline=None, max_examples=60)
@given(texts=st.lists(hostile, min_size=3, max_size=3))
def test_text_from_outside_cannot_forge_special_tokens(texts: Sequence[str], coder: TemplateFormat) -> None:
    special = set(coder.tokenizer.added.values())

    def specials(ids: Sequence[int]) -> list[int]:
        return [index for index in ids if index in special]

    asked = [Message(role="system", content=texts[0]), Message(role="user", content=texts[1])]
    assert specials(coder.prompt(asked)) == specials(coder.prompt([SYSTEM, USER]))
    result = Message(role="tool", content=texts[2], name="calculator", tool_call_id="call_0")
    end = [coder.stop_token_ids[0]]
    assert specials(coder.observation([result], end)) == specials(coder.observation([RESULT], end))
    if texts[1].isprintable():
        shown = unicodedata.normalize("NFC", coder.decode(coder.prompt(asked)))
        assert unicodedata.normalize("NFC", texts[1]) in shown


def test_arguments_reach_the_template(make: Make) -> None:
    silent = make("coder", template_kwargs={"enable_thinking": False})
    assert "think" in silent.proof.missing[ANSWER_AFTER_HEADER]
    assert silent.decode(silent.prompt([USER])).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert not make("coder").decode(make("coder").prompt([USER])).endswith("</think>\n\n")
    with pytest.raises(UserError, match="cannot set"):
        make("coder", template_kwargs={"messages": []})


def test_qwen3_without_thinking_adds_an_empty_block_to_every_turn(tiny_folder: Path) -> None:
    chat = Qwen3Format(tiny_folder, template_kwargs={"enable_thinking": False})
    header = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    assert chat.decode(chat.prompt([USER])).endswith(header)
    assert chat.decode(chat.observation([NEXT], [chat.stop_token_ids[0]])).endswith(header)
    ids, mask = chat.conversation([USER, ANSWER, NEXT, Message(role="assistant", content="<think>\n\n</think>\n\n6")])
    assert chat.decode(ids).count(header) == 2
    sampled = chat.decode([index for index, trained in zip(ids, mask, strict=True) if trained])
    assert sampled == "It is 4.<|im_end|>6<|im_end|>"
    thinking = Qwen3Format(tiny_folder, template_kwargs={"enable_thinking": True})
    assert thinking.prompt([USER]) == Qwen3Format(tiny_folder).prompt([USER])


@pytest.mark.parametrize("given", [{"enable_thinking": "no"}, {"reasoning_effort": "low"}])
def test_qwen3_rejects_arguments_that_it_does_not_read(given: dict[str, Any], tiny_folder: Path) -> None:
    with pytest.raises(UserError, match="enable_thinking"):
        Qwen3Format(tiny_folder, template_kwargs=given)


def test_another_template_file_replaces_the_one_of_the_folder(make: Make, tmp_path: Path) -> None:
    file = tmp_path / "own.jinja"
    file.write_text(GEMMA.replace("<start_of_turn>", "<start_of_turn>the "), encoding="utf-8")
    chat = make("gemma", template=file)
    assert "the user" in chat.decode(chat.prompt([USER]))
    with pytest.raises(UserError) as raised:
        make("gemma", template=tmp_path / "none.jinja")
    assert raised.value.where == str(tmp_path / "none.jinja")


def test_a_given_parser_is_used_instead_of_the_detected_one(make: Make) -> None:
    parser = HermesParser()
    assert make("llama", parser=parser).parser is parser


def test_templates_without_a_format_of_their_own_are_detected(tmp_path: Path) -> None:
    for family, (template, bos, eos) in TEMPLATES.items():
        assert detect_chat_format(write_chat_folder(tmp_path / family, template, bos, eos)) == "template"
    config = json.loads((tmp_path / "coder" / "tokenizer_config.json").read_text(encoding="utf-8"))
    for name, expected in (("Qwen2Tokenizer", "template"), ("LlamaTokenizer", "template")):
        text = json.dumps({**config, "tokenizer_class": name})
        (tmp_path / "coder" / "tokenizer_config.json").write_text(text, encoding="utf-8")
        assert detect_chat_format(tmp_path / "coder") == expected
