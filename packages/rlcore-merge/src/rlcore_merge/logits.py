"""Compare the logits of two folders on one prompt, if transformers is installed.

A vision-language model with an image processor also gets a picture. An adapter is applied to its base by peft, so that
a merged model can be compared with the model that was trained.
"""

from __future__ import annotations

import gc
import importlib.util
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlcore.errors import UserError
from rlcore.models.adapter import base_name, is_adapter
from rlcore.models.vision_language import VisionLanguageModel

PROMPT = "The quick brown fox jumps over the lazy dog. 12 * 7 ="
ROUNDING = 1e-3
"""Largest difference in float32 between an adapter that is applied by peft and one that is merged."""
SIDES = 4, 6
"""Rows and columns of visual tokens of the picture."""


def largest_difference(
    left: Path, right: Path, prompt: str = PROMPT, *, dtype: str = "float32", base: Path | None = None
) -> tuple[float | None, str]:
    """The largest absolute difference of the logits in float32, or None and the reason why it was not computed.

    Weights are rounded to ``dtype`` first. One model is loaded at a time. Without a tokenizer the prompt consists of
    the token ids 0 to 15.

    Args:
        left: a Hugging Face folder, or an adapter
        right: the other
        prompt: the text
        dtype: the name of a type of torch
        base: base model of an adapter, if the adapter does not name it
    """
    if importlib.util.find_spec("transformers") is None or importlib.util.find_spec("torch") is None:
        return None, "transformers is not installed"
    bases = []
    for folder in (left, right):
        named = (base or base_name(folder)) if is_adapter(folder) else folder
        bases.append(Path(named or "").expanduser())
        if not (bases[-1] / "config.json").is_file():
            return None, f"{bases[-1]} has no config.json"
    try:
        inputs = _inputs(left if (left / "config.json").is_file() else bases[0], prompt)
        with _silent():
            outputs = [_logits(*pair, inputs, dtype) for pair in zip((left, right), bases, strict=True)]
    except (UserError, ImportError, OSError, ValueError, KeyError, RuntimeError, AttributeError) as error:
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


def _inputs(folder: Path, prompt: str) -> dict[str, Any]:
    """The inputs of the models, with a picture where the folder has an image processor and ``rlcore`` is complete."""
    import torch

    ids = _ids(folder, prompt)
    model = VisionLanguageModel.of_folder(folder) if (folder / "preprocessor_config.json").is_file() else None
    if model is None or not all(map(importlib.util.find_spec, ("PIL", "rlcore_models"))):
        return {"input_ids": torch.tensor([ids])}
    from PIL import Image
    from rlcore.images.encoding import encode_image
    from rlcore_models.pixels import patches

    rows, columns = SIDES
    side = model.processor.token_side
    colours = Image.linear_gradient("L").resize((columns * side, rows * side))
    picture = Image.merge("RGB", (colours, colours.rotate(180), colours.point([255 - value for value in range(256)])))
    ids_T = torch.tensor([[*ids[:2], *[model.placeholder] * (rows * columns), *ids[2:]]])
    merge = model.processor.merge_size
    return {
        "input_ids": ids_T,
        "mm_token_type_ids": (ids_T == model.placeholder).int(),
        "pixel_values": patches(encode_image(picture), model.processor),
        "image_grid_thw": torch.tensor([[1, rows * merge, columns * merge]]),
    }


def _logits(folder: Path, base: Path, inputs: dict[str, Any], dtype: str) -> Any:
    import torch
    import transformers

    config = transformers.AutoConfig.from_pretrained(base, trust_remote_code=False)
    name = (config.architectures or ["AutoModelForCausalLM"])[0]
    kind = getattr(transformers, name, transformers.AutoModelForCausalLM)
    model = kind.from_pretrained(base, dtype=getattr(torch, dtype), trust_remote_code=False).float().eval()
    if folder != base:
        from peft import PeftModel

        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="Found missing adapter keys")
            warnings.filterwarnings("ignore")
            try:
                model = PeftModel.from_pretrained(model, str(folder)).float().eval()
            except UserWarning as warning:
                raise ValueError(f"peft does not find the adapter's weights: {str(warning)[:100]}") from None
    with torch.inference_mode():
        found = model(**inputs).logits.float().clone()
    del model
    gc.collect()
    return found
