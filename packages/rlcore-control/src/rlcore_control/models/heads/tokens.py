"""The head ``tokens``: each value of a chunk is one of several equal bins, all predicted at once."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rlcore_control.models.action_model import NoiseShapes
from rlcore_control.models.config import TokensConfig
from rlcore_control.models.heads.head import Head


class TokensHead(Head):
    """Categorical distributions over K bins of the range -1 to 1. An action is the centre of its bin.

    Bins and parallel prediction are those of OpenVLA-OFT (arXiv:2502.19645, section 4.1). The choice is the token ids.
    """

    def __init__(self, features: int, chunk: int, actions: int, config: TokensConfig) -> None:
        super().__init__()
        self.shape = (chunk, actions)
        self.bins = config.bins
        self.logits = nn.Linear(features, chunk * actions * config.bins)
        with torch.no_grad():
            self.logits.weight.mul_(0.1)
            self.logits.bias.zero_()

    def noise_shapes(self) -> NoiseShapes:
        """See `Head.noise_shapes`."""
        return {"action": (self.shape, "uniform")}

    def sample(self, features_BD: Tensor, noise: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
        """See `Head.sample`."""
        logprobs_BHAK = self._logprobs(features_BD)
        cumulative_BHAK = logprobs_BHAK.exp().cumsum(3)
        # The last bin also covers what rounding leaves below 1.
        tokens_BHA1 = torch.searchsorted(cumulative_BHAK, noise["action"][..., None].contiguous(), right=True)
        tokens_BHA1 = tokens_BHA1.clamp(max=self.bins - 1)
        return {"tokens": tokens_BHA1.squeeze(3)}, logprobs_BHAK.gather(3, tokens_BHA1).flatten(1).sum(1)

    def action(self, choice: Mapping[str, Tensor]) -> Tensor:
        """See `Head.action`."""
        return (choice["tokens"].float() + 0.5) * (2 / self.bins) - 1

    def mode(self, features_BD: Tensor) -> Tensor:
        """See `Head.mode`."""
        return self.action({"tokens": self._logprobs(features_BD).argmax(3)})

    def log_prob(self, features_BD: Tensor, choice: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """See `Head.log_prob`."""
        logprobs_BHAK = self._logprobs(features_BD)
        chosen_BHA = logprobs_BHAK.gather(3, choice["tokens"].long()[..., None]).squeeze(3)
        entropy_BHA = -(logprobs_BHAK.exp() * logprobs_BHAK).sum(3)
        return chosen_BHA.flatten(1).sum(1), entropy_BHA.flatten(1).sum(1)

    def cloning_loss(self, features_BD: Tensor, action_BHA: Tensor, noise: Mapping[str, Tensor]) -> Tensor:
        """See `Head.cloning_loss`."""
        tokens_BHA = ((action_BHA + 1) * (self.bins / 2)).floor().long().clamp(0, self.bins - 1)
        logprobs_BHAK = self._logprobs(features_BD)
        return -logprobs_BHAK.gather(3, tokens_BHA[..., None]).squeeze(3).mean(2)

    def _logprobs(self, features_BD: Tensor) -> Tensor:
        logits_BHAK: Tensor = self.logits(features_BD)
        return logits_BHAK.reshape(-1, *self.shape, self.bins).log_softmax(3)
