"""`OpenAIEngine`: any chat-completions endpoint, for evaluation."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import openai
from rlcore.endpoints.answers import MOST_BYTES, excerpt, without_key
from rlcore.endpoints.options import OFFICIAL
from rlcore.endpoints.pace import Pace
from rlcore.errors import EngineError, UserError
from rlcore.types import ChatCompletion, FrozenDict, Message, Sampling, ToolSchema

from rlcore_rollout.engines.openai.failures import failure_of, is_hopeless, refusal_of
from rlcore_rollout.engines.openai.wire import read_completion, to_wire

if TYPE_CHECKING:
    from rlcore.contracts import WeightSource

    from rlcore_rollout.engines.context import EngineContext
    from rlcore_rollout.engines.openai.config import OpenAIEngineConfig

FIRST_WAIT_S = 30.0
"""Maximum time that other requests wait for the result of the first one."""
MODELS_TIMEOUT_S = 10.0
"""Timeout of the request for the list of models."""


class OpenAIEngine:
    """Sends messages and tools to an endpoint (`rlcore.contracts.ChatEngine`).

    The first request is sent before all others, so an unusable endpoint is detected with one request, not hundreds.
    """

    refusal: UserError | None = None
    """The reason why the endpoint is unusable; only set before the first successful request."""

    def __init__(self, config: OpenAIEngineConfig, source: WeightSource, context: EngineContext):
        self._config = config
        self._key = config.key()
        rate = config.requests_per_minute
        self.max_concurrency = max(1, int(rate * context.timeout_s / 120)) if rate else None
        """The number of requests that the rate limit admits within half of a generation's timeout."""
        hooks = {"request": [Pace(rate).turn]} if rate else {}
        self._client = openai.AsyncOpenAI(
            base_url=config.base_url,
            api_key=self._key or "none",
            max_retries=config.max_retries,
            timeout=context.timeout_s,
            http_client=openai.DefaultAsyncHttpxClient(event_hooks=hooks),
        )
        self._started = self._succeeded = False
        self._first_ended = asyncio.Event()

    async def chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSchema],
        sampling: Sampling,
        *,
        session: str,
        images: Mapping[str, bytes] = FrozenDict(),
    ) -> ChatCompletion:
        """The endpoint's next message. ``top_k`` and token ids of the sampling are not sent."""
        if self._started and not self._first_ended.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_WAIT_S):
                    await self._first_ended.wait()
        self._started = True
        try:
            if self.refusal is not None:
                raise EngineError(self.refusal.message)
            return await self._ask(self._request(to_wire(messages, images), tools, sampling))
        finally:
            self._first_ended.set()

    async def release(self, session: str) -> None:
        """Does nothing: there is no state per session."""

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _ask(self, request: dict[str, Any]) -> ChatCompletion:
        try:
            async with self._client.chat.completions.with_streaming_response.create(**request) as response:
                completion = read_completion(await self._body(response))
        except openai.APIError as error:
            if is_hopeless(error) and not self._succeeded:
                await self._refuse(error)
            failure = failure_of(error)
            raise type(failure)(self._without_key(str(failure))) from None
        except EngineError as error:
            raise type(error)(self._without_key(str(error))) from None
        except Exception as error:  # the boundary to the network: whatever broke while the answer was read
            text = f"the endpoint's answer is incomplete: {type(error).__name__}: {excerpt(str(error))}"
            raise EngineError(self._without_key(text)) from None
        self._succeeded = True
        return completion

    def _request(
        self, messages: list[dict[str, Any]], tools: Sequence[ToolSchema], sampling: Sampling
    ) -> dict[str, Any]:
        """The keyword arguments of the client's ``create``."""
        extra = self._config.extra_body
        request: dict[str, Any] = {
            "model": self._config.model,
            "messages": messages,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": sampling.seed % 2**31,  # some endpoints keep 32 bits
            "extra_body": extra,
        }
        if tools:
            request["tools"] = [tool.as_json() for tool in tools]
        if sampling.stop:
            request["stop"] = list(sampling.stop)
        # OpenAI's own models refuse the name that all other endpoints know.
        limit = "max_completion_tokens" if self._config.base_url == OFFICIAL else "max_tokens"
        if not {"max_tokens", "max_completion_tokens"} & set(extra):
            request[limit] = sampling.max_new_tokens
        return request

    async def _body(self, response: Any) -> bytes:
        """The whole body. Raises `EngineError` if it is too long."""
        body = bytearray()
        async for chunk in response.iter_bytes():
            body += chunk
            if len(body) > MOST_BYTES:
                raise EngineError(f"the endpoint's answer is longer than {MOST_BYTES // 2**20} MiB")
        return bytes(body)

    async def _refuse(self, error: openai.APIError) -> None:
        models = None
        if isinstance(error, openai.NotFoundError):
            models = await self._models()
        refusal = refusal_of(error, self._config, models)
        self.refusal = UserError(
            self._without_key(refusal.message),
            found=self._without_key(refusal.found or ""),
            where=refusal.where,
            fix=refusal.fix,
        )

    async def _models(self) -> list[str] | None:
        """The models of the endpoint; None when it does not list them."""
        client = self._client.with_options(timeout=MODELS_TIMEOUT_S, max_retries=0)
        try:
            return [str(model.id) for model in (await client.models.list()).data]
        except Exception:  # only an error's fix depends on it
            return None

    def _without_key(self, text: str) -> str:
        return without_key(text, self._key)
