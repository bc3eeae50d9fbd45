"""Checks of what runs in another interpreter or on servers, before a run starts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from rlcore.checks import Finding, failure, failure_of, warning
from rlcore.errors import EnvironmentFailure, UserError
from rlcore.specs import EnvironmentSpec
from rlcore.transport.remote import NoPlace, Unavailable
from rlcore.transport.served import ServedObject

if TYPE_CHECKING:
    from rlcore.config.resolved import ResolvedEnvironment
    from rlcore.session.session import RunSession
    from rlcore.transport.remote import RemoteObject

CLOCKS_S = 5.0
"""Difference between the clocks of two machines above which times in records and logs mislead."""


def examined_environment(run: RunSession, environment: ResolvedEnvironment) -> Iterator[Finding]:
    """Create an environment in its other interpreter, or on each of its servers."""
    spec = run.registry.spec("environment", environment.id)
    assert isinstance(spec, EnvironmentSpec)
    key = ".".join(environment.at("environment", "servers" if environment.servers else "python"))
    if spec.runs_code:
        reason = f"the environment {environment.id!r} runs code of the model in the sandbox of this process"
        yield failure(key, reason, f"remove {key}")
    elif environment.servers:
        for address in environment.servers:
            install = f"install what it needs on {address}, where rlcore serve environment runs"
            yield from _examined(run, environment, key, address, install, partial(ServedObject, address, spec.id))
    else:
        python = str(environment.python)
        install = f"install what it needs there, such as with uv pip install --python {python} PACKAGE"
        yield from _examined(run, environment, key, python, install)


def _examined(
    run: RunSession,
    environment: ResolvedEnvironment,
    key: str,
    place: str,
    install: str,
    start: Callable[[], RemoteObject] | None = None,
) -> Iterator[Finding]:
    """Create an environment at a place, and say what runs there."""
    named, started = f"the environment {environment.id!r}", time.monotonic()
    try:
        greeting = run.hosted(environment.name).examine(start)
    except UserError as error:
        yield failure_of(error, key)
        return
    except EnvironmentFailure as error:
        missing = "ModuleNotFoundError" in str(error) or "ImportError" in str(error)
        where = "on the server" if environment.servers else "in another interpreter"
        fix = _fix(error, "environment") or (install if missing else "correct the environment, or its keys")
        yield failure(key, f"{named} does not work {where}: {error}", fix)
        return
    numpy = f"numpy {greeting['numpy']}" if greeting.get("numpy") else "without numpy"
    version, took = f"Python {greeting.get('python')}, {numpy}", time.monotonic() - started
    where = f"in {place}"
    if environment.servers:
        yield from differences(greeting, key, place, run.registry.named("environment", environment.id))
        where, version = f"on the server {place}", f"{version}, at most {greeting.get('most')} at a time"
    yield Finding(status="ok", text=f"{named} runs {where} ({version}), imported in {took:.1f} s")


def examined_rewards(run: RunSession, environment: ResolvedEnvironment) -> Iterator[Finding]:
    """Connect to each server of the rewards of an environment."""
    for index, table in enumerate(environment.rewards):
        key = ".".join((*environment.at("reward"), str(index), "servers"))
        named = f"the reward {table.id!r}"
        for address in table.servers:
            try:
                with ServedObject(address, table.id, "reward") as served:
                    greeting = served.greeting
            except UserError as error:
                yield failure_of(error, key)
                continue
            except EnvironmentFailure as error:
                yield failure(key, f"{named} does not work on the server: {error}", _fix(error, "reward"))
                continue
            yield from differences(greeting, key, address, run.registry.named("reward", table.id))
            most, options = greeting.get("most"), greeting.get("options")
            text = f"{named} is computed by the server {address} (at most {most} at a time) with {options}"
            yield Finding(status="ok", text=text)


def differences(greeting: Mapping[str, Any], key: str, address: str, here: str) -> Iterator[Finding]:
    """What differs between this machine and that of a server: the plugin or its version, and the clock.

    Args:
        greeting: what the server sent first
        key: of the configuration that names the server
        address: of the server
        here: what the server offers as it is installed here, with its plugin and its version
    """
    if greeting.get("named") != here:
        yield warning(f"the server {address} offers the {greeting.get('named')}, but this machine has the {here}", key)
    try:
        ahead = float(greeting.get("clock", "")) - time.time()
    except (TypeError, ValueError):
        return
    if abs(ahead) > CLOCKS_S:
        way = "ahead of" if ahead > 0 else "behind"
        text = f"the clock of the server {address} is {abs(ahead):.0f} s {way} that of this machine"
        yield warning(f"{text}: set both with NTP, otherwise times in logs cannot be compared", key)


def _fix(error: EnvironmentFailure, kind: str) -> str:
    """What helps against a server that cannot be used; empty for another failure."""
    if isinstance(error, NoPlace):
        return "wait for the end of another run, or start the server with a larger --most"
    if isinstance(error, Unavailable):
        return f"start rlcore serve {kind} there, and the tunnel to it, or correct the address"
    return ""


__all__ = ["differences", "examined_environment", "examined_rewards"]
