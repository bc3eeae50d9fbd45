"""Hosts the games of textarena, in a process that is started by the path of this file and imports textarena once.

For each game, the process is sent its id and a socket on its standard input, and is forked. The fork answers each line
of the socket, a JSON object, with a line: the state of the game, or an ``error``. A game that crashes, hangs or takes
too much memory therefore ends alone, and its random numbers are its own.
"""

from __future__ import annotations

import copy
import gc
import importlib
import json
import os
import random
import re
import resource
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

MEMORY = 2 << 30
"""Limit of the address space of a game in bytes."""
STEP_S = 20
"""Limit of a move in seconds, after which the system ends the process of the game."""
LONGEST_ERROR, LONGEST_ID = 500, 1000
LONGEST_TEXT = 200_000
"""Limit of an observation in characters."""
TRIES, TRIES_S = 256, 2.0
"""Moves that a random player tries, and their limit in seconds. If none of them is legal, it makes the last one."""
MOVES = re.compile(r"\[[^\[\]\n]{1,40}\]")
GAME = -1
"""The sender of what the game says."""
HISTORY = "LLMObservationWrapper"
"""The wrapper of games whose observation is the whole history. Others show the state of the game."""


def main() -> None:
    """Fork for each socket on the standard input, until that is closed."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # an abort must not leave a file
    with suppress(ValueError, OSError):  # macOS does not limit the address space
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended games leave no zombies
    control = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # games would keep it open after the end of this process
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - many games print
    import_textarena()
    gc.freeze()  # a collection in a fork would copy the memory that it shares
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, LONGEST_ID, 1)
        if not message:
            return
        import_game(message.decode())
        connection = socket.socket(fileno=descriptors[0])
        if os.fork() == 0:
            control.close()
            try:
                serve(connection)
            finally:
                os._exit(0)
        connection.close()


def import_textarena() -> None:
    """Import textarena. Some of its games download word lists when they are imported, which is prevented."""
    vars(importlib.import_module("nltk"))["download"] = lambda *_, **__: False
    importlib.import_module("textarena")


def import_game(id: str) -> None:
    """Import the module of a game, so that its forks need not. They report why that fails."""
    spec = importlib.import_module("textarena.envs.registration").ENV_REGISTRY.get(id)
    if spec is not None:
        with suppress(Exception):
            importlib.import_module(str(spec.entry_point).partition(":")[0])


def serve(connection: socket.socket) -> None:
    """Answer the lines of a connection."""
    game: Game | None = None
    with connection, connection.makefile("rw", encoding="utf-8") as file:
        for line in file:
            asked = json.loads(line)
            signal.alarm(STEP_S)
            try:
                if asked["call"] == "games":
                    answer: Any = known_games()
                elif game is None:
                    game = Game(asked["game"], asked["arguments"], asked["rules"], asked["seed"])
                    answer = game.state()
                elif asked["call"] == "random":
                    answer = game.random_move(asked["seed"])
                else:
                    game.environment.step(asked["move"])
                    answer = game.state()
                text = json.dumps({"value": answer})
            except BaseException as error:  # a game may raise anything
                text = json.dumps({"error": f"{type(error).__name__}: {error}"[:LONGEST_ERROR]})
            signal.alarm(0)
            file.write(f"{text}\n")
            file.flush()


def known_games() -> list[str]:
    """The ids of all games."""
    return sorted(importlib.import_module("textarena.envs.registration").ENV_REGISTRY)


class Game:
    """A game in progress, for one player or for two.

    Raises:
        Exception: the game cannot be made.
    """

    def __init__(self, id: str, arguments: Mapping[str, Any], rules: str | None, seed: int) -> None:
        library = importlib.import_module("textarena")
        random.seed(seed)  # some games draw before they are reset
        self.environment = library.make(id, **arguments)
        self._rules, self._prompts, self._shown = rules, dict[int, str](), ""
        self._observer: Any = None
        inner = self.environment
        while isinstance(inner, library.Wrapper):
            if isinstance(inner, library.ObservationWrapper) and type(inner).__name__ != HISTORY:
                self._observer = inner
            inner = inner.env
        self._inner = inner
        try:
            self.environment.reset(num_players=1, seed=seed)
        except Exception:  # games for more players raise anything
            with suppress(Exception):
                self.environment.reset(num_players=2, seed=seed)
                return
            raise

    def state(self) -> dict[str, Any]:
        """What the player whose turn it is sees, or the result."""
        state = self._inner.state
        if state.num_players not in (1, 2):
            raise ValueError(f"the game is for one or two players, but has {state.num_players!r:.40}")
        players = range(state.num_players)
        if state.done:
            rewards = state.rewards or {}
            return {
                "rewards": [float(rewards.get(player, 0.0)) for player in players],
                "illegal": [bool(state.game_info[player].get("invalid_move")) for player in players],
                "reason": str(state.game_info[0].get("reason") or "")[:LONGEST_TEXT],
            }
        player = state.current_player_id
        if player not in players:
            raise ValueError(f"it is the turn of player {player!r:.40}, which the game does not have")
        self._shown = self._observed(player)[:LONGEST_TEXT]
        return {
            "players": len(players),
            "player": player,
            "text": self._shown,
            "is_whole": self._observer is not None,
        }

    def random_move(self, seed: int) -> str:
        """A legal move: one that occurs in what the player sees, also with other numbers, and that a copy accepts."""
        drawn, before = random.Random(seed), random.getstate()
        player = self._inner.state.current_player_id
        text = self._shown + self._prompts.get(player, "")
        moves = list(dict.fromkeys(MOVES.findall(text))) or ["[0]"]
        numbers = sorted(set(re.findall(r"\b\d{1,2}\b", text)))
        others = [str(number) for number in range(max([9, *map(int, numbers)]) + 1)]
        letters = sorted(set(re.findall(r"\b[A-Z]\b", text))) or ["A"]
        move, ends = "", time.monotonic() + TRIES_S
        for _ in range(TRIES):
            move = drawn.choice(moves)
            if drawn.random() < 0.5:
                values = numbers if numbers and drawn.random() < 0.75 else others
                move = _replaced(r"\d+", values, move, drawn)
                move = _replaced(r"\b[A-Z]\b", letters, move, drawn)
            if _is_legal(copy.deepcopy(self.environment), move, player) or time.monotonic() > ends:
                break
        random.setstate(before)
        return move

    def _observed(self, player: int) -> str:
        """The state of the game, or what has happened since the player's last turn, without its own move."""
        if self._observer is not None:
            _, text = self.environment.get_observation()
            seen = self._observer.full_observations[player]
            self._prompts[player] = next((said for _, said, kind in seen if _is_rules(kind)), "")
            if self._rules is not None and self._prompts[player]:
                text = text.replace(self._prompts[player], self._rules)
            return str(text).strip("\n")
        lines = []
        for sender, said, kind in self._inner.get_observation()[1]:
            if _is_rules(kind):
                self._prompts[player] = said
                lines.append(said if self._rules is None else self._rules)
            elif sender != player:
                name = self._inner.state.role_mapping.get(sender, "")
                lines.append(f"[{name}] {said}" if name and sender != GAME else str(said))
        return "\n".join(filter(None, lines)).strip("\n")


def _is_rules(kind: Any) -> bool:
    """Whether an observation has the rules. Its type is an enum, and in some games a text."""
    return getattr(kind, "name", None) == "PROMPT"


def _replaced(pattern: str, values: Sequence[str], text: str, drawn: random.Random) -> str:
    return re.sub(pattern, lambda _: drawn.choice(values), text)


def _is_legal(environment: Any, move: str, player: int) -> bool:
    """Whether a game accepts a move. The game is changed."""
    try:
        environment.step(move)
    except Exception:  # a game may raise anything
        return False
    while "env" in vars(environment):
        environment = environment.env
    state = environment.state
    return not getattr(state, "error_count", 0) and not state.game_info[player].get("invalid_move")


if __name__ == "__main__":
    main()
