"""The hidden states of a packed row, with visual features at the places of its images.

Axes: ``N`` the tokens of a packed row, ``M`` its trained tokens, ``K`` visual tokens, ``D`` the width of the model.
"""

from __future__ import annotations

from typing import Any

import torch
from rlcore.errors import DataError, UserError
from rlcore.images import ImageProcessor
from rlcore_models.vision_encoder import VisualFeatures, is_vision_language, text_model, vision_tower, visual_features
from torch import Tensor
from transformers import PreTrainedModel

from rlcore_trainer.batching.packed_images import PackedImages
from rlcore_trainer.batching.packing import MicroBatch
from rlcore_trainer.batching.team import Team
from rlcore_trainer.policy.logprobs import logprobs_and_entropy
from rlcore_trainer.policy.model import output_head


def batch_logprobs(
    model: PreTrainedModel, batch: MicroBatch, *, temperature: float = 1.0, processor: ImageProcessor | None = None
) -> tuple[Tensor, Tensor]:
    """Return log-probability and entropy in nats of every trained token of a micro-batch, ``(logprobs_M, entropy_M)``.

    Call this function and the backward pass inside `packed_attention_of`. Errors are those of `hidden_before`.
    """
    hidden_MD = hidden_before(model, batch, processor)
    return logprobs_and_entropy(hidden_MD, output_head(model), batch.targets_M, temperature=temperature)


def hidden_before(model: PreTrainedModel, batch: MicroBatch, processor: ImageProcessor | None = None) -> Tensor:
    """Return the hidden states that predict the trained tokens, ``hidden_MD``.

    Call this function and the backward pass inside `packed_attention_of`. Each image is encoded once.

    Args:
        model: the model, or its layers below the output layer
        batch: the micro-batch
        processor: how the model sees images; needed if the micro-batch has images

    Raises:
        UserError: the micro-batch has images, and the model sees none.
        DataError: an image cannot be decoded, or does not have the size that its sequence states.
    """
    if batch.images is not None:
        if processor is None or not is_vision_language(model):
            raise no_images(type(model).__name__)
        inputs = _with_images(model, batch, batch.images, processor)
    else:
        inputs = {"input_ids": batch.token_ids_1N, "position_ids": batch.position_ids_1N}
    team = batch.layout.team
    if team is not None:
        inputs = _part(inputs, batch, team)
    hidden_ND: Tensor = text_model(model)(**inputs, use_cache=False, packed=batch.layout).last_hidden_state[0]
    if team is not None:
        hidden_ND = team.joined(hidden_ND, batch.layout.tokens)
    # On a CPU, the backward pass of index_select adds in a fixed order if siblings share the last row of a prompt.
    return hidden_ND.index_select(0, batch.before_M)


def _part(inputs: dict[str, Any], batch: MicroBatch, team: Team) -> dict[str, Any]:
    """Return the inputs of the text model for the tokens of this process."""
    found: dict[str, Any] = {
        name: team.part(value, dim=-2 if name == "inputs_embeds" else -1)
        for name, value in inputs.items()
        if isinstance(value, Tensor)
    }
    if "deepstack_visual_embeds" in inputs:
        assert batch.images is not None
        start, stop = team.bounds(batch.layout.tokens)
        here_K = (batch.images.places_K >= start) & (batch.images.places_K < stop)
        found["deepstack_visual_embeds"] = [each_KD[here_K] for each_KD in inputs["deepstack_visual_embeds"]]
    return found


def no_images(name: str) -> UserError:
    """Return the error of images for a model that sees none."""
    return UserError(
        "training on images needs a vision-language model with its processor",
        found=name,
        where="model.path",
        fix="choose a folder of Qwen2-VL, Qwen2.5-VL or Qwen3-VL with preprocessor_config.json, or data without images",
    )


def _with_images(
    model: PreTrainedModel, batch: MicroBatch, images: PackedImages, processor: ImageProcessor
) -> dict[str, Any]:
    """Return the inputs of the text model: embeddings with visual features, and three rotary positions."""
    assert batch.rotary_3N is not None
    visual = _features(model, images, processor)
    embedded_ND = text_model(model).get_submodule("embed_tokens")(batch.token_ids_1N[0])
    features_KD = visual.features_KD.index_select(0, images.sources_K).to(embedded_ND.dtype)
    inputs: dict[str, Any] = {
        "inputs_embeds": embedded_ND.index_copy(0, images.places_K, features_KD)[None],
        "position_ids": batch.rotary_3N[:, None],
    }
    if visual.deepstack:
        seen_1N = torch.zeros_like(batch.token_ids_1N, dtype=torch.bool)
        seen_1N[0, images.places_K] = True
        inputs["visual_pos_masks"] = seen_1N
        inputs["deepstack_visual_embeds"] = [each.index_select(0, images.sources_K) for each in visual.deepstack]
    return inputs


def _features(model: PreTrainedModel, images: PackedImages, processor: ImageProcessor) -> VisualFeatures:
    trained = any(parameter.requires_grad for parameter in vision_tower(model).parameters())
    with torch.set_grad_enabled(trained and torch.is_grad_enabled()):
        visual = visual_features(model, images.encoded, processor)
    for found, wanted in zip(visual.grids, images.grids, strict=True):
        if found != wanted:
            raise DataError(
                "an image must have the visual tokens that its sequence states",
                found=f"{found[0]} x {found[1]} tokens instead of {wanted[0]} x {wanted[1]}",
                where="the image processor of the model",
                fix="use a model folder whose processor and chat format belong together",
            )
    return visual
