"""Losses of preferences: each line is a loss of TRL with its options, and the equivalent loss of rlcore.

The interpreter of TRL reads it, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

PAIRS, TOKENS = 5, 9
"""Pairs of a case, and the tokens of its longest answer."""
MODEL = {
    "vocab_size": 23,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
    "num_labels": 1,
    "pad_token_id": 1,
}
"""The tiny model of the steps."""
FLOAT32 = {"orpo": "TRL computes it in float32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One comparison."""

    id: str
    """The loss of rlcore."""
    theirs: dict[str, Any]
    ours: dict[str, Any] = field(default_factory=dict)
    label: str = ""
    referenced: bool = True
    """Whether the loss of rlcore gets the reference of the case; if not, 0."""

    @property
    def name(self) -> str:
        """The key of the stored tensors."""
        return f"{self.id}/{self.label}" if self.label else self.id


def _dpo(id: str, kind: str, label: str = "", beta: float = 0.3, **smoothing: float) -> Line:
    options = {"beta": beta, **smoothing}
    return Line(id=id, theirs={"loss_type": kind, **options}, ours=options, label=label)


def _cpo(id: str, kind: str, ours: dict[str, Any], *, averages: bool, label: str = "", **theirs: Any) -> Line:
    settings = {"trainer": "cpo", "loss_type": kind, "label_smoothing": 0.0, "averages": averages, **theirs}
    return Line(id=id, theirs=settings, ours=ours, label=label, referenced=False)


LINES = [
    _dpo("dpo", "sigmoid"),
    _dpo("robust-dpo", "robust", label_smoothing=0.2),
    _dpo("dpo-norm", "sigmoid_norm", beta=2.0),
    _dpo("ipo", "ipo"),
    _dpo("hinge", "hinge"),
    _dpo("sppo", "sppo_hard"),
    _dpo("apo-zero", "apo_zero"),
    _dpo("apo-down", "apo_down"),
    _cpo(
        "dpo",
        "sigmoid",
        {"beta": 0.3, "label_smoothing": 0.1},
        averages=False,
        label="smoothed",
        beta=0.3,
        label_smoothing=0.1,
    ),
    _cpo("cpo", "sigmoid", {"beta": 0.3}, averages=False, beta=0.3),
    _cpo("simpo", "simpo", {"beta": 2.0, "margin": 0.7}, averages=True, beta=2.0, simpo_gamma=0.7),
    Line(
        id="orpo",
        theirs={"trainer": "orpo", "averages": True, "beta": 0.3},
        ours={"beta": 0.3},
        referenced=False,
    ),
]


def step_batch() -> dict[str, Any]:
    """A batch of pairs for a step: ids padded with 1, masks, log-probabilities of the reference, and margins."""
    import torch

    generator = torch.Generator().manual_seed(11)
    prompts = [[3, 4, 5, 6], [7, 8], [3, 9, 10]]
    answers = [[[11, 12], [13, 14, 15]], [[16, 17, 18, 2], [19]], [[20], [21, 22, 2]]]
    rows = [(prompt, answer[side]) for side in (0, 1) for prompt, answer in zip(prompts, answers, strict=True)]
    width = max(len(prompt) + len(answer) for prompt, answer in rows)
    padded = [[*prompt, *answer, *[1] * (width - len(prompt) - len(answer))] for prompt, answer in rows]
    attention = [[int(t < len(prompt) + len(answer)) for t in range(width)] for prompt, answer in rows]
    completion = [[int(len(prompt) <= t < len(prompt) + len(answer)) for t in range(width)] for prompt, answer in rows]
    return {
        "ids": torch.tensor(padded),
        "attention": torch.tensor(attention),
        "completion": torch.tensor(completion),
        "reference": -3 - 4 * torch.rand(len(rows), generator=generator, dtype=torch.float64),
        "margin": torch.tensor([0.0, 0.5, 1.5], dtype=torch.float64),
    }
