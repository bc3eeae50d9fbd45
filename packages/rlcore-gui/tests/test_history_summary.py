"""The reward of a history summary: its own text in the prompt of the next step of the same episode."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from gui_episodes import CLICK, HOME, TABLE, TOY, TYPE, episode, said
from rlcore.episodes.context import EpisodeContext
from rlcore.errors import DataError
from rlcore.testing import check_reward, make_trajectory
from rlcore.types import ChatCompletion, ImagePart, Message, RewardResult, Task
from rlcore_gui.rewards import HistorySummaryConfig, HistorySummaryReward
from rlcore_gui.tasks import episode_task, step_task

EPISODE = episode(CLICK, TYPE, HOME)
OTHER = episode(HOME, HOME, name="e2")


class Summaries(HistorySummaryReward):
    benchmark = TOY


class Model:
    """Gives the given answers, and remembers the questions."""

    def __init__(self, *answers: str) -> None:
        self.answers = answers
        self.asked: list[tuple[str, tuple[str, ...], int, dict[str, Any]]] = []

    async def __call__(
        self,
        messages: Sequence[Message],
        *,
        images: Iterable[bytes] = (),
        count: int = 1,
        sampling: Mapping[str, Any] = {},
    ) -> Sequence[ChatCompletion]:
        (message,) = messages
        assert set(message.images) <= {ImagePart.of(image).sha256 for image in images}
        self.asked.append((message.text, message.images, count, dict(sampling)))
        said = (self.answers * count)[:count]
        return [ChatCompletion(message=Message(role="assistant", content=text), finish_reason="stop") for text in said]


def single(index: int, *, following: bool = True) -> Task:
    after = EPISODE[index + 1] if following and index + 1 < len(EPISODE) else None
    return step_task(EPISODE[index], instructions="", following=after)


def score(task: Task, *texts: str, model: Model | None = None, samples: int = 0) -> RewardResult:
    reward = Summaries(HistorySummaryConfig(samples=samples))
    messages = [item for text in texts for item in (Message(role="user", content="next"), text)]
    context = EpisodeContext(task, complete=model)
    return asyncio.run(reward(make_trajectory(*messages), task, context))


def test_own_summary_is_in_the_prompt_of_the_next_step() -> None:
    model = Model(said(TYPE))
    result = score(single(0), said(CLICK, "tapped the button"), model=model)
    ((text, images, count, sampling),) = model.asked
    assert text == "Task: Open the settings\nHistory summary: tapped the button"
    assert images == (ImagePart.of(EPISODE[1].screenshot).sha256,)
    assert (count, sampling) == (1, {"temperature": 0.0})
    assert (result.value, result.components) == (1.0, {"summaries": 1.0, "next_action": 1.0})


def test_different_summaries_are_put_into_different_prompts() -> None:
    model = Model(said(TYPE))
    for summary in ("one", "another"):
        score(single(0), said(CLICK, summary), model=model)
    assert model.asked[0][0] != model.asked[1][0]
    assert "p" not in model.asked[0][0].partition("History summary: ")[2], "only the summary section is substituted"


def test_value_is_the_mean_over_a_bounded_number_of_samples() -> None:
    model = Model(said(TYPE), said(HOME), "unreadable", said(TYPE))
    result = score(single(0), said(CLICK), model=model, samples=4)
    assert (result.value, model.asked[0][2:]) == (0.5, (4, {}))
    with pytest.raises(ValueError, match="samples"):
        HistorySummaryConfig(samples=17)


def test_value_depends_on_nothing_but_this_trajectory() -> None:
    values = [score(single(0), said(CLICK), model=Model(said(TYPE))).value for _ in range(5)]
    assert values == [1.0] * 5, "no best value is remembered"


def test_last_step_has_no_term_and_no_generation() -> None:
    model = Model(said(HOME))
    result = score(single(2), said(HOME), model=model)
    assert (result.value, result.components, model.asked) == (0.0, {"summaries": 0.0}, [])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no tags",
        TABLE.render(CLICK),
        said(CLICK) + "more",
        said(CLICK).replace("History Summary", "Summary"),
        said(CLICK) * 2,
    ],
)
def test_malformed_answers_have_no_term_and_no_generation(text: str) -> None:
    model = Model(said(TYPE))
    result = score(single(0), text, model=model)
    assert (result.value, result.components, model.asked) == (0.0, {"summaries": 0.0}, [])


def test_wrong_but_well_formed_answers_are_scored_by_their_summary() -> None:
    assert score(single(0), said(HOME), model=Model(said(TYPE))).value == 1.0


def test_tasks_without_their_next_step_are_refused_before_a_run() -> None:
    reward = Summaries(HistorySummaryConfig())
    with pytest.raises(DataError, match=r"next step of each task[\s\S]*data.next_step=true"):
        reward.check_tasks([single(2), single(0, following=False)])
    reward.check_tasks([single(2), single(0), single(1)])
    reward.check_tasks([single(2)])
    reward.check_tasks([episode_task(EPISODE, instructions="")])


def test_missing_next_step_is_not_scored_instead_of_zero() -> None:
    result = score(single(0, following=False), said(CLICK), model=Model(said(TYPE)))
    assert result.value is None
    assert "data.next_step=true" in str(result.error)


def test_summaries_of_an_episode_are_scored_without_generations() -> None:
    task = episode_task(EPISODE, instructions="")
    model = Model()
    right = score(task, said(CLICK), said(TYPE), said(HOME), model=model)
    assert (right.value, right.components) == (1.0, {"summaries": 2.0, "next_action": 1.0})
    half = score(task, said(HOME), said(TYPE), said(TYPE), model=model)
    assert half.value == 0.5, "the first summary is followed by a right answer, the second is not"
    malformed = score(task, "no summary", said(TYPE), said(TYPE), model=model)
    assert malformed.components == {"summaries": 1.0, "next_action": 0.0}
    assert score(task, said(CLICK), model=model).components == {"summaries": 0.0}, "cut off after the first step"
    assert model.asked == []


def test_episodes_never_meet() -> None:
    with pytest.raises(ValueError, match="does not follow"):
        step_task(EPISODE[2], instructions="", following=OTHER[0])


def test_stored_trajectory_is_not_scored_again() -> None:
    with pytest.raises(Exception, match="stored trajectories"):
        score(single(0), said(CLICK))
    assert score(single(2), said(HOME)).value == 0.0


def test_reward_tolerates_broken_input() -> None:
    check_reward(Summaries(HistorySummaryConfig()), rewards_silence=True)
