"""The parts of a run's configuration that an engine receives in addition to its options."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineContext:
    """The parts of a run's configuration that every engine reads."""

    seed: int = 0
    """Of the run."""
    max_context_tokens: int | None = None
    """Maximum number of tokens that the model sees at once; None is the model's own limit."""
    device: str = "auto"
    """``auto``, ``cpu``, ``cuda`` or ``cuda:N``; a live module stays where it is."""
    quantization: str = "none"
    """``model.quantization``: how the base of an adapter is held; a live module stays as it is."""
    timeout_s: float = 600.0
    """Deadline of one generation in seconds, waiting included."""
    dtype: str = "auto"
    """``auto`` is float32 on a CPU and bfloat16 on a GPU; a live module stays as it is."""
