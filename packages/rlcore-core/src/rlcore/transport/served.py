"""Environments of other machines, which ``rlcore serve environment`` offers there."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rlcore.errors import EnvironmentFailure, RlcoreError, UserError
from rlcore.transport.network import connect, server_token
from rlcore.transport.remote import NoPlace, RemoteObject, Unavailable

GREETING_S = 60.0
"""Time for a server to start the process of an environment."""
AVOIDED_S = 10.0
"""Time for which a server is not asked again after it could not be reached."""


class ServedEnvironment(RemoteObject):
    """A connection to a server, which has one process for it.

    Args:
        address: ``HOST:PORT``
        environment: the id of the environment that the server must offer

    Raises:
        UserError: the token is missing or another one, or the server offers another environment.
        EnvironmentFailure: the server cannot be reached, or has no room for another environment.
    """

    reused = False
    """The server keeps the process, for any run: an idle connection would hold a place."""

    def __init__(self, address: str, environment: str) -> None:
        super().__init__(connect(address, server_token()), f"the server {address}")
        self.greeting = self.greeted(GREETING_S)
        offered = self.greeting.get("environment")
        if offered != environment:
            self.close()
            raise UserError(
                f"the run needs a server of the environment {environment!r}",
                found=f"a server of {offered!r}",
                where=address,
                fix=f"start rlcore serve environment for {environment} there, or correct environment.servers",
            )


class Servers:
    """Connects to servers in turn, and leaves out those that cannot be reached. It can be pickled.

    Args:
        addresses: ``HOST:PORT`` of each
        environment: the id of the environment
    """

    def __init__(self, addresses: Sequence[str], environment: str) -> None:
        self._addresses, self._environment = list(addresses), environment
        self._next = 0
        self._avoided: dict[str, float] = {}
        """Until when a server is left out, by address."""

    def capacity(self) -> int:
        """The number of environments that the servers run at a time; those that cannot be reached are left out."""
        found = 0
        for address in self._addresses:
            try:
                with ServedEnvironment(address, self._environment) as served:
                    most = served.greeting.get("most")
                    found += max(1, most) if type(most) is int else 1
            except NoPlace:
                found += 1  # at least
            except RlcoreError:
                continue
        return max(1, found)

    def __call__(self) -> RemoteObject:
        """A new connection.

        Raises:
            NoPlace: no server has a place, but one may have it later.
            Unavailable: no server can be reached.
            UserError: all servers refuse; see `ServedEnvironment`.
        """
        self._next = first = (self._next + 1) % len(self._addresses)
        turn = [*self._addresses[first:], *self._addresses[:first]]
        now, failures = time.monotonic(), list[RlcoreError]()
        # The others come last: they may be there again, and otherwise their reason is reported.
        for address in sorted(turn, key=lambda one: self._avoided.get(one, 0.0) > now):
            try:
                return ServedEnvironment(address, self._environment)
            except NoPlace as failure:
                failures.append(failure)
            except (EnvironmentFailure, UserError) as failure:
                failures.append(failure)
                self._avoided[address] = time.monotonic() + AVOIDED_S
        for one in failures:
            if isinstance(one, NoPlace):
                raise one
        if all(isinstance(one, UserError) for one in failures):
            raise failures[0]
        raise Unavailable("; ".join(map(str, failures)))


__all__ = ["ServedEnvironment", "Servers"]
