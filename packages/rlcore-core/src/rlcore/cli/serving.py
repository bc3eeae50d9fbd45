"""What the commands of ``rlcore serve`` for runs on other machines share: the address, the token, and the server."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from typing import Any, TypeVar

import click

from rlcore.console.terminal import say
from rlcore.session.exits import stops_handled
from rlcore.transport.network import TOKEN, in_url, is_loopback, listening_on, server_token
from rlcore.transport.server import Offer, Server

Command = TypeVar("Command", bound=Callable[..., Any])
GIVEN = 32
"""Bytes of a token that is created here."""


def address_options(*, port: int, most: int, counted: str) -> Callable[[Command], Command]:
    """``--host --port --most``.

    Args:
        port: the default
        most: the default
        counted: what ``--most`` limits, such as ``Sessions``
    """

    def add(command: Command) -> Command:
        limit, ports = click.IntRange(1, 4096), click.IntRange(0, 65535)
        help = f"{counted} at a time."
        command = click.option("--most", default=most, show_default=True, type=limit, help=help)(command)
        help = "Port; 0 takes a free one."
        command = click.option("--port", default=port, show_default=True, type=ports, help=help)(command)
        return click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")(command)

    return add


def given_token() -> str:
    """The token of the server. Without one, it is created and printed."""
    if not os.environ.get(TOKEN):
        os.environ[TOKEN] = secrets.token_urlsafe(GIVEN)
        say(f"token     export {TOKEN}={os.environ[TOKEN]}")
    return server_token()


def serve_until_stopped(
    offer: Offer,
    *,
    named: str,
    token: str,
    host: str,
    port: int,
    most: int,
    timeout_s: float,
    use: Callable[[str], str],
) -> None:
    """Serve what is offered until Ctrl-C, and print how a run uses it.

    Args:
        offer: what is offered
        named: its name with its plugin and its version
        token: what clients must know
        host: the address to listen on
        port: its port
        most: connections at a time
        timeout_s: longest time of a request
        use: the command of a run, from the address as it is written in a list

    Raises:
        UserError: the address cannot be used.
    """
    with listening_on(host, port) as listening:
        server = Server(
            offer, listening, named=named, token=token, most=most, timeout_s=timeout_s, say=say
        )  # it closes the offer at its end
        address = f"{in_url(host)}:{listening.getsockname()[1]}"
        kind, id = offer.offered
        say(f"serving   the {kind} {id!r} on {address}, at most {most} at a time; Ctrl-C ends it")
        say(f"use       {use(repr(address) if ':' in host else address)}")
        if not is_loopback(host):
            say("warning   the connections are not encrypted: whoever sees them can read and change them")
        with stops_handled(lambda *_: server.stop()):
            server.run()


__all__ = ["address_options", "given_token", "serve_until_stopped"]
