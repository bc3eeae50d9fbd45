"""Runs every agent loop and reward in this process, on one event loop that persists between calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.abilities import Described
from rlcore.config.schema import Table
from rlcore.contracts import LimitedEngine, RendersImages, RestartableEngine, SleepingEngine
from rlcore.episodes.calls import CallFailed, call, describe, together
from rlcore.episodes.context import EpisodeContext
from rlcore.episodes.rewards import SelectedReward, raise_refusal
from rlcore.episodes.scoring import Scorer
from rlcore.errors import EngineError, PluginError, UserError
from rlcore.event_loop import EventLoop
from rlcore.models.config_file import CONFIG, context_tokens, read_config
from rlcore.plugin_calls import is_interrupt, value_text
from rlcore.specs import EngineSpec, EnvironmentSpec
from rlcore.types import (
    Boundary,
    Completion,
    Failure,
    Group,
    Prompt,
    RolloutRequest,
    Sampling,
    Stop,
    Task,
    Trajectory,
    derive_seed,
)

from rlcore_rollout.completions import Completions
from rlcore_rollout.engines.context import EngineContext
from rlcore_rollout.executors.not_scored import not_scored_sentence
from rlcore_rollout.executors.shared_sandbox import SharedSandbox
from rlcore_rollout.images import ImagePool
from rlcore_rollout.loop import AgentLoop, Limits
from rlcore_rollout.model_client import ChatClient, ModelClient, TokenClient
from rlcore_rollout.threads import GrowingThreads

if TYPE_CHECKING:
    from rlcore.config.environments import ResolvedEnvironment
    from rlcore.contracts import ChatFormat, WeightSource
    from rlcore.runs.progress import Meter
    from rlcore.session.session import RunSession

NO_LIMIT = 2**31 - 1
"""Length of a context in tokens if neither the run nor the model limits it."""


class NotStarted:
    """The place of an engine that a dry run does not start."""

    def __init__(self, config: object, source: WeightSource, context: EngineContext) -> None: ...

    async def generate(self, prompt: Prompt, sampling: Sampling, *, session: str) -> Completion:
        """Fail."""
        raise EngineError("a dry run does not start the engine")

    async def release(self, session: str) -> None:
        """Do nothing."""

    async def load_weights(self, source: WeightSource) -> int:
        """Fail."""
        raise EngineError("a dry run does not start the engine")

    async def close(self) -> None:
        """Do nothing."""


class LocalExecutorConfig(Table):
    """No options: ``rollout.concurrency`` limits how many trajectories run at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """What the trajectories of one environment share."""

    agent_loop: AgentLoop
    named: str
    """The environment and its plugin, for messages."""
    concurrency: int
    """Maximum number of concurrent trajectories."""


class LocalExecutor:
    """Collects groups with one engine, created once from the run's configuration."""

    def __init__(self, run: RunSession, source: WeightSource):
        self._run = run
        rollout = run.config.rollout
        self._client = make_model_client(run, source)
        self._engine = self._client.engine
        if isinstance(self._client, TokenClient) and isinstance(self._client.chat_format, Described):
            for line in self._client.chat_format.description():
                run.say(line)
        limit = self._engine.max_concurrency if isinstance(self._engine, LimitedEngine) else None
        self._concurrency = min([rollout.concurrency, *filter(None, [limit])])
        self._stages = {environment.name: self._stage(environment) for environment in run.environments}
        self._sandbox = SharedSandbox(run)
        self._closed = False
        self._loop = EventLoop(GrowingThreads())

    def _stage(self, environment: ResolvedEnvironment) -> _Stage:
        run, rollout = self._run, self._run.config.rollout
        spec = run.registry.spec("environment", environment.id)
        assert isinstance(spec, EnvironmentSpec)
        loop = AgentLoop(
            make_environment=partial(run.environment, environment.name),
            model_client=self._client,
            blocking=spec.blocking or environment.python is not None,
            limits=Limits(
                environment_timeout_s=rollout.environment_timeout_s,
                engine_timeout_s=rollout.engine_timeout_s,
            ),
        )
        named = run.registry.named("environment", environment.id)
        return _Stage(agent_loop=loop, named=named, concurrency=spec.max_concurrency or self._concurrency)

    @property
    def chat_format(self) -> ChatFormat:
        """The renderer that the rollouts use. Raises `EngineError` for an engine that takes messages."""
        return self._tokens.chat_format

    @property
    def _tokens(self) -> TokenClient:
        """The client of an engine that takes tokens. Raises `EngineError` for one that takes messages."""
        if isinstance(self._client, TokenClient):
            return self._client
        raise EngineError(f"the engine {self._run.config.rollout.engine!r} takes messages, not tokens")

    def collect(self, request: RolloutRequest) -> Sequence[Group]:
        """Scored groups in the order of the request's tasks, independent of the order in which they finish.

        Raises `EngineError` when the engine died or failed in every trajectory, and the `UserError` of an unusable
        endpoint, also that of a reward if a trajectory is not scored. Other failures are stored in the trajectories.
        """
        groups: Sequence[Group] = self._loop.run(self._collect(request))
        if isinstance(self._client, ChatClient) and self._client.engine.refusal is not None:
            raise self._client.engine.refusal
        if isinstance(self._engine, RestartableEngine) and self._engine.failure is not None:
            raise EngineError(self._engine.failure)
        trajectories = [trajectory for group in groups for trajectory in group.trajectories]
        failures = [one.failure for one in trajectories if one.failure and one.failure.boundary is Boundary.ENGINE]
        if failures and len(failures) == len(trajectories):
            raise EngineError(f"the engine failed in all {len(trajectories)} trajectories: {failures[0].message}")
        raise_refusal(self._rewards(), trajectories)
        if sentence := not_scored_sentence(trajectories):
            self._run.say(sentence)
        return groups

    def sync_weights(self, source: WeightSource) -> None:
        """Load the current weights of the policy into the engine."""
        self._loop.run(_answer(self._tokens.engine.load_weights, source))

    def generate(self, prompt: Prompt, sampling: Sampling) -> Completion:
        """Sample one completion directly from the engine, within the deadline of a generation."""
        timeout_s = self._run.config.rollout.engine_timeout_s
        return self._loop.run(self._generate(prompt, sampling, timeout_s))

    def close(self) -> None:
        """Close the engine and cancel the work of an interrupted `collect`. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            for reward in self._rewards():
                self._loop.run(reward.close())
            self._loop.run(_answer(self._sandbox.close))
        finally:
            try:
                self._loop.run(_answer(self._engine.close))
            finally:
                self._loop.close()

    def _rewards(self) -> Iterator[SelectedReward]:
        for name in self._stages:
            yield from self._run.rewards(name)

    async def _generate(self, prompt: Prompt, sampling: Sampling, timeout_s: float) -> Completion:
        client, session = self._tokens, "executor"
        try:
            completion: Completion = await call(
                client.engine_name, client.engine.generate, prompt, sampling, timeout_s=timeout_s, session=session
            )
        except CallFailed as failure:
            raise EngineError(str(failure)) from failure
        finally:
            await _answer(self._engine.release, session)
        if flaw := client.flaw_in(completion, sampling):
            raise EngineError(f"{client.engine_name} returned {flaw}")
        return completion

    async def _collect(self, request: RolloutRequest) -> list[Group]:
        rollout = self._run.config.rollout
        slots = asyncio.Semaphore(self._concurrency)
        places = {name: asyncio.Semaphore(stage.concurrency) for name, stage in self._stages.items()}
        timeout_s, concurrency = rollout.reward_timeout_s, rollout.concurrency
        scorers = {
            name: Scorer(self._run.rewards(name), timeout_s=timeout_s, concurrency=concurrency) for name in self._stages
        }
        phase = "rollout" if request.purpose == "train" else request.purpose
        meter = self._run.progress(phase, len(request.tasks) * request.group_size, "trajectory")
        sampling = Sampling(
            **{
                "max_new_tokens": rollout.max_new_tokens,
                "temperature": rollout.temperature,
                "top_p": rollout.top_p,
                "top_k": rollout.top_k,
                "stop_token_ids": self.chat_format.stop_token_ids if isinstance(self._client, TokenClient) else (),
                "stop": tuple(rollout.stop),
                "suppressed_token_ids": self._client.placeholder_token_ids,
                **request.sampling,
            }
        )

        key = (request.seed, request.purpose, request.step)
        seed = derive_seed(*key)

        async def trajectory(task: Task, index: int, sibling: int, images: ImagePool) -> Trajectory:
            completions = Completions(
                model_client=self._client,
                sampling=replace(sampling, seed=derive_seed(*key, task.key, sibling)),
                session=f"{request.purpose}-{request.step}-{index:08d}-{sibling:06d}",
                images=images,
                slots=slots,
                timeout_s=rollout.engine_timeout_s,
            )
            context: EpisodeContext | None = None
            try:
                async with places[task.environment], slots:
                    context = EpisodeContext(  # here, because its time limit starts
                        task,
                        sibling=sibling,
                        seed=seed,
                        timeout_s=rollout.trajectory_timeout_s,
                        complete=completions,
                        open_sandbox=self._sandbox.open,
                    )
                    ended = await self._act(request, completions, context)
                meter.advance(tokens=ended.sampled_tokens)
                scored = await scorers[task.environment].score(ended, task, context)
                counts = completions.counts
                return scored.replace(metrics={**scored.metrics, **counts}) if counts else scored
            finally:
                if context is not None:
                    await self._leave(context)

        async def group(task: Task, index: int) -> Group:
            images = ImagePool(self._client.fit)
            siblings = (trajectory(task, index, sibling, images) for sibling in range(request.group_size))
            trajectories = tuple(await together(*siblings))
            return await scorers[task.environment].settle(Group(task=task, trajectories=trajectories))

        try:
            with meter, _refreshed(meter):
                return await asyncio.gather(*(group(task, index) for index, task in enumerate(request.tasks)))
        finally:
            if request.purpose == "train" and isinstance(self._engine, SleepingEngine):
                await self._engine.sleep()

    async def _leave(self, context: EpisodeContext) -> None:
        """Close what an episode has opened. A failure is reported, and does not change its outcome."""
        try:
            timeout_s = self._run.config.rollout.environment_timeout_s
            await call("the end of the episode", context.aclose, timeout_s=timeout_s)
        except CallFailed as failed:
            context.logger.warning("task %s, sibling %d: %s", context.task.id, context.sibling, failed)

    async def _act(self, request: RolloutRequest, given: Completions, context: EpisodeContext) -> Trajectory:
        """Run one trajectory. The names of sessions sort in logical order, which an engine may use."""
        task, sibling = context.task, context.sibling
        stage = self._stages[task.environment]
        try:
            ended = await stage.agent_loop.run(
                context,
                environment_seed=derive_seed(request.seed, "environment", request.step, task.key),
                sampling=given.sampling,
                session=given.session,
                images=given.images,
            )
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if is_interrupt(error):
                raise
            # The boundary of a trajectory: an error is reported and does not affect other trajectories.
            failure = Failure(boundary=Boundary.ENVIRONMENT, message=f"the agent loop raised {describe(error)}")
            ended = Trajectory(task_id=task.id, sibling=sibling, stop=Stop.CANCELLED, failure=failure)
        if ended.failure is None or ended.failure.boundary is not Boundary.ENVIRONMENT:
            return ended
        return ended.replace(failure=replace(ended.failure, message=f"{stage.named}: {ended.failure.message}"))


@contextmanager
def _refreshed(meter: Meter) -> Iterator[None]:
    """Show the passing time also while no trajectory ends."""

    async def refresh() -> None:
        while True:
            await asyncio.sleep(1.0)
            meter.refresh()

    task = asyncio.get_running_loop().create_task(refresh())
    try:
        yield
    finally:
        task.cancel()


def make_model_client(run: RunSession, source: WeightSource) -> ModelClient:
    """The client for the run's engine, in messages or in tokens of the model's folder."""
    rollout, model = run.config.rollout, run.config.model
    context = EngineContext(
        seed=run.config.seed,
        max_context_tokens=rollout.max_context_tokens,
        device=model.device,
        dtype=model.dtype,
        quantization=model.quantization,
        timeout_s=rollout.engine_timeout_s,
    )
    spec, named = run.registry.spec("engine", rollout.engine), run.registry.named("engine", rollout.engine)
    max_context_tokens = rollout.max_context_tokens or NO_LIMIT
    if isinstance(spec, EngineSpec) and spec.speaks == "messages":
        for name in ("chat_template", "chat_template_kwargs", "hide_tools"):
            if getattr(model, name):
                send = f", or send it: rollout.{rollout.engine}.extra_body.chat_template_kwargs"
                raise UserError(
                    f"the engine {rollout.engine!r} renders messages on its server, without model.{name}",
                    where=run.resolved.origin(("model", name)),
                    fix=f"remove it{send if name != 'hide_tools' else ''}",
                )
        engine = run.load("engine", rollout.engine)(run.options("engine"), source, context)
        return ChatClient(engine=engine, max_context_tokens=max_context_tokens, engine_name=named)
    folder = source.folder or run.model_folder()
    chat_format = run.chat_format(folder)
    format_name = run.registry.named("chat_format", run.chat_format_id(folder))
    _check_stops(chat_format, format_name)
    vocabulary = _check_vocabulary(folder)
    max_context_tokens = min(max_context_tokens, context_tokens(folder) or NO_LIMIT)
    skipped = run.trial and isinstance(spec, EngineSpec) and spec.starts
    make = NotStarted if skipped else run.load("engine", rollout.engine)
    images = chat_format.image_processor if isinstance(chat_format, RendersImages) else None
    engine = make(run.options("engine"), source, replace(context, images=images))
    return TokenClient(
        engine=engine,
        chat_format=chat_format,
        max_context_tokens=max_context_tokens,
        vocabulary=vocabulary,
        engine_name=named,
        format_name=format_name,
    )


def _check_stops(chat_format: ChatFormat, name: str) -> None:
    """Reject a chat format whose stop tokens are no ids."""
    ids: object = chat_format.stop_token_ids
    if not isinstance(ids, Sequence) or not all(type(index) is int for index in ids):
        raise PluginError(
            f"stop_token_ids of {name} must be ids", found=value_text(ids), fix="return a tuple of integers"
        )


async def _answer(method: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a method of an engine, which may be a plain one."""
    answer = method(*arguments)
    return await answer if isawaitable(answer) else answer


def _check_vocabulary(folder: Path) -> int:
    """The number of embeddings. Rejects a tokenizer with more tokens."""
    path = folder / "tokenizer.json"
    config = read_config(folder) if (folder / CONFIG).is_file() else {}
    rows = config.get("vocab_size") or (config.get("text_config") or {}).get("vocab_size")
    if not rows or not path.is_file():
        return int(rows or NO_LIMIT)
    from rlcore_rollout.chat.tokenizer import read_tokenizer  # an engine with its own model needs no tokenizers

    highest = max(read_tokenizer(path).get_vocab().values(), default=0)
    if highest >= rows:
        raise UserError(
            "the tokenizer has more tokens than the model",
            found=f"a token with the id {highest}, {rows} embeddings",
            where=str(folder),
            fix="use the tokenizer that the model was trained with",
        )
    return int(rows)
