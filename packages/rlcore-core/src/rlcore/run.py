"""A resolved run: its configuration, its components and where it writes. What trainers and executors are given."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from rlcore.calls import place_of
from rlcore.config.layers import values_layer
from rlcore.config.resolve import Purpose, Resolved, resolve
from rlcore.contracts import ChatFormat, Dataset, Environment, Executor, Tracker, WeightSource
from rlcore.errors import PluginError, UserError
from rlcore.loading import source_line
from rlcore.model_folder import BUILTIN, build, check_model_folder, download, local_folder
from rlcore.output import Output
from rlcore.records import write_groups
from rlcore.registry import Registry, make
from rlcore.run_directory import RunDirectory
from rlcore.specs import RewardSpec
from rlcore.tokenizer_texts import texts_of
from rlcore.types import derive_seed

if TYPE_CHECKING:
    from pydantic import BaseModel

    from rlcore.config.schema import RewardTable
    from rlcore.types import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedReward:
    """A reward of the run."""

    id: str
    weight: float
    scope: Literal["trajectory", "group"]
    function: Any
    """A `Reward`, or a `GroupReward` where ``scope`` is ``group``."""
    minimum: float
    maximum: float


def select_rewards(
    registry: Registry, tables: Sequence[RewardTable], options: Sequence[BaseModel | None]
) -> tuple[SelectedReward, ...]:
    """The rewards of these tables, each made of its validated options.

    Raises:
        PluginError: one cannot be made, or cannot be called with what a reward is given.
    """
    selected = []
    for table, own in zip(tables, options, strict=True):
        spec = cast(RewardSpec, registry.spec("reward", table.id))
        function = _made(f"reward {table.id!r}", registry.load("reward", table.id), own)
        _check_takes(table.id, function, ("group",) if spec.scope == "group" else ("trajectory", "task"))
        reward = SelectedReward(
            id=table.id,
            weight=table.weight,
            scope=spec.scope,
            function=function,
            minimum=spec.minimum,
            maximum=spec.maximum,
        )
        selected.append(reward)
    return tuple(selected)


def _check_takes(id: str, function: Any, arguments: tuple[str, ...]) -> None:
    """Refuse a reward whose signature has no room for these arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # compiled code need not say what it takes
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        wanted, line = f"({', '.join(arguments)})", place_of(function)
        raise PluginError(
            f"reward {id!r} is called with {wanted}",
            found=f"it takes {signature}: {error}",
            where=line,
            mend=f"give it the parameters {wanted}",
        ) from error


def _made(what: str, target: Any, options: BaseModel | None) -> Any:
    """As `make`; what a class of somebody else raises there becomes a `PluginError`."""
    try:
        return make(target, options)
    except UserError:
        raise
    except Exception as error:
        line = source_line(error)
        mend = f"mend {line}" if line else "a class is made without arguments, or of the values of its own Config"
        found = f"{type(error).__name__}: {error}"
        raise PluginError(f"{what} cannot be made", found=found, where=line, mend=mend) from error


class Run:
    """One run.

    Attributes:
        config: the validated `RunConfig`
        registry: the `Registry` (ids to specs to objects)
        directory: `RunDirectory`, or None (an evaluation, a dry run)
        resume_from: folder of the checkpoint to continue from, or None
        recipe: id or file of the recipe, empty when there was none
        is_main: whether this process writes files and speaks; one that does not has no directory, no trackers and
            no observers
    """

    def __init__(
        self,
        resolved: Resolved,
        registry: Registry,
        *,
        directory: RunDirectory | None = None,
        resume_from: Path | None = None,
        output: Output | None = None,
        dataset: Dataset | None = None,
        is_main: bool = True,
    ) -> None:
        self.resolved = resolved
        self.is_main = is_main
        self.config = resolved.config
        self.recipe = resolved.recipe
        self.registry = registry
        self.directory = directory
        self.resume_from = resume_from
        self.trackers: list[tuple[str, Tracker]] = []
        self._output = output or Output()
        if directory is not None:
            self._output.log = directory.path / "output.log"
        self._observers = registry.plugins.observers() if is_main else None
        self._dataset = dataset
        self._environment: Any = None
        self._rewards: tuple[SelectedReward, ...] | None = None
        self._model_folder: Path | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._stop_requested = False

    @classmethod
    def create(
        cls,
        values: Mapping[str, Any],
        *,
        registry: Registry | None = None,
        directory: RunDirectory | None = None,
        purpose: Purpose = "run",
    ) -> Run:
        """A run from plain values, such as ``{"model": {"path": …}, "environment": {"id": …}, …}``."""
        registry = registry or Registry()
        resolved = resolve([values_layer(values, "values")], registry, purpose=purpose)
        return cls(resolved, registry, directory=directory)

    def options(self, table: str) -> Any:
        """The component's own validated pydantic model; None for a component that takes no options.

        Tables: ``environment``, ``data``, ``trainer``, ``strategy``, ``executor``, ``engine`` (``rollout.<engine>``),
        ``builder`` and those that the trainer names, such as ``algorithm`` and ``warmup``.
        """
        return self.resolved.options[table]

    def load(self, kind: str, id: str) -> Any:
        """The imported target of a registered component: ``run.load("advantage", "grpo")``."""
        return self.registry.load(kind, id)

    @property
    def dataset(self) -> Dataset:
        """The `Dataset`, made once."""
        if self._dataset is None:
            id = self.config.data.get("id", self.config.environment.id)
            self._dataset = cast(Dataset, _made(f"dataset {id!r}", self.load("dataset", id), self.options("data")))
        return self._dataset

    def environment(self) -> Environment:
        """A new `Environment` for one trajectory."""
        if self._environment is None:
            self._environment = self.load("environment", self.config.environment.id)
        return cast(Environment, make(self._environment, self.options("environment")))

    @property
    def rewards(self) -> tuple[SelectedReward, ...]:
        """The selected rewards, made once."""
        if self._rewards is None:
            self._rewards = select_rewards(self.registry, self.config.reward, self.resolved.reward_options)
        return self._rewards

    def model_folder(self) -> Path:
        """The policy's Hugging Face folder: the local one, or ``builtin:`` built into the run directory."""
        if self._model_folder is None:
            path = self.config.model.path
            where = self.resolved.origin(("model", "path"))
            if path.startswith(BUILTIN):
                self._model_folder = self._build(path.removeprefix(BUILTIN))
            else:
                self._model_folder = local_folder(path, where=where) or download(path, where=where)
        return self._model_folder

    def _build(self, id: str) -> Path:
        if self.directory is not None:
            parent = self.directory.path
        else:
            self._temporary = tempfile.TemporaryDirectory(prefix="rlcore-model-")
            parent = Path(self._temporary.name)
        seed = derive_seed(self.config.seed, "model")
        return build(self.registry, id, parent / "model", texts_of(self.dataset), seed, self.options("builder"))

    def chat_format(self, folder: Path) -> ChatFormat:
        """The format that the run names, or the one that claims a folder with a tokenizer, with the run's parser.

        Raises:
            PluginError: none knows the folder.
        """
        model = self.config.model
        id = model.chat_format
        if id == "auto":
            id = self.registry.plugins.claim("rlcore_chat_format", folder=folder)
            if id is None:
                raise PluginError(
                    "no chat format knows this model's tokenizer",
                    where=str(folder),
                    mend="name one: model.chat_format=plain works with any tokenizer",
                )
        factory = self.load("chat_format", id)
        if model.tool_parser == "auto":
            return cast(ChatFormat, factory(folder))
        return cast(ChatFormat, factory(folder, parser=self.load("tool_parser", model.tool_parser)()))

    def executor(self, source: WeightSource) -> Executor:
        """The selected `Executor` over a `WeightSource`."""
        return cast(Executor, self.load("executor", self.config.executor.id)(self, source))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Tell trackers and observers the numbers of a step. A tracker that fails is left out from then on.

        Raises:
            UserError: of a tracker that cannot write the run's own files; a run without them is not worth going on.
        """
        for name, tracker in list(self.trackers):
            try:
                tracker.log(step, metrics)
            except UserError:
                raise
            except Exception as error:  # the boundary to trackers: a service that is down costs no run
                self.trackers.remove((name, tracker))
                self.say(f"tracker {name} failed and is left out from here: {type(error).__name__}: {error}")
        self._tell("rlcore_step_finished", run=self, step=step, metrics=metrics)

    def record(self, step: int, purpose: str, groups: Sequence[Group]) -> None:
        """Store scored groups in ``rollouts/`` and tell observers."""
        if self.directory is not None:
            write_groups(self.directory.rollouts / f"{purpose}-{step:06d}.jsonl.gz", groups)
        self._tell("rlcore_rollouts_scored", run=self, step=step, purpose=purpose, groups=groups)

    def say(self, text: str) -> None:
        """One line for the person who watches (and ``output.log``)."""
        if self.is_main:
            self._output.say(text)

    @property
    def stop_requested(self) -> bool:
        """True after SIGINT: finish the step, save and stop."""
        return self._stop_requested

    def note(self, text: str) -> None:
        """For ``output.log`` alone."""
        if self.is_main:
            self._output.note(text)

    def _tell(self, hook: str, **arguments: Any) -> None:
        if self._observers is not None:
            self._observers.tell(hook, **arguments)

    def open_trackers(self, *, skip: Sequence[str] = ()) -> None:
        """Make the selected trackers, which from then on get what `log` is given."""
        path = self.directory.path if self.directory is not None else None
        for id in self.config.trackers.use if self.is_main else ():
            if id not in skip:
                tracker = self.load("tracker", id)(self.resolved.tracker_options.get(id, {}), path)
                self.trackers.append((id, tracker))

    def request_stop(self) -> None:
        """Ask the trainer to finish its step, save and stop."""
        self._stop_requested = True

    def checkpoint_saved(self, step: int, path: Path) -> None:
        """Tell observers."""
        self._tell("rlcore_checkpoint_saved", run=self, step=step, path=path)

    def started(self) -> None:
        """Tell observers that the run directory exists and nothing has been computed."""
        self._tell("rlcore_run_started", run=self)

    def finished(self, error: BaseException | None = None) -> None:
        """Tell observers, end trackers, and let others into the run directory."""
        for name, tracker in self.trackers:
            try:
                tracker.close()
            except Exception as failure:  # the boundary to trackers, as in `log`
                with suppress(UserError):  # what cannot be logged has been printed
                    self.say(f"tracker {name} failed to end: {type(failure).__name__}: {failure}")
        self.trackers.clear()
        self._tell("rlcore_run_finished", run=self, error=error)
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None
        if self.directory is not None:
            self.directory.close()


__all__ = ["Run", "SelectedReward", "check_model_folder"]
