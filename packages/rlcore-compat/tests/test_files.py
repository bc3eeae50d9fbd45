"""Translation of the files of TRL and accelerate: computed keys, origins, paths, and files that exist."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rlcore.cli import main
from rlcore.config.adapters import Translated, config_adapter_of, translate
from rlcore.config.layers import leaves
from rlcore.config.messages import Problem
from rlcore.plugins.registry import Registry

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


def grpo(folder: Path, settings: str) -> str:
    """A file of ``trl grpo --config``; an empty ``scale_rewards`` marks it as one and sets nothing."""
    marker = "" if "scale_rewards" in settings else "scale_rewards:\n"
    return write(folder, "grpo.yaml", f"{settings}\n{marker}")


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


@pytest.mark.parametrize(
    ("settings", "tasks", "updates"),
    [
        ("", 2, 6),
        ("gradient_accumulation_steps: 2\n", 2, 3),
        ("gradient_accumulation_steps: 6\n", 2, 1),
    ],
)
def test_micro_batches_become_tasks_and_updates(settings: str, tasks: int, updates: int, tmp_path: Path) -> None:
    found = sets(grpo(tmp_path, GENERATION + settings))
    assert (found["trainer.tasks_per_step"], found["trainer.updates_per_rollout"]) == (tasks, updates)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ("per_device_train_batch_size: 2\nnum_generations: 5", "groups of 5"),
        ("steps_per_generation: 3\ngradient_accumulation_steps: 2", "optimiser steps of 2"),
        ("steps_per_generation: 3\ngeneration_batch_size: 24", "generation_batch_size"),
        ("per_device_train_batch_size: 5\ngeneration_batch_size: 24", "micro-batches of 5"),
        ("per_device_train_batch_size: two", "integer"),
        ("num_train_epochs: 5", "max_steps"),
        ("num_train_epochs: 5\ndataset_name: none.jsonl", "none.jsonl"),
        ("loss_type: gdpo", "grpo, bnpo"),
        ("importance_sampling_level: sequence\ndelta: 2.0", "whole sequence"),
        ("importance_sampling_level: sentence", "sequence (GSPO)"),
        ("importance_sampling_level: sequence\nloss_type: cispo", "cispo"),
        ("importance_sampling_level: token\nloss_type: luspo", "give sequence"),
        ("multi_objective_aggregation: normalize_then_sum", "algorithm.advantage=gdpo"),
        ("report_to: all", "tensorboard"),
        ("save_strategy: best", "no, steps or epoch"),
        ("loss_type: [grpo]", "grpo, bnpo"),
        ("dataset_name: trl-lib/tldr", ".jsonl"),
        ("use_peft: maybe", "true or false"),
    ],
)
def test_unsupported_values_are_refused_with_a_reason(settings: str, reason: str, tmp_path: Path) -> None:
    problems = problems_of(grpo(tmp_path, f"{settings}\n"))
    assert problems
    assert {problem.kind for problem in problems} == {"refused"}
    assert any(reason in problem.reason for problem in problems)


@pytest.mark.parametrize(
    ("settings", "key", "reason"),
    [
        ("num_generations: 7\nsteps_per_generation: 6\nmax_steps: 9", "num_generations", "groups of 7"),
        ("num_generations: eight\nsteps_per_generation: 6", "num_generations", "integer"),
        (
            "steps_per_generation: 6\nmax_steps: 9\nwarmup_ratio: 0.1",
            "per_device_train_batch_size",
            "groups of 8",
        ),
        (
            "num_generations: 2\ndataset_name: none.jsonl\nnum_train_epochs: 5\nwarmup_ratio: 0.1",
            "dataset_name",
            "none.jsonl",
        ),
    ],
)
def test_problem_of_several_keys_is_reported_once(settings: str, key: str, reason: str, tmp_path: Path) -> None:
    (problem,) = problems_of(grpo(tmp_path, f"per_device_train_batch_size: 2\n{settings}\n"))
    assert problem.path == key
    assert reason in problem.reason


def test_epochs_fractions_and_optimiser_steps_become_rollouts(tmp_path: Path) -> None:
    write(tmp_path, "train.jsonl", '{"question": "?"}\n' * 500)
    settings = GENERATION + "gradient_accumulation_steps: 2\nnum_iterations: 8\n"
    data = "dataset_name: train.jsonl\nnum_train_epochs: 5\nsave_steps: 0.4\neval_steps: 100\n"
    accelerate = write(tmp_path, "two.yaml", "distributed_type: MULTI_GPU\nnum_processes: 2\n")
    found = sets(accelerate, grpo(tmp_path, settings + data))
    # 500 prompts, 4 a generation, 5 passes; 24 optimiser steps a generation: 15,000 in all, saved at 6,000 and 12,000.
    assert found["trainer.steps"] == 625
    assert found["trainer.epochs"] == 8
    assert found["checkpoint.every"] == 250
    assert found["evaluation.every"] == 5
    assert sets(accelerate, grpo(tmp_path, settings + "max_steps: 15000\n"))["trainer.steps"] == 625
    limited = sets(accelerate, grpo(tmp_path, settings + data + "max_steps: 48\n"))
    assert limited["trainer.steps"] == 2


@pytest.mark.parametrize(
    ("settings", "algorithm"),
    [
        ("importance_sampling_level: sequence", {"loss": "gspo"}),
        ("loss_type: bnpo", {"aggregation": "token-mean"}),
        ("loss_type: grpo", {"aggregation": "seq-mean-token-mean"}),
        (
            "loss_type: dr_grpo\nmax_completion_length: 64",
            {"aggregation": "seq-mean-token-sum-norm", "max_response_tokens": 64},
        ),
        ("loss_type: cispo\nepsilon_high: 5.0\nepsilon: 0.2", {"loss.id": "cispo", "loss.clip_high": 4.0}),
        ("epsilon: 0.1", {"loss.clip_low": 0.1, "loss.clip_high": 0.1}),
        ("epsilon: 3e-4\nepsilon_high: 4e-4", {"loss.clip_low": 3e-4, "loss.clip_high": 4e-4}),
        ("beta: 0.05", {"kl.coefficient": 0.05, "kl.estimator": "k3"}),
        ("beta: 0.0", {"kl.coefficient": 0.0}),
        ("loss_type: luspo\nimportance_sampling_level: sequence", {"loss": "luspo"}),
        (
            "loss_type: vespo\nvespo_k_pos: 1.5\nepsilon: 0.2\noff_policy_mask_threshold: 0.5",
            {"loss.id": "vespo", "loss.positive_power": 1.5, "off_policy_threshold": 0.5},
        ),
        ("scale_rewards: batch", {"advantage.id": "grpo", "advantage.normalise_by_std": "batch"}),
        ("scale_rewards: none", {"advantage.id": "grpo", "advantage.normalise_by_std": False}),
    ],
)
def test_algorithm_keys_are_translated(settings: str, algorithm: dict[str, Any], tmp_path: Path) -> None:
    found = sets(grpo(tmp_path, f"{settings}\n"))
    ours = {key.removeprefix("algorithm."): value for key, value in found.items() if key.startswith("algorithm.")}
    assert ours.pop("advantage", "grpo") == "grpo"
    assert ours == algorithm


def test_learning_rate_schedule_is_linear_by_default(tmp_path: Path) -> None:
    rate = "learning_rate: 1e-4\n"
    assert sets(grpo(tmp_path, rate)) == {"trainer.learning_rate": 1e-4, "trainer.schedule": "linear"}
    for given, expected in (("constant", "constant"), ("cosine", "cosine"), ("null", "linear")):
        assert sets(grpo(tmp_path, f"{rate}lr_scheduler_type: {given}\n"))["trainer.schedule"] == expected


def test_null_is_the_same_as_omitting_the_key(tmp_path: Path) -> None:
    file = grpo(tmp_path, "max_steps: null\n")
    assert "trainer.steps" not in sets(file)
    assert any(line.startswith(f'{file}:1: max_steps = "null" sets nothing: ') for line in lines(file))


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
        text = f"model_name_or_path: {given}\noutput_dir: ../../runs\ndataset_name: rows.jsonl\nscale_rewards: true\n"
        found = sets(write(tmp_path, file, text))
        assert (found["model.path"], found["warmup.steps"]) == (expected, 0)
        assert found["runs"] == str(tmp_path / "runs")
        assert found["data.train"] == str(tmp_path / "configs/train/rows.jsonl")
    assert sets(grpo(tmp_path, "model_name_or_path: models/here\n"))["model.path"] == str(tmp_path / "models/here")


def test_processes_are_read_from_accelerate_file_or_override(tmp_path: Path) -> None:
    accelerate = write(tmp_path, "two.yaml", "distributed_type: MULTI_GPU\nnum_processes: 2\n")
    file = grpo(tmp_path, GENERATION)
    for found in (sets(accelerate, file), sets(file, accelerate), sets(file, own=("strategy.processes=2",))):
        assert found["trainer.tasks_per_step"] == 4


def test_rlcore_override_takes_precedence(tmp_path: Path) -> None:
    file = grpo(tmp_path, "importance_sampling_level: token\n")
    printed = lines(file, own=("algorithm.loss=gspo",))
    assert any("algorithm.loss=gspo takes precedence" in line for line in printed)


def test_key_is_translated_with_its_line_as_the_origin(tmp_path: Path) -> None:
    file = grpo(tmp_path, "num_generations: 6\n")
    (layer,) = read(file).files
    assert layer.tree == {"rollout": {"group_size": 6}, "algorithm": {"advantage": "grpo"}}
    assert layer.origin(("rollout", "group_size")) == f"{file}:1"
    assert f'{file}:1: num_generations = 6 -> rollout.group_size = 6, algorithm.advantage = "grpo"' in lines(file)


def test_unknown_key_is_reported_with_its_line(tmp_path: Path) -> None:
    (problem,) = problems_of(grpo(tmp_path, "num_generation: 6\n"))
    assert (problem.kind, problem.path) == ("unknown key", "num_generation")
    assert problem.origin.endswith("grpo.yaml:1")
    assert "num_generations" in problem.reason


def test_numbers_follow_yaml_1_2(tmp_path: Path) -> None:
    found = sets(grpo(tmp_path, "learning_rate: 1e-4\nweight_decay: 1.0E-2\n"))
    assert found["trainer.learning_rate"] == 1e-4
    assert found["trainer.weight_decay"] == 0.01


def test_lora_keys_are_used_only_with_use_peft(tmp_path: Path) -> None:
    table = "lora_r: 8\nlora_target_modules: [q_proj]\nlora_dropout: 0.1\n"
    assert not any(key.startswith("lora.") for key in sets(grpo(tmp_path, table)))
    asked = {"lora.rank": 8, "lora.alpha": 32, "lora.targets": ["q_proj"]}
    assert sets(grpo(tmp_path, table + "use_peft: true\n")) == asked
    four_bits = sets(grpo(tmp_path, "use_peft: true\nload_in_4bit: true\nbnb_4bit_quant_type: nf4\n"))
    assert four_bits == {"lora.rank": 16, "lora.alpha": 32, "model.quantization": "nf4"}


@pytest.mark.parametrize("settings", ["scale_rewards: true", "importance_sampling_level: token", "num_generations: 8"])
def test_recognised_file_sets_the_grpo_advantage(settings: str, tmp_path: Path) -> None:
    found = sets(write(tmp_path, "file.yaml", f"{settings}\nloss_type: grpo\n"))
    assert "grpo" in (found.get("algorithm.advantage"), found.get("algorithm.advantage.id"))


def test_files_of_other_trl_trainers_are_not_claimed(tmp_path: Path) -> None:
    file = write(tmp_path, "rloo.yaml", "num_generations: 8\nnormalize_advantages: true\n")
    assert config_adapter_of(Registry(), read(file).files[0].tree) is None


def test_data_set_of_the_hub_is_read_from_its_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pytest.importorskip("huggingface_hub.constants"), "HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "datasets--openai--gsm8k" / "snapshots" / "a" / "main"
    folder.mkdir(parents=True)
    (folder / "train-00000.jsonl").write_text('{"prompt": "2+2?"}\n' * 32, encoding="utf-8")
    (folder / "test-00000.jsonl").write_text('{"prompt": "2+2?"}\n', encoding="utf-8")
    settings = "dataset_name: openai/gsm8k\ndataset_config: main\nnum_train_epochs: 2\nnum_generations: 8\n"
    found = sets(grpo(tmp_path, f"{settings}per_device_train_batch_size: 8\ngradient_accumulation_steps: 4\n"))
    assert found["data.train"] == "openai/gsm8k/main"
    assert found["trainer.steps"] == 16


def test_flat_example_file_is_recognised(tmp_path: Path) -> None:
    text = "model_name_or_path:\n  a/b\ndataset_name:\n  owner/name\nreport_to:\n  none\nlr_scheduler_type:\n  cosine\n"
    own = ("data.train=train.jsonl",)
    found = sets(write(tmp_path, "example.yaml", text + "reward_funcs:\n  - accuracy_reward\n"), own=own)
    assert found == {
        "model.path": "a/b",
        "warmup.steps": 0,
        "trackers.use": ["console", "jsonl"],
        "trainer.schedule": "cosine",
    }
    printed = lines(str(tmp_path / "example.yaml"), own=own)
    assert any("dataset_name" in line and "data.train=train.jsonl takes precedence" in line for line in printed)
    assert any("reward_funcs" in line and "reward.0.id" in line for line in printed)


@pytest.mark.parametrize(
    ("settings", "every"),
    [
        ("do_eval: false", 0),
        ("do_eval: true", None),
        ("do_eval: false\neval_steps: 10", 0),
        ("do_eval: false\neval_strategy: steps\neval_steps: 10", 10),
    ],
)
def test_do_eval_disables_evaluation_without_a_strategy(settings: str, every: int | None, tmp_path: Path) -> None:
    assert sets(grpo(tmp_path, f"{settings}\n")).get("evaluation.every") == every


DEEPSPEED = """
distributed_type: DEEPSPEED
mixed_precision: bf16
num_machines: 1
num_processes: 2
deepspeed_config:
  gradient_accumulation_steps: 1
  """


def zero(kept: bool) -> dict[str, Any]:
    return {"strategy.id": "fsdp2", "strategy.processes": 2, "strategy.reshard_after_forward": not kept}


@pytest.mark.parametrize(
    ("table", "kept"),
    [
        ("zero_stage: 1", True),
        ("zero_stage: 2\n  offload_optimizer_device: cpu\n  gradient_clipping: 1.0\n  zero3_init_flag: false", True),
        ("zero_stage: 3\n  deepspeed_multinode_launcher: standard\n  zero3_save_16bit_model: true", False),
        ("zero_optimization: {stage: 3, offload_optimizer: {device: cpu}}\n  bf16: {enabled: true}", False),
        ("deepspeed_config_file: zero.json", False),
    ],
)
def test_stage_of_zero_sets_the_strategy(
    table: str, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "zero.json", json.dumps(ZERO))
    assert sets(write(tmp_path, "accelerate.yaml", DEEPSPEED + table)) == zero(kept)
    without = DEEPSPEED.replace("DEEPSPEED", "MULTI_GPU") + table
    assert sets(write(tmp_path, "other.yaml", without)) == {"strategy.id": "ddp", "strategy.processes": 2}


ADAM = {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "torch_adam": True}}
ZERO = {"zero_optimization": {"stage": 3}, "optimizer": ADAM, "train_batch_size": "auto", "fp16": {"enabled": False}}


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        (None, "cannot be read: No such file"),
        ("[]", "a JSON object"),
        ("{", "cannot be read"),
        ({}, "strategy.id=ddp"),
        (ZERO | {"zero_optimization": {"stage": 4}}, "1, 2 or 3"),
        (ZERO | {"zero_optimization": {"stage": [3]}}, "1, 2 or 3"),
        (ZERO | {"zero_optimization": 3}, "must be a table"),
        (ZERO | {"fp16": {"enabled": True}}, "bf16"),
        (ZERO | {"optimizer": {"type": "Lamb"}}, "the optimiser is AdamW"),
        (ZERO | {"optimizer": {"params": {"lr": 1e-5}}}, "optimizer.params.lr: 1e-05 belongs in the training file"),
    ],
)
def test_unsupported_settings_of_deepspeed_are_refused(contents: Any, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "zero.json"
    if contents is not None:
        file.write_text(contents if isinstance(contents, str) else json.dumps(contents), encoding="utf-8")
    (problem,) = problems_of(grpo(tmp_path, f"deepspeed: {file}\n"))
    assert (problem.kind, problem.path) == ("refused", "deepspeed")
    assert reason in problem.reason


def test_deepspeed_file_of_a_training_file_sets_the_strategy(tmp_path: Path) -> None:
    found = sets(grpo(tmp_path, f"deepspeed: {write(tmp_path, 'zero.json', json.dumps(ZERO))}\n"))
    assert (found["strategy.id"], found["strategy.reshard_after_forward"]) == ("fsdp2", True)


FSDP = """
distributed_type: FSDP
num_processes: 8
fsdp_config:
  fsdp_activation_checkpointing: true
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_cpu_ram_efficient_loading: true
  fsdp_offload_params: false
  fsdp_reshard_after_forward: true
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_transformer_layer_cls_to_wrap: Qwen2DecoderLayer
  fsdp_use_orig_params: true
  fsdp_version: 2
"""
"""As ``accelerate config`` writes it."""
SHARDED = {
    "strategy.id": "fsdp2",
    "strategy.processes": 8,
    "strategy.reshard_after_forward": True,
    "trainer.gradient_checkpointing": True,
}


@pytest.mark.parametrize(
    ("settings", "strategy"),
    [
        ("distributed_type: 'NO'\nnum_processes: 1", {"strategy.id": "single"}),
        ("distributed_type: MULTI_GPU\nnum_processes: 2", {"strategy.id": "ddp", "strategy.processes": 2}),
        ("distributed_type: MULTI_CPU\nnum_processes: 4", {"strategy.id": "ddp", "strategy.processes": 4}),
        (FSDP, SHARDED),
        (FSDP.replace("forward: true", "forward: false"), SHARDED | {"strategy.reshard_after_forward": False}),
        (FSDP.replace("offload_params: false", "sharding_strategy: HYBRID_SHARD"), SHARDED),
    ],
)
def test_distributed_type_sets_the_strategy(settings: str, strategy: dict[str, Any], tmp_path: Path) -> None:
    assert sets(write(tmp_path, "accelerate.yaml", settings + "\nmachine_rank: 0\nuse_cpu: false\n")) == strategy


@pytest.mark.parametrize(
    ("written", "instead", "kind", "reason"),
    [
        ("use_orig_params: true", "use_original_params: true", "unknown key", "fsdp_use_orig_params"),
        ("reshard_after_forward: true", "reshard_after_forward: 0.5", "refused", "true or false"),
        ("fsdp_version: 2", "fsdp_sharding_strategy: NO_SHARD", "refused", "MULTI_GPU"),
    ],
)
def test_other_settings_of_fsdp_are_refused(written: str, instead: str, kind: str, reason: str, tmp_path: Path) -> None:
    assert written in FSDP
    (problem,) = problems_of(write(tmp_path, "accelerate.yaml", FSDP.replace(written, instead)))
    assert problem.kind == kind
    assert reason in problem.reason


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("MULTI_GPUS", "'MULTI_GPU'"),
        ("'no'", "'NO'"),
        ("many", "MULTI_GPU"),
        ("MEGATRON_LM", "strategy.id=fsdp2"),
        ("MULTI_NPU", "strategy.id=ddp"),
    ],
)
def test_unsupported_distributed_type_is_refused(kind: str, reason: str, tmp_path: Path) -> None:
    (problem,) = problems_of(write(tmp_path, "accelerate.yaml", f"distributed_type: {kind}\nnum_processes: 2\n"))
    assert (problem.kind, problem.path) == ("refused", "distributed_type")
    assert reason in problem.reason


GENERATED = """
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: "NO"
downcast_bf16: 'no'
gpu_ids: all
machine_rank: 0
main_training_function: main
mixed_precision: 'bf16'
num_machines: 1
num_processes: 1
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
"""
"""The keys that ``accelerate config`` writes for one GPU."""


@pytest.mark.parametrize(
    "more", ["", "deepspeed_config: {}\nfsdp_config: {}\nmegatron_lm_config: {}\ntpu_name: null\n"]
)
def test_generated_file_for_one_gpu_is_accepted(more: str, tmp_path: Path) -> None:
    file = write(tmp_path, "single_gpu.yaml", GENERATED + more)
    assert sets(file) == {"strategy.id": "single"}
    empty = more.count("{}") and 2  # tables of other types, whose keys would be listed
    assert len(read(file).lines) == len((GENERATED + more).splitlines()) - 1 - empty


PARALLEL = DEEPSPEED.replace("processes: 2", "processes: 8").partition("deepspeed_config")[0]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({"tp": 1, "cp": 1, "dp_shard": 8}, {}),
        ({"cp": 2, "sp": 1}, {"strategy.sequence_parallel": 2}),
        ({"dp_replicate": 2, "dp_shard": 2, "sp": 2}, {"strategy.sequence_parallel": 2, "strategy.shard_size": 4}),
        ({"tp": 2}, "tensor parallelism"),
        ({"dp_replicate": 3}, "cannot be divided into 3 groups"),
    ],
)
def test_sizes_of_accelerate_divide_model_and_sequences(sizes: Any, expected: Any, tmp_path: Path) -> None:
    table = "".join(f"  parallelism_config_{name}_size: {size}\n" for name, size in sizes.items())
    file = write(tmp_path, "accelerate.yaml", f"{PARALLEL}parallelism_config:\n{table}")
    if isinstance(expected, str):
        (problem,) = problems_of(file)
        assert expected in problem.reason
    else:
        assert sets(file) == {"strategy.id": "fsdp2", "strategy.processes": 8, **expected}


def test_processes_that_divide_sequences_share_a_batch(tmp_path: Path) -> None:
    training = grpo(tmp_path, "per_device_train_batch_size: 4\nnum_generations: 4\n")
    for size, tasks in ((1, 8), (2, 4)):
        table = f"parallelism_config:\n  parallelism_config_sp_size: {size}\n"
        file = write(tmp_path, "accelerate.yaml", PARALLEL + table)
        assert sets(file, training)["trainer.tasks_per_step"] == tasks


def test_flags_of_trl_are_read_like_its_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = "--model_name_or_path a/b --num_generations=8 --learning_rate 1e-6 --use_peft --report_to tensorboard wandb"
    found = translate(Registry(), files=(), overrides=[*flags.split(), "seed=3"])
    (layer,) = found.files
    assert found.own == ["seed=3"]
    assert layer.tree["model"]["path"] == "a/b"
    assert layer.tree["rollout"]["group_size"] == 8
    assert layer.tree["trainer"]["learning_rate"] == 1e-6
    assert layer.tree["trackers"]["use"] == ["console", "jsonl", "tensorboard", "wandb"]
    assert layer.tree["lora"]["rank"] == 16
    for unknown, near in (("--dry-rum", "--dry-run"), ("--no_such_flag=1", ""), ("-x", "")):
        monkeypatch.setattr("sys.argv", ["rlcore", "run", "-p", "gsm8k-tools", unknown])
        assert main() == 2
        shown = capsys.readouterr().err
        assert "No such option" in shown
        assert near in shown
