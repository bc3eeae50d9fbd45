"""Whether the vision tower of a model is trained."""

from __future__ import annotations

from rlcore.images.tower import is_vision_language, vision_tower
from torch import nn

OF_TOWER = r"(.*\.)?visual\..*"
"""Matches the full paths of the modules of a vision tower."""


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
