"""`Judge`: asks a language model whether an answer is right.

A judgement that fails gives no value. A zero would teach that every answer is wrong while a server is down.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakKeyDictionary

from rlcore.endpoints.failures import EndpointFailure
from rlcore.endpoints.options import read_key
from rlcore.errors import UserError
from rlcore.types import RewardResult, Task, Trajectory

from rl_plugin_llm_judge.answers import UnusableTask, case_of, check_fields
from rl_plugin_llm_judge.config import JudgeConfig
from rl_plugin_llm_judge.templates import JudgePrompt, read_examples, read_template
from rl_plugin_llm_judge.verdicts import UnclearVerdict

if TYPE_CHECKING:
    from rlcore.endpoints.client import ChatEndpoints


Verdict = TypeVar("Verdict")


@dataclass(slots=True)
class _Pending(Generic[Verdict]):
    task: asyncio.Task[Verdict]
    waiting: int = 0


class VerdictCache(Generic[Verdict]):
    """Verdicts by question. The one that was used longest ago is forgotten first. Failures are not remembered.

    Args:
        size: the number of verdicts to remember
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._known: OrderedDict[bytes, Verdict] = OrderedDict()
        self._pending: dict[tuple[asyncio.AbstractEventLoop, bytes], _Pending[Verdict]] = {}

    def __len__(self) -> int:
        return len(self._known)

    async def get(self, key: bytes, ask: Callable[[], Awaitable[Verdict]]) -> tuple[Verdict, bool]:
        """The verdict, and whether it was known or is that of a concurrent equal question.

        A cancelled caller does not affect the others. The question is cancelled with its last caller.
        """
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key], True
        loop = asyncio.get_running_loop()
        pending = self._pending.get((loop, key))
        first = pending is None
        if pending is None:
            pending = self._pending[loop, key] = _Pending(loop.create_task(self._asked(key, ask)))
        pending.waiting += 1
        try:
            return await asyncio.shield(pending.task), not first
        finally:
            pending.waiting -= 1
            if not pending.waiting:
                pending.task.cancel()
                self._pending.pop((loop, key), None)

    async def _asked(self, key: bytes, ask: Callable[[], Awaitable[Verdict]]) -> Verdict:
        verdict = await ask()
        if self._size:
            self._known[key] = verdict
            while len(self._known) > self._size:
                self._known.popitem(last=False)
        return verdict


KEYS = "reward.N."
"""What messages write before the names of options."""
MARGIN_S = 10.0
"""Seconds between the deadline of a judgement and that of the call of the reward."""
LONGEST_REPEATED = 4000
"""Characters of an unclear reply that are repeated in the next question."""
LONGEST_KEPT = 1000
"""Characters of the end of a reply that are stored with the verdict."""
UNUSABLE_TASK, UNUSABLE_ENDPOINT = "unusable task", "unusable endpoint"
UNCLEAR = "unclear verdict"
"""Kinds of errors beside those of endpoints."""


class Judge:
    """The reward ``llm-judge``.

    Args:
        config: the endpoints and the question

    Attributes:
        reward_timeout_s: the deadline of one call in seconds

    Raises:
        UserError: the key is missing, or a template cannot be read.
    """

    def __init__(self, config: JudgeConfig) -> None:
        self.reward_timeout_s = config.deadline_s + MARGIN_S
        self._config = config
        self._template = read_template(config.template)
        self._prompts = {
            name: JudgePrompt(self._template, read_examples(name))
            for name in {config.examples, *config.examples_by.values()}
        }
        self._parser = self._prompts[config.examples].parser
        self._cache: VerdictCache[tuple[float, str]] = VerdictCache(config.cache_size)
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, ChatEndpoints] = WeakKeyDictionary()
        read_key(config.api_key_env, config.base_url, keys=KEYS)

    @property
    def refusal(self) -> UserError | None:
        """The reason why no question can be answered; None if there is none."""
        return next((client.refusal for client in self._clients.values() if client.refusal is not None), None)

    def check_tasks(self, tasks: Sequence[Task]) -> None:
        """Check that the tasks can be judged, before a run starts. Raises like `check_fields`."""
        check_fields(tasks, self._config, keys=KEYS)

    async def __call__(self, trajectory: Trajectory, task: Task) -> RewardResult:
        """The verdict, from 0 to 1. Without a verdict, the trajectory is not scored."""
        config = self._config
        try:
            case = case_of(trajectory, task, config)
        except UnusableTask as error:
            return RewardResult(value=None, error=str(error), error_kind=UNUSABLE_TASK)
        if not case.answer:
            return _result(0.0, empty=1.0)
        if len(case.answer) > config.max_answer_characters:
            return _result(0.0, rejected=1.0)
        if config.compare_first and case.equal:
            return _result(1.0)
        messages = self._prompt_of(task).messages(case.question, case.expected, case.answer)
        key = hashlib.sha256(json.dumps([config.model, messages]).encode()).digest()
        try:
            (verdict, reply), known = await self._cache.get(key, lambda: self._judged(messages))
        except EndpointFailure as failure:
            return RewardResult(value=None, error=f"the judge failed: {failure}", error_kind=failure.kind)
        except UnclearVerdict as error:
            return RewardResult(value=None, error=str(error), error_kind=UNCLEAR)
        except UserError as error:
            text = " ".join(str(error).split())
            return RewardResult(value=None, error=text, error_kind=UNUSABLE_ENDPOINT)
        return _result(verdict, reply, judged=1.0, cached=float(known))

    async def close(self) -> None:
        """Close the connections of this event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    def _prompt_of(self, task: Task) -> JudgePrompt:
        config = self._config
        kind = task.fields.get(config.examples_field) if config.examples_field else None
        name = config.examples_by.get(kind) if isinstance(kind, str) else None
        return self._prompts[name or config.examples]

    async def _judged(self, messages: list[dict[str, str]]) -> tuple[float, str]:
        """The verdict on a question and the end of the reply, which is asked again while the reply is unclear."""
        config = self._config
        complaint = ""
        try:
            async with asyncio.timeout(config.deadline_s):
                asked = messages
                for _ in range(config.attempts):
                    answer = await self._client().ask(
                        asked, max_tokens=config.max_tokens, temperature=config.temperature
                    )
                    try:
                        if answer.truncated:
                            raise UnclearVerdict(f"it is longer than {config.max_tokens} tokens")
                        return self._parser.parse(answer.text), answer.text[-LONGEST_KEPT:]
                    except UnclearVerdict as error:
                        complaint = str(error)
                    asked = self._repeated(messages, answer.text)
        except TimeoutError:
            raise EndpointFailure(f"there is no verdict within {config.deadline_s:g} s", "time-out") from None
        raise UnclearVerdict(f"no clear verdict in {config.attempts} replies of the judge: {complaint}")

    def _repeated(self, messages: list[dict[str, str]], reply: str) -> list[dict[str, str]]:
        """The question with an unclear reply, and a request for the verdict alone."""
        again = self._prompts[self._config.examples].again()
        said = {"role": "assistant", "content": reply[-LONGEST_REPEATED:] or "(empty)"}
        return [*messages, said, {"role": "user", "content": again}]

    def _client(self) -> ChatEndpoints:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            from rlcore.endpoints.client import ChatEndpoints

            self._clients[loop] = ChatEndpoints(self._config, keys=KEYS)
        return self._clients[loop]


def _result(value: float, text: str = "", **components: float) -> RewardResult:
    names = ("judged", "cached", "rejected", "empty")
    return RewardResult(value=value, components={name: components.get(name, 0.0) for name in names}, text=text)
