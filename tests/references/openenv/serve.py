"""Environments of OpenEnv, served with its own package: ``python serve.py PORT``, each under a path.

``doors`` is the game of the demo, ``single`` the same for one session at a time, and ``luck`` the same with rewards
that do not depend on the action. ``grid`` has an action of two fields, ``tools`` lists tools (MCP), ``picture`` shows
an image, and ``moods`` raises, or gives no reward, as the action says.
"""

from __future__ import annotations

import base64
import random
import struct
import sys
import zlib
from enum import StrEnum
from itertools import combinations
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastmcp import FastMCP
from openenv.core.env_server import Environment, MCPEnvironment, create_app
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State

COLORS = ("red", "blue", "green", "white", "black", "gold")
HELD_OUT = 2**30


class Said(Action):
    message: str


class Shown(Observation):
    text: str


class Session(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._steps = 0

    @property
    def state(self) -> State:
        return State(step_count=self._steps)


class Doors(Session):
    def reset(self, seed: int | None = None, episode_id: str | None = None, **others: Any) -> Shown:
        seed = seed or 0
        chosen = random.Random(seed)
        sets = [
            doors for doors in combinations(COLORS, 3) if (sum(map(COLORS.index, doors)) % 5 == 0) == (seed >= HELD_OUT)
        ]
        doors = list(chosen.choice(sets))
        chosen.shuffle(doors)
        self._color, self._steps = chosen.choice(doors), 0
        return Shown(text=f"key {self._color} doors {' '.join(doors)}")

    def step(self, action: Said, timeout_s: float | None = None, **others: Any) -> Shown:
        self._steps += 1
        if action.message.strip() == self._color:
            return Shown(text="open", reward=1.0 / self._steps, done=True)
        if self._steps == 2:
            return Shown(text="closed", reward=0.0, done=True)
        return Shown(text=f"closed key {self._color}", reward=0.0)


class Direction(StrEnum):
    LEFT = "left"
    RIGHT = "right"


class Move(Action):
    """Walk along the line."""

    direction: Direction
    steps: int = 1


class Place(Observation):
    position: int
    goal: int


class Grid(Session):
    def reset(self, seed: int | None = None, episode_id: str | None = None, start: int = 0) -> Place:
        self._position, self._goal, self._steps = start, random.Random(seed).randint(3, 9), 0
        return Place(position=start, goal=self._goal)

    def step(self, action: Move, timeout_s: float | None = None, **others: Any) -> Place:
        self._steps += 1
        self._position += action.steps if action.direction is Direction.RIGHT else -action.steps
        done = self._position == self._goal
        return Place(position=self._position, goal=self._goal, reward=1.0 if done else None, done=done)


class Tools(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        server = FastMCP("sums")
        self._asked = 0

        @server.tool
        def add(first: int, second: int) -> int:
            """Add two numbers."""
            return first + second

        super().__init__(server)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **others: Any) -> Observation:
        self._asked = 0
        return Observation(metadata={"message": f"add 3 and {seed}"})

    async def step_async(self, action: Action, timeout_s: float | None = None, **others: Any) -> Observation:
        observation = await super().step_async(action, timeout_s=timeout_s, **others)
        if isinstance(action, CallToolAction):
            self._asked += 1
            observation.reward, observation.done = 0.5, self._asked == 2
        return observation

    def _step_impl(self, action: Action, timeout_s: float | None = None, **others: Any) -> Observation:
        return Observation(metadata={"error": "unknown action"})

    @property
    def state(self) -> State:
        return State(step_count=self._asked)


class Seen(Observation):
    screenshot: str
    caption: str


def picture(shade: int) -> str:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0))
    rows = zlib.compress((b"\0" + bytes([shade, 0, 0]) * 32) * 32)
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", rows) + chunk(b"IEND", b"")).decode()


class Picture(Session):
    def reset(self, seed: int | None = None, episode_id: str | None = None, **others: Any) -> Seen:
        return Seen(screenshot=picture((seed or 0) % 256), caption="What do you see?")

    def step(self, action: Said, timeout_s: float | None = None, **others: Any) -> Seen:
        return Seen(screenshot=picture(255), caption="The end.", reward=1.0, done=True)


class Moods(Session):
    def reset(self, seed: int | None = None, episode_id: str | None = None, **others: Any) -> Shown:
        return Shown(text="ready")

    def step(self, action: Said, timeout_s: float | None = None, **others: Any) -> Shown:
        if action.message == "raise":
            raise RuntimeError("the simulator broke")
        return Shown(text="end", reward=None, done=True)


class Luck(Doors):
    """The same game with rewards that do not depend on the action."""

    def step(self, action: Said, timeout_s: float | None = None, **others: Any) -> Shown:
        return Shown(text="end", reward=float(random.random() < 1 / 3), done=True)


APPS: dict[str, tuple[type[Any], type[Action], type[Observation], int]] = {
    "doors": (Doors, Said, Shown, 256),
    "single": (Doors, Said, Shown, 1),
    "luck": (Luck, Said, Shown, 256),
    "grid": (Grid, Move, Place, 16),
    "tools": (Tools, CallToolAction, CallToolObservation, 16),
    "picture": (Picture, Said, Seen, 16),
    "moods": (Moods, Said, Shown, 16),
}

if __name__ == "__main__":
    root = FastAPI()
    for name, (environment, action, observation, most) in APPS.items():
        root.mount(f"/{name}", create_app(environment, action, observation, env_name=name, max_concurrent_envs=most))
    uvicorn.run(root, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
