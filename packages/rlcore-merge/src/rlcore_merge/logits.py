"""Compare the logits of two folders on one prompt, if transformers is installed."""

from __future__ import annotations

import gc
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROMPT = "The quick brown fox jumps over the lazy dog. 12 * 7 ="


def largest_difference(
    left: Path, right: Path, prompt: str = PROMPT, *, dtype: str = "float32"
) -> tuple[float | None, str]:
    """The largest absolute difference of the logits in float32, or None and the reason why it was not computed.

    Weights are rounded to ``dtype`` first. One model is loaded at a time. Without a tokenizer the prompt consists of
    the token ids 0 to 15.
    """
    if importlib.util.find_spec("transformers") is None or importlib.util.find_spec("torch") is None:
        return None, "transformers is not installed"
    for folder in (left, right):
        if not (folder / "config.json").is_file():
            return None, f"{folder} has no config.json"
    try:
        ids = _ids(left, prompt)
        with _silent():
            outputs = [_logits(folder, ids, dtype) for folder in (left, right)]
    except (ImportError, OSError, ValueError, KeyError, RuntimeError, AttributeError) as error:
        return None, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    if outputs[0].shape != outputs[1].shape:
        return float("inf"), f"shapes {list(outputs[0].shape)} and {list(outputs[1].shape)}"
    return float((outputs[0] - outputs[1]).abs().max()), ""


@contextmanager
def _silent() -> Iterator[None]:
    """Suppress the warnings and progress bars of transformers."""
    import transformers

    logging: Any = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _ids(folder: Path, prompt: str) -> list[int]:
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json", "vocab.json")):
        return list(range(16))
    from transformers import AutoTokenizer

    return [int(token) for token in AutoTokenizer.from_pretrained(folder, trust_remote_code=False)(prompt)["input_ids"]]


def _logits(folder: Path, ids: list[int], dtype: str) -> Any:
    import torch
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
    name = (config.architectures or ["AutoModelForCausalLM"])[0]
    kind = getattr(transformers, name, transformers.AutoModelForCausalLM)
    model = kind.from_pretrained(folder, dtype=getattr(torch, dtype), trust_remote_code=False).float().eval()
    with torch.inference_mode():
        found = model(input_ids=torch.tensor([ids])).logits.float().clone()
    del model
    gc.collect()
    return found
