"""The rewards of AITW: conformance, the published scores, and the extremes for every action of the table."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_plugin_aitw.actions import ACTIONS, PROMPT
from rl_plugin_aitw.environment import Reward, action_reward, format_reward
from rl_plugin_aitw.legacy import score_legacy
from rlcore.plugins.registry import Registry, make
from rlcore.testing import RewardCase, check_reward, make_trajectory
from rlcore.types import Message, RewardResult, Task
from rlcore_gui.actions import Action, ActionKind
from rlcore_gui.answers import Answer, render
from rlcore_gui.prompts import instructions, step_text
from rlcore_gui.rewards import FormConfig
from rlcore_gui.steps import GuiStep

BOX = (0.4, 0.4, 0.1, 0.2)
CLICK = Action(name="CLICK", position=(0.41, 0.41))
TYPE = Action(name="TYPE", value="Don't panic")
SCROLL = Action(name="SCROLL DOWN")
REWARDS = ("aitw", "aitw-action", "aitw-format", "aitw-legacy")


def recorded(action: Action, **changes: Any) -> GuiStep:
    fields: dict[str, Any] = {"boxes": (BOX,), "image": None, "image_size": None, **changes}
    return GuiStep(row_id="1", episode_id="1", step_index=0, group="general", task="t", action=action, **fields)


def answer(action: Action) -> str:
    return render(Answer(progress="p", reasoning="r", action=action, summary="s"), ACTIONS)


def task_of(*actions: Action) -> Task:
    steps = [recorded(action).as_fields() for action in actions]
    return Task(id="1", messages=(Message(role="user", content="t"),), fields={"steps": steps})


def case(text: str, action: Action, value: float) -> RewardCase:
    task = task_of(action)
    return RewardCase(task=task, trajectory=make_trajectory(*task.messages, text, task_id="1"), value=value)


def legacy_answer(action: str, reasoning: str = "Decision Making") -> str:
    return (
        f"<think><Progress Estimation>p</Progress Estimation>\n<{reasoning}>r</{reasoning}>\n"
        f"<action>{action}</action>\n<History Summary>s</History Summary>\n</think>"
    )


LEGACY_CLICK = "{'action': 'CLICK', 'value': None, 'position': [0.59, 0.49]}"
LEGACY_TYPE = "{'action': 'TYPE', 'value': 'don't PANIC', 'position': None}"


def test_rewards_conform() -> None:
    wrong_text = answer(Action(name="TYPE", value="x"))
    right, bare = answer(CLICK), ACTIONS.render(CLICK)
    far, direction = answer(Action(name="CLICK", position=(0.9, 0.9))), answer(Action(name="SCROLL UP"))
    check_reward("aitw", [case(right, CLICK, 1), case(bare, CLICK, 0.8), case(far, CLICK, 0.2), case("", CLICK, 0)])
    check_reward("aitw", [case(answer(TYPE), TYPE, 1), case(wrong_text, TYPE, 0.2), case(direction, SCROLL, 0.2)])
    check_reward("aitw", [case(right, CLICK, 1), case(bare, CLICK, 0.5)], options={"format_weight": 0.5})
    check_reward("aitw-action", [case(bare, CLICK, 1), case(wrong_text, TYPE, 1), case(direction, SCROLL, 1)])
    check_reward("aitw-action", [case(right, CLICK, 1), case(far, CLICK, 0), case("tap it", CLICK, 0)])
    check_reward("aitw-format", [case(far, CLICK, 1), case(bare, CLICK, 0), case(right + "!", CLICK, 0)])
    legacy = legacy_answer(LEGACY_CLICK)
    check_reward("aitw-legacy", [case(legacy, CLICK, 1.3125), case("tap it", CLICK, 0)])


@pytest.mark.parametrize(
    ("text", "action", "value"),
    [
        (legacy_answer(LEGACY_CLICK), CLICK, 1.3125),
        (legacy_answer(LEGACY_TYPE), TYPE, 1.3125),
        (legacy_answer(LEGACY_CLICK, "Decision Reasoning"), CLICK, 1.0625),
        (legacy_answer("{'action': 'SCROLL DOWN', 'value': None, 'position': None}"), SCROLL, 1.0),
        (legacy_answer("{'action': 'SCROLL UP', 'value': None, 'position': None}"), SCROLL, 0.375),
        (legacy_answer("CLICK"), CLICK, 0.25),
        (LEGACY_TYPE, CLICK, 0.125),
        ("{'action': 'INPUT', 'value': 'Don't panic', 'position': None}", TYPE, 0.125),
        ("{'action': 'CLICK', 'value': None, 'position': [590, 490]}", CLICK, 0.125),
        ("{'action': 'CLICK', 'value': None, 'position': None}", CLICK, 0.125),
        ('{"action": "CLICK", "value": null, "position": [0.5, 0.5]}', CLICK, 0.0),
        ("{'action': 'CLICK', 'value': None, 'position': (0.5, 0.5)}", CLICK, 0.0),
        ("{'action': 'CLICK', 'position': [0.5, 0.5], 'value': None}", CLICK, 0.0),
        ("{'action': 'CLICK', 'value': None, 'position': [0.5.1, 0.5]}", CLICK, 0.0),
        ("{'action': 'CLICK', 'value': None, 'position': [ 0.5, 0.5]}", CLICK, 0.0),
        ("{'action': 'CLICK', 'value': None, 'position': [0.5, 0.5 ]}", CLICK, 0.0),
        ("{'action': 'TYPE', 'value': 'Don't\npanic', 'position': None}", TYPE, 0.0),
        (f"{'I look at the screen. ' * 300}{LEGACY_CLICK}", CLICK, 1.0625),
        (f"<action>{LEGACY_TYPE}</action><action>{LEGACY_CLICK}</action>", TYPE, 1.0625),
        ("", CLICK, 0.0),
    ],
)
def test_legacy_reward_gives_the_published_scores(text: str, action: Action, value: float) -> None:
    assert score_legacy(text, recorded(action)).value == pytest.approx(value)


def test_legacy_reward_keeps_its_errors_about_boxes_and_drags() -> None:
    home = Action(name="PRESS HOME")
    pressed = "{'action': 'PRESS HOME', 'value': None, 'position': None}"
    assert score_legacy(pressed, recorded(home, boxes=())).components["action"] == 0
    drag = recorded(CLICK, source={"touch": (0.41, 0.38), "lift": (0.41, 0.44)})
    assert score_legacy(LEGACY_CLICK, drag).components["action"] == 0


def made(reward: str) -> Any:
    registry = Registry()
    model = registry.config_model("reward", reward)
    return make(registry.load("reward", reward), model() if model else None)


def scored(reward: Any, task: Task, *texts: str) -> RewardResult:
    result: RewardResult = asyncio.run(reward(make_trajectory(*texts, task_id=task.id), task))
    return result


@pytest.mark.parametrize("kind", ACTIONS.kinds, ids=lambda kind: kind.name)
@settings(max_examples=20)
@given(value=st.text(alphabet="aB é'\"\\{}", min_size=1, max_size=20), x=st.integers(0, 1000), y=st.integers(0, 1000))
def test_perfect_answer_scores_the_maximum_and_an_empty_one_the_minimum(
    kind: ActionKind, value: str, x: int, y: int
) -> None:
    position = (x / 1000, y / 1000) if kind.takes_position else None
    action = Action(name=kind.name, value=value if kind.takes_value else None, position=position)
    text = answer(action)
    for boxes in ((), (BOX,)):
        step = recorded(action, boxes=boxes)
        for score in (Reward(FormConfig()).score, action_reward.score, format_reward.score):
            assert score(text, step).value == 1
            assert score("", step).value == 0


def test_answers_of_an_episode_are_averaged_over_its_steps() -> None:
    task = task_of(CLICK, TYPE, SCROLL, SCROLL)
    result = scored(made("aitw"), task, answer(CLICK), "nothing", answer(SCROLL))
    assert result.value == pytest.approx(0.5)
    assert result.components == {"action": 0.5, "strict": 0.5, "type": 0.5, "readable": 0.5, "format": 0.5}


def test_task_without_steps_is_not_scored() -> None:
    for reward in REWARDS:
        assert scored(made(reward), Task(id="1", messages=()), "x").value is None


def test_prompt_offers_the_actions_that_are_scored() -> None:
    text = step_text(instructions(PROMPT), task="t", memory=None)
    offered = [line[2:].partition(":")[0] for line in text.splitlines() if line.startswith("- ")]
    assert offered == [kind.name for kind in ACTIONS.kinds]
    assert {"INPUT", "REMEMBER"}.isdisjoint(offered)
    assert all(ACTIONS.find(name) is not None for name in offered)
