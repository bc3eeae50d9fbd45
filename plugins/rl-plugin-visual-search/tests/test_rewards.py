"""The rewards: accuracy, the tool bonus and the format."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from rl_plugin_visual_search.config import AccuracyConfig, ToolBonusConfig
from rl_plugin_visual_search.grammar import answer_turn, code_turn
from rl_plugin_visual_search.rewards import Accuracy, ToolBonus, format_reward
from rlcore.config.schema import RewardTable
from rlcore.episodes.rewards import select_rewards
from rlcore.episodes.scoring import Scorer
from rlcore.plugins.registry import Registry
from rlcore.testing import RewardCase, check_reward, make_trajectory
from rlcore.types import Group, Message, RewardResult, Stop, Task, Trajectory

QUESTION = Message(role="user", content="What animal is on the sign?")
SHOWN = Message(role="user", content="<interpreter>\\boxed{tiger} <answer>\\boxed{tiger}</answer></interpreter>")


def task(**fields: Any) -> Task:
    return Task(id="1", messages=(QUESTION,), fields={"answer": "tiger", **fields})


def played(*turns: str, calls: int = 0, successes: int = 0, stop: Stop = Stop.DONE) -> Trajectory:
    """An episode of these turns, with an observation after each turn but the last."""
    messages: list[Message | str] = [QUESTION]
    for turn in turns:
        messages += [turn, SHOWN]
    metrics = {"tool_calls": float(calls), "tool_successes": float(successes)}
    return make_trajectory(*messages[:-1], task_id="1", stop=stop, metrics=metrics)


def scored(trajectory: Trajectory, **options: Any) -> RewardResult:
    return Accuracy(AccuracyConfig(**options))(trajectory, task())


def bonus(trajectory: Trajectory, right: float | None, **options: Any) -> RewardResult:
    result = RewardResult(value=right, error=None if right is not None else "the judge is away")
    trajectory = trajectory.replace(rewards={"visual-search": result})
    (answer,) = ToolBonus(ToolBonusConfig(**options))(Group(task=task(), trajectories=(trajectory,)))
    return answer


RIGHT, WRONG = answer_turn("", "A tiger"), answer_turn("", "lion")
LOOK = code_turn("", "image_clue_0")


@pytest.mark.parametrize(
    ("reward", "cases"),
    [
        ("visual-search", [(RIGHT, 1.0), (WRONG, 0.0), ("tiger", 0.0), (LOOK, 0.0)]),
        ("visual-search-format", [(RIGHT, 1.0), (WRONG, 1.0), ("tiger", 0.0), (RIGHT + RIGHT, 0.0), (LOOK, 0.0)]),
    ],
)
def test_perfect_answer_scores_the_maximum_and_an_empty_one_the_minimum(
    reward: str, cases: list[tuple[str, float]]
) -> None:
    check_reward(reward, [RewardCase(task=task(), trajectory=played(text), value=value) for text, value in cases])


def test_only_text_of_the_last_turn_is_an_answer() -> None:
    assert scored(played(LOOK, "I see.")).value == 0
    assert scored(played(RIGHT, WRONG)).value == 0
    assert scored(played(WRONG, RIGHT)).value == 1
    assert scored(make_trajectory(QUESTION, LOOK, SHOWN, task_id="1")).value == 0


def test_number_beside_the_answer_is_not_read() -> None:
    reward = Accuracy(AccuracyConfig(numbers="relative"))
    for before, answer, value in (
        ("There are 7 boats.", "70", 0.0),
        ("There are 70 boats.", "7", 1.0),
        ("7", "none", 0.0),
    ):
        assert reward(played(answer_turn(before, answer)), task(answer="7")).value == value


def test_answer_above_the_limit_is_wrong_and_earns_no_bonus() -> None:
    long = played(answer_turn("", "tiger" + " " * 10 + "." * 986), calls=2, successes=2)
    result = scored(long)
    assert (result.value, result.components["too_long"]) == (0.0, 1.0)
    assert bonus(long, result.value).value == 0
    assert scored(played(answer_turn("", "tiger" + "." * 995))).value == 1
    assert scored(played(answer_turn("", "tiger" + "." * 20)), max_answer_characters=24).value == 0


def test_components_of_the_accuracy_are_logged() -> None:
    counted = Accuracy(AccuracyConfig())(played(answer_turn("", "12")), task(answer="10"))
    assert counted.value == 0
    assert counted.components == {"answered": 1.0, "too_long": 0.0, "relative_accuracy": 0.6}
    assert Accuracy(AccuracyConfig(numbers="relative"))(played(answer_turn("", "12")), task(answer="10")).value == 1


@pytest.mark.parametrize("answer", [None, "", " ", [], {"text": "tiger"}])
def test_task_without_an_answer_is_not_scored(answer: object) -> None:
    result = Accuracy(AccuracyConfig())(played(RIGHT), task(answer=answer))
    assert result.value is None
    assert result.error is not None
    assert "answer" in result.error


def test_bonus_counts_successful_calls_of_right_answers_only() -> None:
    episode = played(LOOK, LOOK, LOOK, RIGHT, calls=3, successes=2)
    assert bonus(episode, 1.0).value == 2
    assert bonus(episode, 0.0).value == 0
    assert bonus(episode, 1.0, failed=True).value == 3
    assert bonus(episode, 1.0, most=1).value == 1
    assert bonus(episode, 0.7).value == 0
    assert bonus(episode, 0.7, threshold=0.5).value == 2
    assert bonus(episode, 1.0).components == {"calls": 3.0, "counted": 2.0, "right": 1.0}


def test_bonus_without_a_verdict_is_not_scored() -> None:
    episode = played(LOOK, RIGHT, calls=1, successes=1)
    assert bonus(episode, None).value is None
    missing = bonus(episode, 1.0, accuracy="llm-judge")
    assert missing.value is None
    assert missing.error is not None
    assert "llm-judge" in missing.error
    assert bonus(played(RIGHT), None).value == 0


def test_reward_of_a_run_is_the_accuracy_and_a_tenth_of_the_calls() -> None:
    tables = [
        RewardTable.model_validate({"id": "visual-search"}),
        RewardTable.model_validate({"id": "visual-search-tools", "weight": 0.1}),
    ]
    rewards = select_rewards(Registry(), tables, [AccuracyConfig(), ToolBonusConfig()], timeout_s=60)
    episodes = [
        played(LOOK, LOOK, RIGHT, calls=2, successes=2),
        played(LOOK, LOOK, WRONG, calls=2, successes=2),
        played(RIGHT),
    ]

    async def totals() -> tuple[float | None, ...]:
        scorer = Scorer(rewards, timeout_s=10)
        group = [await scorer.score(episode, task()) for episode in episodes]
        return (await scorer.settle(Group(task=task(), trajectories=tuple(group)))).rewards_G

    assert asyncio.run(totals()) == pytest.approx((1.2, 0.0, 1.0))


def test_episode_without_an_answer_has_no_format() -> None:
    for trajectory in (played(LOOK, LOOK, stop=Stop.MAX_TURNS), played(RIGHT, stop=Stop.LENGTH)):
        assert format_reward(trajectory, task()).value == 0
    result = format_reward(played(LOOK, LOOK + LOOK, RIGHT), task())
    assert (result.value, result.components["sound_turns"]) == (0.0, pytest.approx(2 / 3))
    assert format_reward(played(LOOK, LOOK, RIGHT), task()).value == 1
