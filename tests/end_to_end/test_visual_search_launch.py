"""The arguments of the launch scripts of PyVision-RL, which is a fork of verl.

``visual_search_launch.json`` has the keys and values of three scripts: the second and third as changes of the first.
Paths and names are neutral.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from commands_here import Call, pretend_packages
from solid_pictures import picture

FILE = Path(__file__).with_name("visual_search_launch.json")
FAIR = "algorithm.filter_groups.metric=['seq_reward','trajlength','vtoken_images_num_consis','end_reason']"
"""The filters of the third script without ``hasimage``, which is refused."""
COMMON = {
    "algorithm.advantage.id": "grpo",
    "algorithm.entropy": 0,
    "algorithm.kl.coefficient": 0,
    "environment.max_turns": 5,
    "evaluation.every": 10000,
    "rollout.max_context_tokens": 52480,
    "rollout.max_new_tokens": 10240,
    "rollout.max_prompt_tokens": 32000,
    "rollout.group_size": 8,
    "rollout.vllm.arguments.max_num_batched_tokens": 32768,
    "rollout.vllm.enforce_eager": False,
    "rollout.vllm.gpu_memory_utilization": 0.8,
    "rollout.vllm.sleep": False,
    "rollout.vllm.tensor_parallel_size": 1,
    "checkpoint.every": 10,
    "strategy.id": "fsdp2",
    "trainer.learning_rate": 1e-6,
    "trainer.steps": "32 passes",
    "trainer.tasks_per_step": 64,
    "trainer.updates_per_rollout": 1,
    "warmup.steps": 0,
}
SETS: Mapping[str, Mapping[str, Any]] = {
    "two machines": {
        **COMMON,
        "algorithm.filter.metric": "reward",
        "strategy.address": "auto",
        "strategy.processes": 16,
    },
    "one machine": {
        **COMMON,
        "checkpoint.every": 100,
        "environment.max_turns": 20,
        "rollout.group_size": 16,
        "rollout.max_context_tokens": 28672,
        "rollout.max_prompt_tokens": 8192,
        "strategy.processes": 8,
    },
    "ranked": {
        **COMMON,
        "algorithm.advantage.normalise_by_std": False,
        "algorithm.filter.exclude": ["length"],
        "algorithm.filter.metric": "reward",
        "algorithm.filter.rank_by_std": True,
        "evaluation.every": 20,
        "model.images.max_pixels": 2_000_000,
        "model.images.min_pixels": 3136,
        "rollout.stop": ["</code>"],
        "rollout.vllm.gpu_memory_utilization": 0.85,
        "rollout.vllm.max_images": 32,
        "strategy.processes": 8,
        "trainer.steps": "5 passes",
        "trainer.updates_per_rollout": 4,
    },
}
"""What each script decides, apart from names and paths."""


def arguments(script: str) -> list[str]:
    """The arguments of a script, as they are on its command line."""
    scripts: Mapping[str, Mapping[str, str | None]] = json.loads(FILE.read_text(encoding="utf-8"))
    first = scripts["two machines"]
    given = first if script == "two machines" else {**first, **scripts[script]}
    return [f"{key}={value}".replace("MODEL", "example/sft-7b") for key, value in given.items() if value is not None]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with metadata of vLLM and wandb, whose versions a dry run reads, and no launcher."""
    pretend_packages(monkeypatch, tmp_path, "vllm", "wandb")
    return tmp_path


def launched(script: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The arguments of a script, without what is refused."""
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    return [FAIR if "hasimage" in word else word for word in arguments(script)]


@pytest.mark.parametrize("script", SETS)
def test_arguments_set_the_values_of_the_script(
    script: str, place: Path, monkeypatch: pytest.MonkeyPatch, rlcore: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    words = launched(script, monkeypatch)
    assert rlcore("config", "show", "--origin", "--json", "-p", "visual-search", *words) == 0
    shown = capsys.readouterr()
    found: Mapping[str, Any] = json.loads(shown.out)
    expected = SETS[script]
    assert {key: found[key]["value"] for key in expected} == expected
    assert {found[key]["origin"].partition(":")[0] for key in expected} == {"command line"}
    reported = {line.partition(" sets nothing: ")[0].partition(" -> ")[0] for line in shown.err.splitlines()}
    assert reported == set(words)


@pytest.mark.parametrize("script", SETS)
def test_arguments_pass_a_dry_run(
    script: str, place: Path, monkeypatch: pytest.MonkeyPatch, rlcore: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("first", "second"):
        folder = place / "questions" / name
        folder.mkdir(parents=True)
        (folder / "scene.png").write_bytes(picture())
        row = {"env_name": "pyvision_gym", "data_source": name, "question": "Which color?", "image": "scene.png"}
        rows = [{**row, "reward_model": {"ground_truth": "red", "style": "model"}}] * 64
        (folder / "train_1.json").write_text(json.dumps(rows))
    words = launched(script, monkeypatch)
    assert rlcore("run", "-p", "visual-search", "--dry-run", "-v", *words) == 0, capsys.readouterr().err
    shown = capsys.readouterr()
    reported = {line.partition(" sets nothing: ")[0].partition(" -> ")[0] for line in shown.err.splitlines()}
    assert set(words) <= reported


def test_refused_arguments_are_named_with_their_reasons(
    place: Path, monkeypatch: pytest.MonkeyPatch, rlcore: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert rlcore("run", "-p", "visual-search", "--dry-run", "-v", *arguments("ranked")) == 2
    assert "leave out hasimage" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("max_turns=5", "environment.max_turns"),
        ("single_response_max_tokens=64", "actor_rollout_ref.rollout.agent.single_response_max_tokens"),
        ("filter_groups.enable=True", "algorithm.filter_groups"),
    ],
)
def test_name_of_a_key_without_its_table_has_a_suggestion(
    word: str, meant: str, rlcore: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rlcore("run", "-p", "visual-search", "--dry-run", "-v", word) == 2
    assert f"did you mean {meant} ?" in capsys.readouterr().err
