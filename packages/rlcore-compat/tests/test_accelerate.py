"""Translation of accelerate files, and refused settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rlcore.config.adapters import Translated, translate
from rlcore.config.layers import leaves
from rlcore.config.messages import Problem
from rlcore.plugins.registry import Registry

pytest.importorskip("yaml", reason="pyyaml is not installed: pip install 'rlcore-core[yaml]'")

NATIVE = """
distributed_type: DEEPSPEED
mixed_precision: bf16
num_machines: 1
num_processes: 2
deepspeed_config:
  gradient_accumulation_steps: 1
  zero_optimization: {stage: 3, offload_optimizer: {device: cpu}}
"""


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


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


def problems(*files: str) -> list[Problem]:
    return [problem for layer in read(*files).files for problem in layer.problems]


def test_deepspeed_file_is_refused(tmp_path: Path) -> None:
    kind, nested = problems(write(tmp_path, "native.yaml", NATIVE))
    assert (kind.kind, kind.path) == ("refused", "distributed_type")
    assert (nested.kind, nested.path) == ("refused", "deepspeed_config")
    assert "zero_optimization" in nested.reason
    assert nested.origin.endswith("native.yaml:6")
    flat = NATIVE.replace("zero_optimization: {stage: 3, offload_optimizer: {device: cpu}}", "zero_stage: 3")
    assert "zero_stage" not in problems(write(tmp_path, "flat.yaml", flat))[1].reason


@pytest.mark.parametrize(
    ("settings", "strategy"),
    [
        ("distributed_type: 'NO'\nnum_processes: 1", {"strategy.id": "single"}),
        ("distributed_type: MULTI_GPU\nnum_processes: 2", {"strategy.id": "ddp", "strategy.processes": 2}),
        ("distributed_type: MULTI_CPU\nnum_processes: 4", {"strategy.id": "ddp", "strategy.processes": 4}),
    ],
)
def test_distributed_type_sets_the_strategy(settings: str, strategy: dict[str, Any], tmp_path: Path) -> None:
    assert sets(write(tmp_path, "accelerate.yaml", settings + "\nmachine_rank: 0\nuse_cpu: false\n")) == strategy


@pytest.mark.parametrize(
    "setting", ["num_machines: 2", "mixed_precision: fp16", "gpu_ids: '0,1'", "fsdp_config: {a: 1}"]
)
def test_unsupported_settings_are_refused(setting: str, tmp_path: Path) -> None:
    (problem,) = problems(write(tmp_path, "accelerate.yaml", f"distributed_type: 'NO'\n{setting}\n"))
    assert (problem.kind, problem.path) == ("refused", setting.partition(":")[0])


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("MULTI_GPUS", "'MULTI_GPU'"),
        ("'no'", "'NO'"),
        ("many", "MULTI_GPU"),
        ("FSDP", "strategy.id=ddp"),
        ("MULTI_NPU", "strategy.id=ddp"),
    ],
)
def test_unsupported_distributed_type_is_refused(kind: str, reason: str, tmp_path: Path) -> None:
    (problem,) = problems(write(tmp_path, "accelerate.yaml", f"distributed_type: {kind}\nnum_processes: 2\n"))
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
    assert len(read(file).lines) == len((GENERATED + more).splitlines()) - 1


@pytest.mark.parametrize("size", [1, 2])
def test_splitting_of_sequences_is_refused(size: int, tmp_path: Path) -> None:
    table = f"parallelism_config:\n  parallelism_config_tp_size: 1\n  parallelism_config_cp_size: {size}\n"
    found = problems(write(tmp_path, "accelerate.yaml", GENERATED + table))
    assert [problem.path for problem in found] == ["parallelism_config"] * (size > 1)
