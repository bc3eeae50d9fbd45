"""A sampler for tasks with one choice, between a good and a bad token."""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import torch
from rlcore.errors import EngineError
from rlcore.types import (
    Boundary,
    Completion,
    Failure,
    Group,
    Message,
    RewardResult,
    RolloutKey,
    RolloutRequest,
    Task,
    Trajectory,
    Turn,
    derive_seed,
)
from rlcore_models.streaming import streamed_model
from token_trajectories import segment, trajectory

GOOD, BAD, PROMPT = 1, 2, 3


def copied(source: Any) -> Any:
    """Return a model with a copy of the weights, as an engine in another process has."""
    weights = [one._replace(tensor=copy.deepcopy(one.tensor)) for one in source.weights()]
    quantised = any(one.tensor.dtype == torch.uint8 for one in weights)
    return streamed_model(source.folder, weights, adapter=source.adapter, quantization="nf4" if quantised else "none")


class BanditSampler:
    """Stands in for a sampler: one or two tokens from the policy, rewarded when the first is GOOD."""

    chat_format = SimpleNamespace(conversation=lambda messages, tools: ([PROMPT, GOOD, BAD], [False, True, False]))

    def __init__(self, run: Any, source: Any) -> None:
        self.run, self.source = run, source
        self.requests: list[Any] = []
        self.versions: list[int] = []
        """Of the weights that each request was sampled with."""
        self.synced: list[int] = []
        self.closed = False
        self.policy = copied(source)
        self.version = source.version
        self.delay: Callable[[Any], object] = lambda request: None
        """Waits before a submitted group ends."""
        self._threads = ThreadPoolExecutor(16)

    def submit(self, task: Task, key: RolloutKey, *, place: int) -> Future[Group]:
        request = RolloutRequest(tasks=[task], **{one.name: getattr(key, one.name) for one in fields(key)})

        def sampled() -> Group:
            (group,) = self.collect(request)
            self.delay(request)
            return group

        return self._threads.submit(sampled)

    def collect(self, request: Any) -> list[Group]:
        self.requests.append(request)
        self.versions.append(self.version)
        if self.run.engine_fails(len(self.requests)):
            raise EngineError("the engine died")
        return [self._group(request, task) for task in request.tasks]

    @torch.no_grad()
    def _group(self, request: Any, task: Task) -> Group:
        prompt = [PROMPT, 4 + int(task.id)]
        logits = self.policy(input_ids=torch.tensor([prompt]), use_cache=False).logits[0, -1]
        trajectories = []
        for sibling in range(request.group_size):
            seed = derive_seed(request.seed, request.purpose, request.step, task.id, sibling)
            greedy = request.sampling.get("temperature") == 0.0
            pair = logits[[GOOD, BAD]].log_softmax(-1)
            generator = torch.Generator().manual_seed(seed)
            token = int(pair.argmax()) if greedy else int(torch.multinomial(pair.exp(), 1, generator=generator))
            trajectories.append(self._trajectory(task, sibling, prompt, (GOOD, BAD)[token], float(pair[token])))
        return Group(task=task, trajectories=tuple(trajectories))

    def _trajectory(self, task: Task, sibling: int, prompt: list[int], token: int, logprob: float) -> Trajectory:
        failed = self.run.fails(task, sibling)
        value = None if failed else float(token == GOOD)
        turns = (
            Turn(kind="observation", start=0, end=2, messages=task.messages),
            Turn(
                kind="policy",
                start=2,
                end=3,
                messages=(Message(role="assistant", content=str(token)),),
                policy_version=self.version,
            ),
        )
        return trajectory(
            segment([*prompt, token], [False, False, True], logprobs=[0.0, 0.0, logprob], turns=turns),
            task_id=task.id,
            sibling=sibling,
            failure=Failure(boundary=Boundary.REWARD, message="the reward failed") if failed else None,
            rewards={"good": RewardResult(value=value)},
            reward=value,
            metrics={"tool_calls": 2.0, "tools/calculator": 1.0, "beauty": 0.5},
        )

    def update_weights(self, source: Any) -> None:
        self.synced.append(source.version)
        if self.run.sync_fails(len(self.synced)):
            raise EngineError("the engine did not take the weights")
        self.version, stale = source.version, dict(self.policy.named_parameters())
        self.policy = copied(source)
        with torch.no_grad():
            for name, parameter in self.policy.named_parameters():
                if self.run.forgotten and self.run.forgotten in name:
                    parameter.copy_(stale[name])

    @torch.no_grad()
    def completions(self, prompt: Any, sampling: Any) -> list[Completion]:
        generator = torch.Generator().manual_seed(sampling.seed)
        tokens, logprobs = list(prompt.token_ids), []
        for _ in range(sampling.max_new_tokens):
            logprobs_V = self.policy(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1].log_softmax(-1)
            weights_V = (logprobs_V / sampling.temperature).softmax(-1)
            finite = bool(weights_V.isfinite().all())
            tokens.append(int(torch.multinomial(weights_V, 1, generator=generator)) if finite else 0)
            logprobs.append(float(logprobs_V[tokens[-1]]))
        made = tuple(tokens[len(prompt) :])
        return [
            Completion(token_ids=made, logprobs=tuple(logprobs), finish_reason="length", policy_version=self.version)
        ]

    def close(self) -> None:
        self.closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
