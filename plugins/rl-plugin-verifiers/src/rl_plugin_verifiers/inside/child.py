"""Answers the questions of another process about tasksets, and plays their tasks, many at a time.

It is started by the path of this file. Stdin is a socket. Each line in both directions is a JSON object with the number
of a conversation, which begins with a ``call``. The answers of the policy are asked for during the call ``play``.
"""

# mypy: disable-error-code="import-not-found,unused-ignore"

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import tools_here
from aiohttp import web
from rlcore_chat import ENDED
from verifiers.v1.clients import EvalClientConfig
from verifiers.v1.clients.client import SESSION_ID_HEADER
from worlds import Refused, World

LONGEST = 1 << 26
"""Limit of a line, and of a request of a harness, in bytes."""
LONGEST_ERROR = 2000
KEY = "RLCORE_POLICY_KEY"
"""The variable with the key of the local server, without which other processes of this machine could use it."""


class Child:
    """Serves one connection."""

    def __init__(self, answers: asyncio.StreamWriter) -> None:
        self._answers = answers
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._numbers: dict[str, int] = {}
        """The conversation of each trace."""
        self._worlds: dict[str, World] = {}
        self._url = ""

    async def serve(self, lines: asyncio.StreamReader) -> None:
        """Answer until the connection ends."""
        os.environ[KEY] = secrets.token_urlsafe(32)
        application = web.Application(client_max_size=LONGEST)
        application.router.add_post("/v1/chat/completions", self._complete)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self._url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        while line := await lines.readline():
            given = json.loads(line)
            number = given["id"]
            if "call" in given:
                self._calls[number] = asyncio.create_task(self._call(number, given["call"], given["arguments"]))
            elif "answer" in given and number in self._asked:
                self._asked.pop(number).set_result(given["answer"])
            elif "cancel" in given and number in self._calls:
                self._calls[number].cancel()
        for task in self._calls.values():
            task.cancel()
        await asyncio.gather(*self._calls.values(), return_exceptions=True)
        await asyncio.gather(*(world.close() for world in self._worlds.values()))

    def _send(self, number: int, **values: Any) -> None:
        self._answers.write(json.dumps({"id": number, **values}).encode() + b"\n")

    async def _call(self, number: int, name: str, arguments: Mapping[str, Any]) -> None:
        try:
            self._send(number, value=await getattr(self, name)(number, **arguments))
        except asyncio.CancelledError:
            self._send(number, error="it was cancelled", refused=False)
        except BaseException as error:  # a taskset may raise anything, also SystemExit
            text = str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
            self._send(number, error=text[:LONGEST_ERROR], refused=isinstance(error, Refused))
        finally:
            del self._calls[number]

    def _world(self, taskset: str, options: Mapping[str, Any], max_turns: int) -> World:
        key = json.dumps([taskset, options, max_turns], sort_keys=True)
        if key not in self._worlds:
            client = EvalClientConfig(base_url=self._url, api_key_var=KEY)
            self._worlds[key] = World(taskset, options, max_turns, client)
        return self._worlds[key]

    async def describe(self, number: int, *, world: Mapping[str, Any]) -> Any:
        """See `World.described`."""
        return self._world(**world).described()

    async def tasks(self, number: int, *, world: Mapping[str, Any], start: int, count: int) -> Any:
        """See `World.tasks`."""
        return self._world(**world).tasks(start, count)

    async def play(self, number: int, *, world: Mapping[str, Any], data: Mapping[str, Any]) -> Any:
        """See `World.play`."""
        traces = []

        def watch(trace: Any) -> None:
            traces.append(trace.id)
            self._numbers[trace.id] = number

        try:
            return await self._world(**world).play(data, watch)
        finally:
            for trace in traces:
                del self._numbers[trace]
            self._asked.pop(number, None)

    async def _complete(self, request: web.Request) -> web.Response:
        """Let the policy answer a request of a harness."""
        number = self._numbers.get(request.headers.get(SESSION_ID_HEADER, ""))
        if request.headers.get("Authorization") != f"Bearer {os.environ[KEY]}" or number is None:
            return _refusal("unknown key or session", 401)
        if number in self._asked:
            return _refusal("an agent can ask for only one answer at a time", 400)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self._send(number, ask=await request.json())
        given = await answer
        if "body" in given:
            return web.json_response(given["body"])
        return _refusal(ENDED if given.get("ended") else str(given.get("refused")), 400)


def _refusal(text: str, status: int) -> web.Response:
    return web.json_response({"error": {"message": text, "type": "invalid_request_error"}}, status=status)


async def main() -> None:
    """Answer on the original stdin, a socket. Others read nothing there."""
    connection = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    tools_here.install()
    lines, answers = await asyncio.open_connection(sock=connection, limit=LONGEST)
    await Child(answers).serve(lines)


def run() -> None:
    """Run `main`, and go on when a taskset calls ``sys.exit``: its own task gets the exception, too."""
    loop = asyncio.new_event_loop()
    serving = loop.create_task(main())
    while not serving.done():
        with suppress(SystemExit):
            loop.run_until_complete(serving)


if __name__ == "__main__":
    run()
