"""Games in processes of their own (`rl_plugin_textarena.child`). Our process never imports textarena."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rlcore.errors import ExplainedError, UserError, did_you_mean
from rlcore.transport.lines import Lines
from rlcore.transport.network import Connection
from rlcore.transport.remote import Ended

CHILD = Path(__file__).with_name("child.py")
LONGEST_ANSWER = 1 << 22
"""Limit of an answer of a game in bytes."""
ANSWER_S = 60.0
"""Limit of an answer in seconds, with the start of the process. The child itself ends a move earlier."""
FIXED = {"PYTHONHASHSEED": "0"}  # games choose from sets


class GameError(ExplainedError):
    """A game raised an exception, or its process ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What the player whose turn it is sees."""

    players: int
    player: int
    text: str
    is_whole: bool
    """Whether the text is the whole state of the game, so that earlier messages add nothing to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a game ended."""

    rewards: tuple[float, ...]
    """By player."""
    illegal: tuple[bool, ...]
    """Which player ended the game with an illegal move."""
    reason: str


class Game:
    """A game in progress. Use it as a context manager.

    Args:
        game: id of textarena
        arguments: its arguments
        rules: text instead of its rules; None keeps them
        seed: of everything random in it

    Attributes:
        now: the state, or the result

    Raises:
        GameError: it cannot be made.
    """

    def __init__(self, game: str, arguments: Mapping[str, Any], rules: str | None, seed: int) -> None:
        self._lines = hosted(game)
        asked = {"game": game, "arguments": arguments, "rules": rules, "seed": seed % 2**32}
        self.now = _state(_asked(self._lines, "start", **asked))

    def move(self, text: str) -> State | Result:
        """The state after a move of the player whose turn it is. Raises `GameError`."""
        self.now = _state(_asked(self._lines, "move", move=text))
        return self.now

    def random_move(self, seed: int) -> str:
        """A random legal move; an illegal one if none is found. Raises `GameError`."""
        return str(_asked(self._lines, "random", seed=seed))

    def close(self) -> None:
        """End the process of the game, also while another thread waits for it."""
        self._lines.channel.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_game(game: str) -> None:
    """Raise `UserError` if there is no such game."""
    known = known_games()
    if game not in known:
        fix = did_you_mean(game, known) or "python -c 'import textarena as t; t.pprint_registry_detailed()' lists them"
        raise UserError(f"textarena has no game {game!r}", where="data.game", fix=fix)


@cache
def known_games() -> tuple[str, ...]:
    """The ids of all games."""
    return tuple(_asked(hosted("-"), "games"))


class Host:
    """The process that is forked for each game. It is started when it is needed, and again after it ended.

    Args:
        command: of the process
    """

    def __init__(self, command: Sequence[str] = (sys.executable, "-P", str(CHILD))) -> None:  # no modules beside CHILD
        self._command, self._lock = command, threading.Lock()
        self._control: socket.socket | None = None

    def connect(self, game: str) -> Lines:
        """A connection to a new fork, which will play a game. It ends when the connection is collected."""
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            for _ in range(2):
                try:
                    socket.send_fds(self._started(), [game.encode()], [theirs.fileno()])
                    return Lines(Connection(ours), LONGEST_ANSWER)
                except OSError:
                    self._end()
                    self._control = None
        ours.close()
        raise GameError("the process that hosts games does not start", where=sys.executable)

    def _started(self) -> socket.socket:
        if self._control is None:
            self._control, theirs = socket.socketpair()
            with theirs:
                process = subprocess.Popen(
                    self._command,
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=os.environ | FIXED,
                    start_new_session=True,  # Ctrl-C lets the games of a step end
                )
            self._end = weakref.finalize(self, _ended, process, self._control, os.getpid())
        return self._control


def hosted(game: str) -> Lines:
    """A connection to a new process for a game. A fork of our process gets its own host."""
    return _host(os.getpid()).connect(game)


@cache
def _host(process: int) -> Host:
    return Host()


def _ended(process: subprocess.Popen[bytes], control: socket.socket, owner: int) -> None:
    if os.getpid() != owner:  # a fork
        return
    control.close()
    process.kill()
    process.wait()


def _asked(lines: Lines, call: str, /, **arguments: Any) -> Any:
    try:
        answer = lines.ask({"call": call, **arguments}, ANSWER_S)
    except Ended:
        found = "it crashed, or exceeded a limit of time or memory"
        raise GameError("the process of the game ended", found=found, where=call) from None
    if "error" in answer:
        raise GameError(f"the game raised {answer['error']}", where=call)
    return answer["value"]


def _state(answer: Mapping[str, Any]) -> State | Result:
    if "rewards" in answer:
        values = answer["rewards"], answer["illegal"]
        return Result(rewards=tuple(values[0]), illegal=tuple(values[1]), reason=answer["reason"])
    return State(**answer)


__all__ = ["Game", "GameError", "Result", "State", "check_game", "known_games"]
