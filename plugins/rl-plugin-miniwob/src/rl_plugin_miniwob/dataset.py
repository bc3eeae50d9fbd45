"""Tasks: seeds of pages. Demonstrations are careless, for the first steps of an untrained model."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

from rlcore.errors import DataError
from rlcore.types import Demonstration, Message, Observation, Task
from rlcore_gui.actions import Action

from rl_plugin_miniwob import prompts
from rl_plugin_miniwob.actions import ACTIONS, CLICK
from rl_plugin_miniwob.config import DataConfig
from rl_plugin_miniwob.oracles import solution
from rl_plugin_miniwob.page import Element, page_file
from rl_plugin_miniwob.pool import POOL

HELD_OUT = 2**31
"""The first seed of the held-out tasks."""
DEMONSTRATED = 2**30
"""The first seed of demonstrations."""
SCREENS = 128
"""Number of pages that demonstrations open. Further ones click another element of the same pages, because opening a
page takes 0.1 s."""
SOLVED = 0.4
"""Share of demonstrations that solve a page with a known solution. Without any, 20 steps of reinforcement learning did
not teach a tiny model to look at the names of buttons."""


class _Screen(NamedTuple):
    """A page that a demonstration shows."""

    observation: Observation
    elements: Sequence[Element]
    solution: Action | None
    """The first action of the solution, if it is known."""


class Pages:
    """Seeds of pages. An unknown page is an error before the run starts."""

    screenshots: ClassVar[bool] = False
    """Whether demonstrations show screenshots."""

    def __init__(self, config: DataConfig) -> None:
        self._config = config
        self._screens: dict[int, _Screen] = {}
        for name in config.pages:
            page_file(name)

    def tasks(self, split: str) -> list[Task]:
        """The pages in turn, each with its own seed."""
        held_out = split == "evaluation"
        count, first = (self._config.evaluation, HELD_OUT) if held_out else (self._config.train, 0)
        names = self._config.pages
        return [_task(names[number % len(names)], first + number) for number in range(count)]

    def demonstrations(self, count: int, *, seed: int) -> Iterator[Demonstration]:
        """First answers, of which a share of `SOLVED` begin to solve the page. The others click a random element.

        Prompts are not explained.
        """
        rng = random.Random(seed)
        for number in range(count):
            screen = self._screen(number % SCREENS)
            action = screen.solution if rng.random() < SOLVED else None
            action = action or Action(name=CLICK, position=rng.choice(screen.elements).position)
            answer = Message(role="assistant", content=ACTIONS.render(action))
            shown = screen.observation
            yield Demonstration(messages=(*shown.messages, answer), images=shown.images)

    def _screen(self, number: int) -> _Screen:
        if number not in self._screens:
            names = self._config.pages
            name = names[number % len(names)]
            with POOL.page() as page:
                state = page.open(name, DEMONSTRATED + number)
                show = prompts.of_screenshot if self.screenshots else prompts.of_elements
                observation, elements = show(page, state, memory=None, explained=False), page.elements()
            try:
                first = solution(name, state.task, elements)[0]
            except DataError:
                first = None
            self._screens[number] = _Screen(observation, elements, first)
        return self._screens[number]


class ScreenPages(Pages):
    """The same with demonstrations on screenshots."""

    screenshots = True


def _task(name: str, seed: int) -> Task:
    return Task(id=f"{name}:{seed}", messages=(), fields={"page": name, "seed": seed})


__all__ = ["Pages", "ScreenPages"]
