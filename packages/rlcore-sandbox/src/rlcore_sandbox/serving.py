"""The command ``rlcore serve sandbox``, and what such a server offers: sessions of a sandbox of its machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import click
from rlcore.cli.output import examples
from rlcore.cli.serving import address_options, given_token, serve_until_stopped
from rlcore.config.layers import override_layers
from rlcore.config.schema import AUTO, SandboxTable
from rlcore.config.tables import validate_options
from rlcore.contracts import Sandbox
from rlcore.episodes.sandbox import EpisodeSession, open_session
from rlcore.errors import SandboxFailure, UserError
from rlcore.event_loop import EventLoop
from rlcore.plugins.registry import Registry, asked
from rlcore.session.exits import exits_reported
from rlcore.session.sandboxes import SandboxChoice, examine, strongest
from rlcore.transport.inside.messages import BrokenMessage
from rlcore.transport.network import TOKEN
from rlcore.transport.typed import sent
from rlcore.types import SandboxLimits

LONGEST_S = 86_400.0
"""Limit of a request. A run asks for the time of its cell."""


class SandboxOffer:
    """An `rlcore.transport.server.Offer` of the sessions of a sandbox.

    Args:
        sandbox: starts the sessions
        choice: the sandbox with what it guarantees
        limits: of each session
    """

    def __init__(self, sandbox: Sandbox, choice: SandboxChoice, limits: SandboxLimits) -> None:
        self.sandbox, self.offered = sandbox, ("sandbox", choice.spec.id)
        self.greeting = {"limits": json.dumps(asdict(limits)), "line": choice.line()}
        self.loop = EventLoop()

    def take(self) -> SessionPlace:
        """A place for one session."""
        return SessionPlace(self)

    def close(self) -> None:
        """Kill all sessions."""
        self.loop.cancel()
        self.loop.run(self.sandbox.close())
        self.loop.close()


class SessionPlace:
    """The session of one connection."""

    def __init__(self, offer: SandboxOffer) -> None:
        self._offer = offer
        self._session: EpisodeSession | None = None
        self.greeting: Mapping[str, Any] = offer.greeting
        self.usable = True

    def answer(self, action: str, given: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        """Start the session, or run a cell; see `rlcore.transport.server.Place`."""
        name, named = given.get("name"), given.get("named")
        if action != "ask" or not isinstance(named, dict):
            raise BrokenMessage("something else than a request to a session")
        if name == "open" and self._session is None:
            images = named.get("images")
            if not isinstance(images, list) or not all(isinstance(image, bytes) for image in images):
                raise BrokenMessage("images of another type")
            future: Future[Any] = self._offer.loop.submit(self._open(images))
        elif name == "run" and isinstance(code := named.get("code"), str):
            future = self._offer.loop.submit(self._run(code))
        else:
            raise BrokenMessage("something else than a request to a session")
        try:
            return {"value": future.result(timeout_s)}
        except (TimeoutError, CancelledError):
            self.kill()
            raise SandboxFailure(f"the sandbox did not answer within {timeout_s:g} s") from None

    async def _open(self, images: list[bytes]) -> None:
        self._session = await open_session(self._offer.sandbox.open, images)
        if not self.usable:  # the client left meanwhile
            await self._session.close()

    async def _run(self, code: str) -> dict[str, Any]:
        if self._session is None:
            raise SandboxFailure("the session has not been opened")
        return sent(await self._session.run(code))

    def kill(self) -> None:
        """Kill the session with everything that it started."""
        self.usable = False
        with suppress(RuntimeError):  # the loop is closed, and with it all sessions
            self._offer.loop.submit(self._close())

    async def _close(self) -> None:
        if self._session is not None:
            with suppress(SandboxFailure, asyncio.CancelledError):
                await self._session.close()

    def leave(self) -> None:
        """Kill the session: no other connection may have it."""
        self.kill()


@click.command(
    short_help="Offer a sandbox to runs on other machines.",
    epilog=examples(
        f"{TOKEN}=… rlcore serve sandbox",
        "rlcore serve sandbox id=namespaces memory_mb=4096 --most 32",
        'rlcore run -p visual-search sandbox.id=served "sandbox.servers=[127.0.0.1:7072]"',
    ),
)
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@address_options(port=7072, most=64, counted="Sessions")
@exits_reported()
def serve_sandbox(overrides: tuple[str, ...], host: str, port: int, most: int) -> int:
    """Offer a sandbox of this machine, with keys of the table [sandbox], until Ctrl-C.

    Code of the model then runs on this machine, and not on that of the run. The limits of sessions are those of this
    command; a run with others is refused. Both sides need the same token in the variable RLCORE_SERVER_TOKEN. Without
    one, the command creates it and prints it.

    Between machines, listen on 127.0.0.1 and connect through an SSH tunnel, because the connection is not encrypted:
    ssh -N -L 7072:127.0.0.1:7072 SANDBOXES.
    """
    registry = Registry()
    limits = [word for word in overrides if word.partition("=")[0] in SandboxTable.model_fields]
    table = validate_options(SandboxTable, override_layers(limits), subject="the sandbox")
    assert isinstance(table, SandboxTable)
    model = registry.config_model("sandbox", table.id) if table.id != AUTO else None
    own = override_layers([word for word in overrides if word not in limits])
    options = validate_options(model, own, subject="the sandbox")
    choice = strongest(registry) if table.id == AUTO else examine(registry, table.id, options)
    if choice is None or not choice.support.available:
        reason = choice.support.reason if choice is not None else "none that is chosen automatically"
        raise UserError("no sandbox can be used on this machine", found=reason, fix="see rlcore doctor")
    named = registry.named("sandbox", choice.spec.id)
    target = registry.load("sandbox", choice.spec.id)
    sandbox: Sandbox = asked(f"the creation of {named}", target, options, table.limits)
    serve_until_stopped(
        SandboxOffer(sandbox, choice, table.limits),
        named=named,
        token=given_token(),
        host=host,
        port=port,
        most=most,
        timeout_s=LONGEST_S,
        use=lambda address: f'rlcore run … sandbox.id=served "sandbox.servers=[{address}]"',
    )
    return 0


__all__ = ["SandboxOffer", "serve_sandbox"]
