"""A small game on an OpenEnv server of this process, for runs without another server.

A key has a color, and so have three doors. The door with the color of the key is right. The second try is worth half.
The doors of held-out tasks have colors that do not occur together in training.
"""

from __future__ import annotations

import random
import socket
import threading
from functools import cache
from itertools import combinations

from rlcore.event_loop import EventLoop
from rlcore.types import Message, Observation, Step, Task, Trajectory

from rl_plugin_openenv.config import HELD_OUT
from rl_plugin_openenv.publishing import Published
from rl_plugin_openenv.server import OpenEnvServer

COLORS = ("red", "blue", "green", "white", "black", "gold")
SESSIONS = 1024
_starting = threading.Lock()


class Doors:
    """One game."""

    def __init__(self) -> None:
        self._color = ""
        self._tries = 0

    async def reset(self, task: Task, *, seed: int) -> Observation:
        """The key and the doors of the seed."""
        chosen = random.Random(seed)
        sets = [
            doors for doors in combinations(COLORS, 3) if (sum(map(COLORS.index, doors)) % 5 == 0) == (seed >= HELD_OUT)
        ]
        doors = list(chosen.choice(sets))
        chosen.shuffle(doors)
        self._color = chosen.choice(doors)
        return _said(f"key {self._color} doors {' '.join(doors)}")

    async def step(self, action: Message) -> Step:
        """Whether the door is the right one."""
        self._tries += 1
        if action.text.strip() == self._color:
            return Step(observation=_said("open"), reward=1.0 / self._tries, terminated=True)
        if self._tries == 2:
            return Step(observation=_said("closed"), reward=0.0, terminated=True)
        return Step(observation=_said(f"closed key {self._color}"), reward=0.0)

    async def close(self) -> None:
        """Nothing is held."""


def _said(text: str) -> Observation:
    return Observation(messages=(Message(role="user", content=text),))


async def _return(trajectory: Trajectory, task: Task) -> float | None:
    return trajectory.metrics.get("step_reward")


DOORS = Published(
    name="doors",
    description="Choose the door with the color of the key.",
    tasks=(Task(id="doors", messages=()),),
    make=Doors,
    score=_return,
)


def demo_url() -> str:
    """The URL of the server, which is started at the first call and runs as long as the process."""
    with _starting:
        return _started()


@cache
def _started() -> str:
    listening = socket.create_server(("127.0.0.1", 0))
    server = OpenEnvServer(DOORS, most=SESSIONS, token=None, say=lambda line: None)
    EventLoop().run(server.listen(listening))
    return f"http://127.0.0.1:{listening.getsockname()[1]}"


__all__ = ["DOORS", "demo_url"]
