"""The network of pi0 (Black et al., arXiv:2410.24164), which transformers computes.

Axes: B batch, N cameras, C colours, Y and X rows and columns, L tokens of the prompt, P tokens of pictures and prompt,
S padded values of the state, H actions of a predicted chunk, A padded values of an action, D features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rl_plugin_lerobot.flow.network import DoubleTime, FlowNetwork, letterboxed
from rl_plugin_lerobot.flow.prompt import PADDING


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """An observation, as far as it is computed once for all steps of a decision."""

    cache: Any
    """Keys and values of pictures and prompt."""
    mask_BP: Tensor
    """1 for the tokens of pictures and prompt that are read, and 0 for padding."""
    state_BS: Tensor


class Pi0Network(FlowNetwork):
    """The velocity field of pi0.

    Args:
        pi0: a ``PI0ForConditionalGeneration`` of transformers
        double_time: whether the time is described in float64; see `DoubleTime`
    """

    def __init__(self, pi0: Any, *, double_time: bool) -> None:
        config = pi0.config
        width = int(config.dit_config.hidden_size)
        super().__init__(width=width, chunk=int(config.chunk_size), actions=int(config.max_action_dim))
        self.pi0 = pi0
        if double_time:
            pi0.embed_action_time.sinusoid_embeds = DoubleTime(width // 2, config.min_period, config.max_period)
        self.pi0.model.dit.embed_tokens = None  # the expert reads no text
        vision = config.vlm_config.vision_config
        self.tokens_of_picture = (vision.image_size // vision.patch_size) ** 2
        self.image_size = int(vision.image_size)

    def picture(self, image_BCYX: Tensor) -> Tensor:
        """See `FlowNetwork.picture`. Black bars are added on both sides."""
        return letterboxed(image_BCYX, self.image_size)

    def weights(self) -> Mapping[str, Tensor]:
        """See `FlowNetwork.weights`."""
        weights: Mapping[str, Tensor] = self.pi0.state_dict()
        return weights

    def look(self, images_BCYX: Sequence[Tensor], prompt_BL: Tensor, state_BS: Tensor) -> Seen:
        """See `FlowNetwork.look`."""
        model, batch = self.pi0.model, len(prompt_BL)
        pictures = self.tokens_of_picture * len(images_BCYX)
        image_token = self.pi0.config.vlm_config.image_token_id
        tokens_BP = torch.cat([prompt_BL.new_full((batch, pictures), image_token), prompt_BL.clamp(min=0)], 1)
        mask_BP = torch.cat([prompt_BL.new_ones(batch, pictures), (prompt_BL != PADDING).long()], 1)
        images_BNCYX = torch.stack(list(images_BCYX), 1)
        given_BN = torch.ones(images_BNCYX.shape[:2], dtype=torch.bool, device=images_BNCYX.device)
        embedded_BPD = model.embed_prefix(tokens_BP, images_BNCYX, given_BN)
        cache = model.vlm(
            inputs_embeds=embedded_BPD,
            attention_mask=mask_BP,
            position_ids=mask_BP.cumsum(1) - 1,
            token_type_ids=torch.zeros_like(tokens_BP),  # all tokens read each other
            use_cache=True,
        ).past_key_values
        return Seen(cache=cache, mask_BP=mask_BP, state_BS=state_BS)

    def velocity(self, seen: Seen, x_BHA: Tensor, time_B: Tensor) -> tuple[Tensor, Tensor]:
        """See `FlowNetwork.velocity`."""
        embedded = self.pi0.embed_action_time(seen.state_BS, x_BHA, time_B)
        hidden: Tensor = self.pi0.model(
            action_embeds=embedded, attention_mask=seen.mask_BP, past_key_values=seen.cache
        ).last_hidden_state
        seen.cache.crop(-embedded.shape[1])  # the next step does not read this one
        return -self.pi0.action_out_proj(hidden[:, -self.chunk :]), hidden[:, 0]
