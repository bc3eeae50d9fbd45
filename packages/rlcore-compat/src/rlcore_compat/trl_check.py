"""The check of ``trl-environment``: whether TRL's functions take what they are called with."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rlcore.checks import Finding, failure
from rlcore.errors import EnvironmentFailure, UserError
from rlcore.transport.hosting import interpreters

from rlcore_compat.trl_config import TrlEnvironmentConfig
from rlcore_compat.trl_environment import TrlEnvironment, loaded

if TYPE_CHECKING:
    from rlcore.config.resolved import ResolvedEnvironment
    from rlcore.session.session import RunSession
    from rlcore.specs import EnvironmentSpec

PASSED = ("prompts", "completions", "environments")
"""What reward functions get besides the columns."""


def check(run: RunSession, environment: ResolvedEnvironment) -> Iterator[Finding]:
    """Load the class and the functions where they run, and compare their parameters with the columns of the tasks."""
    options = environment.options
    assert isinstance(options, TrlEnvironmentConfig)
    if environment.servers:  # which load them when the run asks them for an environment
        return
    splits = ("train", "evaluation") if run.trains else ("evaluation",)
    tasks = (task for split in splits for task in run.dataset.tasks(split) if task.environment == environment.name)
    columns = sorted({tuple(sorted({*task.fields} - {"prompt"})) for task in tasks})
    given: dict[str, Any] = {
        "factory": options.factory,
        "rewards": options.rewards,
        "columns": list(map(list, columns)),
    }
    if environment.is_hosted:
        spec: EnvironmentSpec = run.registry.spec("environment", environment.id)  # type: ignore[assignment]
        try:
            process = interpreters(spec, environment.python, environment.variables)()
            try:
                timeout_s = run.config.rollout.environment_timeout_s
                found = process.call("rlcore_compat.trl_check:flaws", timeout_s=timeout_s, **given)
            finally:
                process.close()
        except (EnvironmentFailure, UserError):  # the run creates an environment there next, and reports it
            return
    else:
        TrlEnvironment(options)
        found = flaws(**given)
    for key, target, flaw in found:
        text = f"{target} cannot be called: {flaw}"
        fix = "add the column to the data, or **columns or a default to the function"
        yield failure(".".join(environment.at("environment", key)), text, fix, value=target)


def flaws(factory: str, rewards: Sequence[str], columns: Sequence[Sequence[str]]) -> list[list[str]]:
    """Key, import path and flaw of the functions that do not take the columns of all tasks.

    Args:
        factory: as in `TrlEnvironmentConfig`
        rewards: as in `TrlEnvironmentConfig`
        columns: each set of columns that tasks have
    """
    reset = loaded(factory, "environment.factory")().reset
    called: list[tuple[str, str, Any, tuple[str, ...]]] = [("factory", f"reset of {factory}", reset, ("prompt",))]
    called += [("rewards", name, loaded(name, "environment.rewards"), PASSED) for name in rewards]
    found = []
    for key, target, function, passed in called:
        for names in columns:
            try:
                inspect.signature(function).bind(**dict.fromkeys([*passed, *names]))
            except TypeError as error:
                found.append([key, target, f"{error} (it gets {', '.join([*passed, *names])})"])
                break
    return found


__all__ = ["check", "flaws"]
