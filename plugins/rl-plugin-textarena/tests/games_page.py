"""Writes GAMES.md: which games of textarena for one or two players start, and end with random moves.

Run with ``python tests/games_page.py``. Each game of the registry is played once in each of its variants.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from rl_plugin_textarena.games import Game, GameError, Result, known_games

PAGE = Path(__file__).parents[1] / "GAMES.md"
MOST_MOVES = 300
VARIANTS = ("-train", "-raw")
HEAD = """# Games

Games of textarena 0.7.4 for one or two players, played once with the moves of the random player, in Python 3.11
without word lists and a key of OpenRouter. `python tests/games_page.py` writes this page. *illegal*: the random player
found no legal move. `SyntaxError`: the game needs Python 3.12. `LookupError`: it needs a word list. `ImportError` and
`FileNotFoundError`: a file is missing in the package. `ValueError`: it needs the key, or its rewards are not numbers.
Games for three or more players are left out, and so are the variants `-train` and `-raw`.

"""


class Played(NamedTuple):
    """How a game went."""

    players: int
    end: str
    moves: int
    rewards: str


def play(id: str) -> Played | None:
    """Play a game with random moves; None if it is for more players."""
    players, moves = 0, 0
    try:
        with Game(id, {}, None, 0) as game:
            if isinstance(game.now, Result):
                return Played(len(game.now.rewards), "ends at once", 0, "")
            players = game.now.players
            while not isinstance(game.now, Result) and moves < MOST_MOVES:
                game.move(game.random_move(moves))
                moves += 1
            if not isinstance(game.now, Result):
                return Played(players, f"not after {MOST_MOVES} moves", moves, "")
            end = "illegal" if any(game.now.illegal) else "yes"
            return Played(players, end, moves, ", ".join(f"{value:g}" for value in game.now.rewards))
    except GameError as error:
        if re.search("[Pp]layer", error.message):
            return None
        kind = re.search(r"\w+Error", error.message)
        return Played(players, f"no: {kind[0] if kind else 'no answer in 20 s'}", moves, "")


def main(*names: str) -> None:
    """Play the named games, or all, and write the page."""
    ids = names or [id for id in known_games() if not id.endswith(VARIANTS)]
    with ThreadPoolExecutor(2) as pool:
        found = {id: played for id, played in zip(ids, pool.map(play, ids), strict=True) if played is not None}
    kinds = Counter((one.players or "?", one.end.partition(":")[0]) for one in found.values())
    lines = [f"- {number} games, players {players}: {end}" for (players, end), number in sorted(kinds.items(), key=str)]
    lines += ["", "| Game | Players | Ends | Moves | Rewards |", "|---|---|---|---|---|"]
    lines += [
        f"| `{id}` | {one.players or '?'} | {one.end} | {one.moves} | {one.rewards} |" for id, one in found.items()
    ]
    text = HEAD + "\n".join(lines) + "\n"
    print(text) if names else PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
