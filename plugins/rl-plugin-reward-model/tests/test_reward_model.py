"""The reward of a real, tiny reward model, in its own process."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rl_plugin_reward_model import scoring
from rl_plugin_reward_model.check import check
from rl_plugin_reward_model.config import RewardModelConfig
from rl_plugin_reward_model.reward import RewardModel
from rl_plugin_reward_model.worker import Classifier
from rlcore.errors import UserError
from rlcore.models.reward_model import check_policy
from rlcore.testing import check_reward, make_trajectory
from rlcore.testing.rewards import RewardCase
from rlcore.types import Message, Task
from rlcore_models.builtin import tiny_qwen2
from rlcore_models.builtin.config import TinyQwen2Config
from transformers import AutoModelForSequenceClassification, Qwen2Config, Qwen2ForSequenceClassification

TASK = Task(id="one", messages=(Message(role="user", content="Is the sky blue?"),))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reward model with random weights."""
    path = tmp_path_factory.mktemp("scorer")
    tiny_qwen2.build(path, ["Is the sky blue? Yes, it is.", "No."], 0, TinyQwen2Config())
    torch.manual_seed(0)
    config = Qwen2Config.from_pretrained(path, num_labels=1, pad_token_id=0)
    Qwen2ForSequenceClassification(config).save_pretrained(path)
    return path


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_conformance_and_scores_of_transformers(folder: Path) -> None:
    """In one test, because each process takes seconds to start."""
    reward = RewardModel(RewardModelConfig(model=str(folder)))
    answers = ["Yes, it is.", "No.", "I cannot see it."]
    trajectories = [make_trajectory(*TASK.messages, answer) for answer in answers]

    async def scored() -> list[Any]:
        found = [one async for one in _together(reward, trajectories)]
        ignored = make_trajectory(*TASK.messages, answers[0], Message(role="tool", content="42", name="tool"))
        found += [await reward(ignored, TASK), await reward(make_trajectory(*TASK.messages), TASK)]
        await reward.close()
        return found

    *scores, ignored, empty = asyncio.run(scored())
    classifier = Classifier(folder, "cpu", "auto", "auto", 1)
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    for trajectory, score in zip(trajectories, scores, strict=True):
        messages = [{"role": one.role, "content": one.text} for one in trajectory.messages]
        ids = classifier.tokens({"messages": messages, "tools": []})
        expected = float(model(input_ids=torch.tensor([ids])).logits.detach())
        assert score.value == pytest.approx(expected, abs=1e-6)
    assert len({score.value for score in scores}) == 3
    assert ignored.value == scores[0].value
    assert empty.value is None
    cases = [
        RewardCase(task=TASK, trajectory=trajectory, value=score.value)
        for trajectory, score in zip(trajectories, scores, strict=True)
    ]
    check_reward("reward-model", cases, options={"model": str(folder)})


async def _together(reward: RewardModel, trajectories: list[Any]) -> Any:
    for result in await asyncio.gather(*(reward(one, TASK) for one in trajectories)):
        yield result


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_process_that_ends_leaves_its_episodes_without_a_score(folder: Path) -> None:
    reward = RewardModel(RewardModelConfig(model=str(folder)))

    async def story() -> list[Any]:
        trajectory = make_trajectory(*TASK.messages, "No.")
        first = await reward(trajectory, TASK)
        await reward.close()
        (folder / "model.safetensors").rename(folder / "away")
        second = await reward(trajectory, TASK)
        (folder / "away").rename(folder / "model.safetensors")
        await reward.close()
        return [first, second]

    first, second = asyncio.run(story())
    assert first.value is not None
    assert second.value is None
    assert reward.refusal is not None
    assert "cannot be loaded" in str(reward.refusal)


def test_process_that_hangs_is_killed_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(scoring, "CLOSING_S", 0.2)
    scorer = scoring.Scorer(tmp_path, RewardModelConfig(model=str(tmp_path)))
    score = scorer.submit({})
    scorer.close()
    with pytest.raises(scoring.ScoringFailed, match="ended by SIGKILL"):
        score.result(timeout=5)


def changed(folder: Path, copy: Path, **changes: Any) -> Path:
    """A copy of a folder with another configuration."""
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | changes))
    return copy


def found_by(path: Path) -> list[Any]:
    options = RewardModelConfig(model=str(path))
    return list(check(None, SimpleNamespace(reward_options=(options,)), 0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id2label": {"0": "a", "1": "b"}}, "must have one label"),
        ({"architectures": ["Qwen2ForCausalLM"]}, "expected a reward model"),
    ],
)
def test_other_models_are_rejected_before_loading(
    folder: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        found_by(changed(folder, tmp_path, **changes))


def test_reward_model_is_rejected_as_a_policy(folder: Path) -> None:
    with pytest.raises(UserError, match="expected a language model") as raised:
        check_policy(folder)
    assert f"reward.0.id=reward-model reward.0.model={folder}" in str(raised.value.fix)


def test_tokenizer_of_another_model_is_rejected(folder: Path, tmp_path: Path) -> None:
    assert found_by(folder) == []
    (found,) = found_by(changed(folder, tmp_path, vocab_size=7))
    assert "7 embeddings" in found.text
    with pytest.raises(UserError, match="no model folder"):
        found_by(tmp_path / "missing")
