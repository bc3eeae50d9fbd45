"""The named recipes of visual search: they pass a dry run, and have the published values."""

from __future__ import annotations

import asyncio
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from commands_here import Call, pretend_packages
from documents import blocks
from rl_plugin_llm_judge.answers import case_of, given_answer
from rl_plugin_llm_judge.config import JudgeConfig
from rl_plugin_llm_judge.judge import Judge
from rl_plugin_visual_search.config import AccuracyConfig, DataConfig
from rl_plugin_visual_search.dataset import VisualSearchData
from rl_plugin_visual_search.grammar import answer_turn, code_turn, parse
from rl_plugin_visual_search.rewards import Accuracy
from rlcore.testing import make_trajectory
from rlcore.types import Message, Task
from solid_pictures import picture
from workspace import ROOT

README = ROOT / "plugins" / "rl-plugin-visual-search" / "README.md"
RECIPES = ROOT / "plugins" / "rl-plugin-visual-search" / "src" / "rl_plugin_visual_search" / "recipes"
DRAWN = ("data.train=generated", "data.evaluation=generated", "data.drawn=128", "data.held_out=4")
PUBLISHED: Mapping[str, Mapping[str, Any]] = {
    "qwen2.5-vl-7b": {
        "environment.max_turns": 20,
        "rollout.group_size": 16,
        "rollout.max_context_tokens": 8192 + 20480,
        "trainer.steps": "32 passes",
        "trainer.tasks_per_step": 64,
        "checkpoint.every": 100,
    },
    "qwen2.5-vl-7b-2x8": {
        "environment.max_turns": 5,
        "rollout.group_size": 8,
        "rollout.max_context_tokens": 32000 + 20480,
        "algorithm.filter.metric": "reward",
        "strategy.id": "fsdp2",
        "trainer.steps": "32 passes",
        "trainer.tasks_per_step": 64,
        "checkpoint.every": 10,
    },
    "qwen2.5-vl-7b-ranked": {
        "environment.max_turns": 5,
        "rollout.group_size": 8,
        "rollout.max_context_tokens": 32000 + 20480,
        "algorithm.advantage.normalise_by_std": False,
        "algorithm.filter.metric": "reward",
        "algorithm.filter.exclude": ["length"],
        "algorithm.filter.oversample": 2.0,
        "algorithm.filter.rank_by_std": True,
        "trainer.steps": 700,
        "trainer.tasks_per_step": 16,
        "checkpoint.every": 10,
    },
}
SHARED = {
    "model.images.max_pixels": 2_000_000,
    "rollout.max_new_tokens": 10240,
    "rollout.stop": ["</code>"],
    "trainer.learning_rate": 1e-6,
    "trainer.updates_per_rollout": 1,
    "evaluation.samples": 32,
}


def judge_of(name: str) -> JudgeConfig:
    """The table of the judge of a recipe."""
    table = tomllib.loads((RECIPES / f"{name}.toml").read_text(encoding="utf-8"))["reward"][0]
    return JudgeConfig.model_validate({key: each for key, each in table.items() if key != "id"})


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with metadata of vLLM, whose version a dry run reads."""
    pretend_packages(monkeypatch, tmp_path, "vllm")


def value(tree: Mapping[str, Any], path: str) -> Any:
    for key in path.split("."):
        tree = tree[key]
    return tree


@pytest.mark.parametrize("name", PUBLISHED)
def test_named_recipe_passes_a_dry_run(
    name: str, place: None, rlcore: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    status = rlcore("run", "-p", "visual-search", "-r", name, "--dry-run", "-v", *DRAWN)
    shown = capsys.readouterr()
    assert status == 0, shown.err
    assert "Qwen2.5-VL-7B" in shown.out
    assert "sandbox   " in shown.err


def test_dry_run_rejects_a_tool_bonus_without_its_accuracy_reward(
    place: None, rlcore: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    words, other = ("-p", "visual-search", "-r", "qwen2.5-vl-7b", "-v", *DRAWN), "reward.1.accuracy=visual-search"
    assert rlcore("run", "--dry-run", *words, other) == 2
    message = capsys.readouterr().err
    assert "'visual-search'" in message
    assert f"line: {other}" in message
    assert "reward.1.accuracy=llm-judge" in message


def test_recipe_of_supervised_training_passes_a_dry_run(
    place: None, rlcore: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("data").mkdir()
    Path("data/scene.png").write_bytes(picture())
    turns = ("<image>Which color?", code_turn("", "image_clue_0"), "Image Result: <image>", answer_turn("", "red"))
    roles = ("user", "assistant") * 2
    messages = [{"role": role, "content": text} for role, text in zip(roles, turns, strict=True)]
    row = json.dumps({"messages": messages, "images": ["scene.png", "scene.png"]})
    Path("data/visual_search_conversations.jsonl").write_text(row + "\n", encoding="utf-8")
    status = rlcore("run", "-p", "visual-search", "-r", "qwen2.5-vl-7b-sft", "--dry-run", "-v")
    shown = capsys.readouterr()
    assert status == 0, shown.err
    assert "Qwen2.5-VL-7B" in shown.out
    assert "sandbox   " not in shown.err, "supervised training samples nothing"


def test_conversation_in_the_readme_is_read(tmp_path: Path) -> None:
    (row,) = [json.loads(block.text) for block in blocks(README) if block.language == "json"]
    (tmp_path / "pictures").mkdir()
    for number in (0, 1):
        (tmp_path / "pictures" / f"{number}.png").write_bytes(picture(color=(number, 0, 0)))
    (tmp_path / "rows.json").write_text(json.dumps([row]), encoding="utf-8")
    (one,) = VisualSearchData(DataConfig(train=[str(tmp_path / "rows.json")])).conversations("train")
    assert [len(message.images) for message in one.messages] == [1, 0, 1, 0]
    assert parse(one.messages[1].text).code == "image_clue_0.crop((224,112,336,224))"


@pytest.mark.parametrize("name", PUBLISHED)
def test_named_recipe_has_the_published_values(name: str) -> None:
    recipe = tomllib.loads((RECIPES / f"{name}.toml").read_text(encoding="utf-8"))
    expected = {**SHARED, **PUBLISHED[name]}
    assert {path: value(recipe, path) for path in expected} == expected
    assert [reward["id"] for reward in recipe["reward"]] == ["llm-judge", "visual-search-tools"]
    assert recipe["reward"][1] == {"id": "visual-search-tools", "accuracy": "llm-judge", "weight": 0.1}
    assert "trackers" not in recipe


def test_runs_that_do_not_stop_after_code_warn(place: None, rlcore: Call, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("run", "-p", "visual-search", "-r", "qwen2.5-vl-7b", "--dry-run", "-v", *DRAWN)
    for words, warns in ((("rollout.stop=[]",), True), (("rollout.stop=[]", "data.tools=zoom"), False)):
        assert rlcore(*command, *words) == 0, capsys.readouterr().err
        assert ("does not stop after </code>" in capsys.readouterr().out) == warns, words


@pytest.mark.parametrize(
    "turn",
    [
        answer_turn("It is red.", "red"),
        answer_turn("", "'red'"),
        "\\boxed{red}",
        "<answer>red</answer>",
        "<answer>\\boxed{red}</answer> no, <answer> \\boxed{ blue } </answer> or \\boxed{black}",
        "<answer>\\boxed{red}</answer> <answer>blue</answer> <answer>\\boxed{black}",
        answer_turn("", "red") + code_turn("", "print('<answer>\\boxed{blue}</answer>')"),
        "<think>" + answer_turn("", "red") + "</think>" + answer_turn("", "blue"),
        "<think>" + answer_turn("", "red"),
        "```python\n'<answer>\\boxed{red}</answer>'\n```",
    ],
)
def test_judge_reads_the_answer_that_ended_the_episode(turn: str) -> None:
    """With the ``extract`` of the recipes, which are plugins that do not import each other."""
    (extract,) = {judge_of(name).extract for name in PUBLISHED}
    asked = Message(role="user", content="Which color?")
    assert given_answer(make_trajectory(asked, turn), extract) == (parse(turn).answer or "")


@pytest.mark.parametrize("seed", [0, None])
@pytest.mark.parametrize("name", PUBLISHED)
def test_judge_reads_letter_text_and_aliases_of_the_right_answer(name: str, seed: int | None, tmp_path: Path) -> None:
    (tmp_path / "scene.png").write_bytes(picture())
    rows: list[dict[str, Any]] = [
        {"image": "scene.png", "question": "Which color?", "options": ["red", "green", "blue"], "answer": "B"},
        {"image": "scene.png", "question": "What is it?", "answer": ["a mug", "a cup"], "aliases": ["a beaker"]},
    ]
    (tmp_path / "rows.json").write_text(json.dumps(rows), encoding="utf-8")
    data = DataConfig.model_validate({"train": str(tmp_path / "rows.json"), "option_seed": seed})
    choice, free = VisualSearchData(data).tasks("train")
    turn = make_trajectory(Message(role="user", content="?"), answer_turn("", "the green one"))
    letter, _, text = case_of(turn, choice, judge_of(name)).expected[0].partition(". ")
    assert text == "green"
    assert f"{letter}. green" in choice.messages[0].text
    assert case_of(turn, free, judge_of(name)).expected == ("a mug", "a cup", "a beaker")


@pytest.mark.parametrize("length", [999, 1000, 1001])
def test_judge_and_comparison_reject_answers_of_the_same_length(length: int) -> None:
    """A longer answer than the limit is wrong. The recipes have the limit of the published program."""
    answer = "x" * length
    task = Task(id="0", messages=(Message(role="user", content="?"),), fields={"question": "?", "answer": answer})
    turn = make_trajectory(*task.messages, answer_turn("", answer))
    for judge in (JudgeConfig(), *map(judge_of, PUBLISHED)):  # an equal answer needs no server
        limit = judge.max_answer_characters
        compared = Accuracy(AccuracyConfig(max_answer_characters=limit))(turn, task).value
        judged = asyncio.run(Judge(judge)(turn, task)).value
        assert compared == judged == float(length <= limit)
    assert AccuracyConfig().max_answer_characters == JudgeConfig().max_answer_characters
    assert {judge_of(name).max_answer_characters for name in PUBLISHED} == {999}
