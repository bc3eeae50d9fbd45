"""A chat-completions server in a thread, with scripted replies and failures."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any

KEY = "sk-a-key-that-nobody-may-see"
"""Not a real one."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What the endpoint answers once."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    after_s: float = 0.0
    drops: bool = False
    """Whether the connection is closed in the middle of the body."""
    times: int = 1
    """How often the response is sent, in one packet."""


def reply(
    content: Any = "it is 4", *, calls: Any = None, reason: str | None = "stop", usage: Any = (7, 3), **more: Any
) -> Reply:
    """A well-formed answer."""
    message = {"role": "assistant", "content": content, **({"tool_calls": calls} if calls is not None else {}), **more}
    data: dict[str, Any] = {"choices": [{"index": 0, "message": message, "finish_reason": reason}]}
    if usage is not None:
        data["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    return Reply(body=json.dumps(data).encode())


def call(arguments: Any, name: Any = "add", id: Any = "call_x") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def failing(status: int, message: str = "no", **headers: str) -> Reply:
    return Reply(status=status, body=json.dumps({"error": {"message": message}}).encode(), headers=headers)


def free_port() -> int:
    """A port without a server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    """The default of 5 makes Linux drop connections that are opened together, and the client tries again after 1 s."""


class Endpoint:
    """A server in a thread. ``answers`` are given one after the other, the last one for ever.

    ``answer`` replaces them with a function of the request's body.
    """

    def __init__(self) -> None:
        self.answers: list[Reply] = [reply()]
        self.answer: Callable[[dict[str, Any]], Reply] | None = None
        self.models = Reply(status=404, body=b"{}")
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.times: list[float] = []
        self.at_once = self.most_at_once = 0
        self.gone = threading.Event()
        lock, endpoint = threading.Lock(), self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    endpoint.times.append(time.monotonic())
                    endpoint.bodies.append(body)
                    endpoint.keys.append(self.headers["Authorization"])
                    endpoint.at_once += 1
                    endpoint.most_at_once = max(endpoint.most_at_once, endpoint.at_once)
                    answers = endpoint.answers
                    answer = None if endpoint.answer else answers.pop(0) if len(answers) > 1 else answers[0]
                try:
                    self.give(answer or endpoint.answer(body))  # type: ignore[misc]
                finally:
                    with lock:
                        endpoint.at_once -= 1

            def do_GET(self) -> None:
                self.give(endpoint.models)

            def give(self, answer: Reply) -> None:
                if answer.after_s and endpoint.gone.wait(answer.after_s):
                    return
                written, self.wfile = self.wfile, BytesIO()
                self.send_response(answer.status)
                for name, value in {"Content-Type": "application/json", **answer.headers}.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                head, self.wfile = self.wfile.getvalue(), written
                body = answer.body[: len(answer.body) // 2] if answer.drops else answer.body
                with suppress(OSError):  # who asked may not want to hear the rest
                    self.wfile.write((head + body) * answer.times)

            def log_message(self, format: str, *arguments: Any) -> None:
                """Say nothing."""

        self.server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    def close(self) -> None:
        self.gone.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
