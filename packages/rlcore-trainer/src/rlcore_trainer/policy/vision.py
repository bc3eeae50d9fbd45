"""Whether the vision tower of a model is trained, and the images of a prompt as the model's own forward reads them."""

from __future__ import annotations

from pathlib import Path

import torch
from rlcore.errors import UserError
from rlcore.images import ImageProcessor
from rlcore.types import Prompt
from rlcore_models.pixels import patches
from rlcore_models.vision_encoder import is_vision_language, vision_tower
from torch import Tensor, nn


def freeze_tower(model: nn.Module) -> None:
    """Stop training the vision tower, with the layers that merge its patches. Does nothing for a text model."""
    if is_vision_language(model):
        vision_tower(model).requires_grad_(False)


def is_tower_frozen(model: nn.Module) -> bool:
    """Return whether the model has a vision tower none of whose weights is trained."""
    return is_vision_language(model) and not any(each.requires_grad for each in vision_tower(model).parameters())


def description(model: nn.Module) -> str | None:
    """Return a line for the log on the vision tower; None for a text model."""
    if not is_vision_language(model):
        return None
    own = sum(parameter.numel() for parameter in vision_tower(model).parameters())
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    state = "frozen" if is_tower_frozen(model) else "trained"
    return f"images    vision tower of {own:,} parameters, {state}; {trained:,} trained parameters in all"


def image_inputs(prompt: Prompt, ids_1T: Tensor, folder: Path) -> dict[str, Tensor]:
    """Return the arguments of a ``transformers`` model for the images of a prompt.

    Args:
        prompt: tokens with images
        ids_1T: these tokens, and others after them
        folder: the model's folder, with its image processor

    Raises:
        UserError: the folder has no image processor.
    """
    processor = ImageProcessor.of_folder(folder)
    if processor is None:
        raise UserError(
            "images need the processor of the model", found="no preprocessor_config.json", where=str(folder)
        )
    kinds_1T = torch.zeros_like(ids_1T)
    for span in prompt.media:
        kinds_1T[:, span.offset : span.offset + span.length] = 1
    side, device = processor.merge_size, ids_1T.device
    pixels = torch.cat([patches(prompt.images[span.sha256], processor) for span in prompt.media])
    grids = [[1, span.rows * side, span.columns * side] for span in prompt.media]
    return {
        "pixel_values": pixels.to(device),
        "image_grid_thw": torch.tensor(grids, device=device),
        "mm_token_type_ids": kinds_1T,
    }
