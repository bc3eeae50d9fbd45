"""The rewards of Mind2Web: conformance, the published scores, and the extremes for every action of the table."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_plugin_mind2web.actions import ACTIONS, PROMPT
from rl_plugin_mind2web.environment import Reward, action_reward, format_reward
from rl_plugin_mind2web.legacy import score_legacy
from rlcore.testing import RewardCase, check_reward, make_trajectory
from rlcore.types import Message, RewardResult, Task
from rlcore_gui.actions import Action, ActionKind
from rlcore_gui.answers import Answer, render
from rlcore_gui.prompts import instructions, step_text
from rlcore_gui.rewards import FormConfig
from rlcore_gui.steps import GuiStep

BOX = (0.2, 0.1, 0.05, 0.3)
CLICK = Action(name="CLICK", position=(0.25, 0.225))
AWAY = Action(name="CLICK", position=(0.9, 0.9))
TYPE = Action(name="TYPE", value="new york", position=(0.25, 0.225))


def recorded(action: Action, **changes: Any) -> GuiStep:
    fields: dict[str, Any] = {"boxes": (BOX,), "image": None, "image_size": None, **changes}
    return GuiStep(row_id="1", episode_id="1", step_index=0, group="task", task="t", action=action, **fields)


def answer(action: Action) -> str:
    return render(Answer(progress="p", reasoning="r", action=action, summary="s"), ACTIONS)


def case(text: str, action: Action, value: float) -> RewardCase:
    fields = {"steps": [recorded(action).as_fields()]}
    task = Task(id="1", messages=(Message(role="user", content="t"),), fields=fields)
    return RewardCase(task=task, trajectory=make_trajectory(*task.messages, text, task_id="1"), value=value)


def legacy_answer(position: str, reasoning: str = "Decision Making", name: str = "CLICK") -> str:
    action = f"{{'action': '{name}', 'value': 'any', 'position': {position}}}"
    return (
        f"<think><Progress Estimation>p</Progress Estimation>\n<{reasoning}>r</{reasoning}>\n"
        f"<action>{action}</action>\n<History Summary>s</History Summary>\n</think>"
    )


def test_rewards_conform() -> None:
    part = answer(Action(name="TYPE", value="york", position=TYPE.position))
    right, bare, far = answer(CLICK), ACTIONS.render(CLICK), answer(AWAY)
    check_reward("mind2web", [case(right, CLICK, 1), case(bare, CLICK, 0.8), case(far, CLICK, 0.2)])
    check_reward("mind2web", [case(answer(TYPE), TYPE, 1), case(part, TYPE, 0.8 * 0.8 + 0.2), case(right, TYPE, 0.2)])
    check_reward("mind2web-action", [case(bare, CLICK, 1), case(far, CLICK, 0), case(part, TYPE, 0)])
    check_reward("mind2web-format", [case(far, CLICK, 1), case(bare, CLICK, 0)])
    check_reward("mind2web-legacy", [case(legacy_answer("[0.25, 0.225]"), CLICK, 1.7), case("click it", CLICK, 0)])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (legacy_answer("[0.25, 0.225]"), 1.7),
        (legacy_answer("[0.25, 0.225]", "Decision Reasoning"), 1.6),
        (legacy_answer("[0.9, 0.9]"), 1.2),
        (legacy_answer("[0.9, 0.9]", "Decision Reasoning"), 1.1),
        (legacy_answer("[0.25, 0.225]", name="TYPE"), 0.2),
        (legacy_answer("None", "Decision Reasoning"), 0.1),
        ("", 0.0),
    ],
)
def test_legacy_reward_gives_the_published_scores(text: str, value: float) -> None:
    assert score_legacy(text, recorded(CLICK)).value == pytest.approx(value)


@pytest.mark.parametrize("kind", ACTIONS.kinds, ids=lambda kind: kind.name)
@settings(max_examples=20)
@given(value=st.text(alphabet="aB é'\"\\{}", max_size=20), x=st.integers(100, 400), y=st.integers(200, 250))
def test_perfect_answer_scores_the_maximum_and_an_empty_one_the_minimum(
    kind: ActionKind, value: str, x: int, y: int
) -> None:
    action = Action(name=kind.name, value=value if kind.takes_value else None, position=(x / 1000, y / 1000))
    perfect, silent = case(answer(action), action, 1), case("", action, 0)

    async def both() -> list[RewardResult]:
        rewards = (Reward(FormConfig()), action_reward, format_reward)
        return [await reward(each.trajectory, each.task) for each in (perfect, silent) for reward in rewards]

    assert [result.value for result in asyncio.run(both())] == [1, 1, 1, 0, 0, 0]


def test_prompt_offers_the_actions_that_are_scored() -> None:
    text = step_text(instructions(PROMPT), task="t", memory=None)
    offered = [line[2:].partition(":")[0] for line in text.splitlines() if line.startswith("- ")]
    assert offered == ["CLICK", "TYPE", "SELECT"]
