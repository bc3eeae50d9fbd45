"""Runs every agent loop and reward in this process, on one event loop that lives between the calls."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict
from rlcore.calls import CallFailed, call, describe
from rlcore.errors import EngineError, UserError
from rlcore.scoring import Scorer
from rlcore.specs import EngineSpec, EnvironmentSpec
from rlcore.types import Completion, EndReason, Group, RolloutRequest, Sampling, Task, Trajectory, derive_seed

from rlcore_rollout.engines.context import EngineContext
from rlcore_rollout.loop import AgentLoop, Limits
from rlcore_rollout.speech import MessageSpeech, Speech, TokenSpeech
from rlcore_rollout.threads import GrowingThreads

if TYPE_CHECKING:
    from rlcore.contracts import ChatFormat, WeightSource
    from rlcore.run import Run

NO_LIMIT = 2**31 - 1
"""Tokens of a context that neither the run nor the model limits."""


class LocalExecutorConfig(BaseModel):
    """Nothing to choose: how many trajectories are alive at a time is ``rollout.concurrency``."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LocalExecutor:
    """Collects groups with one engine, made once from the run's configuration.

    `collect` must not be called from a running event loop: it brings its own.
    """

    def __init__(self, run: Run, source: WeightSource):
        self._run = run
        rollout = run.config.rollout
        self._speech = make_speech(run, source)
        self._engine = self._speech.engine
        spec = run.registry.spec("environment", run.config.environment.id)
        assert isinstance(spec, EnvironmentSpec)
        limits = [spec.max_concurrency, getattr(self._engine, "max_concurrency", None)]
        self._concurrency = min([rollout.concurrency, *filter(None, limits)])
        self._agent_loop = AgentLoop(
            make_environment=run.environment,
            speech=self._speech,
            blocking=spec.blocking,
            limits=Limits(
                environment_timeout_s=rollout.environment_timeout_s,
                engine_timeout_s=rollout.engine_timeout_s,
                trajectory_timeout_s=rollout.trajectory_timeout_s,
            ),
        )
        self._closed = False
        self._runner = asyncio.Runner()
        self._runner.get_loop().set_default_executor(GrowingThreads())

    @property
    def chat_format(self) -> ChatFormat:
        """The renderer that the rollouts use; an engine that speaks messages has none."""
        return self._tokens.chat_format

    @property
    def _tokens(self) -> TokenSpeech:
        """How tokens are spoken. Raises `EngineError` where they are not."""
        if isinstance(self._speech, TokenSpeech):
            return self._speech
        raise EngineError(f"the engine {self._run.config.rollout.engine!r} speaks messages, not tokens")

    def collect(self, request: RolloutRequest) -> Sequence[Group]:
        """Scored groups in the order of the request's tasks, siblings in theirs, whatever finished first.

        Raises `EngineError` when the engine died, or failed in every trajectory, and the `UserError` of an endpoint
        that cannot work; any smaller failure is in the trajectories.
        """
        groups: Sequence[Group] = self._runner.run(self._collect(request))
        if refusal := getattr(self._engine, "refusal", None):
            raise refusal
        if failure := getattr(self._engine, "failure", None):
            raise EngineError(failure)
        trajectories = [trajectory for group in groups for trajectory in group.trajectories]
        if trajectories and all(trajectory.end_reason is EndReason.ENGINE_ERROR for trajectory in trajectories):
            raise EngineError(f"the engine failed in all {len(trajectories)} trajectories: {trajectories[0].error}")
        if sentence := not_scored_sentence(trajectories):
            self._run.say(sentence)
        return groups

    def sync_weights(self, source: WeightSource) -> None:
        """Give the engine the policy's present weights."""
        self._runner.run(self._tokens.engine.load_weights(source))

    def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """One completion straight from the engine, within the deadline of a generation."""
        timeout_s = self._run.config.rollout.engine_timeout_s
        return self._runner.run(self._generate(prompt_ids, sampling, timeout_s))

    def close(self) -> None:
        """End the engine, and whatever an interrupted `collect` left running. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            self._runner.run(self._engine.close())
        finally:
            self._runner.close()

    async def _generate(self, prompt_ids: Sequence[int], sampling: Sampling, timeout_s: float) -> Completion:
        generate, session = self._tokens.engine.generate, "executor"
        try:
            return await call("the engine", generate, prompt_ids, sampling, timeout_s=timeout_s, session=session)  # type: ignore[no-any-return]
        except CallFailed as failure:
            raise EngineError(str(failure)) from failure
        finally:
            await self._engine.release(session)

    async def _collect(self, request: RolloutRequest) -> list[Group]:
        rollout = self._run.config.rollout
        slots = asyncio.Semaphore(self._concurrency)
        timeout_s, concurrency = rollout.reward_timeout_s, rollout.concurrency
        scorer = Scorer(self._run.rewards, timeout_s=timeout_s, concurrency=concurrency)
        progress = _Progress(len(request.tasks) * request.group_size, visible=self._run.is_main)
        sampling = Sampling(
            **{
                "max_new_tokens": rollout.max_new_tokens,
                "temperature": rollout.temperature,
                "top_p": rollout.top_p,
                "top_k": rollout.top_k,
                "stop_token_ids": self.chat_format.stop_token_ids if isinstance(self._speech, TokenSpeech) else (),
                "stop": tuple(rollout.stop),
                **request.sampling,
            }
        )

        async def trajectory(task: Task, index: int, sibling: int) -> Trajectory:
            async with slots:
                ended = await self._act(request, sampling, task, index, sibling)
            progress.advance()
            return await scorer.judge(ended, task)

        async def group(task: Task, index: int) -> Group:
            siblings = (trajectory(task, index, sibling) for sibling in range(request.group_size))
            return await scorer.settle(Group(task=task, trajectories=tuple(await asyncio.gather(*siblings))))

        try:
            return await asyncio.gather(*(group(task, index) for index, task in enumerate(request.tasks)))
        finally:
            progress.clear()
            if request.purpose == "train" and (sleep := getattr(self._engine, "sleep", None)):
                await sleep()

    async def _act(
        self, request: RolloutRequest, sampling: Sampling, task: Task, index: int, sibling: int
    ) -> Trajectory:
        """One trajectory. Sessions sort in logical order, which an engine may follow."""
        sampling_seed = derive_seed(request.seed, request.purpose, request.step, task.id, sibling)
        try:
            return await self._agent_loop.run(
                task,
                sibling=sibling,
                environment_seed=derive_seed(request.seed, "environment", request.step, task.id),
                sampling=replace(sampling, seed=sampling_seed),
                session=f"{request.purpose}-{request.step}-{index:08d}-{sibling:06d}",
            )
        except Exception as error:
            # The boundary of a trajectory: a mistake in one is told, and costs the others nothing.
            return Trajectory(
                task_id=task.id,
                sibling=sibling,
                token_ids=(),
                loss_mask=(),
                logprobs=(),
                turns=(),
                end_reason=EndReason.ENVIRONMENT_ERROR,
                error=f"the agent loop raised {describe(error)}",
            )


def make_speech(run: Run, source: WeightSource) -> Speech:
    """The run's engine, and how it is spoken with: in messages, or in the tokens of the model's folder."""
    rollout, model = run.config.rollout, run.config.model
    context = EngineContext(
        seed=run.config.seed,
        max_context_tokens=rollout.max_context_tokens,
        device=model.device,
        dtype=model.dtype,
        quantization=model.quantization,
        timeout_s=rollout.engine_timeout_s,
    )
    spec = run.registry.spec("engine", rollout.engine)
    max_context_tokens = rollout.max_context_tokens or NO_LIMIT
    if isinstance(spec, EngineSpec) and spec.speaks == "messages":
        engine = run.load("engine", rollout.engine)(run.options("engine"), source, context)
        return MessageSpeech(engine=engine, max_context_tokens=max_context_tokens)
    folder = source.folder or run.model_folder()
    chat_format = run.chat_format(folder)
    _check_vocabulary(folder)
    max_context_tokens = min(max_context_tokens, model_context_tokens(folder))
    engine = run.load("engine", rollout.engine)(run.options("engine"), source, context)
    return TokenSpeech(engine=engine, chat_format=chat_format, max_context_tokens=max_context_tokens)


def _check_vocabulary(folder: Path) -> None:
    """Refuse a tokenizer with tokens that the model has no embedding for."""
    path = folder / "tokenizer.json"
    config = _model_config(folder)
    rows = config.get("vocab_size") or config.get("text_config", {}).get("vocab_size")
    if not rows or not path.is_file():
        return
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    words = tokenizer.get("model", {}).get("vocab") or ()
    ids = [*(words.values() if isinstance(words, dict) else range(len(words)))]
    highest = max([*ids, *(token["id"] for token in tokenizer.get("added_tokens") or ())], default=0)
    if highest >= rows:
        raise UserError(
            "the tokenizer must not know more tokens than the model",
            found=f"a token with the id {highest}, {rows} embeddings",
            where=str(folder),
            mend="take the tokenizer that the model was trained with",
        )


def _model_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise UserError(
            "the model's config.json is not JSON", found=str(error), where=str(path), mend="save or download it anew"
        ) from error
    return config if isinstance(config, dict) else {}


def model_context_tokens(folder: Path) -> int:
    """The longest context that the model's own configuration allows."""
    config = _model_config(folder)
    limit = config.get("max_position_embeddings") or config.get("text_config", {}).get("max_position_embeddings")
    return int(limit or NO_LIMIT)


def not_scored_sentence(trajectories: Sequence[Trajectory]) -> str | None:
    """How many have no reward, why, and the first error of each kind; None when all have one."""
    lost = [trajectory for trajectory in trajectories if trajectory.reward is None]
    if not lost:
        return None
    counts = Counter(trajectory.end_reason for trajectory in lost)
    first = {trajectory.end_reason: trajectory.error for trajectory in reversed(lost)}
    kinds = "; ".join(f"{count} {reason} (first: {first[reason]})" for reason, count in counts.most_common())
    return f"{len(lost)} of {len(trajectories)} trajectories were not scored: {kinds}"


class _Progress:
    """One line on a terminal that counts the trajectories that ended; nothing elsewhere."""

    def __init__(self, total: int, *, visible: bool):
        self._total, self._ended, self._shown_at = total, 0, 0.0
        self._visible = visible and sys.stderr.isatty()

    def advance(self) -> None:
        self._ended += 1
        now = time.monotonic()
        if self._visible and now - self._shown_at > 0.1:
            self._shown_at = now
            print(f"\r  {self._ended}/{self._total} trajectories\x1b[K", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._visible:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
