"""What other machines offer with ``rlcore serve``: connections to servers."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rlcore.errors import EnvironmentFailure, RlcoreError, UserError
from rlcore.transport.network import connect, server_token
from rlcore.transport.remote import NoPlace, RemoteObject, Unavailable
from rlcore.transport.watching import watch

GREETING_S = 60.0
"""Time for a server to give a connection its place, such as the process of an environment."""
KINDS = ("environment", "reward", "sandbox")
"""What servers offer."""
AVOIDED_S = 10.0
"""Time for which a server is not asked again after it could not be reached."""


class ServedObject(RemoteObject):
    """A connection to a server, which has one place for it.

    Args:
        address: ``HOST:PORT``
        id: the id of what the server must offer; None for any
        kind: what the server must offer, one of `KINDS`

    Raises:
        UserError: the token is missing or another one, or the server offers something else.
        EnvironmentFailure: the server cannot be reached, or has no room for another connection.
    """

    reused = False
    """The server keeps the process, for any run: an idle connection would hold a place."""

    def __init__(self, address: str, id: str | None, kind: str = "environment") -> None:
        super().__init__(connect(address, server_token()), f"the server {address}")
        self.address = address
        self.greeting = self.greeted(GREETING_S)
        offered = self.greeting.get(kind)
        if not isinstance(offered, str) or id not in (None, offered):
            self.close()
            others = [f"the {one} {self.greeting[one]!r}" for one in KINDS if one in self.greeting]
            raise UserError(
                f"the run needs a server of the {kind} {id!r}" if id else f"the run needs a server of a {kind}",
                found=f"a server of {', '.join(others) or 'something else'}",
                where=address,
                fix=f"start rlcore serve {kind} for {id or 'it'} there, or correct the key servers of its table",
            )


class Servers:
    """Connects to servers in turn, and leaves out those that cannot be reached. It can be pickled.

    Args:
        addresses: ``HOST:PORT`` of each
        id: as for `ServedObject`
        kind: as for `ServedObject`
    """

    def __init__(self, addresses: Sequence[str], id: str | None, kind: str = "environment") -> None:
        self._addresses, self._id, self._kind = list(addresses), id, kind
        self._next = 0
        self._avoided: dict[str, float] = {}
        """Until when a server is left out, by address."""

    def capacity(self) -> int:
        """The number of connections that the servers have at a time; those that cannot be reached are left out."""
        found = 0
        for address in self._addresses:
            try:
                with ServedObject(address, self._id, self._kind) as served:
                    most = served.greeting.get("most")
                    found += max(1, most) if type(most) is int else 1
            except NoPlace:
                found += 1  # at least
            except RlcoreError:
                continue
        return max(1, found)

    def __call__(self) -> ServedObject:
        """A new connection.

        Raises:
            NoPlace: no server has a place, but one may have it later.
            Unavailable: no server can be reached.
            UserError: all servers refuse; see `ServedObject`.
        """
        self._next = first = (self._next + 1) % len(self._addresses)
        turn = [*self._addresses[first:], *self._addresses[:first]]
        now, failures = time.monotonic(), list[RlcoreError]()
        # The others come last: they may be there again, and otherwise their reason is reported.
        for address in sorted(turn, key=lambda one: self._avoided.get(one, 0.0) > now):
            try:
                served = ServedObject(address, self._id, self._kind)
                watch(served)
                return served
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


__all__ = ["ServedObject", "Servers"]
