"""Decodes tokens in a process of its own, because a hostile tokenizer can abort the process, or never return.

The process is started by the path of this file, with the path of a ``tokenizer.json``. Stdin is a socket: each line is
a list of lists of token ids, answered by a line with the list of their texts. Any failure ends the process.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from contextlib import suppress

LARGEST_FILE = 100_000_000
"""Limit of the tokenizer in bytes."""
MEMORY = 1 << 31
"""Limit of the address space in bytes."""
LONGEST_S = 60
"""Seconds after which the process ends by itself. The one that asks has lower limits, but may have been killed."""


def main(path: str) -> None:
    """Answer every line of stdin with the tokenizer of a file."""
    signal.alarm(LONGEST_S)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # an abort must not leave a file
    with suppress(ValueError, OSError):  # macOS does not limit the address space
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    from tokenizers import Tokenizer

    with open(path, "rb") as file:
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise ValueError("the tokenizer is too large")
    tokenizer = Tokenizer.from_buffer(content)
    del content
    answers = os.fdopen(os.dup(0), "w", encoding="utf-8")
    for line in sys.stdin:
        signal.alarm(LONGEST_S)
        texts = [tokenizer.decode(ids, skip_special_tokens=False) for ids in json.loads(line)]
        print(json.dumps(texts), file=answers, flush=True)
        signal.alarm(0)


if __name__ == "__main__":
    main(sys.argv[1])
