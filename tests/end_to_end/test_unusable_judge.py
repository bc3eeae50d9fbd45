"""A run whose judge cannot answer ends with the reason, and other failures of a judge do not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from byte_level import byte_level_tokenizer
from chat_server import Endpoint, failing, free_port
from rlcore.errors import UserError
from rlcore.models.weights import FolderWeights
from rlcore.session.session import RunSession
from rlcore.types import Group, Message, RolloutRequest, Task
from rlcore_rollout.sampler.local import LocalSampler
from tokenizers import AddedToken

TASK = Task(id="t", messages=(Message(role="user", content="How much is 2 + 2?"),), fields={"answer": "4"})
EASY = Task(id="easy", messages=TASK.messages, fields={"answer": "It is 4."})
"""A task whose answer scores 1 without a question to the judge."""


class Tasks:
    """A dataset with one task."""

    def tasks(self, split: str) -> list[Task]:
        return [TASK]


@pytest.fixture
def server() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    yield endpoint
    endpoint.close()


def collected(folder: Path, url: str, *tasks: Task) -> list[Group]:
    tokenizer = byte_level_tokenizer(["It is 4."], 300)
    tokenizer.add_special_tokens([AddedToken("<|im_start|>", special=True), AddedToken("<|im_end|>", special=True)])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<|im_end|>", "rlcore_chat_format": "plain"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    values = {
        "model": {"path": str(folder)},
        "environment": {"id": "gsm8k-tools"},
        "data": {"id": f"{__file__}:Tasks"},
        "reward": [{"id": "llm-judge", "base_url": [url], "max_retries": 0}],
        "rollout": {"engine": "scripted", "scripted": {"replies": ["It is 4."]}},
    }
    run = RunSession.create(values, purpose="evaluation")
    sampler = LocalSampler(run, FolderWeights(folder=folder), run)
    try:
        return list(sampler.collect(RolloutRequest(tasks=tasks or [TASK], group_size=2, seed=0, step=0)))
    finally:
        sampler.close()


def test_run_without_any_server_ends_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not respond"):
        collected(tmp_path, f"http://127.0.0.1:{free_port()}/v1")


def test_run_ends_too_if_only_answers_without_a_judgement_are_scored(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    with pytest.raises(UserError, match="does not respond"):
        collected(tmp_path, url, EASY, TASK)
    (group,) = collected(tmp_path, url, EASY)
    assert group.rewards_G == (1.0, 1.0)


def test_failed_judgements_leave_trajectories_without_a_score(server: Endpoint, tmp_path: Path) -> None:
    server.answers = [failing(500)]
    (group,) = collected(tmp_path, server.url)
    assert group.rewards_G == (None, None)
    kinds = [trajectory.rewards["llm-judge"].error_kind for trajectory in group.trajectories]
    assert kinds == ["server error"] * 2
