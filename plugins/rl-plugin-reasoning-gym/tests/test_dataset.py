"""Tasks of the real library."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from rl_plugin_reasoning_gym.config import DataConfig
from rl_plugin_reasoning_gym.dataset import GeneratedTasks
from rl_plugin_reasoning_gym.library import Library
from rlcore.errors import DataError, UserError
from rlcore.types import Task

ONE_LEG_PER_ANIMAL = {"min_animals": 1, "max_animals": 1, "min_instances": 1, "max_instances": 1}


def made(*generators: Any, **keys: Any) -> GeneratedTasks:
    return GeneratedTasks(DataConfig(generators=list(generators), **keys))


def questions(tasks: Any) -> list[str]:
    return [task.messages[-1].text for task in tasks]


def test_splits_share_no_question_and_follow_the_weights() -> None:
    data = made({"name": "chain_sum", "level": 0, "weight": 3}, "lcm", train=120, evaluation=40)
    tasks: list[Task] = [*data.tasks("train"), *data.tasks("evaluation")]
    assert len(set(questions(tasks))) == len({task.id for task in tasks}) == 160
    for split, number in (("train", 120), ("evaluation", 40)):
        counts = Counter(task.fields["name"] for task in data.tasks(split))
        assert counts == {"chain_sum": number * 3 // 4, "lcm": number // 4}


def test_tasks_depend_on_the_seed() -> None:
    first, again, other = (made("lcm", train=4, evaluation=4, seed=seed).tasks("train") for seed in (0, 0, 1))
    assert first == again != other


@pytest.mark.slow
def test_tasks_do_not_depend_on_the_hash_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = {"name": "polynomial_multiplication", "level": None, "options": {}}
    entries = []
    for seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        entries.append(Library().ask("make", generator=generator, seed=1, start=0, count=4))
    assert entries[0] == entries[1]


def test_level_is_a_difficulty_and_options_override_it() -> None:
    def terms(**keys: Any) -> set[int]:
        data = made({"name": "chain_sum", **keys}, train=60, evaluation=1)
        return {task.fields["metadata"]["num_terms"] for task in data.tasks("train")}

    assert terms(level=0) == {2}
    assert terms(level=2) == {2, 3, 4}
    assert max(terms(level=1000)) == 12
    assert terms(level=2, options={"min_terms": 4}) == {4}


def test_generator_without_new_questions_leaves_its_share_to_the_others() -> None:
    few = {"name": "leg_counting", "options": ONE_LEG_PER_ANIMAL}
    counts = Counter(task.fields["name"] for task in made(few, "lcm", train=120, evaluation=20).tasks("train"))
    assert 20 < counts["leg_counting"] < 40
    assert counts["lcm"] == 120 - counts["leg_counting"]
    with pytest.raises(DataError, match=r"data\.train has no task"):
        made(few, evaluation=1000).tasks("train")


def test_system_prompt_is_one_of_the_library_or_a_text() -> None:
    keys = {"train": 1, "evaluation": 1}
    assert "<answer>" in made("lcm", **keys).tasks("train")[0].messages[0].text
    assert made("lcm", system_prompt="Be brief.", **keys).tasks("train")[0].messages[0].text == "Be brief."
    assert len(made("lcm", system_prompt="", **keys).tasks("train")[0].messages) == 1


def test_demonstrations_have_the_format_and_are_often_wrong() -> None:
    data = made("lcm", train=32, evaluation=1)
    answers = {task.messages: f"<answer>{task.fields['answer']}</answer>" for task in data.tasks("train")}
    found = list(data.demonstrations(64, seed=0))
    assert found == list(data.demonstrations(64, seed=0)) != list(data.demonstrations(64, seed=1))
    right = sum(answers[one.messages[:-1]] == one.messages[-1].text for one in found)
    assert 16 < right < 60
    with pytest.raises(DataError, match="no answers to imitate"):
        list(made("rush_hour", train=1, evaluation=1).demonstrations(1, seed=0))


@pytest.mark.parametrize(
    ("generator", "keys", "fragment"),
    [
        ("chain_sums", {}, "chain_sum"),
        ({"name": "lcm", "options": {"numbers": 3}}, {}, "numbers"),
        ({"name": "lcm", "options": {"min_numbers": 1}}, {}, "min_numbers"),
        ({"name": "acre", "level": 1}, {}, "urriculum"),
        ("lcm", {"system_prompt": "defualt"}, "default"),
    ],
)
def test_wrong_keys_are_errors_before_the_run(generator: Any, keys: dict[str, Any], fragment: str) -> None:
    with pytest.raises(UserError) as error:
        made(generator, **keys).tasks("train")
    assert fragment in str(error.value)
