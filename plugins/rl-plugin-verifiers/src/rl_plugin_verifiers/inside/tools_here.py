"""Tool servers of tasks in this process.

verifiers starts an interpreter for each tool server of each episode, which imports verifiers again: five seconds of
processor time. Here, the same server object answers in the event loop of the episodes.
"""

# mypy: disable-error-code="import-not-found,misc,unused-ignore"

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import httpx
import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from verifiers.v1.mcp import launch
from verifiers.v1.mcp.server import STATE_TIMEOUT
from verifiers.v1.runtimes import SubprocessConfig

_elsewhere = launch.serve


class LoopServer(uvicorn.Server):
    """A server that leaves the signals of the process alone."""

    def capture_signals(self) -> Any:
        """Nothing."""
        return nullcontext()


@asynccontextmanager
async def serve(server: Any, *arguments: Any, state_secret: str = "", state_base: str | None = None) -> Any:
    """Serve the tools of a task, and yield the address. A server with another runtime is started there."""
    if not isinstance(server.config.runtime, SubprocessConfig):
        async with _elsewhere(server, *arguments, state_secret=state_secret, state_base=state_base) as url:
            yield url
        return
    state = f"{state_base.rstrip('/')}/state" if state_base else None
    server._state_channel = lambda: (state, state_secret, None)
    async with server._exit_stack, httpx.AsyncClient(timeout=STATE_TIMEOUT, verify=False) as client:
        server._state_client = client
        await server.setup()
        await server._setup_task_from_channel(state, state_secret)
        tools = MCPServer(server.server_name or type(server).__name__, log_level="ERROR")
        server.register(tools)
        security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        async with _listening(
            tools.streamable_http_app(json_response=True, stateless_http=True, transport_security=security)
        ) as port:
            yield f"http://127.0.0.1:{port}/mcp"


@asynccontextmanager
async def _listening(application: Any) -> AsyncIterator[int]:
    """The port at which an application listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = LoopServer(uvicorn.Config(application, log_level="critical", timeout_graceful_shutdown=1))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await asyncio.gather(serving, return_exceptions=True)


def install() -> None:
    """Let verifiers use `serve`."""
    launch.serve = serve
