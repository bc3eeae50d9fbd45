"""The environments: pages of MiniWoB++, shown as elements or as screenshots.

As in recorded episodes, every step is a separate segment. The only memory of the agent is the history summary of its
previous answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from rlcore.checks import Finding, failure_of
from rlcore.errors import UserError
from rlcore.types import Message, Observation, Step, Task
from rlcore_gui.answers import Answer, parse, render

from rl_plugin_miniwob import prompts
from rl_plugin_miniwob.actions import ACTIONS, COMPLETE, IMPOSSIBLE
from rl_plugin_miniwob.chromium import required_chromium
from rl_plugin_miniwob.config import EnvironmentConfig
from rl_plugin_miniwob.oracles import solution
from rl_plugin_miniwob.page import Page, State
from rl_plugin_miniwob.pool import POOL


class Elements:
    """Pages as lists of their elements. The seed of a page is that of its task.

    A window is taken from the pool in `reset`, and given back when the episode ends. It is closed if anything fails.
    """

    screenshots: ClassVar[bool] = False
    """Whether the agent sees screenshots instead."""

    def __init__(self, config: EnvironmentConfig) -> None:
        self._config = config
        self._page: Page | None = None
        self._turns = 0
        self._over = False
        self._memory: str | None = None

    def reset(self, task: Task, *, seed: int) -> Observation:
        """Open the page, and show it."""
        page = POOL.acquire()
        try:
            state = page.open(task.fields["page"], int(task.fields["seed"]))
            observation = self._shown(page, state)
        except BaseException:
            POOL.discard(page)
            raise
        self._keep(page)
        return observation

    def step(self, action: Message) -> Step:
        """Act on the page. An answer without a readable action does nothing.

        The reward is that of the page at the end of the episode, between -1 and 1, and 0 before.
        """
        page, self._page = self._page, None  # so that `close` does not give a window back that is in use
        if page is None:
            return Step(terminated=True)
        try:
            step = self._acted(page, action)
        except BaseException:
            POOL.discard(page)
            raise
        self._over = self._over or step.terminated or step.truncated
        self._keep(page)
        return step

    def close(self) -> None:
        """Give the window back."""
        self._over = True
        page, self._page = self._page, None
        if page is not None:
            POOL.release(page)

    def oracle(self, task: Task) -> Sequence[Message]:
        """The actions that solve the page, in well-formed answers; see `rl_plugin_miniwob.oracles`."""
        with POOL.page() as page:
            state = page.open(task.fields["page"], int(task.fields["seed"]))
            actions = solution(task.fields["page"], state.task, page.elements())
        return [
            Message(
                role="assistant",
                content=render(
                    Answer(progress="Started.", reasoning="The next action.", action=one, summary="Acted."), ACTIONS
                ),
            )
            for one in actions
        ]

    def _keep(self, page: Page) -> None:
        """Keep the window for the next step, or give it back after the last one."""
        if self._over:
            POOL.release(page)
        else:
            self._page = page

    def _acted(self, page: Page, message: Message) -> Step:
        answer = parse(message.text, ACTIONS)
        info = {"unreadable_answers": float(answer.action is None), "missing_summaries": float(answer.summary is None)}
        if answer.unreadable is not None:
            info[f"unreadable/{answer.unreadable.replace(' ', '_')}"] = 1.0
        self._turns += 1
        gives_up = answer.action is not None and answer.action.name in {COMPLETE, IMPOSSIBLE}
        if answer.action is not None and not gives_up:
            page.act(answer.action)
        state = page.state()
        if state.done or gives_up:
            return Step(reward=state.reward if state.done else 0.0, terminated=True, info=info)
        if self._turns >= self._config.max_turns:
            return Step(reward=0.0, truncated=True, info=info)
        self._memory = answer.summary or self._memory
        return Step(observation=replace(self._shown(page, state), context=()), reward=0.0, info=info)

    def _shown(self, page: Page, state: State) -> Observation:
        show = prompts.of_screenshot if self.screenshots else prompts.of_elements
        return show(page, state, memory=self._memory, explained=self._config.instructions)


class Screens(Elements):
    """Pages as screenshots."""

    screenshots = True


def check(run: Any, environment: Any) -> Iterator[Finding]:
    """Reject a run without Chromium before it starts."""
    try:
        required_chromium()
    except UserError as error:
        yield failure_of(error)


__all__ = ["Elements", "Screens", "check"]
