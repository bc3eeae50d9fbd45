"""A taskset that needs containers."""

from __future__ import annotations

from collections.abc import Iterator

import verifiers.v1 as vf


class ContainedTask(vf.Task[vf.TaskData]):
    NEEDS_CONTAINER = True


class ContainedTaskset(vf.Taskset[ContainedTask, vf.TasksetConfig]):
    def load(self) -> Iterator[ContainedTask]:
        yield ContainedTask(vf.TaskData(prompt="x"))


__all__ = ["ContainedTaskset"]
