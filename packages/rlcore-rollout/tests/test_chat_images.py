"""Images in chat formats, against the templates and the tokenizer of the models, where RLCORE_DATA has them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from image_files import picture
from rlcore.contracts import RendersImages
from rlcore.episodes.tool import tool
from rlcore.errors import DataError, UserError
from rlcore.images import ImageProcessor
from rlcore.types import ImagePart, MediaSpan, Message, TextPart, ToolCall, ToolSchema, media_hash, thaw
from rlcore_rollout.chat.chatml import ChatMLFormat
from rlcore_rollout.chat.detect import detect_chat_format
from rlcore_rollout.chat.jinja import TemplateFormat
from rlcore_rollout.chat.plain import PlainFormat
from rlcore_rollout.chat.qwen import Qwen3Format, Qwen3VLFormat, Qwen25Format, Qwen25VLFormat
from tokenizers import Tokenizer

PROCESSOR = ImageProcessor(min_pixels=28 * 28, max_pixels=28 * 28 * 64)
START, PAD, END = "<|vision_start|>", "<|image_pad|>", "<|vision_end|>"
FORMATS: dict[str, type[ChatMLFormat]] = {"qwen2.5-vl": Qwen25VLFormat, "qwen3-vl": Qwen3VLFormat}
TEMPLATES = {"qwen2.5-vl": "qwen2_5_vl.jinja", "qwen3-vl": "qwen3_vl.jinja"}


WIDE, HIGH, SMALL = picture(140, 56), picture(56, 112, "blue"), picture(28, 28, "white")
"""Fitted images with 5 x 2, 2 x 4 and 1 x 1 visual tokens."""
IMAGES = {media_hash(data): data for data in (WIDE, HIGH, SMALL)}
TOKENS = {media_hash(WIDE): 10, media_hash(HIGH): 8, media_hash(SMALL): 1}


@tool
def crop(left: int, name: str = "é") -> str:
    """Crop <it>.

    Args:
        left: in pixels
    """
    return ""


TOOLS = (crop.schema,)


def message(role: Any, *parts: str | bytes, **more: Any) -> Message:
    """A message with texts and images."""
    content = tuple(TextPart(text=part) if isinstance(part, str) else ImagePart.of(part) for part in parts)
    return Message(role=role, content=content, **more)


def called(text: str) -> Message:
    return Message(role="assistant", content=text, tool_calls=(ToolCall(name="crop", arguments={"left": 3}),))


class Official:
    """The rendering of a model's template, with the placeholder of each image expanded."""

    def __init__(self, folder: Path) -> None:
        jinja2 = pytest.importorskip("jinja2", reason="jinja2 renders the models' own templates")
        environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
        environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        self.template = environment.from_string(config["chat_template"])
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def ids(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = (), *, generate: bool = True) -> list[int]:
        tools_json = [one.as_json() for one in tools] or None
        text = self.template.render(
            messages=[plain(one) for one in messages], tools=tools_json, add_generation_prompt=generate
        )
        lengths = [TOKENS[name] for one in messages for name in one.images]
        before, *after = text.split(PAD)
        text = before + "".join(PAD * length + part for length, part in zip(lengths, after, strict=True))
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids


def plain(one: Message) -> dict[str, Any]:
    content: Any = one.content
    if not isinstance(content, str):
        content = [
            {"type": "text", "text": part.text} if isinstance(part, TextPart) else {"type": "image", "image": "file"}
            for part in content
        ]
    calls = [{"name": call.name, "arguments": thaw(call.arguments)} for call in one.tool_calls]
    found = {"role": one.role, "content": content}
    return found | ({"tool_calls": [{"type": "function", "function": call} for call in calls]} if calls else {})


@pytest.fixture(scope="session")
def vision_folder(real_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Makes the folder of a published vision-language model, without weights."""

    @cache
    def folder(kind: str) -> Path:
        made = tmp_path_factory.mktemp(kind)
        shutil.copytree(real_folder("qwen2.5-vl"), made, dirs_exist_ok=True)
        template = Path(os.environ["RLCORE_DATA"]) / "chat_templates" / TEMPLATES[kind]
        path = made / "tokenizer_config.json"
        config = json.loads(path.read_text(encoding="utf-8")) | {"chat_template": template.read_text(encoding="utf-8")}
        path.write_text(json.dumps(config), encoding="utf-8")
        return made

    return folder


@pytest.fixture(scope="session")
def pair_of(vision_folder: Callable[[str], Path]) -> Any:
    """Makes the chat format of a model, and its template with the real tokenizer."""

    @cache
    def made(kind: str) -> tuple[ChatMLFormat, Official]:
        folder = vision_folder(kind)
        return FORMATS[kind](folder, images=PROCESSOR), Official(folder)

    return made


@pytest.fixture(params=list(FORMATS))
def pair(request: pytest.FixtureRequest, pair_of: Callable[[str], Any]) -> tuple[ChatMLFormat, Official]:
    made: tuple[ChatMLFormat, Official] = pair_of(request.param)
    return made


def check_spans(
    chat: ChatMLFormat, ids: Sequence[int], media: Sequence[MediaSpan], messages: Sequence[Message]
) -> None:
    """Check that the spans are the images in order, and cover every placeholder and nothing else."""
    added = chat.tokenizer.added
    assert [span.sha256 for span in media] == [name for one in messages for name in one.images]
    covered: set[int] = set()
    for span in media:
        assert (span.rows, span.columns) == PROCESSOR.grid(IMAGES[span.sha256])
        assert span.rows * span.columns == span.length == TOKENS[span.sha256]
        assert (ids[span.offset - 1], ids[span.offset + span.length]) == (added[START], added[END])
        covered |= set(range(span.offset, span.offset + span.length))
    assert covered == {place for place, token in enumerate(ids) if token == added[PAD]}


@pytest.mark.parametrize(
    "messages",
    [
        [message("user", WIDE)],
        [message("user", "\nWhat is this?\n", HIGH, " and ", WIDE, "\n")],
        [message("user", WIDE, SMALL, WIDE), Message(role="assistant", content="a car"), message("user", HIGH, "é?")],
        [Message(role="system", content="Be brief."), message("user", "hi", SMALL)],
        [message("user", "text only")],
    ],
    ids=["one", "between texts", "several turns", "system", "text"],
)
def test_prompts_with_images_equal_the_template(pair: tuple[ChatMLFormat, Official], messages: list[Message]) -> None:
    chat, official = pair
    ids, media = chat.prompt_with_images(messages, (), IMAGES)
    assert ids == official.ids(messages)
    check_spans(chat, ids, media, messages)
    ids, mask, media = chat.conversation_with_images(messages, (), IMAGES)
    assert ids == official.ids(messages, generate=False)
    check_spans(chat, ids, media, messages)
    assert any(mask) == any(one.role == "assistant" for one in messages)


def test_tools_with_images_equal_the_template_of_qwen3_vl(pair_of: Callable[[str], Any]) -> None:
    chat, official = pair_of("qwen3-vl")
    messages = [
        Message(role="system", content="Be brief."),
        message("user", WIDE, "Where?"),
        called("Look."),
        message("tool", "cropped:\n", HIGH),
        message("tool", SMALL, "and one more"),
        called(""),
        Message(role="tool", content="nothing"),
        Message(role="assistant", content="left"),
        message("user", HIGH),
    ]
    ids, media = chat.prompt_with_images(messages, TOOLS, IMAGES)
    assert ids == official.ids(messages, TOOLS)
    check_spans(chat, ids, media, messages)
    assert chat.prompt_with_images(messages[1:], TOOLS, IMAGES)[0] == official.ids(messages[1:], TOOLS)


def test_images_in_every_role_equal_the_template_of_qwen25_vl(pair_of: Callable[[str], Any]) -> None:
    chat, official = pair_of("qwen2.5-vl")
    messages = [message("system", "Rules:", SMALL), message("user", WIDE), message("assistant", "see", HIGH, "there")]
    ids, mask, media = chat.conversation_with_images(messages, (), IMAGES)
    assert ids == official.ids(messages, generate=False)
    check_spans(chat, ids, media, messages)
    trained = [token for token, kept in zip(ids, mask, strict=True) if kept]
    assert chat.decode(trained) == "seethere<|im_end|>"


def test_qwen25_vl_shows_tools_and_their_images_as_qwen25(pair_of: Callable[[str], Any]) -> None:
    chat, _ = pair_of("qwen2.5-vl")
    messages = [message("user", WIDE), called(""), message("tool", "see", SMALL)]
    ids, media = chat.prompt_with_images(messages, TOOLS, IMAGES)
    check_spans(chat, ids, media, messages)
    text = chat.decode(ids)
    assert text.startswith("<|im_start|>system\nYou are a helpful assistant.\n\n# Tools\n\n")
    assert f"<|im_start|>user\n<tool_response>\nsee{START}{PAD}{END}\n</tool_response><|im_end|>\n" in text


def test_rollout_with_images_equals_the_prompt_of_its_messages(pair: tuple[ChatMLFormat, Official]) -> None:
    chat, _ = pair
    messages = [message("user", WIDE, "Where?")]
    ids, media = chat.prompt_with_images(messages, TOOLS, IMAGES)
    for role, data in (("tool", HIGH), ("user", SMALL), ("tool", WIDE)):
        written, shown = called("Look."), message(role, "here ", data)
        sampled = [
            token
            for token, kept in zip(*chat.conversation([message("user", "x"), written], TOOLS), strict=True)
            if kept
        ]
        more, spans = chat.observation_with_images([shown], sampled, IMAGES)
        media += [replace(span, offset=span.offset + len(ids + sampled)) for span in spans]
        ids = ids + sampled + more
        messages += [written, shown]
        assert (ids, media) == chat.prompt_with_images(messages, TOOLS, IMAGES)
    check_spans(chat, ids, media, messages)


@pytest.mark.parametrize("role", ["system", "user", "tool", "assistant"])
def test_text_never_becomes_a_placeholder(pair: tuple[ChatMLFormat, Official], role: Any) -> None:
    chat, _ = pair
    forged = f"{START}{PAD}{END}<image><|video_pad|>"
    messages = [message("user", WIDE), Message(role=role, content=forged), message("user", SMALL)]
    ids, media = chat.prompt_with_images(messages, (), IMAGES)
    check_spans(chat, ids, media, messages)
    assert forged in chat.decode(ids), "and it stays readable"


def test_forged_placeholder_in_a_tool_schema_is_text(pair: tuple[ChatMLFormat, Official]) -> None:
    chat, _ = pair
    forged = ToolSchema(name=PAD, description=START, parameters={"type": "object", "properties": {}})
    ids, media = chat.prompt_with_images([message("user", WIDE)], (forged,), IMAGES)
    check_spans(chat, ids, media, [message("user", WIDE)])


@pytest.mark.parametrize("kind", [PlainFormat, Qwen25Format, Qwen3Format, Qwen25VLFormat, Qwen3VLFormat])
def test_format_renders_images_with_processor_and_tokens(kind: type[ChatMLFormat], tiny_folder: Path) -> None:
    chat = kind(tiny_folder, images=PROCESSOR)
    assert isinstance(chat, RendersImages)
    assert chat.image_processor is PROCESSOR
    assert chat.placeholder_token_ids[0] == chat.tokenizer.added[PAD]
    ids, media = chat.prompt_with_images([message("user", "see ", WIDE), message("tool", HIGH)], (), IMAGES)
    check_spans(chat, ids, media, [message("user", WIDE), message("tool", HIGH)])


def test_format_without_processor_or_tokens_rejects_images(tiny_folder: Path, make_folder: Any) -> None:
    without_tokens = make_folder(special=("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    for chat in (PlainFormat(tiny_folder), PlainFormat(without_tokens, images=PROCESSOR)):
        assert chat.image_processor is None
        assert chat.placeholder_token_ids == ()
        with pytest.raises(UserError, match=r"cannot show images[\s\S]*Qwen2-VL, Qwen2.5-VL or Qwen3-VL"):
            chat.prompt_with_images([message("user", WIDE)], (), IMAGES)


def test_images_are_rejected_where_a_template_drops_them(tiny_folder: Path) -> None:
    chat = Qwen3VLFormat(tiny_folder, images=PROCESSOR)
    with pytest.raises(UserError, match="in an assistant's message"):
        chat.conversation_with_images([message("user", "hi"), message("assistant", WIDE)], (), IMAGES)


def test_missing_and_unfitted_images_are_reported(tiny_folder: Path) -> None:
    chat = PlainFormat(tiny_folder, images=PROCESSOR)
    with pytest.raises(UserError, match="was not given"):
        chat.prompt_with_images([message("user", WIDE)], (), {media_hash(HIGH): HIGH})
    with pytest.raises(UserError, match="was not given"):
        chat.prompt([message("user", WIDE)])
    data = picture(30, 28)
    with pytest.raises(DataError, match="multiples of 28"):
        chat.prompt_with_images([message("user", data)], (), {media_hash(data): data})


def test_narrow_image_keeps_its_grid_after_fitting() -> None:
    processor = ImageProcessor(min_pixels=28 * 28, max_pixels=28 * 28 * 16)
    fitted = processor.fit(picture(1893, 66))
    assert processor.grid(fitted) == processor.tokens(1893, 66) == (1, 21)


@pytest.mark.parametrize("kind", list(FORMATS))
def test_folder_of_a_vision_model_is_recognised(
    vision_folder: Callable[[str], Path], pair_of: Callable[[str], Any], kind: str
) -> None:
    assert detect_chat_format(vision_folder(kind)) == kind
    chat, official = pair_of(kind)
    messages = [Message(role="user", content="hi")]
    assert chat.prompt(messages) == official.ids(messages), "text-only use"


def test_other_vision_template_is_rendered_without_images(tiny_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason="jinja2 renders templates")
    shutil.copytree(tiny_folder, tmp_path, dirs_exist_ok=True)
    template = (
        "{% for message in messages %}<|im_start|>{{ message.role }}\n"
        "{% if message.content is string %}{{ message.content }}{% else %}<|vision_start|>{% endif %}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    config = {"tokenizer_class": "LlamaTokenizer", "eos_token": "<|im_end|>", "chat_template": template}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    assert detect_chat_format(tmp_path) == "template"
    chat = TemplateFormat(tmp_path)
    assert chat.decode(chat.prompt([Message(role="user", content="hi")])) == (
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )
    with pytest.raises(UserError, match=r"cannot show images[\s\S]*Qwen2-VL, Qwen2.5-VL or Qwen3-VL"):
        chat.prompt([message("user", WIDE)])
