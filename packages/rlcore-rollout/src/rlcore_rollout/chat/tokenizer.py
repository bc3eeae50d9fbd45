"""A model folder's tokenizer in two versions: complete, and without added tokens for untrusted text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from rlcore.errors import UserError
from rlcore.json_files import parse_json, read_json, read_text
from rlcore.models.config_file import MAX_BYTES
from tokenizers import Tokenizer


class ChatTokenizer:
    """The tokenizer of a folder, from ``tokenizer.json`` and ``tokenizer_config.json``.

    Attributes:
        added: ids of the tokens outside of the tokenizer model's vocabulary: ``<|im_end|>``, ``<tool_call>``.
        special: the added tokens that no text of a conversation may contain, not even the assistant's.
        swallowing: the added tokens that include the white space after them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        path = self.folder / "tokenizer.json"
        if not path.is_file():
            raise UserError(
                "a model folder needs a tokenizer",
                found=f"no tokenizer.json in {self.folder}"
                if self.folder.is_dir()
                else f"{self.folder} is not a folder",
                where=str(path),
                fix="save it there with the tokenizer's save_pretrained(), or use another folder",
            )
        self._tokenizer = read_tokenizer(path)
        definition: dict[str, Any] = parse_json(self._tokenizer.to_str())
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.config = read_tokenizer_config(self.folder)
        entries = definition.get("added_tokens") or []
        self.added: dict[str, int] = {entry["content"]: entry["id"] for entry in entries}
        self.special = {entry["content"] for entry in entries if entry.get("special")}
        self.swallowing = {entry["content"] for entry in entries if entry.get("rstrip")}
        for content in self._end_tokens:
            if (index := self._tokenizer.token_to_id(content)) is not None:
                self.added[content] = index
                self.special.add(content)
        self._plain = self._without_added_tokens(definition, path)

    def encode_text(self, text: str) -> list[int]:
        """Ids of a text without added tokens, regardless of its content."""
        try:
            text.encode()
        except UnicodeEncodeError:  # half of a surrogate pair, such as JSON's \\ud83d, which no tokenizer accepts
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of the ids, including added tokens."""
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=False)

    @cached_property
    def end_token_ids(self) -> tuple[int, ...]:
        """The ids of end tokens in the folder's ``generation_config.json`` and tokenizer configuration."""
        path = self.folder / "generation_config.json"
        named = _read_json(path).get("eos_token_id")
        ids = named if isinstance(named, list) else [] if named is None else [named]
        if not all(type(index) is int and self._is_token(index) for index in ids):
            found, fix = repr(named)[:80], "save or download the model again"
            raise UserError(
                "eos_token_id must be an id or a list of ids of the tokenizer", found=found, where=str(path), fix=fix
            )
        ids = [*ids, *(self.added[content] for content in self._end_tokens if content in self.added)]
        return tuple(dict.fromkeys(ids))

    def _is_token(self, index: int) -> bool:
        return 0 <= index < 2**31 and self._tokenizer.id_to_token(index) is not None

    def named_token(self, name: str) -> str | None:
        """The text of a token such as ``eos_token``; None if the folder does not state it."""
        for source in (self.config, _read_json(self.folder / "special_tokens_map.json")):
            named = source.get(name)
            content = named.get("content") if isinstance(named, Mapping) else named
            # The library refuses half of a surrogate pair, which JSON can contain and no token has.
            if isinstance(content, str) and not any("\ud800" <= character <= "\udfff" for character in content):
                return content
        return None

    @property
    def _end_tokens(self) -> list[str]:
        """The text of the end-of-sequence token."""
        token = self.named_token("eos_token")
        return [] if token is None else [token]

    def _without_added_tokens(self, definition: dict[str, Any], path: Path) -> Tokenizer:
        model = definition["model"]
        unknown = model.get("unk_token")
        vocabulary = model.get("vocab")
        if isinstance(vocabulary, dict):  # trainers list the added tokens among the ordinary ones, too
            merged = {"".join(pair if isinstance(pair, list) else pair.split(" ")) for pair in model.get("merges", [])}
            hidden = {content for content in self.added if content != unknown and content not in merged}
            model["vocab"] = {piece: index for piece, index in vocabulary.items() if piece not in hidden}
        for part in _parts(definition.get("pre_tokenizer")):
            if part.get("prepend_scheme") == "first":  # a text after an added token is not the first
                part["prepend_scheme"] = "never"
        definition["added_tokens"] = []
        definition["post_processor"] = None  # it names special tokens, which are not used
        try:
            plain = Tokenizer.from_str(json.dumps(definition))
        except Exception as error:  # the library raises bare Exception, here for a special token that texts need
            raise _indistinct(str(error).splitlines()[0], path) from error
        plain.no_truncation()
        plain.no_padding()
        reachable = set(self.added.values()) - {self._tokenizer.token_to_id(unknown) if unknown else None}
        for content in self.added:
            if reachable.intersection(plain.encode(content, add_special_tokens=False).ids):
                raise _indistinct(f"the text {content!r} is always encoded as this special token", path)
        return plain


def _indistinct(found: str, path: Path) -> UserError:
    return UserError(
        "this tokenizer cannot keep ordinary text from becoming a special token",
        found=found,
        where=str(path),
        fix="use a tokenizer whose special tokens are added tokens, such as byte-level BPE",
    )


def _parts(step: Any) -> list[dict[str, Any]]:
    """The steps of a pre-tokenizer."""
    if not isinstance(step, dict):
        return []
    return [step, *(part for part in step.get("pretokenizers") or [] if isinstance(part, dict))]


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in a ``tokenizer.json``.

    Raises:
        UserError: it cannot be read.
    """
    try:
        return Tokenizer.from_str(read_text(path))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library raises bare Exception, and BaseException where its own code fails
        found, fix = (str(error).splitlines() or [type(error).__name__])[0], "download or save it again"
        raise UserError("the tokenizer cannot be read", found=found, where=str(path), fix=fix) from error


def read_tokenizer_config(folder: Path) -> dict[str, Any]:
    """The folder's ``tokenizer_config.json`` with ``chat_template`` as one text; empty if there is none."""
    config = _read_json(folder / "tokenizer_config.json")
    template = config.get("chat_template")
    if isinstance(template, list):  # several by name
        named = {str(entry.get("name")): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("tool_use") or named.get("default")
    if not isinstance(template, str):
        path = folder / "chat_template.jinja"
        template = _read_template(path) if path.is_file() else ""
    return {**config, "chat_template": template}


def _read_template(path: Path) -> str:
    try:
        return read_text(path, limit=MAX_BYTES)
    except (OSError, ValueError) as error:
        message = "the chat template of the model folder cannot be read"
        raise UserError(message, found=str(error), where=str(path), fix="save or download it again") from error


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = read_json(path, limit=MAX_BYTES)
    except (OSError, ValueError) as error:
        message = f"{path.name} of the model folder is not JSON"
        raise UserError(message, found=str(error), where=str(path), fix="save or download it again") from error
    return value if isinstance(value, dict) else {}
