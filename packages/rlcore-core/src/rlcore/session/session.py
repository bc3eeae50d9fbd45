"""The execution of a plan: the components of the run, its directory, trackers and observers."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rlcore.abilities import AlertTracker, SampleTracker
from rlcore.config.resolve import Purpose
from rlcore.console.escaping import printable
from rlcore.contracts import Dataset, Sampler, Tracker, WeightSource
from rlcore.diagnosis.diagnosing import Diagnoser, Diagnosis, failure_found
from rlcore.episodes.calls import describe
from rlcore.errors import UserError
from rlcore.plugin_calls import error_text, plugin_code
from rlcore.plugins.observers import Observers
from rlcore.plugins.registry import Registry, asked
from rlcore.rollouts.evidence import TOKENS, write_times, write_tokens
from rlcore.rollouts.index import INDEX, evidence_file, write_lines
from rlcore.rollouts.records import EVIDENCE
from rlcore.rollouts.writing import Unfinished, write_record
from rlcore.runs.directory import RunDirectory
from rlcore.runs.metrics import read_metrics
from rlcore.runs.output import Output
from rlcore.runs.progress import Meter, PrintedProgress, ProgressDisplay, silent
from rlcore.session.components import RunComponents
from rlcore.session.plan import RunPlan

if TYPE_CHECKING:
    from rlcore.types import Group, NumberArray


class RunSession(RunComponents):
    """One run of a `RunPlan`, which trainers, samplers, checks and observers receive.

    A trainer reads the configuration and components, and reports with `log`, `record`, `say` and `checkpoint_saved`. A
    sampler needs no session: in another process, it takes the `RunComponents` of the pickled plan.

    Attributes:
        directory: `RunDirectory`, or None (an evaluation, a dry run)
        is_main: whether this process prints and writes files; other processes have no directory, trackers or observers
        progress: shows how far a phase is; by default, on the terminal or in lines
        trackers: the open trackers by id
        last_step: the last step whose metrics were logged; None before the first
        diagnosis: why the run does not learn; None before `started`, and without a directory
    """

    def __init__(
        self,
        plan: RunPlan,
        registry: Registry | None = None,
        *,
        directory: RunDirectory | None = None,
        output: Output | None = None,
        dataset: Dataset | None = None,
        is_main: bool = True,
        trial: bool = False,
        progress: ProgressDisplay | None = None,
    ) -> None:
        home = directory.path if directory is not None else None
        super().__init__(plan, registry, home=home, dataset=dataset, trial=trial)
        self.directory, self.is_main = directory, is_main
        self._samplers: list[Sampler] = []
        self.trackers: list[tuple[str, Tracker]] = []
        self._without: set[tuple[str, str]] = set()  # trackers, each with an optional method that failed
        self._output = output or Output()
        self._show = (progress or PrintedProgress(self.say)) if is_main else silent
        if directory is not None:
            self._output.log = directory.path / "output.log"
        self._observers = Observers(self.registry)
        self._measured: dict[str, float] = {}
        self._stop_signal: int | None = None
        self.last_step: int | None = None
        self.diagnosis: Diagnoser | None = None
        self._unfinished: Unfinished | None = None
        self._described: tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]] = ((), ())

    @classmethod
    def create(
        cls,
        values: Mapping[str, Any],
        *,
        registry: Registry | None = None,
        directory: RunDirectory | None = None,
        purpose: Purpose = "run",
    ) -> RunSession:
        """Create a session of the plan that `RunPlan.of` creates from plain values."""
        registry = registry or Registry()
        return cls(RunPlan.of(values, registry=registry, purpose=purpose), registry, directory=directory)

    def sampler(self, source: WeightSource) -> Sampler:
        """The selected `Sampler` over a `WeightSource`."""
        sampler = cast(Sampler, self.load("sampler", self.config.sampler.id)(self, source, self))
        if self.trial:
            self._samplers.append(sampler)
        return sampler

    def _tell_skipped(self, lines: Sequence[str]) -> None:
        for line in lines:
            self.say(line)

    def discard(self) -> None:
        """Remove the model that was built in a temporary folder, and close the samplers of a dry run."""
        while self._samplers:
            self._samplers.pop().close()
        super().discard()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics of a step, and those that observers add, to the trackers. A tracker that fails is disabled.

        Trainers that do not log every step add `rlcore.runs.metrics.STEPS_COVERED`.

        Raises:
            UserError: a tracker cannot write the run's own files, which every run needs.
        """
        self.last_step = step
        self._measured |= self._observers.tell("rlcore_step_finished", run=self, step=step, metrics=metrics)
        added, self._measured = self._measured, {}
        if taken := sorted(added.keys() & metrics.keys()):
            self.note(f"not logged: observers returned metrics with names of the run: {', '.join(taken)}")
        for name, tracker in list(self.trackers):
            with self._disabling(name, tracker, "log"):
                tracker.log(step, {**added, **metrics})
        if self.diagnosis is not None:
            for found in self.diagnosis.after({**added, **metrics, "step": step}):
                self.say(*found.lines())
                self._alert(found)

    def begin_record(self, step: int, purpose: str) -> None:
        """Announce the groups of a step. Those that `group_finished` receives are stored before the step ends."""
        self._close_unfinished()
        if self.directory is not None:
            self._unfinished = Unfinished(self.directory.path, purpose, step)

    def group_finished(self, purpose: str, group: Group) -> None:
        """Store a group that has ended before its step; see `rlcore.abilities.KeepsGroups`."""
        if self._unfinished is not None and self._unfinished.purpose == purpose:
            self._unfinished.add(group)

    def describe_groups(
        self, step: int, notes: Sequence[Mapping[str, Any]], brought: Sequence[Mapping[str, Any]]
    ) -> None:
        """Describe the groups of training of the next `record`; see `rlcore.rollouts.writing.write_record`.

        A step without a sampled group, which trains on groups of earlier steps, has an index and no record.
        """
        if notes:
            self._described = notes, brought
            return
        self._close_unfinished(remove=True)
        if self.directory is not None:
            write_lines(evidence_file(self._record(step, "train"), INDEX), brought)

    def record(self, step: int, purpose: str, groups: Sequence[Group]) -> None:
        """Store scored groups in ``rollouts/``, and send them to observers and to the trackers that show samples."""
        (notes, brought), self._described = self._described, ((), ())
        if self.directory is not None:
            path = self._record(step, purpose)
            write_record(path, groups, unfinished=self._unfinished, notes=notes, brought=brought)
            self._unfinished = None
            write_times(evidence_file(path, "times.jsonl.gz"), groups)
        hook = "rlcore_rollouts_scored"
        self._measured |= self._observers.tell(hook, run=self, step=step, purpose=purpose, groups=groups)
        self._offer(SampleTracker, "log_samples", step, purpose, groups)

    def record_tokens(self, step: int, columns: Mapping[str, NumberArray], note: Mapping[str, Any]) -> None:
        """Store values of the trained tokens of a step in ``evidence/``; see `rlcore.rollouts.evidence.Tokens`."""
        if self.directory is not None:
            write_tokens(self.directory.path / EVIDENCE / f"train-{step:06d}.{TOKENS}", columns, note)

    def _record(self, step: int, purpose: str) -> Path:
        assert self.directory is not None
        return self.directory.rollouts / f"{purpose}-{step:06d}.jsonl.gz"

    def _close_unfinished(self, *, remove: bool = False) -> None:
        if self._unfinished is not None:
            self._unfinished.close(remove=remove)
            self._unfinished = None

    def evaluated(self, groups: Sequence[Group]) -> None:
        """Send the scored groups of an evaluation outside of training to observers, with their other hooks silent."""
        observers = Observers(self.registry, self.config.observers)
        observers.tell("rlcore_rollouts_scored", run=self, step=0, purpose="evaluation", groups=groups)

    @contextmanager
    def _disabling(self, name: str, tracker: Tracker, what: str) -> Iterator[None]:
        """Disable a tracker that fails: an unavailable service must not end the run."""
        try:
            with plugin_code(f"{what} of {self.registry.named('tracker', name)}"):
                yield
        except UserError:
            raise
        except Exception as error:  # the boundary to trackers
            self.trackers.remove((name, tracker))
            self.say(f"{self.registry.named('tracker', name)} failed and is disabled: {describe(error)}")

    def _alert(self, found: Diagnosis, *, repeated: bool = False) -> None:
        found = replace(found, text=printable(found.text), fix=printable(found.fix))
        self._offer(AlertTracker, "alert", found, repeated)

    def _offer(self, ability: type, method: str, *arguments: Any) -> None:
        """Call an optional method of all trackers. One that fails keeps its metrics, and loses only this method."""
        for name, tracker in self.trackers:
            named = self.registry.named("tracker", name)
            try:
                with plugin_code(f"{method} of {named}"):
                    if (name, method) not in self._without and isinstance(tracker, ability):
                        getattr(tracker, method)(*arguments)
            except Exception as error:  # the boundary to trackers
                self._without.add((name, method))
                self.say(f"{named} failed in {method}, which is disabled: {describe(error)}")

    def say(self, *lines: str) -> None:
        """Print lines, and write them to ``output.log``. A line break inside a line is escaped."""
        if self.is_main:
            self._output.say(*lines)

    def update(self, line: str) -> None:
        """Like `say`, for progress: in a notebook, the next such line replaces this one."""
        if self.is_main:
            self._output.update(line)

    def progress(self, phase: str, total: int, unit: str) -> Meter:
        """Count and show a phase: ``with run.progress("rollout", 128, "trajectory") as meter: meter.advance()``."""
        return Meter(phase, total, unit, self._show)

    @property
    def stop_requested(self) -> bool:
        """True after SIGINT or SIGTERM: finish the step, save and stop."""
        return self._stop_signal is not None

    @property
    def stop_signal(self) -> int | None:
        """The signal that asked the trainer to stop; None if there was none."""
        return self._stop_signal

    def note(self, *lines: str) -> None:
        """Write lines only to ``output.log``."""
        if self.is_main:
            self._output.note(*lines)

    def open_trackers(self, *, skip: Sequence[str] = ()) -> None:
        """Create the selected trackers. `log` then sends metrics to them."""
        path = self.directory.path if self.directory is not None else None
        for id in self.config.trackers.use if self.is_main else ():
            if id not in skip:
                what, make = f"the creation of {self.registry.named('tracker', id)}", self.load("tracker", id)
                tracker = asked(what, make, self.resolved.tracker_options.get(id), path)
                self.trackers.append((id, tracker))

    def request_stop(self, number: int = signal.SIGINT) -> None:
        """Ask the trainer to finish its step, save and stop, because of a signal."""
        self._stop_signal = self._stop_signal or number

    def checkpoint_saved(self, step: int, path: Path) -> None:
        """Notify observers."""
        self._observers.tell("rlcore_checkpoint_saved", run=self, step=step, path=path)

    def started(self) -> None:
        """Create the observers, and notify them that the run directory exists and nothing has been computed."""
        if self.is_main:
            self._observers = Observers(self.registry, self.config.observers)
        if self.is_main and self.directory is not None:
            tree = self.resolved.tree()
            self.diagnosis = Diagnoser(self.directory.path, tree, self.registry, self.config.diagnosis)
            for row in read_metrics(self.directory.metrics):  # of a resumed run
                for found in self.diagnosis.after(row):
                    self._alert(found, repeated=True)
        self._observers.tell("rlcore_run_started", run=self)

    def finished(self, error: BaseException | None = None) -> None:
        """Notify observers, close trackers, and release the run directory. An error that is no stop is an alert."""
        if error is not None and not isinstance(error, KeyboardInterrupt):
            lines = [printable(line) for line in error_text(error).split("\n")]
            with suppress(UserError):  # as below
                self._alert(failure_found(lines, self.last_step or 0))
        for name, tracker in self.trackers:
            try:
                with plugin_code(f"close of {self.registry.named('tracker', name)}"):
                    tracker.close()
            except Exception as failure:  # the boundary to trackers, as in `log`
                with suppress(UserError):  # the message was printed even if the log is not writable
                    self.say(f"{self.registry.named('tracker', name)} failed to close: {error_text(failure)}")
        self.trackers.clear()
        if self.diagnosis is not None and self.diagnosis.found:
            with suppress(UserError):  # as above
                self.say(*self.diagnosis.summary())
        self._close_unfinished()
        self._observers.tell("rlcore_run_finished", run=self, error=error)
        self.discard()
        if self.directory is not None:
            self.directory.close()
