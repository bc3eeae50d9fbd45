"""Pictures as patches: tokens of a codebook, or coordinates in a basis.

Axes: N pictures, h and w the patches of a column and a row, P the values of a patch, K codes or coordinates.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from rl_plugin_world_model.config import NetworkConfig

ITERATIONS = 10
"""Iterations of k-means."""


def scaled(pictures: Tensor) -> Tensor:
    """Return uint8 pictures ``[..., height, width, 3]`` as float32 ``[..., 3, height, width]`` between -1 and 1."""
    return pictures.movedim(-1, -3).float() / 127.5 - 1


class PatchCode(nn.Module):
    """Encodes the patches of pictures. `fit` chooses the code once, and training does not change it."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.tokens, self.patch, self.codes = config.prediction == "tokens", config.patch, config.codes
        width = 3 * config.patch**2
        if not self.tokens and self.codes > width:
            raise ValueError(f"a patch has {width} values, so codes must be at most {width}")
        self.table_KP: Tensor
        self.mean_P: Tensor
        self.marginal_hwK: Tensor
        self.register_buffer("table_KP", torch.zeros(config.codes, width))
        self.register_buffer("mean_P", torch.zeros(width))
        self.register_buffer("marginal_hwK", torch.zeros(0))
        self.register_buffer("kept", torch.zeros(()))

    @property
    def fitted(self) -> bool:
        """Whether `fit` was called, or a fitted code was loaded."""
        return self.marginal_hwK.numel() > 0

    def patches(self, pictures_NHWC: Tensor) -> Tensor:
        """Return the patches ``[N, h, w, P]`` of uint8 pictures."""
        x = scaled(pictures_NHWC).unfold(2, self.patch, self.patch).unfold(3, self.patch, self.patch)
        return x.permute(0, 2, 3, 1, 4, 5).flatten(3)

    def fit(self, pictures_NHWC: Tensor, pairs: tuple[Tensor, Tensor], *, seed: int) -> None:
        """Choose the code from pictures, and measure the baselines of predictions on them.

        Args:
            pictures_NHWC: uint8 pictures of training episodes
            pairs: pictures of training episodes, and those one step later
            seed: of the initial codebook
        """
        patches = self.patches(pictures_NHWC)
        flat = patches.flatten(0, 2)
        self.mean_P = flat.mean(0)
        generator = torch.Generator().manual_seed(seed)
        if self.tokens:
            chosen = flat[torch.randint(len(flat), (20_000,), generator=generator)]
            self.table_KP = _kmeans(chosen, self.codes, generator)
        else:
            self.table_KP = torch.linalg.eigh(_covariance(flat - self.mean_P)).eigenvectors.flip(1).T[: self.codes]
        before, after = self.encode(pairs[0]), self.encode(pairs[1])
        if self.tokens:
            counts = one_hot(after, self.codes).float().sum(0) + 1 / self.codes
            self.marginal_hwK = counts / counts.sum(-1, keepdim=True)
            self.kept = ((before == after).float().mean()).clamp(0.01, 0.99)
        else:
            self.marginal_hwK = after.mean(0)

    def resize(self, state: dict[str, Any], prefix: str) -> None:
        """Make room for the marginals of a state dict, whose size depends on the pictures."""
        self.marginal_hwK = torch.zeros_like(state[f"{prefix}marginal_hwK"])

    def encode(self, pictures_NHWC: Tensor) -> Tensor:
        """Return tokens ``[N, h, w]`` (int64) or coordinates ``[N, h, w, K]`` of uint8 pictures."""
        patches = self.patches(pictures_NHWC)
        if not self.tokens:
            return (patches - self.mean_P) @ self.table_KP.T
        distances = (self.table_KP**2).sum(-1) - 2 * patches @ self.table_KP.T
        return distances.argmin(-1)

    def decode(self, predicted_NhwK: Tensor) -> Tensor:
        """Return the most likely uint8 pictures ``[N, height, width, 3]``."""
        if self.tokens:
            patches = self.table_KP[predicted_NhwK.argmax(-1)]
        else:
            patches = predicted_NhwK @ self.table_KP + self.mean_P
        count, h, w, _ = patches.shape
        x = patches.view(count, h, w, 3, self.patch, self.patch).permute(0, 1, 4, 2, 5, 3)
        pictures = x.reshape(count, h * self.patch, w * self.patch, 3)
        return ((pictures + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)

    def inputs(self, code: Tensor) -> Tensor:
        """Return a code as float ``[N, K, h, w]``, one-hot for tokens."""
        values = one_hot(code, self.codes).float() if self.tokens else code
        return values.movedim(-1, 1)

    def error(self, predicted_NhwK: Tensor, code: Tensor) -> Tensor:
        """Return the mean error of each picture, ``error_N``: nats per patch, or squared error per coordinate."""
        if self.tokens:
            found = cross_entropy(predicted_NhwK.flatten(0, 2), code.flatten(), reduction="none")
            return found.view(len(code), -1).mean(1)
        return ((predicted_NhwK - code) ** 2).flatten(1).mean(1)

    def uncertainty(self, predicted_NhwK: Tensor) -> Tensor:
        """Return the mean entropy of the predicted tokens, ``entropy_N`` in nats; 0 for coordinates."""
        if not self.tokens:
            return predicted_NhwK.new_zeros(len(predicted_NhwK))
        logprobs = predicted_NhwK.log_softmax(-1)
        return -(logprobs.exp() * logprobs).sum(-1).flatten(1).mean(1)

    def right(self, predicted_NhwK: Tensor, code: Tensor) -> Tensor:
        """Return the share of right tokens of each picture; 0 for coordinates."""
        if not self.tokens:
            return predicted_NhwK.new_zeros(len(code))
        return (predicted_NhwK.argmax(-1) == code).float().flatten(1).mean(1)

    def copied(self, code: Tensor) -> Tensor:
        """Return the prediction ``[N, h, w, K]`` that the last frame stays.

        For tokens, these are logarithms of probabilities: a patch keeps its token as often as in the training data,
        and otherwise has one of the frequencies of its position.
        """
        if not self.tokens:
            return code
        return (self.kept * one_hot(code, self.codes) + (1 - self.kept) * self.marginal_hwK).log()

    def copy_error(self, before: Tensor, after: Tensor) -> Tensor:
        """Return `error` of `copied`."""
        return self.error(self.copied(before), after)

    def marginal_error(self, after: Tensor) -> Tensor:
        """Return `error` of predicting the frequencies, or the mean, of each position in the training data."""
        if self.tokens:
            return -self._marginal(after).log().flatten(1).mean(1)
        return ((self.marginal_hwK - after) ** 2).flatten(1).mean(1)

    def _marginal(self, code: Tensor) -> Tensor:
        return self.marginal_hwK.expand(len(code), -1, -1, -1).gather(-1, code[..., None])[..., 0]


def _covariance(flat: Tensor) -> Tensor:
    return flat.T @ flat / len(flat)


def _kmeans(points: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return ``count`` centres. The first ones are drawn far from each other (k-means++)."""
    centres = points[torch.randint(len(points), (1,), generator=generator)]
    nearest = ((points - centres) ** 2).sum(-1)
    for _ in range(count - 1):
        weights = nearest + 1e-9
        drawn = int(torch.searchsorted(weights.cumsum(0), weights.sum() * torch.rand((), generator=generator)))
        new = points[min(drawn, len(points) - 1)][None]
        centres = torch.cat([centres, new])
        nearest = torch.minimum(nearest, ((points - new) ** 2).sum(-1))
    for _ in range(ITERATIONS):
        owner = ((centres**2).sum(-1) - 2 * points @ centres.T).argmin(-1)
        sums = torch.zeros_like(centres).index_add_(0, owner, points)
        sizes = torch.bincount(owner, minlength=count)
        centres = torch.where(sizes[:, None] > 0, sums / sizes.clamp(min=1)[:, None], centres)
    return centres
