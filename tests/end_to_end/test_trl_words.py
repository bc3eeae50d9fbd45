"""``rlcore`` accepts a file of ``trl grpo --config`` and a file of accelerate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands_here import Call

FILE = """
model_name_or_path: Qwen/Qwen2.5-3B-Instruct
dataset_name: train.jsonl
output_dir: out
per_device_train_batch_size: 4
num_generations: 8
gradient_accumulation_steps: 4
num_train_epochs: 2
learning_rate: 1.0e-6
loss_type: dapo
beta: 0.0
epsilon: 0.2
epsilon_high: 0.28
max_completion_length: 512
use_peft: true
lora_r: 32
logging_steps: 10
bf16: true
"""
SETS = {
    "algorithm.advantage.id": "grpo",
    "algorithm.aggregation": "token-mean",
    "algorithm.loss.clip_high": 0.28,
    "algorithm.loss.clip_low": 0.2,
    "algorithm.kl.coefficient": 0.0,
    "data.train": ["train.jsonl"],
    "lora.alpha": 32.0,
    "lora.rank": 32,
    "model.path": "Qwen/Qwen2.5-3B-Instruct",
    "rollout.group_size": 8,
    "rollout.max_new_tokens": 512,
    "runs": "out",
    "strategy.id": "ddp",
    "strategy.processes": 2,
    "trainer.learning_rate": 1e-6,
    "trainer.schedule": "linear",
    "trainer.steps": 4,
    "trainer.tasks_per_step": 4,
    "trainer.updates_per_rollout": 1,
    "warmup.steps": 0,
}
"""For 8 rows in two processes: 32 completions of 4 problems, and two rollouts in each of two epochs."""


def test_every_key_of_the_files_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rlcore: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("grpo.yaml").write_text(FILE, encoding="utf-8")
    Path("two.yaml").write_text("distributed_type: MULTI_CPU\nnum_processes: 2\n", encoding="utf-8")
    Path("train.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}\n' * 8, encoding="utf-8")
    files = ("-p", "gsm8k-tools", "-c", "two.yaml", "-c", "grpo.yaml")
    assert rlcore("config", "show", "--origin", "--json", *files) == 0, capsys.readouterr().err
    shown = capsys.readouterr()
    found = {key: row["value"] for key, row in json.loads(shown.out).items() if ".yaml:" in row["origin"]}
    assert found == SETS
    assert len(shown.err.splitlines()) == len(FILE.split("\n")) - 2 + 2
