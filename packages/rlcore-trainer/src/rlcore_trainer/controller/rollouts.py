"""Rollouts of a trainer: weight synchronisation, stopping, and one retry after an engine failure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Protocol, Self, cast

from rlcore.abilities import KeepsEvidence
from rlcore.contracts import ChatFormat, Sampler, TokenSampler
from rlcore.errors import EngineError, NotScoredError
from rlcore.types import Group, RolloutKey, RolloutRequest, Stop, Task, Trajectory
from rlcore_models.thread_teams import release_thread_team

from rlcore_trainer.batching.sharding import Rank, joined, share
from rlcore_trainer.controller.report import Report
from rlcore_trainer.controller.session import TrainingSession
from rlcore_trainer.controller.shared_sampler import SharedSampler
from rlcore_trainer.controller.stream import Streaming
from rlcore_trainer.controller.sync_check import compare, prove
from rlcore_trainer.policy.policy import TokenPolicy


class PolicyRollouts(Streaming, Protocol):
    """Samples trajectories with the weights of the last `sync`."""

    def collect(self, request: RolloutRequest) -> Sequence[Group] | None:
        """Return the scored groups of a request, or None if a stop interrupted it. Failed engines are tried again."""
        ...

    def evaluate(self, step: int, tasks: Sequence[Task]) -> Sequence[Group]:
        """Return and record the scored groups of held-out tasks."""
        ...

    def sync(self, step: int) -> Mapping[str, float]:
        """Transfer the weights of the policy, and return metrics of the check that they arrived."""
        ...


class Rollouts:
    """Samples with the policy of a training run. A context manager, which closes the samplers.

    Each process has a sampler, which collects its share of a request, unless the main process has one for all.
    Randomness is keyed by task and sibling, so samples do not depend on the process that draws them.

    Args:
        sampler: the sampler of this process
        session: the session whose policy is sampled
        report: shows failures, and records evaluations
        evaluation: makes the request for an evaluation of tasks
        check_every: number of steps between checks that the engine has the policy's weights; 0 disables the check
    """

    def __init__(
        self,
        sampler: Sampler,
        session: TrainingSession,
        report: Report,
        *,
        evaluation: Callable[[Sequence[Task]], RolloutRequest],
        check_every: int = 1,
    ) -> None:
        self._sampler, self._session, self._report = sampler, session, report
        self._evaluation, self._check_every = evaluation, check_every
        self._proven = False
        """Whether a weight transfer to the engine has been verified."""
        session.ranks.offer(collect=self._collect_here, sync=self._sync_here)

    @property
    def chat_format(self) -> ChatFormat:
        """The chat format of the rollouts of a `TokenPolicy`."""
        return self._tokens.chat_format

    @property
    def _tokens(self) -> TokenSampler:
        """The sampler, which samples tokens if the policy is a `TokenPolicy`."""
        return cast(TokenSampler, self._sampler)

    @property
    def version(self) -> int:
        """The version of the policy."""
        return self._session.policy.version

    def stopping(self) -> bool:
        """Whether the run is to stop."""
        return self._session.stopping()

    def submit(self, task: Task, key: RolloutKey, *, place: int) -> Future[Group]:
        """Start the trajectories of a task, in the only sampler of the run."""
        release_thread_team()
        return self._tokens.submit(task, key, place=place)

    def collect(self, request: RolloutRequest) -> Sequence[Group] | None:
        """Return the scored groups of a request, or None if a stop interrupted it; retry once if an engine fails."""
        if self._session.stopping():
            return None
        groups = self._sample(request)
        stopped = any(t.stop is Stop.CANCELLED for group in groups for t in group.trajectories)
        return None if stopped and self._session.stopping() else groups

    def evaluate(self, step: int, tasks: Sequence[Task]) -> Sequence[Group]:
        """Return and record the scored groups of held-out tasks.

        Every evaluation uses the same random numbers, which are independent of training.
        """
        if isinstance(self._report, KeepsEvidence):
            self._report.begin_record(step, "evaluation")
        groups = self._sample(self._evaluation(tasks))
        self._report.record(step, "evaluation", groups)
        return groups

    def sync(self, step: int) -> dict[str, float]:
        """Transfer the weights to the engines and check that they arrived; the first call verifies the transfer.

        A policy that is no `TokenPolicy` is sampled itself, so there is nothing to compare.
        """
        version = self._session.policy.version
        with self._divergence_named(f"step {step}"):
            found: dict[str, float] = self._session.ranks.call_all("sync", step, version, separate=True)[0]
        return found

    def _sync_here(self, step: int, version: int) -> dict[str, float]:
        """Transfer the weights to the engine of this process."""
        every, policy = self._check_every, self._session.policy
        policy.version = version
        if not every or not isinstance(policy, TokenPolicy):
            self._sampler.update_weights(policy)
            return {}
        if not self._proven:
            prove(self._tokens, policy)
            self._proven = True
        else:
            self._sampler.update_weights(policy)
        return {} if step % every else {"sync/gap": compare(self._tokens, policy)}

    def _collect_here(self, request: RolloutRequest) -> list[tuple[Task | None, tuple[Trajectory, ...]]]:
        """Return the trajectories of each task in the share of this process, with the task if the sampler changed it.

        Other tasks are not sent back to the main process: they may have images.
        """
        release_thread_team()
        groups = self._sampler.collect(request) if request.tasks else ()
        pairs = zip(groups, request.tasks, strict=True)
        return [(None if group.task is task else group.task, group.trajectories) for group, task in pairs]

    @contextmanager
    def _divergence_named(self, when: str) -> Iterator[None]:
        """Report a failure of the engine as a divergence, if the policy itself no longer computes finite numbers."""
        try:
            yield
        except EngineError:
            self._session.require_finite_policy(when)
            raise

    def _sample(self, request: RolloutRequest) -> Sequence[Group]:
        """Return the scored groups of a request, retrying it once if an engine fails."""
        try:
            return self._in_shares(request)
        except EngineError as error:
            self.recover(error)
            return self._in_shares(request)

    def recover(self, error: EngineError) -> None:
        """Report the failure of an engine, and transfer the weights again, which restarts an engine that died."""
        step = self._session.progress.step + 1
        self._report.say(f"engine    failed; retrying the rollout of step {step}: {error}")
        self._session.require_finite_policy(f"the rollout of step {step}")
        self.sync(step)

    def _in_shares(self, request: RolloutRequest) -> Sequence[Group]:
        """Return the scored groups of a request in the order of its tasks; each process with a sampler has a share."""
        if isinstance(self._sampler, SharedSampler):
            return self._sampler.collect(request)
        ranks = self._session.ranks
        shares = [share(request.tasks, Rank(index, ranks.count)) for index in range(ranks.count)]
        arguments = [(replace(request, tasks=tasks),) for tasks in shares]
        everybody = joined(ranks.call("collect", arguments, separate=True))
        pairs = zip(request.tasks, everybody, strict=True)
        return [Group(task=changed or task, trajectories=one) for task, (changed, one) in pairs]

    def close(self) -> None:
        """Shut down the engine and its workers."""
        self._sampler.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def require_scores(groups: Sequence[Group], what: str) -> None:
    """Check that at least one trajectory is scored.

    Raises:
        NotScoredError: no trajectory is scored.
    """
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    if any(trajectory.reward is not None for trajectory in trajectories):
        return
    reasons = Counter(str(one.failure or one.stop) for one in trajectories)
    ((reason, count),) = reasons.most_common(1)
    raise NotScoredError(
        f"{what} has no scored trajectories out of {len(trajectories)}",
        found=f"{count} times {reason}",
        fix="fix the failing reward, environment, agent or external service",
    )
