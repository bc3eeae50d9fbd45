"""What a server of environments offers: each connection has a process with an environment.

A client can create the environment that the server offers, with any of its options, and call its methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlcore.transport.hosting import HostedEnvironments
from rlcore.transport.inside.messages import BrokenMessage
from rlcore.transport.remote import RemoteObject


class ServedEnvironments:
    """An `rlcore.transport.server.Offer` of the environment of a run's table.

    Args:
        hosted: creates the environments in processes of this machine
        validated: the options of an environment, from those that a client sends
    """

    def __init__(self, hosted: HostedEnvironments, validated: Callable[[Any], Mapping[str, Any] | None]) -> None:
        self.hosted, self._validated = hosted, validated
        self.offered = ("environment", hosted.spec.id)

    def take(self) -> EnvironmentPlace:
        """A process that no other connection has."""
        return EnvironmentPlace(self, self.hosted.take())

    def close(self) -> None:
        """End the processes."""
        self.hosted.close()

    def creation(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The creation of the environment that is offered, with the options of a client."""
        try:
            values = given["arguments"]["$options"]["values"]
        except (KeyError, TypeError):
            raise BrokenMessage("a creation without options") from None
        spec = self.hosted.spec
        arguments = self.hosted.arguments(self._validated(values))
        return {"kind": spec.action, "target": spec.target, "arguments": arguments}


class EnvironmentPlace:
    """Passes requests on to a process, which is kept for later connections."""

    def __init__(self, environments: ServedEnvironments, process: RemoteObject) -> None:
        self._environments, self._process = environments, process

    @property
    def greeting(self) -> Mapping[str, Any]:
        """What runs in the process."""
        return self._process.greeting

    @property
    def usable(self) -> bool:
        """Whether the process still runs."""
        return self._process.usable

    def answer(self, action: str, given: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        """The answer of the process; see `rlcore.transport.server.Place`."""
        if action == "create":
            given = self._environments.creation(given)
        return self._process.answer(action, given, timeout_s)

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()

    def leave(self) -> None:
        """Keep the process, whose environment is closed."""
        self._environments.hosted.put_back(self._process)


__all__ = ["EnvironmentPlace", "ServedEnvironments"]
