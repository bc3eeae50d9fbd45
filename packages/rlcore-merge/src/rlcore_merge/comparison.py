"""Compare two checkpoints of any layout: tensors range by range, and logits if transformers is installed.

The logits are those of one prompt. A vision-language model with an image processor also gets a picture. An adapter is
applied to its base by peft, so that a merged model can be compared with the model that was trained.
"""

from __future__ import annotations

import gc
import importlib.util
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rlcore.console.wording import counted
from rlcore.errors import UserError
from rlcore.models.adapter import base_name, is_adapter
from rlcore.models.vision_language import VisionLanguageModel

from rlcore_merge.checkpoint import Request, published_names
from rlcore_merge.layouts import Layouts
from rlcore_merge.merging import Ready, prepare
from rlcore_merge.tensors import KINDS, Kind, Tensor, convert, output_kind, ranges, to_float32

SHOWN = 20
"""Tensors that are listed."""
PROMPT = "The quick brown fox jumps over the lazy dog. 12 * 7 ="
ROUNDING = 1e-3
"""Largest difference in float32 between an adapter that is applied by peft and one that is merged."""
SIDES = 4, 6
"""Rows and columns of visual tokens of the picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The comparison of one tensor. The tensors are equal if ``problem`` is empty."""

    name: str
    problem: str
    dtypes: str = ""
    """A description of the two dtypes, if they differ."""
    rounded_to: Kind | None = None
    """The kind in which floating-point tensors of different dtypes were compared."""
    difference: float | None = None
    """The largest absolute difference; None if the shapes differ or one side lacks the tensor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The result of a comparison."""

    tensors: int
    """Number of tensors that both checkpoints have."""
    rows: tuple[Row, ...]
    """Tensors that differ, largest difference first."""
    logits: float | None = None
    """The largest difference of the logits on a prompt; None if it was not computed."""
    logits_note: str = ""
    notes: tuple[str, ...] = ()
    """Accepted differences."""
    rounded_to: Kind | None = None
    """The kind in which tensors of different dtypes were compared; None if no dtypes differ."""

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return not self.rows and not self.logits


def compare(
    left: str | Path,
    right: str | Path,
    *,
    base: str | Path | None = None,
    tolerance: float = 0.0,
    layouts: Layouts | None = None,
) -> Comparison:
    """Compare names, shapes and values.

    The names may be those of the modules or the published ones. If dtypes differ, both sides are rounded to the
    narrower one, and the result contains a note.

    Args:
        left: a folder of any layout
        right: the reference, of any layout
        base: base model of an adapter
        tolerance: the largest difference of two elements, as float32, that counts as equal
        layouts: known layouts

    Raises:
        UserError: one of the checkpoints is incomplete.
    """
    layouts = layouts or Layouts()
    sides = [_ready(Path(folder).expanduser(), base, layouts) for folder in (left, right)]
    config = sides[0].config or sides[1].config or {}
    names = [published_names(side.tensors, config) for side in sides]
    mine, other = (
        {named[name]: tensor for name, tensor in side.tensors.items()} for side, named in zip(sides, names, strict=True)
    )
    found = list(_rows(mine, other, tolerance))
    rows = [row for row in found if row.problem]
    rows.sort(key=lambda row: -np.inf if row.difference is None else -row.difference)
    rounded = [row for row in found if row.rounded_to is not None]
    notes = []
    if rounded:
        first = rounded[0]
        notes.append(f"{counted(len(rounded), 'tensor')} with a different dtype, such as {first.name}: {first.dtypes}")
    return Comparison(
        tensors=len(mine.keys() & other.keys()),
        rows=tuple(rows),
        notes=tuple(notes),
        rounded_to=rounded[0].rounded_to if rounded else None,
    )


def _ready(folder: Path, base: str | Path | None, layouts: Layouts) -> Ready:
    request = Request(base=None if base is None else Path(base).expanduser())
    return prepare(layouts.open(folder, request), request, layouts)


def _rows(left: Mapping[str, Tensor], right: Mapping[str, Tensor], tolerance: float) -> Iterator[Row]:
    for name in [*left, *(name for name in right if name not in left)]:
        if name not in right or name not in left:
            yield Row(name=name, problem="only in the reference" if name not in left else "not in the reference")
            continue
        mine, other = left[name], right[name]
        if mine.shape != other.shape:
            yield Row(name=name, problem=f"shape {list(mine.shape)}, the reference's is {list(other.shape)}")
            continue
        kinds = output_kind(mine), output_kind(other)
        common = narrower(*kinds)
        worst = difference(mine, other, common)
        problems = []
        dtypes = ""
        if kinds[0] is not kinds[1]:
            dtypes = f"dtype {kinds[0].name}, the reference's is {kinds[1].name}"
            if common is None:
                problems.append(dtypes)
            else:
                dtypes += f"; compared as {common.name}"
        if not worst <= tolerance:
            problems.append("values")
        yield Row(
            name=name,
            problem="; ".join(problems),
            dtypes=dtypes,
            difference=worst,
            rounded_to=common if dtypes else None,
        )


def narrower(one: Kind, other: Kind) -> Kind | None:
    """The kind to compare two kinds in: the narrower one, F32 for F16 and BF16, and None unless both are floating."""
    if not (one.floating and other.floating):
        return None
    if one.size == other.size:
        return one if one is other else KINDS["F32"]
    return min(one, other, key=lambda kind: kind.size)


def difference(left: Tensor, right: Tensor, kind: Kind | None = None) -> float:
    """The largest absolute difference; infinite if a NaN or an infinity is on one side only.

    Both sides are rounded to ``kind`` first, unless it is None.
    """
    worst = 0.0
    for start, count in ranges(left):
        mine, other = left.read(start, count), right.read(start, count)
        if kind is not None:
            mine, other = convert(mine, left.kind, kind), convert(other, right.kind, kind)
        if (kind is not None or left.kind is right.kind) and mine.tobytes() == other.tobytes():
            continue
        if kind is not None and kind.name != "F64":
            a, b = to_float32(mine, kind), to_float32(other, kind)
        else:
            a, b = mine.astype(np.float64), other.astype(np.float64)
        with np.errstate(invalid="ignore"):
            apart = np.where(a == b, 0.0, np.abs(a - b))
        apart[np.isnan(a) & np.isnan(b)] = 0.0
        apart[np.isnan(apart)] = np.inf
        worst = max(worst, float(apart.max(initial=0.0)))
    return worst


def logits_difference(
    left: Path, right: Path, *, dtype: str = "float32", base: Path | None = None
) -> tuple[float | None, str]:
    """The largest difference of the logits on a prompt in float32, or None and the reason why it was not computed.

    Weights are rounded to ``dtype`` first. One model is loaded at a time. Without a tokenizer the prompt consists of
    the token ids 0 to 15.

    Args:
        left: a Hugging Face folder, or an adapter
        right: the other
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
        inputs = _inputs(left if (left / "config.json").is_file() else bases[0])
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


def _ids(folder: Path) -> list[int]:
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json", "vocab.json")):
        return list(range(16))
    from transformers import AutoTokenizer

    return [int(token) for token in AutoTokenizer.from_pretrained(folder, trust_remote_code=False)(PROMPT)["input_ids"]]


def _inputs(folder: Path) -> dict[str, Any]:
    """The inputs of the models, with a picture where the folder has an image processor and ``rlcore`` is complete."""
    import torch

    ids = _ids(folder)
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


def lines(comparison: Comparison) -> Iterator[str]:
    """The tensors that differ, largest difference first, then a summary."""
    rows = comparison.rows[:SHOWN]
    width = max((len(row.name) for row in rows), default=0)
    for row in rows:
        apart = "" if row.difference is None else f"  largest difference {row.difference:g}"
        yield f"{row.name:<{width}}  {row.problem}{apart}"
    if len(comparison.rows) > SHOWN:
        yield f"and {len(comparison.rows) - SHOWN} more"
    yield from (f"note: {note}" for note in comparison.notes)
    if comparison.logits is not None:
        yield f"logits on a prompt: largest difference {comparison.logits:g}"
    else:
        yield f"logits: not compared ({comparison.logits_note})"
    word = "equal" if comparison.equal else f"{len(comparison.rows)} differ" if comparison.rows else "the logits differ"
    yield f"{counted(comparison.tensors, 'tensor')} compared: {word}"
