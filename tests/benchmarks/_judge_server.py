"""A chat-completions server that answers every request after a fixed time. It prints its port."""

from __future__ import annotations

import asyncio
import json
import sys

MESSAGE = {"role": "assistant", "content": "Judgement: 1"}
VERDICT = {"choices": [{"index": 0, "message": MESSAGE, "finish_reason": "stop"}]}
BODY = json.dumps(VERDICT).encode()
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)


class Connection(asyncio.Protocol):
    """One connection, which is kept alive."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.received = seconds, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer when a request is complete."""
        self.received += data
        head, end, body = self.received.partition(b"\r\n\r\n")
        if end:
            length = next(
                int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
            )
            if len(body) >= length:
                self.received = body[length:]
                asyncio.get_running_loop().call_later(self.seconds, self.answer)

    def answer(self) -> None:
        """Write the verdict."""
        if not self.transport.is_closing():
            self.transport.write(ANSWER)  # type: ignore[attr-defined]


async def serve(seconds: float) -> None:
    """Serve until the process ends."""
    server = await asyncio.get_running_loop().create_server(lambda: Connection(seconds), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1])))
