"""Files are recognised, and each key sets rlcore keys, is ignored with a reason, or is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rl_plugin_visual_cot.config import ACCURACY
from rl_plugin_visual_cot.files.adapter import EVALUATION, GRPO, SFT
from rlcore.cli.layering import gather
from rlcore.config.adapters import Translated, config_adapter_of, translate
from rlcore.config.layers import leaves
from rlcore.config.messages import Problem
from rlcore.plugins.registry import Registry
from rlcore_compat.tables import Meaning
from rlcore_compat.trl import TRL

pytest.importorskip("yaml", reason="pyyaml is not installed: pip install 'rlcore-core[yaml]'")

GENERATION = """
      per_device_train_batch_size: 2
      num_generations: 6
      steps_per_generation: 6
"""


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def grpo(folder: Path, train: str = "", top: str = "") -> str:
    pipeline = "  pipeline:\n    train:\n" + train if train else ""
    return write(folder, "grpo.yaml", f"GRPO:\n{top}\n{pipeline}\n")


def read(*files: str, own: tuple[str, ...] = ()) -> Translated:
    """As ``rlcore run`` does."""
    return translate(Registry(), files=files, overrides=own)


def sets(*files: str, own: tuple[str, ...] = ()) -> dict[str, Any]:
    """The keys that the files set; asserts that there are no problems."""
    found: dict[str, Any] = {}
    for layer in read(*files, own=own).files:
        assert [str(problem) for problem in layer.problems] == []
        found |= {".".join(path): value for path, value in leaves(layer.tree)}
    return found


def problems_of(*files: str) -> list[Problem]:
    return [problem for layer in read(*files).files for problem in layer.problems]


def lines(*files: str, own: tuple[str, ...] = ()) -> list[str]:
    return list(read(*files, own=own).lines)


def test_document_lists_every_key_that_is_not_of_trl() -> None:
    page = (Path(__file__).parents[1] / "words.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert rows == [
        documented(key, meaning)
        for settings in (SFT, GRPO, EVALUATION)
        for key, meaning in settings.meanings.items()
        if settings is not GRPO or meaning != TRL.get(key)
    ]


def documented(key: str, meaning: Meaning) -> str:
    also = [f"`{name} = {json.dumps(value)}`" for name, value in meaning.also.items()]
    ours = ", ".join([f"`{meaning.ours}`", *also]) if meaning.ours else "–"
    return f"| `{key}` | {ours} | {f'refused: {meaning.refuse}' if meaning.never else meaning.why} |"


def test_file_can_be_the_recipe(tmp_path: Path) -> None:
    file, above = grpo(tmp_path, "      num_generations: 6\n"), write(tmp_path, "own.yaml", "seed: 3\n")
    found, same = gather(Registry(), recipe=file, files=(above,)), gather(Registry(), files=(file, above))
    assert (found.recipe, same.recipe) == (file, "")
    assert [layer.tree for layer in found.layers] == [layer.tree for layer in same.layers]
    assert found.layers[0].tree["rollout"] == {"group_size": 6}
    assert found.layers[1].tree == {"seed": 3}


def test_rlcore_file_is_not_translated(tmp_path: Path) -> None:
    ours = write(tmp_path, "run.yaml", "model:\n  path: a/b\nlora:\n  rank: 4\ntrainer:\n  steps: 3\n")
    found = read(ours)
    assert found.lines == []
    assert found.files[0].tree == {"model": {"path": "a/b"}, "lora": {"rank": 4}, "trainer": {"steps": 3}}
    assert config_adapter_of(Registry(), {"pipeline": {}}) is None


def test_key_is_translated_with_its_line_as_the_origin(tmp_path: Path) -> None:
    file = grpo(tmp_path, "      num_generations: 6\n")
    (layer,) = read(file).files
    assert layer.tree["rollout"] == {"group_size": 6}
    assert layer.origin(("rollout", "group_size")) == f"{file}:5"
    assert f"{file}:5: pipeline.train.num_generations = 6 -> rollout.group_size = 6" in lines(file)


def test_pipeline_keys_are_accepted_one_level_above(tmp_path: Path) -> None:
    inside = sets(grpo(tmp_path, "      max_grad_norm: 0.5\n"))
    assert sets(grpo(tmp_path, top="  max_grad_norm: 0.5")) == inside
    (problem,) = problems_of(grpo(tmp_path, "      max_grad_norm: 0.5\n", top="  max_grad_norm: 2.0"))
    assert problem.path == "trainer.max_gradient_norm"
    assert problem.kind == "bad value"


def test_unknown_key_is_reported_with_its_line(tmp_path: Path) -> None:
    (problem,) = problems_of(grpo(tmp_path, "      num_generation: 6\n"))
    assert (problem.kind, problem.path) == ("unknown key", "GRPO.pipeline.train.num_generation")
    assert problem.origin.endswith("grpo.yaml:5")
    assert "num_generations" in problem.reason
    both = write(tmp_path, "both.yaml", "SFT:\n  num_workers: 1\nGRPO:\n  num_workers: 1\n")
    assert [problem.path for problem in problems_of(both)] == ["GRPO.num_workers"]


def test_learning_rate_schedule_is_linear_by_default(tmp_path: Path) -> None:
    file = grpo(tmp_path, "      learning_rate: 1e-4\n")
    assert sets(file)["trainer.schedule"] == "linear"
    (line,) = [line for line in lines(file) if 'trainer.id = "policy-gradient"' in line]
    assert 'trainer.schedule = "linear"' in line
    assert "lr_scheduler_type" in line
    for given, expected in (("constant", "constant"), ("cosine", "cosine"), ("null", "linear")):
        assert sets(grpo(tmp_path, f"      lr_scheduler_type: {given}\n"))["trainer.schedule"] == expected


def test_paths_are_relative_to_the_file_and_hub_ids_unchanged(tmp_path: Path) -> None:
    (tmp_path / "models" / "here").mkdir(parents=True)
    file = "configs/train/grpo.yaml"
    places = {
        "Qwen/Qwen2.5-VL-3B-Instruct": "Qwen/Qwen2.5-VL-3B-Instruct",
        "builtin:tiny-qwen2": "builtin:tiny-qwen2",
        "../../models/away": str(tmp_path / "models/away"),
        "/models/away": "/models/away",
    }
    for given, expected in places.items():
        path = write(tmp_path, file, f"GRPO:\n  model_path: {given}\n  report_to: tensorboard\n  log_dir: ../../logs\n")
        found = sets(path)
        assert found["model.path"] == expected
        assert found["runs"] == str(tmp_path / "logs")
    beside = write(tmp_path, "grpo.yaml", "GRPO:\n  model_path: models/here\n")
    assert sets(beside)["model.path"] == str(tmp_path / "models/here")


@pytest.mark.parametrize("lacks", [None, "tensorboard is not installed"])
def test_log_dir_gets_event_files_if_tensorboard_is_installed(
    lacks: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rl_plugin_visual_cot.files.values.unmet_with_extras", lambda requirement: lacks)
    both = ["console", "jsonl", "tensorboard"]
    for file in (write(tmp_path, "sft.yaml", "SFT:\n  log_dir: logs\n"), grpo(tmp_path, top="  log_dir: logs")):
        found = sets(file)
        assert (found["layout"], found.get("trackers.use")) == ("stamped", both if lacks is None else None)
    for asked, expected in (("tensorboard", both), ("none", both[:2])):
        found = sets(grpo(tmp_path, top=f"  log_dir: logs\n  report_to: {asked}"))
        assert found["trackers.use"] == expected


def test_relative_files_give_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "configs/sft.yaml", "SFT:\n  train_file: ../data/train.jsonl\n")
    assert sets("configs/sft.yaml")["data.train"] == "data/train.jsonl"


def test_missing_folder_does_not_become_a_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "configs/sft.yaml", "SFT:\n  model_path: ../qwen/away\n")
    assert sets("configs/sft.yaml")["model.path"] == "./qwen/away"


def test_tokenizer_must_be_that_of_the_model(tmp_path: Path) -> None:
    assert sets(grpo(tmp_path, top="  model_path: a/b\n  tokenizer_path: a/b"))["model.path"] == "a/b"
    (problem,) = problems_of(grpo(tmp_path, top="  model_path: a/b\n  tokenizer_path: c/d"))
    assert (problem.kind, problem.path) == ("refused", "tokenizer_path")


def test_processes_are_read_from_accelerate_file_or_override(tmp_path: Path) -> None:
    accelerate = write(tmp_path, "two.yaml", "distributed_type: MULTI_GPU\nnum_processes: 2\n")
    file = grpo(tmp_path, GENERATION)
    for found in (sets(accelerate, file), sets(file, accelerate), sets(file, own=("strategy.processes=2",))):
        assert found["trainer.tasks_per_step"] == 4
    sft = write(tmp_path, "sft.yaml", "SFT:\n  batch_size: 1\n  gradient_accumulation_steps: 2\n")
    assert sets(sft)["trainer.conversations_per_step"] == 2
    assert sets(accelerate, sft)["trainer.conversations_per_step"] == 4


def test_epochs_fractions_and_optimiser_steps_become_rollouts(tmp_path: Path) -> None:
    write(tmp_path, "train.jsonl", '{"question": "?"}\n' * 500)
    settings = GENERATION + "      gradient_accumulation_steps: 2\n      num_iterations: 8\n"
    data = "      train_file: train.jsonl\n      num_train_epochs: 5\n      save_steps: 0.4\n      eval_steps: 100\n"
    accelerate = write(tmp_path, "two.yaml", "distributed_type: MULTI_GPU\nnum_processes: 2\n")
    found = sets(accelerate, grpo(tmp_path, settings + data))
    # 500 prompts, 4 a generation, 5 passes; 24 optimiser steps a generation: 15,000 in all, saved at 6,000 and 12,000.
    assert found["trainer.steps"] == 625
    assert found["trainer.epochs"] == 8
    assert found["checkpoint.every"] == 250
    assert found["evaluation.every"] == 5
    assert sets(accelerate, grpo(tmp_path, settings + "      max_steps: 15000\n"))["trainer.steps"] == 625
    limited = sets(accelerate, grpo(tmp_path, settings + data + "      max_steps: 48\n"))
    assert limited["trainer.steps"] == 2


def test_passes_over_conversations_become_updates(tmp_path: Path) -> None:
    write(tmp_path, "train.json", "[1, 2, 3, 4, 5, 6, 7, 8, 9]")
    text = """
SFT:
  gradient_accumulation_steps: 2
  pipeline:
    train: {train_file: train.json, batch_size: 2, saving_epoch_freq: 6, n_epochs: 12}
    test: {evaluating_epoch_freq: 2}
"""
    found = sets(write(tmp_path, "sft.yaml", text))
    assert found["data.id"] == "chat"
    assert found["trainer.epochs"] == 12
    assert (found["checkpoint.every"], found["evaluation.every"]) == (18, 6)


def test_evaluation_file_uses_the_test_set(tmp_path: Path) -> None:
    text = """
model_path: Qwen/Qwen2.5-3B-Instruct
max_completion_length: 768
pipeline:
  train: {train_file: train.jsonl, batch_size: 1}
  test: {test_file: test.jsonl, batch_size: 8}
"""
    found = sets(write(tmp_path, "eval.yaml", text))
    assert found["data.evaluation"] == str(tmp_path / "test.jsonl")
    assert found["rollout.max_new_tokens"] == 768
    assert "data.train" not in found


def adapter_of(folder: Path, base: str) -> None:
    """An adapter folder without weights that can be loaded."""
    folder.mkdir()
    settings = {"peft_type": "LORA", "base_model_name_or_path": base, "r": 4}
    (folder / "adapter_config.json").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "adapter_model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")


def test_evaluation_file_selects_the_adapter_on_its_base(tmp_path: Path) -> None:
    text = "model_path: owner/base\nlora_adapter_path: ./adapter\npipeline: {test: {test_file: test.jsonl}}\n"
    (missing,) = problems_of(write(tmp_path, "eval.yaml", text))
    assert (missing.kind, missing.path) == ("refused", "lora_adapter_path")
    adapter_of(tmp_path / "adapter", "owner/base")
    assert sets(write(tmp_path, "eval.yaml", text))["model.path"] == str(tmp_path / "adapter")
    (wrong,) = problems_of(write(tmp_path, "eval.yaml", text.replace("owner/base", "owner/other")))
    assert (wrong.kind, wrong.path) == ("refused", "model_path")
    assert "owner/base" in wrong.reason


@pytest.mark.parametrize("key", ["image_dir", "test_image_dir"])
def test_images_beside_a_text_model_are_refused(key: str, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    config = tmp_path / "model" / "config.json"
    config.write_text('{"model_type": "qwen2"}', encoding="utf-8")
    text = "GRPO:\n  model_path: ./model\n  {}: images\n"
    (problem,) = problems_of(write(tmp_path, "grpo.yaml", text.format(key)))
    assert (problem.kind, problem.path) == ("refused", key)
    (builtin,) = problems_of(write(tmp_path, "own.yaml", text.format(key).replace("./model", "builtin:tiny-qwen2")))
    assert builtin.path == key
    config.write_text('{"model_type": "qwen2_5_vl", "vision_config": {}}', encoding="utf-8")
    assert problems_of(write(tmp_path, "grpo.yaml", text.format(key))) == []
    assert problems_of(write(tmp_path, "vl.yaml", text.format(key).replace("./model", "builtin:tiny-qwen2.5-vl"))) == []


def test_folder_of_pictures_selects_their_environment_and_reward(tmp_path: Path) -> None:
    folders = "image_dir: images\ntest_image_dir: test_images\n"
    indented = "".join(f"  {line}\n" for line in folders.splitlines())
    ours = {
        "data.id": "visual-cot",
        "data.images": str(tmp_path / "images"),
        "environment.id": "visual-cot",
        "evaluation.success": ACCURACY,
        "observers": ["visual-cot"],
        "reward.0.id": "visual-cot",
    }
    training = sets(write(tmp_path, "grpo.yaml", "GRPO:\n" + indented))
    assert {key: training[key] for key in ours} == ours
    assert "data.evaluation_images" not in training
    supervised = sets(write(tmp_path, "sft.yaml", f"SFT:\n{indented}  train_file: train.jsonl\n"))
    assert {key: supervised[key] for key in ours} == ours
    assert supervised["trainer.rollouts"] is True
    pipeline = "pipeline: {test: {test_file: test.jsonl}}\n"
    evaluation = sets(write(tmp_path, "eval.yaml", f"model_path: a/b\n{folders}{pipeline}log_dir: logs\n"))
    assert {key: evaluation[key] for key in ours} == ours
    assert evaluation["data.evaluation_images"] == str(tmp_path / "test_images")
    assert (evaluation["runs"], evaluation["layout"]) == (str(tmp_path / "logs"), "stamped")


def test_do_eval_disables_evaluation(tmp_path: Path) -> None:
    value = "GRPO:\n  pipeline:\n    val: {do_eval: false}\n"
    assert sets(write(tmp_path, "grpo.yaml", value))["evaluation.every"] == 0
    supervised = "SFT:\n  pipeline:\n    val: {do_eval: false}\n"
    assert sets(write(tmp_path, "sft.yaml", supervised))["evaluation.every"] == 0
    assert "evaluation.every" not in sets(write(tmp_path, "true.yaml", supervised.replace("false", "true")))
