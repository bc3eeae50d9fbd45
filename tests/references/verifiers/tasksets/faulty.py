"""Tasks that fail in many ways. Their names say how."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator

import verifiers.v1 as vf

FAULTS = ("none", "raises", "not-finite", "exits", "ends", "blocks", "waits", "prints", "setup", "many", "none-again")


class FaultyTask(vf.Task[vf.TaskData]):
    async def setup(self, trace: vf.Trace, runtime: vf.Runtime) -> None:
        if self.data.name == "setup":
            raise OSError("no disk")

    @vf.reward
    async def fine(self, task: vf.TaskData, trace: vf.Trace) -> float | dict[str, float]:
        match task.name:
            case "raises":
                raise ZeroDivisionError("a fault")
            case "not-finite":
                return float("nan")
            case "many":
                return {f"score {number}": 1.0 for number in range(1000)}
            case "exits":
                sys.exit(3)
            case "ends":
                os._exit(9)
            case "blocks":
                time.sleep(1000)
            case "waits":
                await asyncio.sleep(1000)
            case "prints":
                print('{"id": 0, "value": 1}' * 10_000)
                os.write(1, b'{"id": 0, "value": 1}\n')
        return 1.0


class FaultyConfig(vf.TasksetConfig):
    broken: str = ""


class FaultyTaskset(vf.Taskset[FaultyTask, FaultyConfig]):
    def load(self) -> Iterator[FaultyTask]:
        match self.config.broken:
            case "huge":
                yield FaultyTask(vf.TaskData(prompt="x" * (1 << 21)))
            case "container":
                yield FaultyTask(vf.TaskData(prompt="x", image="python:3.12"))
            case "load":
                raise FileNotFoundError("no data")
        for name in FAULTS:
            yield FaultyTask(vf.TaskData(prompt=f"Say something about {name}.", name=name))


__all__ = ["FaultyTaskset"]
