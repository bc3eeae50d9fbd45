"""The config adapter of verl and of its fork for agents (``agent.…``).

Keys that are not given keep the values of the recipe. verl's defaults are used only where a given key depends on them.
"""

from __future__ import annotations

from rlcore_compat.verl_actor import THE_UPDATES
from rlcore_compat.verl_algorithm import ALGORITHM
from rlcore_compat.verl_data import DATA
from rlcore_compat.verl_lengths import LENGTHS
from rlcore_compat.verl_model import THE_MODEL
from rlcore_compat.verl_rollout import THE_ROLLOUT
from rlcore_compat.verl_trainer import THE_TRAINER
from rlcore_compat.vocabulary import Vocabulary

VERL = Vocabulary(
    name="verl",
    tables=frozenset(
        {"actor_rollout_ref", "agent", "custom_reward_function", "distillation", "global_profiler", "reward_model"}
    ),
    meanings={**ALGORITHM, **DATA, **LENGTHS, **THE_MODEL, **THE_UPDATES, **THE_ROLLOUT, **THE_TRAINER},
)

__all__ = ["VERL"]
