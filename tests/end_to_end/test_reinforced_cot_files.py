"""``rlcore run`` accepts the unchanged files of a repository for supervised training and GRPO."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from commands_here import Call, write_metadata
from example_plugin import search_path
from rlcore.config.adapters import translate
from rlcore.config.layers import leaves
from rlcore.config.origins import parse_yaml
from rlcore.plugins.registry import Registry
from workspace import ROOT

EXAMPLE = ROOT / "examples" / "visual-cot"
LORA = """
  lora:
    r: {rank}
    lora_alpha: {alpha}
    target_modules: [q_proj, k_proj, v_proj]
    lora_dropout: 0.05
    bias: none
    task_type: {task}
"""
SFT_FILE = """
SFT:
  model_path: Qwen/Qwen2.5-VL-3B-Instruct
  tokenizer_path: Qwen/Qwen2.5-VL-3B-Instruct
  log_dir: ../../logs
  image_dir: ../../../data/multimodal_cot/images
  test_image_dir: ../../../data/multimodal_cot/test_images
  num_workers: 4
  max_prompt_length: 2048
  max_completion_length: 1024
  gradient_accumulation_steps: 2
  quantization: true
  pipeline:
    train:
      seed: 42
      logging_epoch_freq: 1
      saving_epoch_freq: 6
      train_file: ../../../data/multimodal_cot/train_data.jsonl
      batch_size: 1
      n_epochs: 12
      clip_grad_norm: 1.0
      optimizer:
        learning_rate: 1.0e-5
        weight_decay: 0
    val:
      val_file: ../../../data/multimodal_cot/dev_data.jsonl
      batch_size: 1
    test:
      test_file: ../../../data/multimodal_cot/test.jsonl
      batch_size: 1
      evaluating_epoch_freq: 2
"""
GRPO_FILE = """
GRPO:
  model_path: ../../../qwen/qwen-merged-sft
  tokenizer_path: ../../../qwen/qwen-merged-sft
  lora_adapter_path: ../../../qwen/final_checkpoint
  image_dir: ../../../data/multimodal_cot/images
  test_image_dir: ../../../data/multimodal_cot/test_images
  log_dir: ../../logs
  quantization: false
  dataloader_num_workers: 4
  report_to: tensorboard
  output_dir: ../../../qwen/
  logging_dir: ../../logs
  max_prompt_length: 2048
  max_completion_length: 768
  gradient_accumulation_steps: 2
  use_vllm: true
  vllm_mode: colocate
  remove_unused_columns: false
  vllm_gpu_memory_utilization: 0.6
  pipeline:
    train:
      train_file: ../../../data/multimodal_cot/train_data.jsonl
      do_train: true
      per_device_train_batch_size: 2
      seed: 42
      logging_steps: 10
      log_level: info
      num_train_epochs: 5
      num_iterations: 8
      num_generations: 6
      steps_per_generation: 6
      beta: 0.05
      importance_sampling_level: sequence
      scale_rewards: true
      loss_type: bnpo
      sync_ref_model: false
      save_steps: 0.4
      optimizer:
        learning_rate: 1e-5
        weight_decay: 0.01
    val:
      do_eval: false
      val_file: ../../../data/multimodal_cot/dev_data.jsonl
    test:
      do_predict: false
      test_file: ../../../data/multimodal_cot/test.jsonl
      batch_size: 8
      evaluating_epoch_freq: 1
"""
EVALUATION_FILE = """
model_path: ../../../qwen/qwen-merged-sft
tokenizer_path: ../../../qwen/qwen-merged-sft
log_dir: ../../logs
image_dir: ../../../data/multimodal_cot/images
test_image_dir: ../../../data/multimodal_cot/test_images
num_workers: 4
max_prompt_length: 2048
max_completion_length: 768
gradient_accumulation_steps: 2
quantization: false
pipeline:
  train:
    train_file: ../../../data/multimodal_cot/train_data.jsonl
    batch_size: 1
  val:
    val_file: ../../../data/multimodal_cot/dev_data.jsonl
    batch_size: 1
  test:
    test_file: ../../../data/multimodal_cot/test.jsonl
    batch_size: 8
"""
DEEPSPEED_FILE = """
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 2
deepspeed_config:
  train_micro_batch_size_per_gpu: 1
  gradient_accumulation_steps: 2
  gradient_clipping: 1.0
  zero_optimization:
    stage: 3
    offload_optimizer: {device: cpu, pin_memory: true}
    offload_param: {device: cpu, pin_memory: true}
  activation_checkpointing: {partition_activations: true, cpu_checkpointing: true}
  bf16: {enabled: true}
"""
TWO_PROCESSES = DEEPSPEED_FILE.partition("deepspeed_config")[0].replace("DEEPSPEED", "MULTI_GPU")

PICTURES = {
    "data.id": "visual-cot",
    "data.images": "data/multimodal_cot/images",
    "environment.id": "visual-cot",
    "evaluation.success": 0.7,
    "observers": ["visual-cot"],
    "reward.0.id": "visual-cot",
}
SFT_SETS = {
    **PICTURES,
    "checkpoint.every": 6 * 8,
    "data.evaluation": ["data/multimodal_cot/dev_data.jsonl"],
    "data.train": ["data/multimodal_cot/train_data.jsonl"],
    "evaluation.every": 2 * 8,
    "layout": "stamped",
    "model.path": "Qwen/Qwen2.5-VL-3B-Instruct",
    "model.quantization": "none",
    "name": "SFT",
    "rollout.max_new_tokens": 1024,
    "runs": "project/logs",
    "seed": 42,
    "trackers.use": ["console", "jsonl", "tensorboard"],
    "trainer.conversations_per_step": 2,
    "trainer.epochs": 12,
    "trainer.id": "sft",
    "trainer.learning_rate": 1e-5,
    "trainer.max_gradient_norm": 1.0,
    "trainer.max_tokens": 2048,
    "trainer.rollouts": True,
    "trainer.schedule": "linear",
    "trainer.lr_warmup_ratio": 0.1,
    "trainer.weight_decay": 0.0,
}
"""For 16 rows in batches of 2."""
EVALUATION_SETS = {
    **PICTURES,
    "data.evaluation": ["data/multimodal_cot/test.jsonl"],
    "data.evaluation_images": "data/multimodal_cot/test_images",
    "layout": "stamped",
    "model.path": "qwen/qwen-merged-sft",
    "model.quantization": "none",
    "name": "Evaluator",
    "rollout.max_context_tokens": 2816,
    "rollout.max_new_tokens": 768,
    "runs": "project/logs",
}
GRPO_SETS = {
    **PICTURES,
    "algorithm.advantage.id": "grpo",
    "algorithm.advantage.normalise_by_std": True,
    "algorithm.aggregation": "token-mean",
    "algorithm.loss.id": "gspo",
    "algorithm.kl.coefficient": 0.05,
    "algorithm.kl.estimator": "k3",
    "checkpoint.every": 16,
    "data.evaluation": ["data/multimodal_cot/dev_data.jsonl"],
    "data.train": ["data/multimodal_cot/train_data.jsonl"],
    "evaluation.every": 0,
    "layout": "stamped",
    "model.path": "qwen/qwen-merged-sft",
    "model.quantization": "none",
    "name": "GRPO",
    "rollout.engine": "vllm",
    "rollout.group_size": 6,
    "rollout.max_context_tokens": 2816,
    "rollout.max_new_tokens": 768,
    "rollout.vllm.gpu_memory_utilization": 0.6,
    "runs": "project/logs",
    "seed": 42,
    "trackers.use": ["console", "jsonl", "tensorboard"],
    "trainer.epochs": 8,
    "trainer.id": "policy-gradient",
    "trainer.learning_rate": 1e-5,
    "trainer.schedule": "linear",
    "trainer.steps": 40,
    "trainer.tasks_per_step": 2,
    "trainer.updates_per_rollout": 3,
    "trainer.weight_decay": 0.01,
    "warmup.steps": 0,
}
"""For 16 rows in one process: 40 rollouts of 2 problems. Without an epsilon, the clip range is that of GSPO."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rlcore: Call) -> Path:
    """The folders of the repository with generated pictures, and metadata of vLLM and a tracker."""
    for place in search_path(EXAMPLE, tmp_path / "example"):
        monkeypatch.syspath_prepend(place)
    monkeypatch.chdir(tmp_path)
    size = ("questions=16", "held_out=2")
    assert rlcore("data", "prepare", "visual-cot", "out=data/multimodal_cot", *size) == 0
    model = tmp_path / "qwen" / "qwen-merged-sft"
    model.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (model / name).write_text("{}", encoding="utf-8")
    write_metadata(tmp_path / "site", "vllm", "tensorboard")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return tmp_path / "project" / "configs" / "train"


def write(folder: Path, name: str, text: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return str((folder / name).relative_to(Path.cwd()))


def keys_of(text: str) -> int:
    """The number of keys with a value in a file, including the top-level block."""
    tree, _ = parse_yaml(text, "file")
    return len(list(leaves(tree))) + (set(tree) <= {"SFT", "GRPO"})


def set_by_files(rlcore: Call, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[Mapping[str, Any], list[str]]:
    """The keys that the files set, and the printed lines."""
    assert rlcore("config", "show", "--origin", "--json", *words) == 0, capsys.readouterr().err
    shown = capsys.readouterr()
    found: Mapping[str, Any] = json.loads(shown.out)
    ours = {key: row["value"] for key, row in found.items() if ".yaml:" in row["origin"]}
    return ours, shown.err.splitlines()


def test_every_key_of_the_sft_file_is_reported(project: Path, rlcore: Call, capsys: pytest.CaptureFixture[str]) -> None:
    text = SFT_FILE.replace("quantization: true", "quantization: false")
    file = write(project, "sft.yaml", text)
    assert rlcore("run", "--dry-run", "-v", "-c", file) == 0, capsys.readouterr().err
    capsys.readouterr()
    found, lines = set_by_files(rlcore, capsys, "-c", file)
    assert found == SFT_SETS
    assert len(lines) == keys_of(text)
    assert any("image_dir" in line and 'data.images = "data/multimodal_cot/images"' in line for line in lines)


def test_every_key_of_the_grpo_file_is_reported(
    project: Path, rlcore: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(project, "grpo.yaml", GRPO_FILE)
    given = ["-c", file]
    assert rlcore("config", "show", *given) == 0, capsys.readouterr().err
    resolved = capsys.readouterr().out
    assert '[algorithm.loss]\nid = "gspo"' in resolved
    assert "clip_low = 0.0003" in resolved
    found, lines = set_by_files(rlcore, capsys, *given)
    assert found == GRPO_SETS
    assert len(lines) == keys_of(GRPO_FILE)


def test_every_key_of_the_evaluation_file_is_reported(
    project: Path, rlcore: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(project, "eval.yaml", EVALUATION_FILE)
    found, lines = set_by_files(rlcore, capsys, "-c", file)
    assert found == EVALUATION_SETS
    assert len(lines) == keys_of(EVALUATION_FILE)


def test_lora_tables_are_translated(project: Path, rlcore: Call, capsys: pytest.CaptureFixture[str]) -> None:
    low = SFT_FILE.replace("quantization: true", "quantization: false")
    low += LORA.format(rank=128, alpha=256, task="CAUSAL_LMs")
    found, lines = set_by_files(rlcore, capsys, "-c", write(project, "sft.yaml", low))
    adapter = {"rank": 128, "alpha": 256, "targets": ["q_proj", "k_proj", "v_proj"]}
    ours = {f"lora.{key}": value for key, value in adapter.items()}
    assert found == {**SFT_SETS, **ours, "lora.dropout": 0.05}
    assert len(lines) == keys_of(low)
    high = GRPO_FILE + LORA.format(rank=128, alpha=256, task="CAUSAL_LM")
    given = ("-c", write(project, "grpo.yaml", high))
    found, lines = set_by_files(rlcore, capsys, *given)
    assert found == {**GRPO_SETS, **ours}
    assert any("lora_dropout" in line and " -> " not in line for line in lines)


def test_quantised_base_needs_adapter_and_torch_engine(
    project: Path, untrained: Path, rlcore: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    adapter = LORA.format(rank=128, alpha=256, task="CAUSAL_LM")
    found, lines = set_by_files(rlcore, capsys, "-c", write(project, "sft.yaml", SFT_FILE + adapter))
    assert found["model.quantization"] == "nf4"
    assert any('quantization = true -> model.quantization = "nf4"' in line for line in lines)
    assert rlcore("run", "--dry-run", "-v", "-c", write(project, "sft.yaml", SFT_FILE)) == 2
    assert "model.quantization" in capsys.readouterr().err
    high = GRPO_FILE.replace("quantization: false", "quantization: true") + adapter
    given = ("run", "--dry-run", "-v", "-p", "gsm8k-tools", "-c")
    assert rlcore(*given, write(project, "grpo.yaml", high)) == 2
    error = capsys.readouterr().err
    assert "model.quantization" in error
    assert "rollout.engine" in error
    lines = high.replace("use_vllm: true", "use_vllm: false").replace("rank: 128", "rank: 8").splitlines()
    text = "\n".join(line for line in lines if "image_dir" not in line)
    shutil.copytree(untrained, Path("qwen/qwen-merged-sft"), dirs_exist_ok=True)
    assert rlcore(*given, write(project, "grpo.yaml", text)) == 0, capsys.readouterr().err


def test_recipes_match_the_files(project: Path, rlcore: Call, capsys: pytest.CaptureFixture[str]) -> None:
    """They train the text model on text, so the folders of pictures are left out."""
    data = Path("data/multimodal_cot/train_data.jsonl")
    data.write_text(data.read_text(encoding="utf-8").splitlines(keepends=True)[0] * 500, encoding="utf-8")
    processes = "strategy.processes=2"
    sft = SFT_FILE.replace("quantization: true", "quantization: false") + LORA.format(rank=128, alpha=256, task="x")
    grpo = GRPO_FILE + LORA.format(rank=64, alpha=128, task="x")
    here = {"data", "model", "name", "runs", "layout", "evaluation", "trackers"}
    other = {"rollout.engine", "rollout.vllm.gpu_memory_utilization", "checkpoint.every", "rollout.max_new_tokens"}
    for recipe, text in (("qwen2.5-3b-sft", sft), ("qwen2.5-3b-grpo", grpo)):
        lines = [line for line in text.splitlines() if "image_dir" not in line]
        file = write(project, "file.yaml", "\n".join(lines))
        (reading,) = translate(Registry(), files=[file], overrides=[processes]).files
        wanted = {".".join(path): value for path, value in leaves(reading.tree)}
        if "algorithm.loss" in wanted:
            wanted["algorithm.loss.id"] = wanted.pop("algorithm.loss")
        assert rlcore("config", "show", "--json", "-p", "gsm8k-tools", "-r", recipe) == 0
        found = json.loads(capsys.readouterr().out)
        same = {key for key in wanted if key.partition(".")[0] not in here} - other - {"warmup.steps"}
        assert {key: found[key] for key in same} == {key: wanted[key] for key in same}


def test_token_level_importance_sampling_selects_grpo(
    project: Path, rlcore: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(project, "grpo.yaml", GRPO_FILE.replace("level: sequence", "level: token"))
    assert rlcore("config", "show", "-c", file) == 0, capsys.readouterr().err
    resolved = capsys.readouterr().out
    assert '[algorithm.loss]\nid = "clip"' in resolved
    assert "clip_low = 0.2" in resolved


def test_two_processes_double_the_batch(project: Path, rlcore: Call, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(project, "grpo.yaml", GRPO_FILE)
    two = write(project, "two.yaml", TWO_PROCESSES)
    rlcore("run", "--dry-run", "-v", "-c", two, "-c", file)
    error = capsys.readouterr().err
    assert "per_device_train_batch_size = 2 -> trainer.tasks_per_step = 4, trainer.updates_per_rollout = 3" in error
    assert 'distributed_type = "MULTI_GPU" -> strategy.id = "ddp"' in error
    assert "num_processes = 2 -> strategy.processes = 2" in error


def test_stage_of_the_deepspeed_file_sets_the_strategy(
    project: Path, rlcore: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    file, deepspeed = write(project, "grpo.yaml", GRPO_FILE), write(project, "ds.yaml", DEEPSPEED_FILE)
    found, lines = set_by_files(rlcore, capsys, "-c", deepspeed, "-c", file)
    strategy = {key: value for key, value in found.items() if key.startswith("strategy.")}
    assert strategy == {"strategy.id": "fsdp2", "strategy.processes": 2, "strategy.reshard_after_forward": True}
    (line,) = (line for line in lines if "zero_optimization" in line)
    assert "accelerate would ignore this table here, and use stage 2" in line


@pytest.mark.long
def test_example_passes_its_own_tests(tmp_path: Path) -> None:
    path = os.pathsep.join(search_path(EXAMPLE, tmp_path / "site"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE / "tests")],
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "RLCORE_DATA" not in os.environ or "skipped" not in done.stdout


def test_misspelt_block_gets_a_suggestion(project: Path, rlcore: Call, capsys: pytest.CaptureFixture[str]) -> None:
    assert rlcore("run", "--dry-run", "-v", "-p", "gsm8k-tools", "sft.model_path=x") == 2
    assert "did you mean SFT ?" in capsys.readouterr().err


def test_files_without_the_plugin_are_unknown_keys(
    project: Path, monkeypatch: pytest.MonkeyPatch, rlcore: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RLCORE_DISABLE_PLUGINS", "rl-plugin-visual-cot")
    file = write(project, "grpo.yaml", GRPO_FILE)
    assert rlcore("run", "--dry-run", "-v", "-c", file) == 2
    assert "unknown key  GRPO" in capsys.readouterr().err
