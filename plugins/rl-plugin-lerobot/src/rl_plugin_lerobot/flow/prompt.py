"""Instructions as tokens of a folder's own tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from rlcore.errors import DataError, UserError
from rlcore.json_files import read_json, read_text
from rlcore_control.models.folder import unreadable
from torch import Tensor

TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
PADDING = -1
"""The token after the last one. It is not an id of any vocabulary."""
_FIRST = "<bos>"


class Prompt:
    """Makes prompts of instructions: the text and a line break, after a first token if PaliGemma reads them.

    Args:
        folder: the folder of the policy, with ``tokenizer.json``
        length: the number of tokens of a prompt
        vocabulary: the number of tokens that the policy has embeddings for
        source: the model on the hub whose tokenizer it is, for the message if it is missing
        first: whether prompts begin with the token ``bos_token``

    Raises:
        UserError: the tokenizer is missing or damaged.
    """

    def __init__(self, folder: Path, *, length: int, vocabulary: int, source: str, first: bool = True) -> None:
        from tokenizers import Tokenizer

        self.length, self._vocabulary, self._path = length, vocabulary, folder / TOKENIZER
        try:
            self._tokenizer = Tokenizer.from_str(read_text(self._path))
        except FileNotFoundError:
            raise UserError(
                "the policy needs its tokenizer to read instructions",
                found=f"no {TOKENIZER}",
                where=str(folder),
                fix=f"copy {TOKENIZER} of {source} into the folder",
            ) from None
        except Exception as error:  # the library raises this type
            raise unreadable(f"{type(error).__name__}: {error}", self._path) from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._tokenizer.encode_special_tokens = True  # an instruction cannot contain the token of a picture
        self._first = [self.token(_first_token(folder))] if first else []

    def __deepcopy__(self, memo: object) -> Prompt:
        return self  # it does not change, and copies of tokenizers lose options

    def token(self, name: str) -> int:
        """Return the id of a special token.

        Raises:
            UserError: the tokenizer does not have it, or the policy has no embedding for it.
        """
        token = self._tokenizer.token_to_id(name)
        if token is None or token >= self._vocabulary:
            raise unreadable(f"no token {name} among the first {self._vocabulary} of the vocabulary", self._path)
        return int(token)

    def encode(self, text: str) -> Tensor:
        """Return the tokens [L] of an instruction, int64, padded with `PADDING` or cut.

        Raises:
            DataError: the tokenizer gives a token without an embedding.
        """
        text = text if text.endswith("\n") else f"{text}\n"
        tokens = [*self._first, *self._tokenizer.encode(text, add_special_tokens=False).ids][: self.length]
        if max(tokens) >= self._vocabulary:
            raise DataError(
                f"tokens of an instruction must be below {self._vocabulary}",
                found=str(max(tokens)),
                where=str(self._path),
                fix=f"copy the {TOKENIZER} of the policy into its folder",
            )
        return torch.tensor(tokens + [PADDING] * (self.length - len(tokens)), dtype=torch.int64)


def _first_token(folder: Path) -> str:
    path = folder / TOKENIZER_CONFIG
    if not path.is_file():
        return _FIRST
    try:
        tree = read_json(path)
        found = tree.get("bos_token") or _FIRST
        return str(found["content"] if isinstance(found, Mapping) else found)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise unreadable(f"{type(error).__name__}: {error}", path) from error
