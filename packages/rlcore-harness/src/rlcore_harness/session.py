"""The requests of one episode: they reach the policy in the event loop of the sampler, and are sampled once.

The server has an event loop of its own, in another thread. Everything that concerns the policy happens in the loop of
the sampler, which is therefore the only place where turns begin, end and are withdrawn.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from rlcore.harnesses import EpisodePolicy
from rlcore.types import Message, Response

from rlcore_harness.dialects.request import LENGTH_OF_ID, Dialect, Refusal, Request

AT_A_TIME = 256
"""Requests of a session at a time."""
KEPT = 64
"""Answers of a session that are kept for retries, and conversations that are kept for ``previous_response_id``."""
KEPT_TURNS = 10_000
"""Responses of a session whose turns can be rewarded by id."""
KEPT_KEYS = 100_000
"""Keys of ended sessions that are told from unknown ones."""
LOOK_S = 0.005
"""Time between looks whether requests are still in flight."""


class Exchange:
    """A request and its answer, which the retries of the request share."""

    def __init__(self, session: Session, dialect: Dialect, request: Request) -> None:
        self.request, self.dialect, self._session = request, dialect, session
        self.outcome: Future[Sequence[Response]] = Future()
        self.waiting = 0
        """Clients that wait for the answer."""
        self.delivered = False
        """Whether the answer was sent to one of them. It is set before the last byte, because the episode may end with
        this byte."""
        self._task: asyncio.Task[None] | None = None
        self._calls: list[asyncio.Task[Response]] = []
        self._body: bytes | None = None

    def body(self) -> bytes:
        """The answer as it is sent, once it is known."""
        if self._body is None:
            responses = self.outcome.result()
            if self.request.stream:
                self._body = b"".join(self.dialect.events(self.request, responses))
            else:
                self._body = json.dumps(self.dialect.answer(self.request, responses)).encode()
            self._session.remember(self.request, responses)
            self.request = replace(self.request, messages=(), images=(), tools=())  # a retry needs only the answer
        return self._body

    # The methods below run in the loop of the sampler.

    def start(self) -> None:
        """Begin to sample."""
        if self._session.ended:
            self._fail(ended())
        else:
            self._task = asyncio.get_running_loop().create_task(self._sample())

    def abandon(self) -> None:
        """Stop to sample, and withdraw the turns of an answer that nobody has received."""
        if not self._session.ended and self._task is not None and not self.delivered:
            self._undo()
            self._task.cancel()
            self._fail(ended())

    async def _sample(self) -> None:
        request, policy = self.request, self._session.policy
        messages = request.conversation()
        self._calls = calls = [
            asyncio.ensure_future(
                policy.respond(messages, tools=request.tools, images=request.images, sampling=request.sampling)
            )
            for _ in range(request.count)
        ]
        try:
            self.outcome.set_result(await asyncio.gather(*calls))
        except BaseException as error:
            self._undo()
            self._fail(ended() if isinstance(error, asyncio.CancelledError) else error)
            await asyncio.gather(*calls, return_exceptions=True)

    def _undo(self) -> None:
        calls, self._calls = self._calls, []
        for call in reversed(calls):
            if not call.cancel() and not call.cancelled() and call.exception() is None:
                self._session.policy.withdraw(call.result().turn)

    def _fail(self, error: BaseException) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)


class Session:
    """An episode's policy at the server, under a key.

    Attributes:
        policy: answers the requests
        key: what requests must know
        root_url: the address of the server, for SDKs of Anthropic
        base_url: the same with ``/v1``, for SDKs of OpenAI
        ended: whether requests are no longer answered
        refused: number of requests that were answered with an error
        arriving: bytes of the bodies that have not arrived completely
    """

    def __init__(self, policy: EpisodePolicy, loop: asyncio.AbstractEventLoop, root_url: str, key: str) -> None:
        self.policy, self.key, self.ended = policy, key, False
        self.root_url, self.base_url = root_url, f"{root_url}/v1"
        self._loop, self._context = loop, contextvars.copy_context()  # times are collected per episode
        self._in_flight = 0
        self.arriving = self.refused = 0
        self._open: set[Exchange] = set()
        """Those with clients that wait."""
        self._exchanges: OrderedDict[bytes, Exchange] = OrderedDict()
        """The last ones, by the digest of their requests, for retries."""
        self._conversations: OrderedDict[str, tuple[Message, ...]] = OrderedDict()
        self._turns: OrderedDict[str, list[int]] = OrderedDict()

    def idle(self) -> bool:
        """Whether no request is in flight."""
        return self._in_flight == 0

    async def settled(self) -> None:
        """Wait until no request is in flight."""
        while not self.idle():
            await asyncio.sleep(LOOK_S)

    def end(self) -> None:
        """Cancel the requests in flight. Called in the loop of the sampler."""
        for exchange in list(self._open):
            exchange.abandon()
        self.ended = True

    # The methods below are called in the thread of the server.

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count a request in flight. Raises `Refusal`."""
        if self.ended:
            raise ended()
        self._in_flight += 1
        try:
            if self._in_flight > AT_A_TIME:
                raise Refusal(f"more than {AT_A_TIME} requests at a time", status=429, code="rate_limit_exceeded")
            yield
        except Exception:
            self.refused += 1
            raise
        finally:
            self._in_flight -= 1

    @contextmanager
    def exchange(self, digest: bytes, dialect: Dialect, request: Request, retry: bool) -> Iterator[Exchange]:
        """The exchange of a request: a new one, or that of the request which it repeats.

        Args:
            digest: of the route and the body
            dialect: that of the route
            request: the content of the body
            retry: whether the client says that it has sent the request before
        """
        exchange = self._exchanges.get(digest) if retry else None
        if exchange is None:
            exchange = self._exchanges[digest] = Exchange(self, dialect, self._complete(request))
            self._exchanges.move_to_end(digest)
            _bound(self._exchanges, KEPT)
            self._open.add(exchange)
            self._post(exchange.start)
        exchange.waiting += 1
        try:
            yield exchange
        finally:
            exchange.waiting -= 1
            if not exchange.waiting:
                self._open.discard(exchange)
                if not exchange.delivered:
                    self._forget(digest, exchange)

    def remember(self, request: Request, responses: Sequence[Response]) -> None:
        """Keep what later requests may refer to by the id of the response."""
        self._turns[request.id] = [response.turn for response in responses]
        self._conversations[request.id] = (*request.messages, responses[0].completion.message)
        _bound(self._turns, KEPT_TURNS)
        _bound(self._conversations, KEPT)

    async def reward(self, value: float, response: str | None, choice: int) -> None:
        """Add to the reward of a response's choice, by default of the last turn. Raises `Refusal` or `ValueError`."""
        turn = None
        if response is not None:
            turns = self._turns.get(response[-LENGTH_OF_ID:], [])
            if not choice < len(turns):
                raise Refusal(f"there is no response {response[:40]!r} with choice {choice}", status=404)
            turn = turns[choice]
        done: Future[None] = Future()

        def add() -> None:
            try:
                if self.ended:
                    raise ended()
                self.policy.reward(value, turn=turn)
                done.set_result(None)
            except Exception as error:
                done.set_exception(error)

        self._post(add)
        await asyncio.wrap_future(done)

    def _complete(self, request: Request) -> Request:
        """The request with the messages that it continues."""
        if request.previous is None:
            return request
        if request.previous not in self._conversations:
            message = f"there is no response resp_{request.previous[:40]}; the server keeps the last {KEPT}"
            raise Refusal(message, code="previous_response_not_found")
        return replace(request, messages=(*self._conversations[request.previous], *request.messages))

    def _forget(self, digest: bytes, exchange: Exchange) -> None:
        if self._exchanges.get(digest) is exchange:
            del self._exchanges[digest]
        with suppress(Refusal):
            self._post(exchange.abandon)

    def _post(self, function: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(function, context=self._context)
        except RuntimeError:  # the loop is closed
            raise ended() from None


class Sessions:
    """The sessions of a server by key. Keys are compared as hashes, whose comparison tells nothing about them."""

    def __init__(self) -> None:
        self._open: dict[bytes, Session] = {}
        self._ended: OrderedDict[bytes, None] = OrderedDict()

    def open(self, session: Session) -> None:
        """Accept requests with the key of a session. Raises `ValueError` if the key belongs to another open one."""
        if self._open.setdefault(_digest(session.key), session) is not session:
            raise ValueError("a session with this key is open")

    def close(self, session: Session) -> None:
        """Refuse requests with the key of a session, which has ended."""
        digest = _digest(session.key)
        self._ended[digest] = None
        _bound(self._ended, KEPT_KEYS)
        del self._open[digest]

    def of(self, key: str) -> Session:
        """The session of a key. Raises `Refusal`."""
        digest = _digest(key)
        session = self._open.get(digest)
        if session is not None:
            return session
        if digest in self._ended:
            raise ended()
        missing = "no key was sent: the header must be Authorization: Bearer KEY, or x-api-key: KEY"
        raise Refusal("this server does not know the key" if key else missing, status=401, code="invalid_api_key")


def ended() -> Refusal:
    """The refusal of a request that comes too late."""
    return Refusal("the episode is over", status=409, code="episode_ended")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _bound(kept: OrderedDict[Any, Any], most: int) -> None:
    while len(kept) > most:
        kept.popitem(last=False)
