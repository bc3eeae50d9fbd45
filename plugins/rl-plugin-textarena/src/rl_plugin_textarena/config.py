"""Configuration: ``[environment]`` and ``[data]``."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from rlcore.config.schema import LARGEST, Table

RANDOM, SELF = "random", "self"


class EnvironmentConfig(Table):
    """``[environment]``: the limit of an episode."""

    max_turns: Annotated[int, Field(ge=1, le=LARGEST)] = 50
    """Maximum number of model turns of each player. Most games also have a limit."""


class DataConfig(Table):
    """``[data]``: a game, its opponent and its seeds."""

    game: str = "TicTacToe-v0-train"
    """Id for ``textarena.make``. With the suffix ``-train``, each turn shows the state of the game in a new
    conversation; without it, a conversation has the whole game."""
    arguments: dict[str, Any] | None = None
    """Arguments of the game, such as ``{ max_turns = 3 }``; None removes those of a recipe."""
    rules: str | None = None
    """Text instead of the rules with which the game begins; empty for none, and None keeps them."""
    opponent: Annotated[str, Field(min_length=1)] = RANDOM
    """The other player of a game for two: ``random`` is a script that makes random legal moves; ``self`` is the policy,
    which learns from both sides; otherwise the folder of a model, or a run or checkpoint, which stays as it is."""
    evaluation_opponent: Annotated[str, Field(min_length=1)] = RANDOM
    """The other player in the evaluation."""
    train: Annotated[int, Field(ge=1, le=LARGEST)] = 1024
    """Number of training tasks, with the seeds from 0. The policy is player 0 in those with an even seed."""
    evaluation: Annotated[int, Field(ge=1, le=LARGEST)] = 64
    """Number of held-out tasks, with the seeds from 2³¹."""
