"""Short sequences on which a forward pass is compared with the model's own.

Axes: ``T`` the tokens of a sequence, ``V`` the vocabulary.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import torch
from rlcore.errors import UserError
from rlcore.images import ImageProcessor
from rlcore.types import LossMask, MediaSpan, TokenIds
from rlcore_models.pixels import patches
from rlcore_models.vision_encoder import is_vision_language
from torch import Tensor
from transformers import PreTrainedModel

from rlcore_trainer.batching.packing import MicroBatch, TrainingSequence

ROWS, COLUMNS = 2, 3
"""Visual tokens of the image in the probes."""


def vocabulary(model: PreTrainedModel) -> int:
    """Return the number of tokens of a model."""
    return int(model.config.get_text_config().vocab_size)


def image_processor(model: PreTrainedModel, folder: Path) -> ImageProcessor | None:
    """Return the image processor of a vision-language model; None for a text model.

    Raises:
        UserError: it is missing, damaged or of an unsupported type, or its patches are not those of the vision tower.
    """
    if not is_vision_language(model):
        return None
    found = ImageProcessor.of_folder(folder)
    if found is None:
        raise UserError(
            "a vision-language model needs its image processor",
            found="no preprocessor_config.json",
            where=str(folder),
            fix="copy the processor's files next to config.json",
        )
    vision: Any = model.config.vision_config
    wanted = (vision.patch_size, vision.spatial_merge_size, vision.temporal_patch_size)
    here = (found.patch_size, found.merge_size, found.temporal_patch_size)
    if here != wanted:
        raise UserError(
            "the image processor and the vision tower must have the same patches",
            found=f"patch_size, merge_size, temporal_patch_size {here}, and {wanted} in config.json",
            where=str(folder),
            fix="copy the preprocessor_config.json of this model",
        )
    return found


def probes(model: PreTrainedModel, processor: ImageProcessor | None) -> list[TrainingSequence]:
    """Return short sequences, two of which share a prompt.

    With a processor, the shared prompt contains an image, and a sequence of its own has it in a later turn.
    """
    sequences = [_probe(model, i) for i in range(3)]
    if processor is None:
        return sequences
    side = processor.token_side
    image = _image(COLUMNS * side, ROWS * side)
    name = hashlib.sha256(image).hexdigest()
    return [
        sequences[0],
        *(_with_image(model, sequences[i], 1, name, image) for i in (1, 2)),
        _with_image(model, sequences[2], 6, name, image),
    ]


def one_by_one(
    model: PreTrainedModel, sequences: list[TrainingSequence], batch: MicroBatch, processor: ImageProcessor | None
) -> Tensor:
    """Return the log-probabilities of the batch from a separate call of the model for each sequence, float32."""
    expected = []
    for i in dict.fromkeys(batch.sequence_M.tolist()):
        sequence = sequences[i]
        ids_1T = torch.tensor([list(sequence.token_ids)], device=model.device)
        logits_TV = model(input_ids=ids_1T, use_cache=False, **_image_inputs(model, sequence, processor)).logits[0]
        logprobs_T = logits_TV[:-1].float().log_softmax(-1).gather(1, ids_1T[0, 1:, None])[:, 0]
        expected.append(logprobs_T[torch.tensor(list(sequence.loss_mask)[1:]).to(model.device)])
    return torch.cat(expected)


def _probe(model: PreTrainedModel, i: int) -> TrainingSequence:
    row = [(7 * i * (t > 2) + 3 * t * t + 1) % vocabulary(model) for t in range(6 + i)]
    avoided = {getattr(model.config, f"{kind}_token_id", None) for kind in ("image", "video")}
    ids = [0 if token in avoided else token for token in row]
    return TrainingSequence(
        token_ids=TokenIds(ids), loss_mask=LossMask([False] + [True] * (len(row) - 1)), prompt_length=3 * (i > 0)
    )


def _with_image(
    model: PreTrainedModel, sequence: TrainingSequence, offset: int, name: str, image: bytes
) -> TrainingSequence:
    config: Any = model.config
    ids, mask, length = list(sequence.token_ids), list(sequence.loss_mask), ROWS * COLUMNS
    span = MediaSpan(sha256=name, offset=offset, length=length, rows=ROWS, columns=COLUMNS)
    return TrainingSequence(
        token_ids=TokenIds(ids[:offset] + [config.image_token_id] * length + ids[offset:]),
        loss_mask=LossMask(mask[:offset] + [False] * length + mask[offset:]),
        prompt_length=sequence.prompt_length + length * (offset < sequence.prompt_length),
        media=(span,),
        images={name: image},
    )


def _image_inputs(
    model: PreTrainedModel, sequence: TrainingSequence, processor: ImageProcessor | None
) -> dict[str, Tensor]:
    if processor is None or not sequence.media:
        return {}
    kinds_1T = torch.zeros(1, len(sequence), dtype=torch.long)
    for span in sequence.media:
        kinds_1T[0, span.offset : span.offset + span.length] = 1
    merge = processor.merge_size
    inputs = {
        "pixel_values": torch.cat([patches(sequence.images[span.sha256], processor) for span in sequence.media]),
        "image_grid_thw": torch.tensor([[1, merge * span.rows, merge * span.columns] for span in sequence.media]),
        "mm_token_type_ids": kinds_1T,
    }
    return {key: value.to(model.device) for key, value in inputs.items()}


def _image(width: int, height: int) -> bytes:
    """Return a picture whose parts differ."""
    from PIL import Image

    values = [(x * 3 + y * 5 * c + x * y) % 256 for y in range(height) for x in range(width) for c in (0, 1, 2)]
    written = io.BytesIO()
    Image.frombytes("RGB", (width, height), bytes(values)).save(written, format="PNG", compress_level=1)
    return written.getvalue()
