"""`ChatEndpoints`: questions to chat-completions endpoints, with retries, limits and deadlines.

Several endpoints share the requests. One that is busy or gone rests, and the others continue.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, NoReturn, Self

from rlcore.endpoints.answers import Answer, error_said, excerpt, is_full, read_answer, without_key
from rlcore.endpoints.connections import ConnectionLost, Connections, Response
from rlcore.endpoints.failures import TRANSIENT, EndpointFailure, FailureKind
from rlcore.endpoints.options import OFFICIAL, EndpointTable, read_key
from rlcore.endpoints.pace import Pace
from rlcore.endpoints.servers import Server, Servers
from rlcore.endpoints.waiting import backoff_s, retry_after_s
from rlcore.errors import UserError
from rlcore.json_files import parse_answer
from rlcore.timing import timed

FIRST_WAIT_S = 30.0
"""Maximum time that other requests wait for the result of the first one."""
MODELS_TIMEOUT_S = 10.0
"""Timeout of the request for the list of models."""
RETRIED = frozenset({408, 409, 425, 429})
"""Statuses below 500 that a later request may not have."""
UNANSWERED: frozenset[FailureKind] = frozenset({"connection", "time-out", "server error", "unreadable answer"})
"""Kinds of failures after which a server may be lost."""
CROWDED = frozenset({429, 503})
"""Statuses after which all requests to an endpoint wait."""
REDIRECTS = frozenset({301, 302, 303, 307, 308})
NO_SUCH_URL = frozenset({404, 405, 501})
"""Statuses of URLs that are no endpoint, or of an endpoint without the model."""
NO_CHAT, FIX_URL = "the URL does not provide chat completions", "correct base_url: most URLs end with /v1"
USED_UP = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
"""Codes of errors that no retry changes."""


class ChatEndpoints:
    """Asks a model at one or more endpoints. An asynchronous context manager, used in one event loop.

    The first request is sent before all others, so an unusable endpoint is detected with one request, not hundreds.

    Args:
        config: the endpoints and the limits
        keys: what error messages write before the names of options, such as ``reward.0.``

    Raises:
        UserError: the key is missing or invalid.
    """

    def __init__(self, config: EndpointTable, *, keys: str = "") -> None:
        self.requests = 0
        """Number of requests that were sent, including retries."""
        self.retried: Counter[str] = Counter()
        """Number of failed requests that were repeated, by the kind of failure."""
        self._config, self._prefix = config, keys
        self._key = read_key(config.api_key_env, config.base_url, keys=keys)
        self._slots = asyncio.Semaphore(config.concurrency)
        self._pace = Pace(config.requests_per_minute) if config.requests_per_minute else None
        self._servers = Servers(config.base_url)
        self._connections = Connections(config, self._key)
        self._models_timeout_s = min(MODELS_TIMEOUT_S, config.timeout_s)
        self._refusal: UserError | None = None
        self._started = self._succeeded = False
        self._first_ended = asyncio.Event()

    async def ask(self, messages: Sequence[Mapping[str, Any]], *, max_tokens: int, **body: Any) -> Answer:
        """The answer to a conversation.

        Args:
            messages: in the format of the chat-completions API
            max_tokens: the token limit of the answer
            body: further keys of the request, such as ``temperature``; None leaves one out

        Raises:
            EndpointFailure: there is no answer after the retries, or within the deadline.
            UserError: no question can be answered: no server, a rejected key, an unknown model or a used-up quota.
        """
        ends = asyncio.get_running_loop().time() + self._config.deadline_s
        try:
            async with asyncio.timeout_at(ends), self._slots:
                await self._after_the_first()
                try:
                    with timed("request", self._config.model):
                        return await self._answer(self._content(messages, max_tokens, body), ends)
                finally:
                    self._first_ended.set()
        except TimeoutError:
            text = f"there is no answer within {self._config.deadline_s:g} s"
            raise EndpointFailure(text, "time-out") from None
        except EndpointFailure as failure:
            raise EndpointFailure(without_key(str(failure), self._key), failure.kind) from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def refusal(self) -> UserError | None:
        """The reason why no question can be answered; None if there is none."""
        return self._refusal

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()

    def _content(self, messages: Sequence[Mapping[str, Any]], max_tokens: int, body: Mapping[str, Any]) -> bytes:
        """The body of a request, which is built when it can be sent."""
        extra = self._config.extra_body
        request = {key: value for key, value in body.items() if value is not None}
        # OpenAI's own models refuse the name that all other endpoints know.
        limit = "max_completion_tokens" if OFFICIAL in self._config.base_url else "max_tokens"
        if not {"max_tokens", "max_completion_tokens"} & set(extra):
            request[limit] = max_tokens
        return json.dumps({"model": self._config.model, "messages": list(messages), **request, **extra}).encode()

    async def _after_the_first(self) -> None:
        if self._started and not self._first_ended.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_WAIT_S):
                    await self._first_ended.wait()
        self._started = True

    async def _answer(self, content: bytes, ends: float) -> Answer:
        """The answer to a question, after retries that begin before ``ends`` on the clock of the event loop."""
        retries = 0
        tried: Counter[Server] = Counter()
        while True:
            if self._pace is not None:
                await self._servers.free()
                await self._pace.turn()
            server = await self._alive(tried)
            if self._refusal is not None:
                raise self._refusal
            try:
                with server.busy():
                    return await self._once(server, content)
            except _Unusable as problem:
                failure, is_page = problem.failure, problem.is_page
                tried[server] += 1
                wait_s = self._wait_s(server, problem, retries)
            late = asyncio.get_running_loop().time() + wait_s >= ends
            if failure.kind not in TRANSIENT or retries >= self._config.max_retries or late:
                if is_page and not self._succeeded:  # it was not only busy
                    self._refuse(NO_CHAT, str(failure), FIX_URL)
                raise failure
            retries += 1
            self.retried[failure.kind] += 1
            await asyncio.sleep(wait_s)

    async def _alive(self, tried: Mapping[Server, int]) -> Server:
        """A server that can be asked, preferably one that the question has tried the fewest times.

        A lost server must first respond to a request that costs nothing.
        """
        while True:
            server = await self._servers.free(tried)
            if not server.losses or self._refusal is not None:
                return server
            with server.busy():
                if await self._is_alive(server):
                    return server
            server.lose(unreachable=server.unreachable)

    async def _is_alive(self, server: Server) -> bool:
        """Whether a server responds to the request for the list of models, also when it does not provide one."""
        try:
            response = await self._connections.get(f"{server.url}/models", self._models_timeout_s)
        except (ConnectionLost, TimeoutError):
            return False
        except EndpointFailure:  # too long, or damaged
            return True
        return response.status < 500

    def _wait_s(self, server: Server, problem: _Unusable, retries: int) -> float:
        """Seconds until the request can be repeated. A server that is busy or gone rests for all requests."""
        if problem.unreachable:
            server.lose(unreachable=True)
            if self._servers.unreachable and not self._succeeded:
                fix = f"start the endpoint, or correct {self._prefix}base_url"
                if any(map(self._connections.may_use_proxy, self._config.base_url)):
                    fix += f", or the proxy: {self._prefix}proxy=none connects without one"
                self._refuse("the endpoint does not respond", str(problem.failure), fix)
            return self._servers.rest_s()
        wait_s = backoff_s(retries) if problem.wait_s is None else problem.wait_s
        if problem.failure.kind in UNANSWERED and self._servers.several:
            server.fail()  # the others answer meanwhile; a single server has the waits between retries
        if not problem.rests:
            return wait_s
        server.rest(wait_s)
        return self._servers.rest_s()

    async def _once(self, server: Server, content: bytes) -> Answer:
        """The answer to a single request. Raises `_Unusable`."""
        self.requests += 1
        try:
            async with asyncio.timeout(self._config.timeout_s):
                response = await self._connections.post(f"{server.url}/chat/completions", content)
        except TimeoutError:
            text = f"the endpoint did not answer within {self._config.timeout_s:g} s"
            raise _Unusable(EndpointFailure(text, "time-out")) from None
        except ConnectionLost as error:
            failure = EndpointFailure(str(error), "connection")
            raise _Unusable(failure, unreachable=error.unreachable) from None
        except EndpointFailure as failure:
            raise _Unusable(failure) from None
        if not response.is_success:
            await self._refused(server, response)
        try:
            answer = read_answer(response.body)
        except EndpointFailure as failure:
            raise _Unusable(failure, is_page=response.body.lstrip().startswith(b"<")) from None
        self._succeeded = True
        server.recover()
        return answer

    async def _refused(self, server: Server, response: Response) -> NoReturn:
        """Raise the failure of a response that is no success, or end everything if no request can succeed."""
        status = response.status
        said, code = error_said(response.body)
        found = f"{status}: {said}"
        variable = self._config.api_key_env or "OPENAI_API_KEY"
        if status == 401 or (status == 403 and not self._succeeded):
            fix = f"export {variable}=... with a valid key, or use another variable: {self._prefix}api_key_env=NAME"
            self._refuse("the endpoint rejected the key", found, fix)
        if status == 402 or code in USED_UP:
            self._refuse("the quota of the endpoint is used up", found, "raise the quota, or use another endpoint")
        if status in REDIRECTS and not self._succeeded:
            place = response.headers.get("location", "").partition("?")[0]  # a query may have secrets
            fix = f"set {self._prefix}base_url to the URL of the endpoint itself: redirects are not followed"
            self._refuse("the endpoint redirects requests", f"{status} to {excerpt(place)}", fix)
        if status in NO_SUCH_URL and not self._succeeded:
            models = await self._models(server) if status == 404 else None
            if models is None:
                self._refuse(NO_CHAT, found, FIX_URL)
            offered = ", ".join(map(excerpt, models[:20])) or "none"
            found = f"{found}; available models: {offered}"
            fix = f"set {self._prefix}model to an available model"
            self._refuse(f"the endpoint does not provide the model {self._config.model!r}", found, fix)
        kind: FailureKind = "rejected request"
        if status == 429:
            kind = "rate limit"
        elif status >= 500 or status in RETRIED:
            kind = "time-out" if status == 408 else "server error"
        elif status == 400 and is_full(response.body):
            kind = "full context"
        failure = EndpointFailure(f"the endpoint answered {found}", kind)
        raise _Unusable(failure, wait_s=retry_after_s(response.headers), rests=status in CROWDED)

    def _refuse(self, message: str, found: str, fix: str) -> NoReturn:
        where = f"{self._prefix}base_url={', '.join(self._config.base_url)}"
        found = without_key(found, self._key)
        self._refusal = UserError(without_key(message, self._key), found=found, where=where, fix=fix)
        raise self._refusal

    async def _models(self, server: Server) -> list[str] | None:
        """The models of an endpoint; None when it does not list them."""
        try:
            response = await self._connections.get(f"{server.url}/models", self._models_timeout_s)
            return [str(model["id"]) for model in parse_answer(response.body)["data"]] if response.is_success else None
        except Exception:  # only an error's fix depends on it
            return None


class _Unusable(Exception):
    """A request without a usable answer.

    Args:
        failure: the failure of the question if there are no retries left
        wait_s: how long the endpoint asks to wait; None if it does not say
        rests: whether all requests to this endpoint wait
        unreachable: whether there is no connection to the endpoint
        is_page: whether the answer is a page for people, as from a URL that is no endpoint
    """

    def __init__(
        self,
        failure: EndpointFailure,
        *,
        wait_s: float | None = None,
        rests: bool = False,
        unreachable: bool = False,
        is_page: bool = False,
    ) -> None:
        super().__init__(str(failure))
        self.failure, self.wait_s, self.rests, self.unreachable = failure, wait_s, rests, unreachable
        self.is_page = is_page
