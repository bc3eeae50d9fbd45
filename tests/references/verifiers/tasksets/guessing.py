"""An endless taskset whose environment answers as the user, until the number is guessed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import verifiers.v1 as vf


class GuessData(vf.TaskData):
    number: int


class GuessTask(vf.Task[GuessData]):
    @property
    def key(self) -> str:
        return f"guess-{self.data.idx}"


class GuessConfig(vf.TasksetConfig):
    largest: int = 8


class GuessTaskset(vf.Taskset[GuessTask, GuessConfig]):
    INFINITE = True

    def load(self) -> Iterator[GuessTask]:
        for index in count():
            number = 1 + index * 5 % self.config.largest
            yield GuessTask(GuessData(prompt=f"Guess a number up to {self.config.largest}.", number=number))


class GuessEnvConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()


class GuessEnv(vf.Env[GuessEnvConfig]):
    async def run(self, task: GuessTask, agents: vf.Agents) -> None:
        guesses = 0
        async with agents.player.interaction(task) as game:
            segment = await game.turn()
            while not segment.terminated:
                guesses += 1
                guess = int(segment.last_reply)
                if guess == task.data.number:
                    break
                segment = await game.turn("higher" if guess < task.data.number else "lower")
        game.trace.record_reward("guessed", float(not segment.terminated))
        game.trace.record_metric("guesses", guesses)


__all__ = ["GuessEnv", "GuessTaskset"]
