"""Instructions as tokens: each word is hashed, so there is no vocabulary to store."""

from __future__ import annotations

import re
from hashlib import blake2b

import torch
from torch import Tensor

PADDING = 0
"""The token after the last word."""
_WORD = re.compile(r"\w+")


def hash_words(text: str, length: int, vocabulary: int) -> Tensor:
    """Return the tokens [length] of the first words of a text, int64.

    Upper and lower case are equal, and punctuation is ignored. Two words may have the same token.

    Args:
        text: the instruction
        length: number of tokens; missing words are 0
        vocabulary: tokens of words are from 1 to ``vocabulary - 1``
    """
    words = _WORD.findall(text.lower())[:length]
    hashes = [int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little") for word in words]
    tokens = [1 + one % (vocabulary - 1) for one in hashes]
    return torch.tensor(tokens + [PADDING] * (length - len(tokens)), dtype=torch.int64)
