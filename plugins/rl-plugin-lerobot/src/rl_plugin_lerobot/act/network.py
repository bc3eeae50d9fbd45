"""The Action Chunking Transformer (ACT; Zhao et al., arXiv:2304.13705) with LeRobot's names of weights.

This is the part that acts: the encoder of the variational objective is not computed, and its latent is zero. Axes: T
tokens, B batch, D width, H actions in a chunk, A values of an action.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from rl_plugin_lerobot.act.resnet import CHANNELS, ResNet

Size = Annotated[int, Field(ge=1, le=2**16)]
Layers = Annotated[int, Field(ge=1, le=1000)]


class ActConfig(BaseModel):
    """The keys of ``config.json`` that change what is computed."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)

    chunk_size: Size = 100
    n_action_steps: Size = 100
    dim_model: Annotated[int, Field(ge=4, le=2**16, multiple_of=4)] = 512
    n_heads: Size = 8
    dim_feedforward: Size = 3200
    n_encoder_layers: Layers = 4
    n_decoder_layers: Layers = 1
    latent_dim: Size = 32
    pre_norm: bool = False
    feedforward_activation: str = "relu"
    vision_backbone: str = "resnet18"
    replace_final_stride_with_dilation: bool = False
    n_obs_steps: int = 1
    temporal_ensemble_coeff: float | None = None
    dropout: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Not used: rlcore trains without dropout."""


class Layer(nn.Module):
    """Self-attention, attention to a memory in the decoder, and a feed-forward layer.

    Positions are added to queries and keys. Normalisation is after each part, or before it with ``pre_norm``.
    """

    def __init__(self, config: ActConfig, *, decoder: bool) -> None:
        super().__init__()
        width = config.dim_model
        self.self_attn = nn.MultiheadAttention(width, config.n_heads)
        if decoder:
            self.multihead_attn = nn.MultiheadAttention(width, config.n_heads)
        self.linear1 = nn.Linear(width, config.dim_feedforward)
        self.linear2 = nn.Linear(config.dim_feedforward, width)
        for number in range(3 if decoder else 2):
            setattr(self, f"norm{number + 1}", nn.LayerNorm(width))
        self.first = config.pre_norm
        self.activation = nn.GELU() if config.feedforward_activation == "gelu" else nn.ReLU()

    def forward(
        self, x_TBD: Tensor, place_T1D: Tensor, memory_TBD: Tensor | None = None, memory_place_T1D: Tensor | None = None
    ) -> Tensor:
        """Return the tokens after this layer."""

        def attend(one: Tensor) -> Tensor:
            placed = one + place_T1D
            read: Tensor = self.self_attn(placed, placed, one, need_weights=False)[0]
            return read

        def look(one: Tensor) -> Tensor:
            assert memory_TBD is not None
            assert memory_place_T1D is not None
            read: Tensor = self.multihead_attn(
                one + place_T1D, memory_TBD + memory_place_T1D, memory_TBD, need_weights=False
            )[0]
            return read

        def feed(one: Tensor) -> Tensor:
            fed: Tensor = self.linear2(self.activation(self.linear1(one)))
            return fed

        parts: list[Callable[[Tensor], Tensor]] = [attend, feed] if memory_TBD is None else [attend, look, feed]
        for number, part in enumerate(parts):
            norm = getattr(self, f"norm{number + 1}")
            x_TBD = x_TBD + part(norm(x_TBD)) if self.first else norm(x_TBD + part(x_TBD))
        return x_TBD


class Stack(nn.Module):
    """The layers of the encoder or decoder."""

    def __init__(self, config: ActConfig, *, decoder: bool) -> None:
        super().__init__()
        count = config.n_decoder_layers if decoder else config.n_encoder_layers
        self.layers = nn.ModuleList(Layer(config, decoder=decoder) for _ in range(count))
        self.norm = nn.LayerNorm(config.dim_model) if decoder or config.pre_norm else nn.Identity()

    def forward(self, x_TBD: Tensor, *others: Tensor) -> Tensor:
        """Return the tokens after all layers."""
        for layer in self.layers:
            x_TBD = layer(x_TBD, *others)
        result_TBD: Tensor = self.norm(x_TBD)
        return result_TBD


class Act(nn.Module):
    """Maps normalised pictures and states to normalised chunks of actions.

    Args:
        config: the sizes
        state: values of the robot's state, or 0
        environment_state: values of the environment's state, or 0
        pictures: whether there are pictures
        actions: values of an action
    """

    def __init__(self, config: ActConfig, state: int, environment_state: int, *, pictures: bool, actions: int) -> None:
        super().__init__()
        width = config.dim_model
        self.latent = config.latent_dim
        self.encoder, self.decoder = Stack(config, decoder=False), Stack(config, decoder=True)
        self.encoder_latent_input_proj = nn.Linear(config.latent_dim, width)
        if state:
            self.encoder_robot_state_input_proj = nn.Linear(state, width)
        if environment_state:
            self.encoder_env_state_input_proj = nn.Linear(environment_state, width)
        if pictures:
            self.backbone = ResNet(config.vision_backbone)
            self.encoder_img_feat_input_proj = nn.Conv2d(CHANNELS, width, 1)
        self.encoder_1d_feature_pos_embed = nn.Embedding(1 + bool(state) + bool(environment_state), width)
        self.decoder_pos_embed = nn.Embedding(config.chunk_size, width)
        self.action_head = nn.Linear(width, actions)

    def forward(
        self, state_BS: Tensor | None, environment_BE: Tensor | None, images_BCYX: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return actions [B, H, A] and the mean of the decoder's tokens [B, D]."""
        given = [one for one in (state_BS, environment_BE, *images_BCYX) if one is not None]
        latent_BZ = given[0].new_zeros(len(given[0]), self.latent)
        tokens = [self.encoder_latent_input_proj(latent_BZ)[None]]
        if state_BS is not None:
            tokens.append(self.encoder_robot_state_input_proj(state_BS)[None])
        if environment_BE is not None:
            tokens.append(self.encoder_env_state_input_proj(environment_BE)[None])
        places = [self.encoder_1d_feature_pos_embed.weight[:, None]]
        for image_BCYX in images_BCYX:
            seen_BDYX = self.encoder_img_feat_input_proj(self.backbone(image_BCYX))
            tokens.append(seen_BDYX.flatten(2).permute(2, 0, 1))
            places.append(_places(seen_BDYX)[:, None])
        place_T1D = torch.cat(places)
        memory_TBD = self.encoder(torch.cat(tokens), place_T1D)
        query_H1D = self.decoder_pos_embed.weight[:, None]
        start_HBD = query_H1D.new_zeros(len(query_H1D), len(latent_BZ), query_H1D.shape[2])
        decoded_HBD = self.decoder(start_HBD, query_H1D, memory_TBD, place_T1D)
        return self.action_head(decoded_HBD).transpose(0, 1), decoded_HBD.mean(0)


def _places(seen_BDYX: Tensor) -> Tensor:
    """Sines and cosines of rows and columns [Y * X, D], each from just above 0 to 2 pi (Carion et al., DETR)."""
    _, width, rows, columns = seen_BDYX.shape
    half = width // 2
    order = torch.arange(half, device=seen_BDYX.device, dtype=torch.float32)
    period = 10_000.0 ** (2 * (order // 2) / half)

    def waves(count: int) -> Tensor:
        turn = torch.arange(1, count + 1, device=seen_BDYX.device, dtype=torch.float32) / (count + 1e-6) * (2 * math.pi)
        angle = turn[:, None] / period
        return torch.stack([angle[:, 0::2].sin(), angle[:, 1::2].cos()], 2).flatten(1)

    down, across = waves(rows)[:, None].expand(-1, columns, -1), waves(columns)[None].expand(rows, -1, -1)
    return torch.cat([down, across], 2).flatten(0, 1).to(seen_BDYX.dtype)
