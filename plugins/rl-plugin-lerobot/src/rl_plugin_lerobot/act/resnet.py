"""ResNet-18 and ResNet-34 (He et al., arXiv:1512.03385) up to their last feature map, with torchvision's names."""

from __future__ import annotations

import torch
from torch import Tensor, nn

BLOCKS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3)}
"""Number of blocks of the four stages."""
CHANNELS = 512
"""Channels of the last feature map."""


class FrozenNorm(nn.Module):
    """A batch normalisation whose statistics and weights are constant."""

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        for name, value in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            self.register_buffer(name, torch.full((channels,), value))

    def forward(self, value_BCYX: Tensor) -> Tensor:
        """Return normalised channels."""
        scale_C = self.weight * (self.running_var + 1e-5).rsqrt()
        shift_C = self.bias - self.running_mean * scale_C
        return value_BCYX * scale_C[:, None, None] + shift_C[:, None, None]


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = FrozenNorm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = FrozenNorm(outputs)
        self.downsample: nn.Sequential | None = None
        if stride > 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), FrozenNorm(outputs))

    def forward(self, value_BCYX: Tensor) -> Tensor:
        """Return the next feature map."""
        short_BCYX = value_BCYX if self.downsample is None else self.downsample(value_BCYX)
        hidden_BCYX = self.bn1(self.conv1(value_BCYX)).relu()
        result_BCYX: Tensor = (self.bn2(self.conv2(hidden_BCYX)) + short_BCYX).relu()
        return result_BCYX


class ResNet(nn.Module):
    """Maps pictures [B, 3, Y, X] to features [B, 512, Y / 32, X / 32]."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = FrozenNorm(64)
        self.pool = nn.MaxPool2d(3, 2, 1)
        inputs = 64
        for stage, blocks in enumerate(BLOCKS[name]):
            outputs = 64 * 2**stage
            first = Block(inputs, outputs, 1 if stage == 0 else 2)
            rest = [Block(outputs, outputs, 1) for _ in range(blocks - 1)]
            setattr(self, f"layer{stage + 1}", nn.Sequential(first, *rest))
            inputs = outputs

    def forward(self, image_BCYX: Tensor) -> Tensor:
        """Return the last feature map."""
        value_BCYX = self.pool(self.bn1(self.conv1(image_BCYX)).relu())
        for stage in range(4):
            value_BCYX = getattr(self, f"layer{stage + 1}")(value_BCYX)
        result_BCYX: Tensor = value_BCYX
        return result_BCYX
