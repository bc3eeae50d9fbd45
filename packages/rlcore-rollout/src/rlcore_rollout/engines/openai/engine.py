"""`OpenAIEngine`: any chat-completions endpoint, for evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rlcore.config.schema import MOST
from rlcore.endpoints import EndpointFailure, EndpointTable
from rlcore.endpoints.client import ChatEndpoints
from rlcore.endpoints.options import LONGEST_WAIT_S
from rlcore.errors import ContextFullError, EngineError, UserError
from rlcore.types import ChatCompletion, FrozenDict, Message, Sampling, ToolSchema

from rlcore_rollout.engines.openai.wire import completion_of, to_wire

if TYPE_CHECKING:
    from rlcore.contracts import WeightSource

    from rlcore_rollout.engines.context import EngineContext
    from rlcore_rollout.engines.openai.config import OpenAIEngineConfig


class OpenAIEngine:
    """Sends messages and tools to an endpoint (`rlcore.contracts.ChatEngine`)."""

    def __init__(self, config: OpenAIEngineConfig, source: WeightSource, context: EngineContext):
        rate, longest_s = config.requests_per_minute, min(LONGEST_WAIT_S, context.timeout_s)
        self.max_concurrency = max(1, int(rate * context.timeout_s / 120)) if rate else None
        """The number of requests that the rate limit admits within half of a generation's timeout."""
        table = EndpointTable(
            **{**config.model_dump(exclude={"api_key"}), "base_url": [config.base_url]},
            concurrency=MOST,  # the sampler limits it
            timeout_s=longest_s,
            deadline_s=longest_s,
        )
        self._endpoint = ChatEndpoints(table, keys="rollout.openai.")

    @property
    def refusal(self) -> UserError | None:
        """The reason why the endpoint is unusable."""
        return self._endpoint.refusal

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
        try:
            answer = await self._endpoint.ask(
                to_wire(messages, images),
                max_tokens=sampling.max_new_tokens,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                seed=sampling.seed % 2**31,  # some endpoints keep 32 bits
                tools=[tool.as_json() for tool in tools] or None,
                stop=list(sampling.stop) or None,
            )
        except EndpointFailure as failure:
            raise (ContextFullError if failure.kind == "full context" else EngineError)(str(failure)) from None
        except UserError as error:  # see `refusal`
            raise EngineError(error.message) from None
        return completion_of(answer)

    async def release(self, session: str) -> None:
        """Does nothing: there is no state per session."""

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()
