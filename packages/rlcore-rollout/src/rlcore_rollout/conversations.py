"""The policy for an agent with its own loop: conversations that it sends as messages become segments of tokens.

A request repeats the whole conversation, as messages. The tokens that were sampled are kept, so a request is compared
with the messages of earlier conversations, and only what follows them is rendered.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlcore.errors import EngineError, EpisodeEnded
from rlcore.timing import timed
from rlcore.types import (
    Boundary,
    ChatCompletion,
    Failure,
    FinishReason,
    FrozenDict,
    Message,
    Observation,
    Response,
    Sampling,
    Stop,
    ToolSchema,
    derive_seed,
)
from rlcore.types.checking import flaw_in_observation, is_finite

from rlcore_rollout.conversation import Conversation, Key, State, key_of
from rlcore_rollout.images import EpisodeImages
from rlcore_rollout.model_client import ModelClient, TokenClient
from rlcore_rollout.trajectory_builder import End, Record

LONGEST_TOKEN = 64
"""Characters. A text with more of them for each token of the context does not fit into it."""
ROLE = re.compile(r"[A-Za-z0-9_-]{1,40}")
"""A role is a part of the names of metrics."""
FULL = "the conversation leaves no room for an answer in the context of the model"


class Conversations:
    """Answers a harness in one episode (`rlcore.harnesses.EpisodePolicy`).

    Args:
        model_client: the connection to the engine
        sampling: that of the run, with the seed of the trajectory
        session: the engine's name for the trajectory; later conversations append ``/1``, ``/2``, …
        images: those of the episode
        release: ends a session of the engine
        timeout_s: deadline of one generation
        until: deadline of the trajectory

    Attributes:
        max_turns: as `EpisodePolicy.max_turns`
        failure: the failure of the engine, which is that of the episode
        stop: why the last request was not answered, or not to its end
        refused: whether the last request was not answered because the turns or the context are used up
    """

    def __init__(
        self,
        *,
        model_client: ModelClient,
        sampling: Sampling,
        session: str,
        images: EpisodeImages,
        release: Callable[[str], Awaitable[None]],
        timeout_s: float,
        until: float,
    ) -> None:
        self._client, self._sampling, self._session, self._images = model_client, sampling, session, images
        self._release, self._timeout_s, self._until = release, timeout_s, until
        self._roles: dict[str, Conversations] = {}
        self._of: Conversations | None = None  # the policy of which this is a role
        self.max_turns: int | None = None
        self.failure: Failure | None = None
        self.stop: Stop | None = None
        self.refused = False
        self._conversations: list[Conversation] = []
        self._sessions: list[str] = []
        """The names of all sessions, also of those that were given up."""
        self._by_turn: dict[int, Conversation] = {}
        """The conversation of each turn that counts."""
        self._used: dict[int, Sampling] = {}
        self._closed, self._next_turn = False, 0
        self._pending = 0  # the number of turns that are being sampled
        self._prompts: dict[str, int] = {}
        """How many conversations began with the same messages, by their hash."""

    @property
    def turns(self) -> int:
        """The number of turns so far, without those that were withdrawn."""
        return len(self._by_turn)

    @property
    def by_role(self) -> dict[str, Conversations]:
        """These conversations as those of the role ``""``, and those of the roles that the harness has asked for."""
        return {"": self, **self._roles}

    def records(self) -> list[Record]:
        """The conversations in which the policy has answered, in the order in which they began.

        Messages that an earlier conversation has are the context of a later one. Call it once, at the end.
        """
        seen: set[Key] = set()
        answered = [each for each in self._conversations if each.turn is not None]
        for each in answered:
            segment = each.record.segment
            first = segment.turns[0]
            known = next((i for i in range(len(first.messages)) if each.keys[i] not in seen), len(first.messages))
            segment.context = first.messages[:known]
            segment.turns[0] = replace(first, messages=first.messages[known:])
            seen.update(each.keys)
        return [each.record for each in answered]

    @property
    def step_reward(self) -> float | None:
        """The sum of the rewards of all turns; None if there are none."""
        found = (turn for each in self._conversations for part in each.record.segments for turn in part.turns)
        rewards = [turn.reward for turn in found if turn.reward is not None]
        return sum(rewards) if rewards else None

    @property
    def sampling(self) -> Sampling | None:
        """The sampling parameters of all turns, with the seed of the trajectory; None if turns had different ones."""
        found = {replace(each, seed=self._sampling.seed) for each in self._used.values()} or {self._sampling}
        return found.pop() if len(found) == 1 else None

    async def respond(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSchema] = (),
        images: Iterable[bytes] = (),
        sampling: Mapping[str, Any] = FrozenDict(),
    ) -> Response:
        """As `EpisodePolicy.respond`."""
        self._require_open()
        messages, tools, images = tuple(messages), tuple(tools), tuple(images)
        given = Observation(messages=messages, tools=tools, images=images)
        if flaw := flaw_in_observation(given) or ("no messages" if not messages else None):
            raise ValueError(f"the request has {flaw}")
        limit = LONGEST_TOKEN * self._client.max_context_tokens
        if sum(len(message.text) for message in messages) > limit:  # rendering it would delay all episodes
            raise self._used_up(Stop.LENGTH, FULL)
        if messages[-1].role == "assistant":
            raise ValueError("the last message is one of the assistant, which cannot be continued")
        keys = [key_of(message) for message in messages]
        conversation = self._continued(keys, messages, tools) or self._begin(keys, tools)
        before, conversation.busy, conversation.asked = conversation.state(), True, False
        self._pending += 1
        try:
            self._images.add(images)
            response = await self._sample(conversation, keys, messages, self._merged(conversation, sampling))
        except BaseException:
            self._restore(conversation, before)
            raise
        finally:
            self._pending -= 1
            conversation.busy = False
        conversation.before = before
        return response

    def withdraw(self, turn: int) -> None:
        """As `EpisodePolicy.withdraw`."""
        conversation = self._by_turn.get(turn)
        if conversation is None or conversation.turn != turn or conversation.busy or conversation.before is None:
            return
        self._restore(conversation, conversation.before)
        conversation.before = self.stop = None
        self.refused = False
        del self._by_turn[turn], self._used[turn]

    def reward(self, value: float, *, turn: int | None = None) -> None:
        """As `EpisodePolicy.reward`."""
        if not is_finite(value):
            raise ValueError(f"a reward must be a finite number, not {value!r:.40}")
        number = max(self._by_turn, default=-1) if turn is None else turn
        if (conversation := self._by_turn.get(number)) is None:
            raise ValueError("there is no turn to reward" if turn is None else f"there is no turn {turn!r:.40}")
        place = [each for each, other in self._by_turn.items() if other is conversation].index(number)
        turns = conversation.record.segment.turns
        index = [i for i, each in enumerate(turns) if each.kind == "policy"][place]
        total = (turns[index].reward or 0.0) + float(value)
        if not is_finite(total):
            raise ValueError(f"the reward of turn {number} would not be finite")
        turns[index] = replace(turns[index], reward=total)

    def role(self, name: str) -> Conversations:
        """As `EpisodePolicy.role`."""
        if not ROLE.fullmatch(name):
            raise ValueError(f"the name of a role has 1 to 40 letters, digits, '-' or '_', unlike {name!r:.60}")
        if self._of is not None:
            return self._of.role(name)
        if name not in self._roles:
            self._roles[name] = made = Conversations(
                model_client=self._client,
                sampling=replace(self._sampling, seed=derive_seed(self._sampling.seed, "role", name)),
                session=f"{self._session}:{name}",
                images=self._images,
                release=self._release,
                timeout_s=self._timeout_s,
                until=self._until,
            )
            made._of, made._closed, made.max_turns = self, self._closed, self.max_turns
        return self._roles[name]

    async def close(self) -> None:
        """End the episode, and the engine's sessions."""
        self._closed = True
        for session in self._sessions:
            await self._release(session)
        for role in self._roles.values():
            await role.close()

    def _require_open(self) -> None:
        if self._closed:
            raise EpisodeEnded("the episode is over", Stop.DONE)
        if self.failure is not None:
            raise EngineError(self.failure.message)
        if self.max_turns is not None and self.turns + self._pending >= self.max_turns:
            message = f"the policy has answered {self.max_turns} times, which is its limit"
            raise self._used_up(Stop.MAX_TURNS, message)

    def _continued(
        self, keys: Sequence[Key], messages: Sequence[Message], tools: tuple[ToolSchema, ...]
    ) -> Conversation | None:
        """The longest conversation that the messages continue; None if they begin another one."""

        def continues(each: Conversation) -> bool:
            known = len(each.keys)
            if each.busy or each.turn is None or known >= len(keys) or each.record.tools != tools:
                return False
            # The chat format renders what others say after an answer. Anything else needs a new prompt.
            said_by_others = all(message.role in ("user", "tool") for message in messages[known:])
            return said_by_others and each.keys == keys[:known]

        return max(filter(continues, self._conversations), key=lambda each: len(each.keys), default=None)

    def _begin(self, keys: Sequence[Key], tools: tuple[ToolSchema, ...]) -> Conversation:
        # The seed must not depend on the order of concurrent conversations, which depends on the time.
        text = repr((keys, [tool.as_json() for tool in tools]))
        prompt = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()  # a request may be large
        equal = self._prompts[prompt] = self._prompts.get(prompt, -1) + 1
        made = Conversation(
            record=Record(name=self._new_session(), images=self._images, tools=tools),
            seed=derive_seed(self._sampling.seed, "conversation", prompt, equal),
        )
        self._conversations.append(made)
        return made

    def _new_session(self) -> str:
        self._sessions.append(f"{self._session}/{len(self._sessions)}" if self._sessions else self._session)
        return self._sessions[-1]

    def _restore(self, conversation: Conversation, state: State) -> None:
        conversation.restore(state)
        if conversation.turn is None:
            self._conversations.remove(conversation)
        elif conversation.asked:  # the prompts of a session extend each other, and those of this one no longer do
            conversation.record.name = self._new_session()
        conversation.asked = False

    def _merged(self, conversation: Conversation, sampling: Mapping[str, Any]) -> Sampling:
        """The sampling parameters of a turn."""
        changes, base = dict(sampling), self._sampling
        changes["max_new_tokens"] = min(changes.get("max_new_tokens", base.max_new_tokens), base.max_new_tokens)
        changes["stop"] = (*base.stop, *changes.get("stop", ()))
        return replace(base, seed=conversation.seed, **changes)

    async def _sample(
        self, conversation: Conversation, keys: list[Key], messages: tuple[Message, ...], sampling: Sampling
    ) -> Response:
        record, client = conversation.record, self._client
        try:
            known = len(conversation.keys)
            client.observe(record, await record.enter(Observation(messages=messages[known:])))
            conversation.asked = True
            with timed("turn"):
                message, reason = await client.generate(record, sampling, timeout_s=self._timeout_s, until=self._until)
        except End as end:
            raise self._refusal(end) from end
        if self._closed:
            raise EpisodeEnded("the episode is over", Stop.DONE)
        record.count("tool_calls", float(len(message.tool_calls)))
        number, self._next_turn = self._next_turn, self._next_turn + 1
        shown = self._shown(record, message, sampling.stop[len(self._sampling.stop) :], number)
        conversation.keys, conversation.turn = [*keys, key_of(shown)], number
        self._by_turn[number], self._used[number] = conversation, sampling
        self.stop, self.refused = Stop.LENGTH if reason == "length" else None, False
        return Response(number, _completion(record, shown, reason))

    def _used_up(self, stop: Stop, message: str) -> EpisodeEnded:
        """The error of a request that is refused."""
        self.stop, self.refused = stop, True
        return EpisodeEnded(message, stop)

    def _refusal(self, end: End) -> Exception:
        """The error for the harness."""
        if end.failure is None:
            limit = self._client.max_context_tokens
            counts = f": it has {end.tokens:,} tokens, and the context {limit:,}" if end.tokens is not None else ""
            return self._used_up(end.stop, FULL + counts)
        if end.failure.boundary is Boundary.ENVIRONMENT:  # the messages
            return ValueError(end.failure.message)
        self.failure = end.failure
        return EngineError(end.failure.message)

    def _shown(self, record: Record, message: Message, stops: Sequence[str], turn: int) -> Message:
        """The message for the harness: without stop texts, and with an id for each call.

        A message with an unreadable call is shown as it was written, without calls, since requests cannot have any.
        """
        if any(call.arguments is None for call in message.tool_calls) and isinstance(self._client, TokenClient):
            ids, ends = record.segment.last_turn_ids, self._client.chat_format.stop_token_ids
            text = self._client.chat_format.decode(ids[:-1] if ids[-1] in ends else ids)
            message = replace(message, content=text, tool_calls=())
        if isinstance(message.content, str):
            cuts = [message.content.find(text) for text in stops if text in message.content]
            message = replace(message, content=message.content[: min(cuts)] if cuts else message.content)
        # Those of a parser count from 0 in each message, but agents look for results by id in all messages.
        calls = (replace(each, id=f"call_{turn}_{i}") for i, each in enumerate(message.tool_calls))
        return replace(message, tool_calls=tuple(calls))


def _completion(record: Record, shown: Message, reason: FinishReason) -> ChatCompletion:
    turn = record.segment.turns[-1]
    counts = {"prompt_tokens": turn.start, "completion_tokens": turn.end - turn.start} if turn.end else {}
    return ChatCompletion(message=shown, finish_reason=reason, **counts)


__all__ = ["Conversations"]
