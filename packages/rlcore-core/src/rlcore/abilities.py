"""Optional abilities of components, as protocols. Check them with ``isinstance``, never by a component's name.

Those of environments are in `rlcore.contracts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from rlcore.errors import UserError
from rlcore.types import Demonstration, Group, NumberArray, Preference, RecordedEpisode, Task

if TYPE_CHECKING:
    from rlcore.diagnosis.diagnosing import Diagnosis


@runtime_checkable
class DemonstrationDataset(Protocol):
    """A dataset that provides demonstrations for a supervised warm-up, supervised training or tokenizers."""

    def demonstrations(self, count: int, *, seed: int) -> Iterable[Demonstration]:
        """At most ``count`` conversations. May raise `DataError` if the dataset has none."""
        ...


@runtime_checkable
class RestartableEngine(Protocol):
    """An engine that can fail permanently, such as one in a separate process. `Engine.load_weights` restarts it."""

    @property
    def failure(self) -> str | None:
        """The reason why the engine cannot continue; None if it can."""
        ...


@runtime_checkable
class SleepingEngine(Protocol):
    """An engine that can release its memory while the trainer updates."""

    async def sleep(self) -> None:
        """Free the memory; `Engine.load_weights` wakes the engine."""
        ...


@runtime_checkable
class LimitedEngine(Protocol):
    """An engine that serves a limited number of trajectories at a time."""

    @property
    def max_concurrency(self) -> int | None:
        """The limit; None for any number."""
        ...


@runtime_checkable
class KeepsGroups(Protocol):
    """A report of a sampler that stores groups as they end, such as `rlcore.session.session.RunSession`."""

    def group_finished(self, purpose: str, group: Group) -> None:
        """A group of a request with this purpose has been scored. Called from the thread of the sampler."""
        ...


@runtime_checkable
class KeepsEvidence(Protocol):
    """A report of a trainer that stores what became of groups and tokens, such as a `RunSession`."""

    def begin_record(self, step: int, purpose: str) -> None:
        """Announce the groups of a step, which `KeepsGroups` receives as they end, and ``record`` all together."""
        ...

    def describe_groups(
        self, step: int, notes: Sequence[Mapping[str, Any]], brought: Sequence[Mapping[str, Any]]
    ) -> None:
        """Describe the groups of the next ``record``, which is left out if no group was sampled.

        See `rlcore.rollouts.writing.write_record`.
        """
        ...

    def record_tokens(self, step: int, columns: Mapping[str, NumberArray], note: Mapping[str, Any]) -> None:
        """Store values of the trained tokens of a step; see `rlcore.rollouts.evidence.Tokens`."""
        ...


@runtime_checkable
class EpisodeDataset(Protocol):
    """A dataset that provides recorded episodes of control, which a warm-up imitates."""

    def episodes(self, count: int, *, seed: int) -> Iterable[RecordedEpisode]:
        """At most ``count`` episodes. May raise `DataError` if the dataset has none."""
        ...


@runtime_checkable
class ConversationDataset(Protocol):
    """A dataset whose rows are conversations. Supervised training reads them instead of demonstrations."""

    def conversations(self, split: str) -> Sequence[Demonstration]:
        """All of ``train`` or ``evaluation``, in a fixed order; empty for a split without any."""
        ...


@runtime_checkable
class PreferenceDataset(Protocol):
    """A dataset whose rows are prompts with a chosen and a rejected answer, for preference training."""

    def preferences(self, split: str) -> Sequence[Preference]:
        """All of ``train`` or ``evaluation``, in a fixed order; empty for a split without any."""
        ...


@runtime_checkable
class TextDataset(Protocol):
    """A dataset with texts for building a tokenizer, instead of its demonstrations and tasks."""

    def texts(self) -> Iterable[str]:
        """Texts as the model will see them."""
        ...


@runtime_checkable
class CountsSkipped(Protocol):
    """A dataset that skips and counts unusable rows; the first lines of a run report the count."""

    def skipped(self, split: str) -> int:
        """The number of skipped rows of a split."""
        ...


@runtime_checkable
class MapsRows(Protocol):
    """A dataset that recognises rows of other systems; the first lines of a run say what became what."""

    def mappings(self, split: str) -> Sequence[str]:
        """One sentence for each form that rows of a split have, such as ``Alpaca: output -> answer``."""
        ...


@runtime_checkable
class RunsCodeConfig(Protocol):
    """Options of an environment or of its dataset that decide whether it runs code, if its spec sets ``runs_code``."""

    runs_code: bool
    """Whether code runs with these options."""


@runtime_checkable
class RemoteReward(Protocol):
    """A `Reward` that asks a service, such as a model behind an endpoint.

    It limits its own time and its own concurrency, because answers may wait for those of other trajectories.
    """

    reward_timeout_s: float
    """Deadline of one call in seconds, instead of ``rollout.reward_timeout_s``."""
    refusal: UserError | None
    """Set when no further call can succeed (no server, a wrong key). The command ends with it if a
    trajectory is then not scored."""

    async def close(self) -> None:
        """Close the connections of this event loop. A later call opens new ones."""
        ...


@runtime_checkable
class ChecksTasks(Protocol):
    """A reward that needs more than every task has, so that it is asked before a run starts."""

    def check_tasks(self, tasks: Sequence[Task]) -> None:
        """Raise `DataError` if some of these tasks cannot be scored because the data was configured otherwise."""
        ...


@runtime_checkable
class SampleTracker(Protocol):
    """A tracker that shows trajectories."""

    def log_samples(self, step: int, purpose: str, groups: Sequence[Group]) -> None:
        """The scored groups of a step, before its metrics. ``purpose`` is ``train`` or ``evaluation``."""
        ...


@runtime_checkable
class AlertTracker(Protocol):
    """A tracker that reports findings of the diagnosis."""

    def alert(self, found: Diagnosis, repeated: bool) -> None:
        """A finding, or the error of a run that failed: the rule ``failed``. Secrets in its texts are masked.

        ``repeated`` findings are those of earlier steps of a resumed run, before its first metrics.
        """
        ...


@runtime_checkable
class Described(Protocol):
    """A component that states at the start of a run what it decided, such as a chat format that depends on a file."""

    def description(self) -> Sequence[str]:
        """Lines for the log."""
        ...


# Keys that several components' options share by convention.


@runtime_checkable
class MultiTurnConfig(Protocol):
    """Options of an environment that limits the turns of an episode."""

    max_turns: int
    """Maximum number of policy turns in an episode."""


@runtime_checkable
class ToolsConfig(Protocol):
    """Options of an environment whose tools are chosen in the configuration."""

    tools: Sequence[str]
    """Ids or import paths of tools."""


@runtime_checkable
class StepsConfig(Protocol):
    """Options of a trainer with a number of steps."""

    steps: int | str | None
    """The number of steps, or of passes over the data, such as ``"3 passes"``; None if it follows from the data."""


@runtime_checkable
class TasksConfig(Protocol):
    """Options of a trainer with a fixed number of tasks per step."""

    tasks_per_step: int
    """The number of different tasks per step."""


@runtime_checkable
class ConversationsConfig(Protocol):
    """Options of a trainer with a fixed number of conversations per step."""

    conversations_per_step: int
    """The number of conversations per step."""


@runtime_checkable
class ProcessesConfig(Protocol):
    """Options of a strategy with a configurable number of processes."""

    processes: int | None
    """The number of processes; None leaves it to the launcher or the machine."""


@runtime_checkable
class ServersConfig(Protocol):
    """Options of a sandbox on servers of ``rlcore serve sandbox``."""

    servers: Sequence[str]
    """``HOST:PORT`` of each."""


@runtime_checkable
class NamedModelConfig(Protocol):
    """Options of an engine that provides its own model."""

    model: str
    """The name of that model."""


@runtime_checkable
class ImagesConfig(Protocol):
    """Options of an engine that accepts a limited number of images."""

    max_images: int
    """The maximum number of images in one prompt."""
