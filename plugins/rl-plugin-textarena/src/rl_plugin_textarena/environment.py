"""A game as an episode: the policy plays against a script, a frozen policy or itself."""

from __future__ import annotations

from typing import Protocol

from rlcore.episodes.context import EpisodeContext
from rlcore.episodes.threads import run_in_thread
from rlcore.errors import EnvironmentFailure, EpisodeEnded
from rlcore.harnesses import EpisodePolicy
from rlcore.types import Message, Observation, Step, Task, derive_seed

from rl_plugin_textarena.config import RANDOM, SELF, EnvironmentConfig
from rl_plugin_textarena.games import Game, GameError, Result, State
from rl_plugin_textarena.opponents import FrozenPolicy, frozen_policy

LOST = -1.0
"""The reward of a player that can no longer answer. With a higher one, a player would rather fill its context than
lose."""


class Player(Protocol):
    """A player of a game."""

    async def move(self, state: State) -> str:
        """The next move. Raises `EpisodeEnded` if the player can no longer answer."""
        ...


class TextArena:
    """Plays the game of a task. The policy has the role ``player-0`` or ``player-1`` in a game for two.

    Args:
        config: the limit of an episode
    """

    def __init__(self, config: EnvironmentConfig) -> None:
        self._max_turns = config.max_turns
        self._game: Game | None = None

    async def run(self, task: Task, *, policy: EpisodePolicy, seed: int, context: EpisodeContext) -> Step:
        """Play to the end. Raises `EnvironmentFailure` if the game or the opponent fails."""
        fields, seed = task.fields, int(task.fields["seed"])
        try:
            game = self._game = await run_in_thread(Game, fields["game"], fields["arguments"], fields["rules"], seed)
            now = game.now
            count = now.players if isinstance(now, State) else 1
            ours = [seat_of(seed)] if count == 2 and fields["opponent"] != SELF else list(range(count))
            roles = {seat: policy.role(f"player-{seat}") if count == 2 else policy for seat in ours}
            players: dict[int, Player] = {seat: PolicyPlayer(role, self._max_turns) for seat, role in roles.items()}
            moves = 0
            while isinstance(now, State):
                if now.player not in players:
                    players[now.player] = await _opponent(fields["opponent"], game, seed)
                try:
                    move = await players[now.player].move(now)
                except EpisodeEnded:
                    now = _forfeited(now)
                    break
                now, moves = await run_in_thread(game.move, move), moves + 1
        except GameError as error:
            raise EnvironmentFailure(error.line) from error
        if not any(role.turns for role in roles.values()):
            raise EnvironmentFailure("the game ended before the first turn of the policy")
        for seat, role in roles.items():
            if role.turns:
                role.reward(now.rewards[seat])
        illegal = float(any(now.illegal[seat] for seat in roles))
        return Step(observation=_said(now.reason), terminated=True, info={"moves": moves, "illegal": illegal})

    async def close(self) -> None:
        """End the process of the game."""
        if self._game is not None:
            self._game.close()


class Conversation:
    """What a player sees and says, as messages."""

    def __init__(self) -> None:
        self._messages: list[Message] = []

    def asked(self, state: State) -> list[Message]:
        """The messages before the next move."""
        if state.is_whole:
            self._messages = []
        self._messages.append(Message(role="user", content=state.text))
        return self._messages

    def answered(self, message: Message) -> None:
        """Add a move."""
        self._messages.append(message)


class PolicyPlayer:
    """The policy that is trained.

    Args:
        policy: in the role of the player
        max_turns: after which it can no longer answer
    """

    def __init__(self, policy: EpisodePolicy, max_turns: int) -> None:
        self._policy, self._conversation = policy, Conversation()
        policy.max_turns = max_turns

    async def move(self, state: State) -> str:
        """As `Player.move`."""
        message = (await self._policy.respond(self._conversation.asked(state))).completion.message
        self._conversation.answered(message)
        return message.text


class RandomPlayer:
    """A script that makes random legal moves. In equal situations of a task, they are equal.

    Args:
        game: the game
        seed: of the moves
    """

    def __init__(self, game: Game, seed: int) -> None:
        self._game, self._seed, self._moves = game, seed, 0

    async def move(self, state: State) -> str:
        """As `Player.move`."""
        self._moves += 1
        return await run_in_thread(self._game.random_move, derive_seed(self._seed, "opponent", self._moves))


class FrozenPlayer:
    """A policy that is not trained.

    Args:
        policy: the model
    """

    def __init__(self, policy: FrozenPolicy) -> None:
        self._policy, self._conversation = policy, Conversation()

    async def move(self, state: State) -> str:
        """As `Player.move`."""
        text = await self._policy.answer(self._conversation.asked(state))
        self._conversation.answered(Message(role="assistant", content=text))
        return text


def seat_of(seed: int) -> int:
    """The player that the policy is in a game for two."""
    return seed % 2


async def _opponent(kind: str, game: Game, seed: int) -> Player:
    if kind == RANDOM:
        return RandomPlayer(game, seed)
    return FrozenPlayer(await run_in_thread(frozen_policy, kind))


def _forfeited(state: State) -> Result:
    """The result of a game whose player can no longer answer."""
    rewards = tuple(LOST if player == state.player else -LOST for player in range(state.players))
    reason = f"Player {state.player} did not answer"
    return Result(rewards=rewards, illegal=(False,) * state.players, reason=reason)


def _said(text: str) -> Observation:
    return Observation(messages=(Message(role="user", content=text),) if text else ())


__all__ = ["Conversation", "TextArena", "seat_of"]
