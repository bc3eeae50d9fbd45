"""Configuration: ``[environment]`` and ``[data]``."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator
from rlcore.config.schema import LARGEST, Files, Table


class HarnessConfig(Table):
    """``[environment]``: the agent, and how it runs."""

    id: str = "harness"
    """Id of the environment."""
    agent: str | None = None
    """The function ``solve(task, policy)``, plain or ``async``: ``file.py:solve`` or ``module:solve``."""
    command: list[str] | None = None
    """A program in place of ``agent``, started for each episode. ``{task}`` is replaced by the file with the task."""
    python: str | None = None
    """Path of another interpreter in which ``agent`` runs; None uses this one."""
    variables: dict[str, str] = {}
    """Environment variables of the agent, besides those that are passed on."""
    servers: list[str] = []
    """Not supported: the agent asks the policy on this machine."""
    confined: bool = False
    """Run the agent, and all that it starts, so that it can write to one folder and connect to the policy only. For
    agents that execute what the policy writes. Needs Linux 6.12; rewards over HTTP are refused."""
    readable: list[str] = []
    """Files and folders that a confined agent may read besides the system, its interpreter and its modules."""
    max_turns: Annotated[int, Field(ge=1, le=LARGEST)] = 16
    """Maximum number of answers of the policy in an episode. Further requests are refused, and the episode ends."""
    sampling: Literal["request", "run"] = "request"
    """Whether temperature, top_p and top_k of the agent's requests count, or those of ``[rollout]``. The token limit
    and stop texts of a request always count, up to ``rollout.max_new_tokens``."""
    score: Literal["return", "exit-status"] = "return"
    """``exit-status`` scores a command: 1 for exit status 0, and 0 for 1. Other exit statuses are failures."""

    @field_validator("servers")
    @classmethod
    def _no_servers(cls, servers: list[str]) -> list[str]:
        if servers:
            raise ValueError("the agent asks the policy on this machine, so its environment cannot run on servers")
        return servers

    @model_validator(mode="after")
    def _one_agent(self) -> Self:
        if (self.agent is None) == (self.command is None):
            found = "neither" if self.agent is None else "both"
            raise ValueError(f'needs either agent = "agent.py:solve" or command = ["PROGRAM", …], found {found}')
        if self.agent is not None and not all(part.strip() for part in self.agent.rpartition(":")):
            raise ValueError(f"agent must be file.py:FUNCTION or module:FUNCTION, found {self.agent!r}")
        if self.command is not None and not self.command:
            raise ValueError("command needs a program, found an empty list")
        if self.command is not None and self.python is not None:
            raise ValueError("python is for agent: name the interpreter in command")
        if self.readable and not self.confined:
            raise ValueError("readable is for confined = true: other agents read all files of the user")
        if self.command is None and self.score == "exit-status":
            raise ValueError("score = exit-status is for command: a function returns its reward")
        return self


class DataConfig(Table):
    """``[data]``: the tasks."""

    id: str = "harness"
    """Id of the dataset."""
    train: Files = ["generated"]
    """``generated``, files of rows (.json, .jsonl, .parquet), a folder of them, or a name in the hub's cache."""
    evaluation: Files = ["generated"]
    """Held-out tasks: ``generated``, or files."""
