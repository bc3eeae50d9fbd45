"""A resources server with the routes of NeMo Gym in this process, for runs without another server.

The model presses a button as often as the task says, with the tool ``press``.
"""

from __future__ import annotations

import json
import secrets
import threading
from functools import cache
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LARGEST_COUNT = 4
MOST_SESSIONS = 10_000
MOST_BYTES = 2**24
PRESS = {
    "type": "function",
    "name": "press",
    "description": "Press the button.",
    "parameters": {"type": "object", "properties": {"times": {"type": "integer"}}, "required": ["times"]},
    "strict": True,
}
BUTTONS = ("red", "blue", "green", "white", "black", "gold")
_starting = threading.Lock()


def demo_rows(*, held_out: bool) -> list[dict[str, Any]]:
    """All rows of a split. The pairs of a button and a number are not the same in training."""
    return [
        {
            "responses_create_params": {
                "input": [{"role": "user", "content": f"{button} button: press {count}"}],
                "tools": [PRESS],
            },
            "wanted": count,
        }
        for number, button in enumerate(BUTTONS)
        for count in range(1, LARGEST_COUNT + 1)
        if ((number + count) % 3 == 0) == held_out
    ]


class DemoHandler(BaseHTTPRequestHandler):
    """The routes. A cookie names the session."""

    protocol_version = "HTTP/1.1"
    presses: dict[str, int] = {}
    """The number of presses of each session."""

    def do_GET(self) -> None:
        """Whether stored answers can be verified again."""
        self.answer(200, "stateful") if self.path == "/reverify_mode" else self.answer(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        """A session, a press, or a verification."""
        body = json.loads(self.rfile.read(min(int(self.headers.get("Content-Length", 0)), MOST_BYTES)) or b"{}")
        cookie = SimpleCookie(self.headers.get("Cookie", "")).get("session")
        session = cookie.value if cookie is not None else secrets.token_hex(8)
        while len(self.presses) > MOST_SESSIONS:
            self.presses.pop(next(iter(self.presses)))
        count = self.presses.setdefault(session, 0)
        if self.path == "/seed_session":
            self.answer(200, {}, session)
        elif self.path == "/press":
            times = body.get("times")
            if type(times) is not int:
                self.answer(422, {"detail": [{"loc": ["body", "times"], "msg": "must be an integer"}]}, session)
                return
            self.presses[session] = count + times
            self.answer(200, {"pressed": True}, session)
        elif self.path == "/verify":
            self.answer(200, {**body, "reward": float(count == body["wanted"])}, session)
        else:
            self.answer(404, {"detail": "Not Found"}, session)

    def answer(self, status: int, value: object, session: str = "") -> None:
        """Send JSON."""
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if session:
            self.send_header("Set-Cookie", f"session={session}; Path=/; HttpOnly")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: requests are not logged."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512


def demo_url() -> str:
    """The URL of the server, which is started at the first call and runs as long as the process."""
    with _starting:
        return _started()


@cache
def _started() -> str:
    server = _Server(("127.0.0.1", 0), DemoHandler)
    threading.Thread(target=server.serve_forever, name="nemo-gym-demo", daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


__all__ = ["DemoHandler", "demo_rows", "demo_url"]
