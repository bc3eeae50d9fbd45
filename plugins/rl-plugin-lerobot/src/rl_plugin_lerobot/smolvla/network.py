"""The network of SmolVLA (Shukor et al., arXiv:2506.01844), of layers that transformers computes.

The vision-language model reads pictures, prompt and state. The action expert has a layer for each of its layers, or for
every few of them, and reads the keys and values of this layer. Axes: B batch, N cameras, C colours, Y and X rows and
columns, L tokens of the prompt, P tokens of pictures, prompt and state, S padded values of the state, H actions of a
predicted chunk, A padded values of an action, D features, Q queries, K keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rl_plugin_lerobot.flow.network import DoubleTime, FlowNetwork, letterboxed
from rl_plugin_lerobot.flow.prompt import PADDING
from rl_plugin_lerobot.smolvla.folder import Sizes, expert_config


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """An observation, as far as it is computed once for all steps of a decision."""

    cache: Any
    """Keys and values of pictures, prompt and state, for each layer."""
    mask_BP: Tensor
    """Whether a token is read; padding is not."""
    features_BD: Tensor


class CrossAttention(nn.Module):
    """Attention of the actions to a layer of the vision-language model, through projections of its keys and values.

    Args:
        attention: a ``LlamaAttention`` of the expert, whose other projections are used
        width: the number of values of the keys of all heads
    """

    def __init__(self, attention: Any, width: int) -> None:
        super().__init__()
        self.layer_idx, self.head_dim = attention.layer_idx, attention.head_dim
        self.q_proj, self.o_proj = attention.q_proj, attention.o_proj
        others = attention.k_proj, attention.v_proj
        self.k_proj, self.v_proj = (nn.Linear(width, one.out_features, bias=one.bias is not None) for one in others)

    def project(self, cache: Any) -> None:
        """Replace the keys and values of the vision-language model by those that the actions read."""
        layer = cache.layers[self.layer_idx]
        layer.keys = self._heads(self.k_proj(layer.keys.transpose(1, 2).flatten(2)))
        layer.values = self._heads(self.v_proj(layer.values.transpose(1, 2).flatten(2)))

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        attention_mask: Tensor,
        past_key_values: Any,
        **_: Any,
    ) -> tuple[Tensor, None]:
        """Return the same as ``LlamaAttention``."""
        from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

        query = self._heads(self.q_proj(hidden_states))
        query, _ = apply_rotary_pos_emb(query, query, *position_embeddings)
        layer = past_key_values.layers[self.layer_idx]
        read = nn.functional.scaled_dot_product_attention(
            query, layer.keys, layer.values, attn_mask=attention_mask, enable_gqa=True
        )
        mixed: Tensor = self.o_proj(read.transpose(1, 2).flatten(2))
        return mixed, None

    def _heads(self, values: Tensor) -> Tensor:
        return values.view(*values.shape[:2], -1, self.head_dim).transpose(1, 2)


class SmolVLANetwork(FlowNetwork):
    """The velocity field of SmolVLA.

    Args:
        config: a ``SmolVLMConfig`` of transformers
        sizes: the keys of the policy's configuration
        special: the tokens before and after a picture
    """

    def __init__(self, config: Any, sizes: Sizes, special: tuple[Sequence[int], Sequence[int]]) -> None:
        text, expert = config.text_config, expert_config(config, sizes)
        inner = expert.hidden_size
        super().__init__(width=text.hidden_size, chunk=sizes.chunk_size, actions=sizes.max_action_dim)
        self.image_size, self._special, self._empty = sizes.resize_imgs_with_padding[0], special, sizes.empty_cameras
        self.vlm, self.expert = _models(config, expert)
        every = text.num_hidden_layers // expert.num_hidden_layers
        for number, layer in enumerate(self.expert.layers):
            layer.self_attn.layer_idx = number * every
            if not sizes.reads_itself(number):
                layer.self_attn = CrossAttention(layer.self_attn, text.num_key_value_heads * text.head_dim)
        self.state_proj = nn.Linear(sizes.max_state_dim, text.hidden_size)
        self.action_in_proj = nn.Linear(self.actions, inner)
        self.action_out_proj = nn.Linear(inner, self.actions)
        self.action_time_mlp_in = nn.Linear(2 * inner, inner)
        self.action_time_mlp_out = nn.Linear(inner, inner)
        with torch.device("cpu"):  # these are not in files, so they have values even if the weights have none yet
            self.time = DoubleTime(inner // 2, sizes.min_period, sizes.max_period)
            for language in (self.vlm.text_model, self.expert):
                language.rotary_emb = type(language.rotary_emb)(text)
        self.vlm.vision_model.requires_grad_(not (sizes.freeze_vision_encoder or sizes.train_expert_only))
        for part in (self.vlm.connector, self.vlm.text_model):
            part.requires_grad_(not sizes.train_expert_only)
        self.state_proj.requires_grad_(sizes.train_state_proj)

    def picture(self, image_BCYX: Tensor) -> Tensor:
        """See `FlowNetwork.picture`. Black bars are added on the left and at the top."""
        return letterboxed(image_BCYX, self.image_size, corner=True)

    def weights(self) -> Mapping[str, Tensor]:
        """See `FlowNetwork.weights`."""
        return self.state_dict()

    def look(self, images_BCYX: Sequence[Tensor], prompt_BL: Tensor, state_BS: Tensor) -> Seen:
        """See `FlowNetwork.look`."""
        batch, scale = len(prompt_BL), self.width**0.5
        pictures_BPD = self.vlm.connector(self.vlm.vision_model(torch.cat(list(images_BCYX))).last_hidden_state) * scale
        before_BPD, after_BPD = (self._embedded(prompt_BL.new_tensor([one] * batch)) for one in self._special)
        parts = [part for one in pictures_BPD.split(batch) for part in (before_BPD, one, after_BPD)]
        parts += [before_BPD, after_BPD] * self._empty  # LeRobot masks the picture, and not these tokens
        pictures = sum(part.shape[1] for part in parts)
        parts += [self._embedded(prompt_BL.clamp(min=0)) * scale, self.state_proj(state_BS)[:, None]]
        mask_BP = nn.functional.pad(prompt_BL != PADDING, (pictures, 1), value=True)
        # Only the state reads the state.
        reads_BQK = mask_BP[:, None].repeat(1, mask_BP.shape[1], 1)
        reads_BQK[:, :-1, -1] = False
        seen = self.vlm.text_model(
            inputs_embeds=torch.cat(parts, 1),
            attention_mask=_additive(reads_BQK),
            position_ids=mask_BP.cumsum(1) - 1,
            use_cache=True,
        )
        for layer in self.expert.layers:
            if isinstance(layer.self_attn, CrossAttention):
                layer.self_attn.project(seen.past_key_values)
        return Seen(cache=seen.past_key_values, mask_BP=mask_BP, features_BD=seen.last_hidden_state[:, -1])

    def velocity(self, seen: Seen, x_BHA: Tensor, time_B: Tensor) -> tuple[Tensor, Tensor]:
        """See `FlowNetwork.velocity`."""
        placed_BHD = self.action_in_proj(x_BHA)
        time_BHD = self.time(time_B)[:, None].expand(-1, self.chunk, -1)
        both_BHD = self.action_time_mlp_in(torch.cat([placed_BHD, time_BHD], 2))
        hidden_BHD = self.action_time_mlp_out(nn.functional.silu(both_BHD))
        reads_BHK = seen.mask_BP[:, None].expand(-1, self.chunk, -1)
        earlier_BHK = reads_BHK.new_ones(len(x_BHA), self.chunk, self.chunk).tril()
        order_1H = torch.arange(self.chunk, device=x_BHA.device)[None]
        after_BH = seen.mask_BP.sum(1, keepdim=True) + order_1H
        itself = self.expert.rotary_emb(hidden_BHD, after_BH), _additive(torch.cat([reads_BHK, earlier_BHK], 2))
        across = self.expert.rotary_emb(hidden_BHD, order_1H), _additive(reads_BHK)
        for layer in self.expert.layers:
            crosses = isinstance(layer.self_attn, CrossAttention)
            place, mask = across if crosses else itself
            hidden_BHD = layer(hidden_BHD, attention_mask=mask, position_embeddings=place, past_key_values=seen.cache)
            if not crosses:
                seen.cache.layers[layer.self_attn.layer_idx].crop(-self.chunk)  # the next step does not read this one
        return -self.action_out_proj(self.expert.norm(hidden_BHD)), seen.features_BD

    def _embedded(self, tokens_BP: Tensor) -> Tensor:
        embedded_BPD: Tensor = self.vlm.get_input_embeddings()(tokens_BP.long())
        return embedded_BPD


def _models(config: Any, expert: Any) -> tuple[Any, Any]:
    """Return the vision-language model and the action expert, which reads no text."""
    from transformers import LlamaModel, SmolVLMModel

    models: tuple[Any, Any] = SmolVLMModel(config), LlamaModel(expert)
    models[1].embed_tokens = None
    return models


def _additive(reads_BQK: Tensor) -> Tensor:
    """Return what is added to the scores of each head: 0 where a query reads a key, and the lowest number elsewhere."""
    lowest = torch.finfo(torch.float32).min
    return torch.zeros(reads_BQK.shape, device=reads_BQK.device).masked_fill(~reads_BQK, lowest)[:, None]
