"""The parts of a run's configuration that an engine receives in addition to its options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlcore.images import ImageProcessor

CHECK_SESSION = "sampler"
"""The session of the completions that check a transfer of weights. The run waits for them, so they precede all calls
that wait in an engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineContext:
    """The parts of a run's configuration that every engine reads."""

    seed: int = 0
    """Random seed of the run."""
    max_context_tokens: int | None = None
    """Maximum number of tokens that the model sees at once; None uses the model's limit."""
    device: str = "auto"
    """``auto``, ``cpu``, ``cuda`` or ``cuda:N``; streamed weights keep their device."""
    quantization: str = "none"
    """``model.quantization`` of the base of an adapter, also if its weights are streamed."""
    timeout_s: float = 600.0
    """Timeout of one generation in seconds, including waiting time."""
    dtype: str = "auto"
    """``auto`` is float32 on a CPU and bfloat16 on a GPU; streamed weights keep their dtype."""
    sampled_during_updates: bool = False
    """Whether the engine samples while the trainer updates the policy, so that it needs its own copy of the weights."""
    images: ImageProcessor | None = None
    """The processor that fitted the images of all prompts; None uses that of the model's folder."""
