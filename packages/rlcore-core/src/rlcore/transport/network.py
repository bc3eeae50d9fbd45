"""A connection over a network: its bytes, its deadlines, and the proof that both sides know the same token.

The proof is a challenge and a response on each side (HMAC, RFC 2104), so the token itself is never sent. What follows
is neither encrypted nor signed: use a loopback address and an SSH tunnel between machines.
"""

from __future__ import annotations

import hmac
import math
import os
import secrets
import select
import socket
import time
import weakref
from contextlib import suppress

from rlcore.errors import EnvironmentFailure, UserError
from rlcore.redaction import remember
from rlcore.transport.remote import Channel, Ended, Unavailable

TOKEN = "RLCORE_SERVER_TOKEN"
"""The environment variable with the token, on both sides."""
LEAST_TOKEN = 16
"""Characters that a token needs."""
HELLO = b"rlcore-serve-1\n\n"
"""What a server sends first, before its challenge."""
CHALLENGE = 32
"""Bytes of a challenge, and of a response."""
REFUSAL = bytes(CHALLENGE)
"""What a server sends in place of its response to a client with another token."""
HANDSHAKE_S = 10.0
"""Time for connection and handshake, in seconds."""
RDHUP = getattr(select, "POLLRDHUP", select.POLLHUP)
"""An event of ``poll``. Systems without it notice the end of a connection when they read."""
PROOF_S = 3.0
"""Time in which a client must prove that it knows the token: whoever does not know it must not hold a place long."""
SILENCE_S, PROBE_S, PROBES = 3, 2, 3
"""A silent connection is probed after this time, and is cut after this number of probes without an answer."""


def server_token() -> str:
    """The token of this side.

    Raises:
        UserError: it is not set, or too short.
    """
    token = os.environ.get(TOKEN, "")
    if len(token) < LEAST_TOKEN:
        found = f"{len(token)} characters" if token else "it is not set"
        fix = f"set {TOKEN} to the same text of at least {LEAST_TOKEN} characters on both sides"
        raise UserError("a server needs a token", found=found, where=TOKEN, fix=fix)
    remember(token)
    return token


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to an address that is listened on."""
    return host in ("127.0.0.1", "::1", "localhost")


def in_url(host: str) -> str:
    """An address as a part of a URL: IPv6 addresses have brackets."""
    return f"[{host}]" if ":" in host else host


def listening_on(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Raises:
        UserError: the address cannot be used.
    """
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        found = os.strerror(error.errno) if error.errno else str(error)
        if error.errno is not None and error.errno < 0:  # an error of getaddrinfo, without its type
            found = f"{host} is neither an address nor a known host name"
        raise UserError(f"cannot listen on {host}:{port}", found=found, fix="use another --port or --host") from None


class Connection(Channel):
    """One side of a connection. It is closed when this object is collected.

    Args:
        connected: a stream socket
    """

    def __init__(self, connected: socket.socket) -> None:
        super().__init__(connected)
        self._ended = False
        if connected.family in (socket.AF_INET, socket.AF_INET6):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in (
                ("TCP_KEEPIDLE", SILENCE_S),
                ("TCP_KEEPINTVL", PROBE_S),
                ("TCP_KEEPCNT", PROBES),
                ("TCP_USER_TIMEOUT", 1000 * (SILENCE_S + PROBE_S * PROBES)),  # for bytes that are not acknowledged
            ):
                if hasattr(socket, name):
                    connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        weakref.finalize(self, connected.close)

    @property
    def ended(self) -> bool:
        """Whether it is closed on either side."""
        if not self._ended:
            try:
                self.unread()
            except Ended:
                self.kill()
        return self._ended

    def read(self, count: int, deadline: float) -> bytes:
        """The next bytes. Raises `Ended`."""
        data = memoryview(bytearray(count))
        rest = data
        while len(rest):
            rest = rest[self.read_into(rest, deadline) :]
        return bytes(data)

    def closed_by_other(self) -> bool:
        """Whether the other side has closed the connection, also if it sent something before."""
        poll = select.poll()
        poll.register(self._connection, RDHUP)
        return bool(poll.poll(0))

    def _wait(self, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(self._connection, event)
        if not poll.poll(None if deadline == math.inf else 1000 * max(0.0, deadline - time.monotonic())):
            raise Ended("", late=True)

    def _why_closed(self, error: OSError | None = None) -> str:
        return "closed the connection" + (f": {error.strerror or error}" if error is not None else "")

    def printed(self) -> str:
        """Nothing: the other side prints on its own machine."""
        return ""

    def close(self) -> None:
        """Close the connection. A second call does nothing."""
        self.kill()
        self._connection.close()

    def kill(self) -> None:
        """Shut the connection down, also while another thread waits for it, which keeps its descriptor until then."""
        self._ended = True
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)


def connect(address: str, token: str) -> Connection:
    """Connect to a server, and prove to each other that both know the token.

    Raises:
        Unavailable: it cannot be reached.
        EnvironmentFailure: it does not answer.
        UserError: it is no server of rlcore, or has another token.
    """
    named, deadline = f"the server {address}", time.monotonic() + HANDSHAKE_S
    host, _, port = address.rpartition(":")
    try:
        connection = Connection(socket.create_connection((host.strip("[]"), int(port)), timeout=HANDSHAKE_S))
    except (OSError, ValueError) as error:  # also a name that is no host
        reason = getattr(error, "strerror", None) or error
        raise Unavailable(f"{named} cannot be reached: {reason}") from None
    try:
        hello = connection.read(len(HELLO) + CHALLENGE, deadline)
        if not hello.startswith(HELLO):
            connection.close()
            fix = "start one with rlcore serve, of the same version of rlcore"
            raise UserError("expected a server of rlcore", found=repr(hello[:16]), where=address, fix=fix)
        theirs, ours = hello[len(HELLO) :], secrets.token_bytes(CHALLENGE)
        connection.write(ours + _response(token, b"client", theirs, ours), deadline)
        proof = connection.read(CHALLENGE, deadline)
    except Ended as ended:
        connection.close()
        if ended.late:
            raise EnvironmentFailure(f"{named} did not answer within {HANDSHAKE_S:g} s") from None
        # As a tunnel does whose other end nobody listens at, or a server that is stopped meanwhile.
        raise Unavailable(f"{named} cannot be reached: it {ended}") from None
    if not hmac.compare_digest(proof, _response(token, b"server", theirs, ours)):
        connection.close()
        raise _other_token(address)
    return connection


def hangs(address: str, within_s: float) -> bool:
    """Whether a server can be connected to, but does not greet. One that cannot be reached ends its connections."""
    host, _, port = address.rpartition(":")
    try:
        connection = Connection(socket.create_connection((host.strip("[]"), int(port)), timeout=within_s))
    except OSError:
        return False
    try:
        connection.read(1, time.monotonic() + within_s)
    except Ended as ended:
        return ended.late
    finally:
        connection.close()
    return False


def accepted(connection: Connection, token: str) -> bool:
    """Whether the client of a new connection knows the token, which this side then proves, too.

    Raises:
        Ended: it does not answer.
    """
    deadline, ours = time.monotonic() + PROOF_S, secrets.token_bytes(CHALLENGE)
    connection.write(HELLO + ours, deadline)
    answer = connection.read(2 * CHALLENGE, deadline)
    theirs, proof = answer[:CHALLENGE], answer[CHALLENGE:]
    if not hmac.compare_digest(proof, _response(token, b"client", ours, theirs)):
        with suppress(Ended):
            connection.write(REFUSAL, deadline)
        return False
    connection.write(_response(token, b"server", ours, theirs), deadline)
    return True


def _response(token: str, side: bytes, of_server: bytes, of_client: bytes) -> bytes:
    return hmac.digest(os.fsencode(token), side + of_server + of_client, "sha256")


def _other_token(address: str) -> UserError:
    fix = f"set {TOKEN} to the token of the server"
    return UserError("the server refused the token", found="another one", where=address, fix=fix)


__all__ = [
    "TOKEN",
    "Connection",
    "accepted",
    "connect",
    "hangs",
    "in_url",
    "is_loopback",
    "listening_on",
    "server_token",
]
