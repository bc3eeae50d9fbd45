"""Tasks: seeds of a game. Demonstrations are random legal moves, for the first steps of an untrained model."""

from __future__ import annotations

from collections.abc import Iterator

from rlcore.errors import UserError
from rlcore.types import Demonstration, Message, Task, derive_seed

from rl_plugin_textarena.config import DataConfig
from rl_plugin_textarena.environment import Conversation
from rl_plugin_textarena.games import Game, GameError, State, check_game

HELD_OUT = 2**31
"""The first seed of the held-out tasks."""
LONGEST = 50
"""Moves of a demonstrated game."""


class Seeds:
    """The game is started once, so that a wrong key is an error before the run starts.

    Raises:
        UserError: there is no such game, or it cannot be made.
    """

    def __init__(self, config: DataConfig) -> None:
        self._config = config
        check_game(config.game)
        try:
            self._game(0).close()
        except GameError as error:
            raise UserError(
                f"the game {config.game!r} cannot be made",
                found=error.message,
                where="data.arguments",
                fix="change its arguments, or choose another game",
            ) from error

    def tasks(self, split: str) -> list[Task]:
        """One task for each seed."""
        count = self._config.evaluation if split == "evaluation" else self._config.train
        return [self._task(split, number) for number in range(count)]

    def demonstrations(self, count: int, *, seed: int) -> Iterator[Demonstration]:
        """Conversations of players that make random legal moves."""
        made, games = 0, 0
        while made < count:
            for messages in self._random_game(derive_seed(seed, games) % HELD_OUT):
                if made < count:
                    yield Demonstration(messages=messages)
                made += 1
            games += 1

    def _random_game(self, seed: int) -> Iterator[tuple[Message, ...]]:
        """The conversations of all players of a game."""
        told: dict[int, Conversation] = {}
        last: dict[int, tuple[Message, ...]] = {}
        with self._game(seed) as game:
            for number in range(LONGEST):
                now = game.now
                if not isinstance(now, State):
                    break
                said = Message(role="assistant", content=game.random_move(derive_seed(seed, number)))
                conversation = told.setdefault(now.player, Conversation())
                messages = (*conversation.asked(now), said)
                conversation.answered(said)
                if now.is_whole:
                    yield messages
                else:
                    last[now.player] = messages
                game.move(said.text)
        yield from last.values()

    def _game(self, seed: int) -> Game:
        return Game(self._config.game, self._config.arguments or {}, self._config.rules, seed)

    def _task(self, split: str, number: int) -> Task:
        config = self._config
        held_out = split == "evaluation"
        seed = number + (HELD_OUT if held_out else 0)
        arguments = config.arguments or {}
        fields = {"game": config.game, "arguments": arguments, "rules": config.rules, "seed": seed}
        fields["opponent"] = config.evaluation_opponent if held_out else config.opponent
        return Task(id=f"{config.game}:{seed}", messages=(), fields=fields)


__all__ = ["Seeds"]
