"""A taskset with a tool server that has state, and a stop condition."""

from __future__ import annotations

from collections.abc import Iterator

import verifiers.v1 as vf

SUMS = ((2, 3), (4, 5), (1, 8))


class LedgerState(vf.State):
    total: int = 0


class LedgerTools(vf.Toolset[vf.ToolsetConfig, LedgerState]):
    TOOL_PREFIX = "ledger"

    @vf.tool
    async def add(self, amount: int) -> str:
        """Add an amount to the ledger."""
        self.state.total += amount
        return f"total {self.state.total}"


class LedgerData(vf.TaskData):
    answer: int


class LedgerTask(vf.Task[LedgerData, LedgerState]):
    @classmethod
    def toolsets(cls, config: vf.TaskConfig) -> list[vf.Toolset]:
        return [LedgerTools(vf.ToolsetConfig())]

    @vf.reward(weight=0.75)
    async def told(self, task: LedgerData, trace: vf.Trace) -> float:
        return float(str(task.answer) in trace.last_reply)

    @vf.reward(weight=0.25)
    async def booked(self, task: LedgerData, trace: vf.Trace) -> dict[str, float]:
        return {"booked": float(trace.state.total == task.answer)}

    @vf.stop
    async def overdrawn(self, trace: vf.Trace) -> bool:
        return trace.state.total > 100


class LedgerTaskset(vf.Taskset[LedgerTask, vf.TasksetConfig]):
    def load(self) -> Iterator[LedgerTask]:
        for first, second in SUMS:
            prompt = f"Add {first} and {second} to the ledger, and say the total."
            data = LedgerData(prompt=prompt, system_prompt="Use the ledger.", answer=first + second)
            yield LedgerTask(data, self.config.task)


__all__ = ["LedgerTaskset"]

if __name__ == "__main__":
    LedgerTools.run()
