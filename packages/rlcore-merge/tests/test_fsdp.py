"""verl's FSDP folders and torch.distributed.checkpoint, as torch writes them on four processes."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from rlcore.errors import UserError
from rlcore_merge import merge
from safetensors.torch import load_file

_SPEC = importlib.util.spec_from_file_location("merge_writers", Path(__file__).parent / "writers.py")
assert _SPEC is not None
assert _SPEC.loader is not None
writers: Any = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(writers)


def assert_equal(folder: Path, expected: dict[str, torch.Tensor]) -> None:
    found = load_file(folder / "model.safetensors")
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor), name


@pytest.mark.parametrize("layout", ["fsdp2", "hsdp", "fsdp1", "fsdp1-mesh", "dcp"])
def test_every_tensor_comes_back_bit_for_bit(written: Path, tmp_path: Path, layout: str) -> None:
    merge(written / layout, tmp_path / "out")
    assert_equal(tmp_path / "out", writers.Model().state_dict())


def test_tensor_parallel_shards_come_back_bit_for_bit(written: Path, tmp_path: Path) -> None:
    merge(written / "tensor-parallel", tmp_path / "out")
    assert_equal(tmp_path / "out", writers.two_layers().state_dict())


def test_shards_of_any_axis_and_copies_come_back_bit_for_bit(written: Path, tmp_path: Path) -> None:
    merge(written / "placements", tmp_path / "out")
    weight = writers.two_layers()[0].weight.detach()
    assert_equal(tmp_path / "out", dict.fromkeys(("second-axis", "replicated", "both-axes", "nested"), weight))


def test_bf16_rounds_parameters_as_torch_and_leaves_buffers_alone(written: Path, tmp_path: Path) -> None:
    merge(written / "fsdp2", tmp_path / "out", dtype="bf16")
    expected = writers.Model().state_dict()
    buffers = {"Abuffer", "count", "ids"}
    assert_equal(tmp_path / "out", {k: v if k in buffers else v.bfloat16() for k, v in expected.items()})
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["torch_dtype"] == "bfloat16"
    assert config["architectures"] == ["Qwen2ForCausalLM"]


def test_the_actor_is_found_in_the_folder_of_a_step(written: Path, tmp_path: Path) -> None:
    shutil.copytree(written / "fsdp2", tmp_path / "global_step_3" / "actor")
    merged = merge(tmp_path / "global_step_3", tmp_path / "out")
    assert merged.layout == "verl-fsdp"
    assert any("actor" in note for note in merged.notes)


def test_a_missing_process_is_named(written: Path, tmp_path: Path) -> None:
    shutil.copytree(written / "fsdp2", tmp_path / "in")
    (tmp_path / "in" / "model_world_size_4_rank_2.pt").unlink()
    with pytest.raises(UserError, match="missing") as caught:
        merge(tmp_path / "in", tmp_path / "out")
    assert "model_world_size_4_rank_2.pt" in str(caught.value)


def test_files_of_two_world_sizes_are_refused(written: Path, tmp_path: Path) -> None:
    shutil.copytree(written / "fsdp2", tmp_path / "in")
    shutil.copy(tmp_path / "in" / "model_world_size_4_rank_0.pt", tmp_path / "in" / "model_world_size_2_rank_0.pt")
    with pytest.raises(UserError, match="different numbers of processes"):
        merge(tmp_path / "in", tmp_path / "out")


def test_a_world_size_that_the_config_denies_is_refused(written: Path, tmp_path: Path) -> None:
    shutil.copytree(written / "fsdp2", tmp_path / "in")
    (tmp_path / "in" / "fsdp_config.json").write_text('{"FSDP_version": 2, "world_size": 8}')
    with pytest.raises(UserError, match="different numbers of processes"):
        merge(tmp_path / "in", tmp_path / "out")


@pytest.mark.parametrize("layout", ["fsdp2", "dcp"])
def test_a_truncated_file_is_named_and_nothing_appears(written: Path, tmp_path: Path, layout: str) -> None:
    shutil.copytree(written / layout, tmp_path / "in")
    path = next(path for path in sorted((tmp_path / "in").iterdir()) if path.suffix in {".pt", ".distcp"})
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(UserError, match="truncated") as caught:
        merge(tmp_path / "in", tmp_path / "out")
    assert path.name in str(caught.value)
    assert [entry.name for entry in tmp_path.iterdir()] == ["in"]


def test_processes_that_hold_different_copies_are_named(written: Path, tmp_path: Path) -> None:
    shutil.copytree(written / "hsdp", tmp_path / "in")
    other = {"Abuffer": torch.zeros(5)}
    path = tmp_path / "in" / "model_world_size_4_rank_3.pt"
    state = torch.load(path, weights_only=False)
    torch.save({**state, **other}, path)
    with pytest.raises(UserError, match="different values of Abuffer") as caught:
        merge(tmp_path / "in", tmp_path / "out")
    assert "rank_3" in str(caught.value)


def test_processes_with_other_shapes_or_names_are_refused(written: Path, tmp_path: Path) -> None:
    shutil.copytree(written / "hsdp", tmp_path / "in")
    path = tmp_path / "in" / "model_world_size_4_rank_3.pt"
    state = torch.load(path, weights_only=False)
    torch.save({**state, "count": torch.zeros(2)}, path)
    with pytest.raises(UserError, match="disagree about the shape of count"):
        merge(tmp_path / "in", tmp_path / "out")
    torch.save({**state, "more": torch.zeros(2)}, path)
    with pytest.raises(UserError, match="disagree about the names") as caught:
        merge(tmp_path / "in", tmp_path / "out")
    assert "more is only in model_world_size_4_rank_3.pt" in str(caught.value)


def test_a_file_under_another_process_name_is_noticed(written: Path, tmp_path: Path) -> None:
    shutil.copytree(written / "fsdp2", tmp_path / "in")
    last = tmp_path / "in" / "model_world_size_4_rank_3.pt"
    shutil.copy(tmp_path / "in" / "model_world_size_4_rank_1.pt", last)
    with pytest.raises(UserError):
        merge(tmp_path / "in", tmp_path / "out")


def test_a_missing_file_of_a_distributed_checkpoint_is_named(written: Path, tmp_path: Path) -> None:
    shutil.copytree(written / "dcp", tmp_path / "in")
    (tmp_path / "in" / "__2_0.distcp").unlink()
    with pytest.raises(UserError, match="missing") as caught:
        merge(tmp_path / "in", tmp_path / "out")
    assert "__2_0.distcp" in str(caught.value)


def test_accelerates_folder_is_found_in_the_saved_state(written: Path, tmp_path: Path) -> None:
    shutil.copytree(written / "dcp", tmp_path / "state" / "pytorch_model_fsdp_0")
    merge(tmp_path / "state", tmp_path / "out")
    assert_equal(tmp_path / "out", writers.Model().state_dict())


def test_verls_arguments_are_understood(written: Path, tmp_path: Path) -> None:
    from click.testing import CliRunner
    from rlcore_merge.cli import merge as command

    folder, out = str(written / "fsdp2"), str(tmp_path / "out")
    for arguments in (["merge"], []):
        result = CliRunner().invoke(
            command, [*arguments, "--backend", "fsdp", "--local_dir", folder, "--target_dir", out]
        )
        assert result.exit_code == 0, result.output
        assert result.output.splitlines()[-1].startswith(f"wrote {out}: 9 tensors")
        shutil.rmtree(out)
    refused = CliRunner().invoke(command, ["merge", "--backend", "megatron", "--local_dir", folder])
    assert isinstance(refused.exception, UserError)
