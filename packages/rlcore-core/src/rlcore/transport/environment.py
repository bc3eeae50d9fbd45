"""Environments whose simulator runs in another interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.transport.interpreter import Interpreter
from rlcore.transport.remote import RemoteObject

if TYPE_CHECKING:
    import gymnasium


def control_environment(
    python: str | Path,
    target: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    timeout_s: float = 60.0,
    variables: Mapping[str, str] | None = None,
    paths: Sequence[str | Path] = (),
    packages: Mapping[str, str | Path] | None = None,
) -> gymnasium.Env[Any, Any]:
    """A ``gymnasium.Env`` that runs in another interpreter, with the spaces that it has there.

    After a failure, which is raised as `EnvironmentFailure`, the next ``reset`` starts a new process.

    Args:
        python: path of the interpreter
        target: ``module:function`` or ``path/file.py:function`` that returns the environment
        arguments: its keyword arguments, of plain data and arrays
        timeout_s: time limit of each call in seconds, and of the creation
        variables: as for `Interpreter`
        paths: as for `Interpreter`
        packages: as for `Interpreter`

    Raises:
        UserError: there is no such interpreter.
        EnvironmentFailure: it cannot be started, or the environment cannot be created.
    """
    start = partial(Interpreter, python, variables=variables, paths=paths, packages=packages)
    return remote_control(start, target, arguments or {}, timeout_s=timeout_s)


def remote_control(
    start: Callable[[], RemoteObject], target: str, arguments: Mapping[str, Any], *, timeout_s: float
) -> gymnasium.Env[Any, Any]:
    """A ``gymnasium.Env`` in a process that ``start`` starts or connects to, otherwise as `control_environment`."""
    from rlcore.transport.control import RemoteControl  # it needs gymnasium, which the core does not

    return RemoteControl(start, target, arguments, timeout_s=timeout_s)
