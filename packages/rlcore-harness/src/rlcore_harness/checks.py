"""The check of the environment before a run."""

from __future__ import annotations

import ast
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.checks import Finding, failure, failure_of, warning
from rlcore.errors import EnvironmentFailure, UserError, did_you_mean

from rlcore_harness.config import HarnessConfig
from rlcore_harness.inside.confined import unsupported
from rlcore_harness.processes import processes_of
from rlcore_harness.server import policy_server

if TYPE_CHECKING:
    from rlcore.config.resolved import ResolvedEnvironment

SCRIPTS = (".py", ".sh", ".js", ".mjs", ".ts", ".rb")
"""Ends of words of a command that are probably names of files."""


def check(run: Any, environment: ResolvedEnvironment) -> Iterator[Finding]:
    """Look for the program of the agent, or import its function, in the process of the first episode."""
    config = environment.options
    assert isinstance(config, HarnessConfig)
    if config.confined and (reason := unsupported()):
        key = ".".join(environment.at("environment", "confined"))
        yield failure(key, f"agents cannot be confined here: {reason}", "run it in a container, without confined")
        return
    if config.command is not None:
        key, program = ".".join(environment.at("environment", "command")), config.command[0]
        if shutil.which(program) is None:
            yield failure(key, f"there is no program {program!r}", "install it, or correct its path", kind="not found")
        for word in config.command[1:]:
            if word.endswith(SCRIPTS) and not Path(word).is_file():
                yield warning(f"the command names {word!r}, and there is no such file in {os.getcwd()}", key)
    elif config.agent is not None:
        yield _imported(config, ".".join(environment.at("environment", "agent")), run)


def _imported(config: HarnessConfig, key: str, run: Any) -> Finding:
    """Import the function in the agent's interpreter."""
    agent = str(config.agent)
    file = Path(agent.rpartition(":")[0])
    if file.suffix == ".py" and not file.is_file():
        return failure(key, f"there is no file {str(file.absolute())!r}", "correct the path", kind="not found")
    processes, started = processes_of(config), time.monotonic()
    root_url, process = policy_server().root_url, processes.take(config)
    try:
        unfit = process.load(f"{root_url}/v1", root_url, timeout_s=run.config.rollout.environment_timeout_s)
    except UserError as error:
        return failure_of(error, key.replace("agent", "python"))
    except EnvironmentFailure as error:
        process.kill()
        return failure(key, f"the agent {agent!r} cannot be imported: {error}", _fix(file, agent, str(error)))
    processes.put_back(process)
    if unfit:
        text = f"the agent {agent!r} cannot be called with a task and a policy: {unfit}"
        return failure(key, text, "define it as solve(task, policy)")
    return Finding(status="ok", text=f"the agent {agent!r} was imported in {time.monotonic() - started:.1f} s")


def _fix(file: Path, agent: str, error: str) -> str:
    """How to correct an agent that cannot be imported."""
    if "did not answer" in error:
        return "import less in its module, or raise rollout.environment_timeout_s"
    if "has no attribute" in error and file.suffix == ".py":
        with suppress(OSError, ValueError, SyntaxError):
            names = [getattr(node, "name", "") for node in ast.parse(file.read_text(encoding="utf-8")).body]
            near = did_you_mean(agent.rpartition(":")[2], filter(None, names))
            return f"name a function of {file}" + (f"; {near}" if near else "")
    return "correct the agent, or install what it imports in its interpreter"
