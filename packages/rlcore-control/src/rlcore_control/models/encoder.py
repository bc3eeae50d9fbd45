"""Features of an observation: tokens of the state, the instruction and the pictures, read by a transformer.

Axes: B batch, T tokens, D features, L words, C channels, Y and X rows and columns.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rlcore_control.models.action_model import Observation
from rlcore_control.models.config import TinyVLAConfig
from rlcore_control.models.instructions import PADDING
from rlcore_control.models.normalisation import Normalisation
from rlcore_control.models.spaces import IMAGES, Spaces


class Encoder(nn.Module):
    """Maps an observation to features [B, D].

    The tokens are a learned one, whose final value is the result, one of the state, one for each picture and each of
    its 4 x 4 to 64 x 64 regions, and one for each word. Without layers, all tokens but those of regions are added.
    """

    def __init__(self, spaces: Spaces, config: TinyVLAConfig) -> None:
        super().__init__()
        width = config.width
        self.cameras = sorted(spaces.cameras)
        self.summary = nn.Parameter(torch.randn(width) * 0.02)
        self.state = _mlp(spaces.state, width, width) if spaces.state else None
        self.images = nn.ModuleDict({_module_name(name): ImageEncoder(config) for name in self.cameras})
        self.words: nn.Embedding | None = None
        if config.instruction_length:
            self.words = nn.Embedding(config.vocabulary, width)
            self.order_LD = nn.Parameter(torch.randn(config.instruction_length, width) * 0.02)
            nn.init.normal_(self.words.weight, std=0.2)
        self.blocks = nn.ModuleList(Block(width, config.heads) for _ in range(config.layers))
        self.fuse = _mlp(width, 2 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, observation: Observation, normalisation: Normalisation) -> Tensor:
        """Return features [B, D]."""
        wholes_BTD: list[Tensor] = []
        parts_BTD: list[Tensor] = []
        if self.state is not None:
            wholes_BTD.append(self.state(normalisation.state(observation["state"]))[:, None])
        for camera in self.cameras:
            whole_BD, regions_BTD = self.images[_module_name(camera)](observation[IMAGES + camera])
            wholes_BTD.append(whole_BD[:, None])
            parts_BTD.append(regions_BTD)
        words_BL = observation["instruction"] if self.words is not None else None
        if self.words is not None and words_BL is not None:
            words_BLD = self.words(words_BL) + self.order_LD
        if not self.blocks:
            total_BD = torch.cat(wholes_BTD, 1).sum(1)
            if words_BL is not None:
                total_BD = total_BD + (words_BLD * (words_BL != PADDING)[..., None]).sum(1)
            return self._finish(total_BD)
        batch = len(wholes_BTD[0])
        tokens_BTD = torch.cat([self.summary.expand(batch, 1, -1), *wholes_BTD, *parts_BTD], 1)
        mask_B11T = None
        if words_BL is not None:
            seen_BT = torch.ones(tokens_BTD.shape[:2], dtype=torch.bool, device=tokens_BTD.device)
            mask_B11T = torch.cat([seen_BT, words_BL != PADDING], 1)[:, None, None]
            tokens_BTD = torch.cat([tokens_BTD, words_BLD], 1)
        for block in self.blocks[:-1]:
            tokens_BTD = block(tokens_BTD, tokens_BTD, mask_B11T)
        # Only the summary is read, so the last block computes nothing else.
        summary_B1D = self.blocks[-1](tokens_BTD[:, :1], tokens_BTD, mask_B11T)
        return self._finish(summary_B1D[:, 0])

    def _finish(self, features_BD: Tensor) -> Tensor:
        finished_BD: Tensor = self.norm(features_BD + self.fuse(features_BD))
        return finished_BD


class Block(nn.Module):
    """Attention and a feed-forward layer, each after a normalisation."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.query, self.key_value, self.output = (nn.Linear(width, n * width) for n in (1, 2, 1))
        self.feed_norm = nn.LayerNorm(width)
        self.feed = _mlp(width, 2 * width, width)

    def forward(self, tokens_BQD: Tensor, context_BTD: Tensor, mask_B11T: Tensor | None) -> Tensor:
        """Return the tokens after they have read the context."""
        normed_BTD = self.norm(context_BTD)
        query_BQD = self.query(normed_BTD[:, : tokens_BQD.shape[1]])
        key_BTD, value_BTD = self.key_value(normed_BTD).chunk(2, 2)
        query, key, value = (
            one.unflatten(2, (self.heads, -1)).transpose(1, 2) for one in (query_BQD, key_BTD, value_BTD)
        )
        read = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask_B11T)
        tokens_BQD = tokens_BQD + self.output(read.transpose(1, 2).flatten(2))
        result_BQD: Tensor = tokens_BQD + self.feed(self.feed_norm(tokens_BQD))
        return result_BQD


class ImageEncoder(nn.Module):
    """Convolutions that reduce a picture 16 times, with one token for each region and one for the whole."""

    def __init__(self, config: TinyVLAConfig) -> None:
        super().__init__()
        self.size = config.image_size
        few, many = config.image_channels, 2 * config.image_channels
        self.layers = nn.Sequential(
            nn.Conv2d(3, few, 4, stride=4),
            nn.SiLU(),
            nn.Conv2d(few, many, 3, stride=2, padding=1),
            nn.SiLU(),
            nn.Conv2d(many, many, 3, stride=2, padding=1),
            nn.SiLU(),
        )
        regions = (config.image_size // 16) ** 2
        self.whole = nn.Linear(regions * many, config.width)
        self.region = nn.Linear(many, config.width)
        self.place_TD = nn.Parameter(torch.randn(regions, config.width) * 0.02)

    def forward(self, image_BYXC: Tensor) -> tuple[Tensor, Tensor]:
        """Return features of the picture [B, D] and of its regions [B, T, D]. Pictures are uint8."""
        image_BCYX = image_BYXC.permute(0, 3, 1, 2).float().mul_(1 / 127.5).sub_(1)
        if image_BCYX.shape[2:] != (self.size, self.size):
            image_BCYX = nn.functional.interpolate(image_BCYX, (self.size, self.size), mode="area")
        found_BCYX = self.layers(image_BCYX)
        regions_BTD = self.region(found_BCYX.flatten(2).transpose(1, 2)) + self.place_TD
        return self.whole(found_BCYX.flatten(1)), regions_BTD


def _mlp(inputs: int, width: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, width), nn.SiLU(), nn.Linear(width, outputs))


def _module_name(camera: str) -> str:
    """The name of a module, which must not have a dot."""
    return "camera_" + camera.replace(".", "_")
