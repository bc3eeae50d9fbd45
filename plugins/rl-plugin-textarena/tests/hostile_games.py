"""Hosts games that print, crash, hang and lie, beside those of textarena."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from rl_plugin_textarena import child


def register() -> None:
    import textarena
    from textarena.envs.registration import ENV_REGISTRY, register
    from textarena.envs.TicTacToe.env import TicTacToeEnv

    class Hostile(TicTacToeEnv):  # type: ignore[misc]
        def __init__(self, does: str) -> None:
            super().__init__()
            self.does = does

        def reset(self, num_players: int, seed: int | None = None) -> Any:
            super().reset(num_players, seed=seed)
            if self.does == "players":
                self.state.num_players = 10**9
            elif self.does == "player":
                self.state.current_player_id = 7

        def step(self, action: str) -> Any:
            if self.does == "print":
                print("{}" * 1000, flush=True)
                os.write(1, b"not JSON\n")
                sys.stderr.write("noise")
            elif self.does == "exit":
                os._exit(3)
            elif self.does == "sleep":
                time.sleep(3600)
            elif self.does == "loop":
                while True:
                    pass
            elif self.does == "allocate":
                self.kept = bytearray(8 << 30)
            elif self.does == "raise":
                raise SystemExit("bye")
            elif self.does == "huge":
                self.state.add_observation("x" * 50_000_000, textarena.ObservationType.GAME_MESSAGE)
            elif self.does == "end host":
                os.kill(os.getppid(), signal.SIGKILL)
            elif self.does == "nan":
                self.state.set_winner(0, "so")
                self.state.rewards = {0: float("nan"), 1: 0.0}
            return super().step(action)

    for does in (
        *("print", "exit", "sleep", "loop", "allocate", "raise", "huge", "nan"),
        *("players", "player", "end host"),
    ):
        register(f"Hostile-{does}", entry_point=Hostile, does=does)
    assert "Hostile-nan" in ENV_REGISTRY


if __name__ == "__main__":
    child.STEP_S = 2
    original = child.import_textarena

    def with_hostile_games() -> None:
        original()
        register()

    child.import_textarena = with_hostile_games
    child.main()
