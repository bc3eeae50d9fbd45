"""A discrete-event simulation of a run: engines that sample, a learner that takes groups as they finish.

A controller submits groups while fewer than ``(version + 1 + ahead) · groups`` are submitted, without those that were
dropped. The learner takes the groups in the order in which they finish; after each step, the weights are sent. Groups
that are older than ``max_age`` are dropped. With ``ahead=0``, sampling and learning alternate.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from random import Random
from statistics import fmean

from rlcore_trainer.planning.costs import Decoding, Learning
from rlcore_trainer.planning.engines import Engine
from rlcore_trainer.planning.trajectories import Trajectories

STEPS = 20
"""Steps that are measured."""
MOST_TURNS = 4096
"""Turns of a step that are simulated. Of a larger run, an equal part of the engines and groups is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A run on a divided cluster, or on one whose cards sample and learn in turn."""

    trajectories: Trajectories
    decoding: Decoding
    engines: int
    learning: Learning
    transfer_s: float
    groups: int
    """Groups of a step."""
    group_size: int
    ahead: float = 0
    max_age: int | None = None
    pieces: int = 1
    """Parts of a step that are learned as soon as their groups are there."""
    updates: int = 1
    """Optimiser steps of a step."""


@dataclass(slots=True)
class _Group:
    started: int | None = None
    waiting: int = 0
    tokens: float = 0.0
    squares: float = 0.0
    longest: float = 0.0


@dataclass(slots=True)
class _Trajectory:
    group: _Group
    tokens: float
    left: int
    context: float
    prefill: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The means of the measured steps, in seconds, and shares from 0 to 1."""

    step_s: float
    waiting_s: float
    """Time that the learner waits for groups."""
    learning_s: float
    transfer_s: float
    tool_s: float
    """Time that a trajectory waits for its environment, tools and rewards."""
    samplers_busy: float
    """Share of the time in which engines have sequences."""
    sequences: float
    """Mean number of sequences of an engine."""
    learners_busy: float
    ages: Mapping[int, float]
    """Share of the trained groups by the age of their oldest token, in versions."""
    dropped: float
    """Share of the finished groups."""
    tokens: float
    """Sampled tokens of a step."""
    simulated: float
    """Share of the engines that was simulated."""
    submitted: int = field(repr=False, default=0)
    trained: int = field(repr=False, default=0)
    waiting: int = field(repr=False, default=0)
    unfinished: int = field(repr=False, default=0)
    lost: int = field(repr=False, default=0)


def simulate(setting: Setting, *, steps: int = STEPS, seed: int = 0, most_turns: int = MOST_TURNS) -> Outcome:
    """Simulate some steps after those in which the pipeline fills."""
    return _Simulation(setting, seed, most_turns).run(steps)


class _Simulation:
    def __init__(self, setting: Setting, seed: int, most_turns: int) -> None:
        self.setting, self.random = setting, Random(seed)
        turns = setting.groups * setting.group_size * setting.trajectories.turns
        self.fold = max(1, min(setting.engines, setting.groups // max(1, setting.pieces), turns // most_turns))
        self.groups = max(1, round(setting.groups / self.fold))
        most = int((1 + setting.ahead) * setting.groups) * setting.group_size  # others have nothing to do
        used = max(1, round(min(setting.engines, most) / self.fold))
        self.used = used * self.fold / max(used * self.fold, setting.engines)
        self.engines = [Engine[_Trajectory](setting.decoding) for _ in range(used)]
        self.free = [(0, number) for number in range(len(self.engines))]
        self.events: list[tuple[float, int, str, object, int]] = []
        self.order = count()
        self.queue: deque[_Trajectory] = deque()
        self.finished: deque[_Group] = deque()
        self.changed: set[int] = set()
        self.now = 0.0
        self.version = self.submitted = self.lost = self.trained = self.piece = self.drawn = 0
        self.learner_free = True
        self.rows: list[dict[str, float]] = []
        self.row = {"waiting": 0.0, "learning": 0.0, "transfer": 0.0}
        self.ages: Counter[int] = Counter()
        self.tool_s = self.trajectories = 0.0
        self.idle_since = 0.0

    def run(self, steps: int) -> Outcome:
        skipped = 2 + int(self.setting.ahead)
        self._submit()
        self._schedule()
        start, before, trained, lost = 0.0, [0.0, 0.0, 0.0], 0, 0
        while len(self.rows) < steps + skipped:
            self._next()
            if len(self.rows) == skipped and not start:
                start, trained, lost = self.now, self.trained, self.lost
                before = self._sums()
                self.ages.clear()
        seconds, rows = self.now - start, self.rows[skipped:]
        busy, sequences, tokens = (after - one for after, one in zip(self._sums(), before, strict=True))
        mean = {name: fmean(row[name] for row in rows) for name in self.row}
        kept, dropped = self.trained - trained, self.lost - lost
        return Outcome(
            step_s=seconds / steps,
            waiting_s=mean["waiting"],
            learning_s=mean["learning"],
            transfer_s=mean["transfer"],
            tool_s=self.tool_s / max(1.0, self.trajectories),
            samplers_busy=busy / seconds / len(self.engines) * self.used,
            sequences=sequences / seconds / len(self.engines) * self.used,
            learners_busy=mean["learning"] * steps / seconds,
            ages={age: number / self.ages.total() for age, number in sorted(self.ages.items())},
            dropped=dropped / max(1, kept + dropped),
            tokens=tokens / steps * self.fold,
            simulated=1 / self.fold,
            submitted=self.submitted,
            trained=self.trained,
            waiting=len(self.finished),
            unfinished=self.submitted - self.trained - self.lost - len(self.finished),
            lost=self.lost,
        )

    def _sums(self) -> list[float]:
        for engine in self.engines:
            engine.advance(self.now)
        names = "busy_s", "sequence_s", "tokens"
        return [sum(getattr(engine, name) for engine in self.engines) for name in names]

    def _next(self) -> None:
        self.now, _, kind, value, epoch = heapq.heappop(self.events)
        if kind == "end":
            assert isinstance(value, int)
            if epoch != self.engines[value].epoch:
                return
            for trajectory in self.engines[value].finished(self.now):
                self._turn_ended(trajectory)
            self._freed(value)
        elif kind == "started":
            assert isinstance(value, _Trajectory)
            self.queue.append(value)
        elif kind == "tool":
            assert isinstance(value, _Trajectory)
            self._returned(value)
        elif kind == "learned":
            self._learned()
        else:
            self._sent()
        self._place()
        self._learn()
        self._schedule()

    def _schedule(self) -> None:
        for number in self.changed:
            engine = self.engines[number]
            if engine.active:
                self._at(engine.next_end(), "end", number, engine.epoch)
        self.changed.clear()

    def _at(self, time: float, kind: str, value: object = None, epoch: int = 0) -> None:
        heapq.heappush(self.events, (time, next(self.order), kind, value, epoch))

    def _submit(self) -> None:
        """Submit groups up to the limit."""
        setting, trajectories = self.setting, self.setting.trajectories
        limit = (self.version + 1 + setting.ahead) * self.groups
        while self.submitted - self.lost < limit:
            group = _Group(waiting=setting.group_size)
            self.submitted += 1
            for sibling in range(setting.group_size):
                self.drawn += 1
                # The longest of all trajectories of a step decides when it ends, also if only some are simulated.
                last = self.fold > 1 and self.drawn % (self.groups * setting.group_size) == 0
                tokens = trajectories.draw(self.random, setting.groups * setting.group_size if last else 1)
                prompt = trajectories.prompt if sibling == 0 else 0.0
                one = _Trajectory(group, tokens, trajectories.turns, trajectories.prompt, prompt)
                if seconds := trajectories.start_s.quantile(self.random.random()):
                    self.tool_s += seconds
                    self._at(self.now + seconds, "started", one)
                else:
                    self.queue.append(one)
        self._place()

    def _place(self) -> None:
        """Give waiting trajectories to the engines with the fewest."""
        while self.queue and self.free:
            active, number = heapq.heappop(self.free)
            engine = self.engines[number]
            if engine.active != active or not engine.has_room:
                continue  # an old entry
            one = self.queue.popleft()
            if one.group.started is None:
                one.group.started = self.version
            tokens = one.tokens / self.setting.trajectories.turns
            engine.admit(one, self.now, context=one.context, prefill=one.prefill, tokens=tokens)
            one.context += tokens
            self._freed(number)

    def _freed(self, number: int) -> None:
        heapq.heappush(self.free, (self.engines[number].active, number))
        self.changed.add(number)

    def _turn_ended(self, one: _Trajectory) -> None:
        one.left -= 1
        seconds = self.setting.trajectories.tool_s.quantile(self.random.random())
        self.tool_s += seconds
        if one.left or seconds:
            self._at(self.now + seconds, "tool", one)
        else:
            self._ended(one)

    def _returned(self, one: _Trajectory) -> None:
        """Go on with a trajectory after its tools."""
        if not one.left:
            self._ended(one)
            return
        one.prefill = self.setting.trajectories.observation
        one.context += one.prefill
        self.queue.append(one)

    def _ended(self, one: _Trajectory) -> None:
        group = one.group
        self.trajectories += 1
        group.waiting -= 1
        group.tokens += one.context
        group.squares += one.context**2
        group.longest = max(group.longest, one.context)
        if not group.waiting:
            self.finished.append(group)

    def _age(self, group: _Group) -> int:
        return self.version - (group.started or 0)

    def _learn(self) -> None:
        """Start an update if the learner is free and its groups are there."""
        setting = self.setting
        if not self.learner_free:
            return
        if setting.max_age is not None:
            fresh = [group for group in self.finished if self._age(group) <= setting.max_age]
            if dropped := len(self.finished) - len(fresh):
                self.lost += dropped
                self.finished = deque(fresh)
                self._submit()
        parts = setting.pieces
        needed = self.groups * (self.piece + 1) // parts - self.groups * self.piece // parts
        if len(self.finished) < needed:
            return
        taken = [self.finished.popleft() for _ in range(needed)]
        self.trained += needed
        self.ages.update(map(self._age, taken))
        tokens, squares = (sum(getattr(one, name) for one in taken) for name in ("tokens", "squares"))
        part = self.fold * setting.trajectories.trained
        seconds = setting.learning.seconds(
            tokens * part,
            squares * part,
            needed * setting.group_size * self.fold,
            max(one.longest for one in taken),
            max(1, round(setting.updates / parts)),
        )
        self.row["waiting"] += self.now - self.idle_since
        self.row["learning"] += seconds
        self.learner_free = False
        self._at(self.now + seconds, "learned")

    def _learned(self) -> None:
        self.piece += 1
        self.idle_since = self.now
        if self.piece < self.setting.pieces:
            self.learner_free = True
            return
        self.piece = 0
        self.row["transfer"] += self.setting.transfer_s
        self._at(self.now + self.setting.transfer_s, "sent")

    def _sent(self) -> None:
        self.version += 1
        self.learner_free = True
        self.idle_since = self.now
        pause = self.setting.decoding.efficiency.pause_s
        for number, engine in enumerate(self.engines):
            engine.pause(self.now, pause)
            self.changed.add(number)
        self.rows.append(self.row)
        self.row = dict.fromkeys(self.row, 0.0)
        self._submit()


__all__ = ["Outcome", "Setting", "simulate"]
