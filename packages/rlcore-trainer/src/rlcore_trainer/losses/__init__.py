"""What is minimised, as pure functions on flat token tensors.

A policy loss is found by its parameters: positional ones name what it is given of a micro-batch, keyword-only ones the
keys of ``[algorithm]`` that it reads.
"""

from rlcore_trainer.losses.aggregation import token_weights
from rlcore_trainer.losses.correction import correction
from rlcore_trainer.losses.divergence import ESTIMATORS, kl, next_coefficient
from rlcore_trainer.losses.shaping import overlong_penalty
from rlcore_trainer.losses.surrogates import cispo, clip, entropy_bonus, gspo, gspo_token, sapo
from rlcore_trainer.losses.values import value_loss

__all__ = [
    "ESTIMATORS",
    "cispo",
    "clip",
    "correction",
    "entropy_bonus",
    "gspo",
    "gspo_token",
    "kl",
    "next_coefficient",
    "overlong_penalty",
    "sapo",
    "token_weights",
    "value_loss",
]
