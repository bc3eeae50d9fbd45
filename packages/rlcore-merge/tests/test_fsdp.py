"""verl's FSDP folders and torch.distributed.checkpoint, written by torch on four processes."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
import torch_mutations as mutations
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
def test_every_tensor_is_bitwise_equal(written: Path, tmp_path: Path, layout: str) -> None:
    merge(written / layout, tmp_path / "out")
    assert_equal(tmp_path / "out", writers.Model().state_dict())


def test_tensor_parallel_shards_are_bitwise_equal(written: Path, tmp_path: Path) -> None:
    merge(written / "tensor-parallel", tmp_path / "out")
    assert_equal(tmp_path / "out", writers.two_layers().state_dict())


def test_all_placements_are_bitwise_equal(written: Path, tmp_path: Path) -> None:
    merge(written / "placements", tmp_path / "out")
    weight = writers.two_layers()[0].weight.detach()
    assert_equal(tmp_path / "out", dict.fromkeys(("second-axis", "replicated", "both-axes", "nested"), weight))


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("mesh", ["{}", "1x{}", "{}x1", "1x{}x1"])
def test_mesh_dimensions_of_size_one_are_read(written: Path, tmp_path: Path, mesh: str, world: int) -> None:
    merge(written / f"mesh-{mesh.format(world)}", tmp_path / "out")
    names = ("axis-0", "axis-1", "outer", "nested", "part-of-the-mesh")
    assert_equal(tmp_path / "out", dict.fromkeys(names, writers.two_layers()[0].weight.detach()))


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("layout", ["fsdp2-of-{}", "dcp-of-{}"])
def test_checkpoints_of_few_processes_are_bitwise_equal(written: Path, tmp_path: Path, layout: str, world: int) -> None:
    merge(written / layout.format(world), tmp_path / "out")
    assert_equal(tmp_path / "out", writers.Model().state_dict())


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("kind", ["SHARDED_STATE_DICT", "FULL_STATE_DICT"])
def test_files_of_accelerate_without_dcp_are_read(written: Path, tmp_path: Path, kind: str, world: int) -> None:
    source = written / f"accelerate-of-{world}" / kind
    assert all(path.name.startswith("pytorch_model_fsdp") for path in source.iterdir())
    merged = merge(source, tmp_path / "out")
    assert merged.layout == ("accelerate-fsdp" if kind.startswith("SHARDED") else "huggingface")
    assert_equal(tmp_path / "out", writers.Model().state_dict())


def test_missing_or_local_files_of_accelerate_raise(written: Path, tmp_path: Path) -> None:
    source = tmp_path / "in"
    shutil.copytree(written / "accelerate-of-2" / "SHARDED_STATE_DICT", source)
    first, last = (source / f"pytorch_model_fsdp_0_rank{rank}.bin" for rank in (0, 1))
    content = last.read_bytes()
    last.unlink()
    with pytest.raises(UserError) as caught:
        merge(source, tmp_path / "out")
    assert "of 28 elements" in str(caught.value.found)
    last.write_bytes(content)
    first.rename(source / "pytorch_model_fsdp_rank0.bin")
    with pytest.raises(UserError) as caught:
        merge(source, tmp_path / "out")
    assert caught.value.found == "no pytorch_model_fsdp_0_rank0.bin"
    last.unlink()
    with pytest.raises(UserError) as caught:
        merge(source, tmp_path / "out")
    assert "LOCAL_STATE_DICT" in str(caught.value.found)


def test_flipped_byte_of_a_replica_raises(written: Path, tmp_path: Path) -> None:
    """The values of a replica are not written, but a damaged one shows that the storage cannot be trusted."""
    shutil.copytree(written / "hsdp", tmp_path / "in")
    path = tmp_path / "in" / "model_world_size_4_rank_3.pt"
    content = path.read_bytes()
    values = (torch.arange(5.0) / 3).numpy().tobytes()
    at = content.index(values)
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    with pytest.raises(UserError) as caught:
        merge(tmp_path / "in", tmp_path / "out")
    assert caught.value.where == str(path)
    assert not (tmp_path / "out").exists()


def test_flipped_byte_of_a_distributed_checkpoint_raises(written: Path, tmp_path: Path) -> None:
    shutil.copytree(written / "dcp", tmp_path / "in")
    values = (torch.arange(5.0) / 3).numpy().tobytes()
    path = next(path for path in sorted((tmp_path / "in").glob("*.distcp")) if values in path.read_bytes())
    content = path.read_bytes()
    at = content.index(values)
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    with pytest.raises(UserError) as caught:
        merge(tmp_path / "in", tmp_path / "out")
    assert caught.value.where == str(path)
    assert "checksum" in str(caught.value.found)
    assert not (tmp_path / "out").exists()


def test_bf16_rounds_parameters_and_keeps_buffers(written: Path, tmp_path: Path) -> None:
    merge(written / "fsdp2", tmp_path / "out", dtype="bf16")
    expected = writers.Model().state_dict()
    buffers = {"Abuffer", "count", "ids"}
    assert_equal(tmp_path / "out", {k: v if k in buffers else v.bfloat16() for k, v in expected.items()})
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["torch_dtype"] == "bfloat16"
    assert config["architectures"] == ["Qwen2ForCausalLM"]


def test_actor_is_found_in_a_step_folder(written: Path, tmp_path: Path) -> None:
    shutil.copytree(written / "fsdp2", tmp_path / "global_step_3" / "actor")
    merged = merge(tmp_path / "global_step_3", tmp_path / "out")
    assert merged.layout == "verl-fsdp"
    assert any("actor" in note for note in merged.notes)


def test_missing_process_file_is_named(written: Path, tmp_path: Path) -> None:
    shutil.copytree(written / "fsdp2", tmp_path / "in")
    (tmp_path / "in" / "model_world_size_4_rank_2.pt").unlink()
    with pytest.raises(UserError) as caught:
        merge(tmp_path / "in", tmp_path / "out")
    assert str(caught.value).splitlines() == [
        "1 of the 4 processes' files is missing",
        "  found  no model_world_size_4_rank_2.pt",
        f"  from   {tmp_path / 'in'}",
        "  fix    copy the files of all nodes into one folder",
    ]


def test_files_of_two_world_sizes_raise(written: Path, tmp_path: Path) -> None:
    shutil.copytree(written / "fsdp2", tmp_path / "in")
    shutil.copy(tmp_path / "in" / "model_world_size_4_rank_0.pt", tmp_path / "in" / "model_world_size_2_rank_0.pt")
    with pytest.raises(UserError) as caught:
        merge(tmp_path / "in", tmp_path / "out")
    assert caught.value.found == "1 files of world size 2, 4 files of world size 4"
    assert caught.value.where == str(tmp_path / "in")


def test_world_size_that_contradicts_the_config_raises(written: Path, tmp_path: Path) -> None:
    shutil.copytree(written / "fsdp2", tmp_path / "in")
    (tmp_path / "in" / "fsdp_config.json").write_text('{"FSDP_version": 2, "world_size": 8}')
    with pytest.raises(UserError) as caught:
        merge(tmp_path / "in", tmp_path / "out")
    assert "fsdp_config.json says 8" in str(caught.value.found)
    assert caught.value.where == str(tmp_path / "in")


@pytest.mark.parametrize("layout", ["fsdp2", "dcp"])
def test_truncated_file_is_named_and_nothing_is_written(written: Path, tmp_path: Path, layout: str) -> None:
    shutil.copytree(written / layout, tmp_path / "in")
    path = next(path for path in sorted((tmp_path / "in").iterdir()) if path.suffix in {".pt", ".distcp"})
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(UserError) as caught:
        merge(tmp_path / "in", tmp_path / "out")
    assert caught.value.where == str(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["in"]


def test_different_replicas_raise(written: Path, tmp_path: Path) -> None:
    shutil.copytree(written / "hsdp", tmp_path / "in")
    other = {"Abuffer": torch.zeros(5)}
    path = tmp_path / "in" / "model_world_size_4_rank_3.pt"
    state = torch.load(path, weights_only=False)
    torch.save({**state, **other}, path)
    with pytest.raises(UserError) as caught:
        merge(tmp_path / "in", tmp_path / "out")
    assert "Abuffer" in caught.value.message
    assert path.name in str(caught.value.found)


def test_different_shapes_or_names_of_processes_raise(written: Path, tmp_path: Path) -> None:
    shutil.copytree(written / "hsdp", tmp_path / "in")
    path = tmp_path / "in" / "model_world_size_4_rank_3.pt"
    state = torch.load(path, weights_only=False)
    torch.save({**state, "count": torch.zeros(2)}, path)
    with pytest.raises(UserError) as caught:
        merge(tmp_path / "in", tmp_path / "out")
    assert "count" in caught.value.message
    assert f"[2] in {path.name}" in str(caught.value.found)
    torch.save({**state, "more": torch.zeros(2)}, path)
    with pytest.raises(UserError) as caught:
        merge(tmp_path / "in", tmp_path / "out")
    assert caught.value.found == f"more is only in {path.name}"


def test_file_with_the_name_of_another_rank_raises(written: Path, tmp_path: Path) -> None:
    shutil.copytree(written / "fsdp2", tmp_path / "in")
    last = tmp_path / "in" / "model_world_size_4_rank_3.pt"
    shutil.copy(tmp_path / "in" / "model_world_size_4_rank_1.pt", last)
    with pytest.raises(UserError):
        merge(tmp_path / "in", tmp_path / "out")


@pytest.mark.parametrize("name", [".metadata", "__2_0.distcp"])
def test_pipe_in_a_distributed_checkpoint_is_named(written: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(written / "dcp", tmp_path / "in")
    (tmp_path / "in" / name).unlink()
    os.mkfifo(tmp_path / "in" / name)
    with pytest.raises(UserError) as caught:
        merge(tmp_path / "in", tmp_path / "out")
    assert "not a regular file" in str(caught.value.found)
    assert name in str(caught.value)


def test_missing_distcp_file_is_named(written: Path, tmp_path: Path) -> None:
    shutil.copytree(written / "dcp", tmp_path / "in")
    (tmp_path / "in" / "__2_0.distcp").unlink()
    with pytest.raises(UserError) as caught:
        merge(tmp_path / "in", tmp_path / "out")
    assert caught.value.found == "no __2_0.distcp"
    assert caught.value.where == str(tmp_path / "in")


def test_accelerate_folder_is_found_in_a_saved_state(written: Path, tmp_path: Path) -> None:
    shutil.copytree(written / "dcp", tmp_path / "state" / "pytorch_model_fsdp_0")
    merge(tmp_path / "state", tmp_path / "out")
    assert_equal(tmp_path / "out", writers.Model().state_dict())


def test_command_accepts_the_arguments_of_verl(written: Path, tmp_path: Path) -> None:
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
    rejected = CliRunner().invoke(command, ["merge", "--backend", "megatron", "--local_dir", folder])
    assert isinstance(rejected.exception, UserError)


@pytest.mark.parametrize("layout", ["fsdp2", "fsdp1", "dcp"])
def test_damaged_shards_merge_to_the_same_values_or_raise(written: Path, tmp_path: Path, layout: str) -> None:
    merge(written / layout, tmp_path / "expected")
    expected = load_file(tmp_path / "expected" / "model.safetensors")
    shards = sorted(path for path in (written / layout).iterdir() if path.suffix in {".pt", ".distcp"})
    source = tmp_path / "in"
    for seed in range(40):
        random = Random(seed)
        shutil.copytree(written / layout, source, ignore=shutil.ignore_patterns("huggingface"))
        chosen = source / random.choice(shards).name
        chosen.write_bytes(mutations.damage_file(chosen.read_bytes(), random))
        out = tmp_path / f"out-{seed}"
        try:
            merge(source, out)
        except UserError:
            assert not out.exists()
        else:
            found = load_file(out / "model.safetensors")
            assert found.keys() == expected.keys()
            assert all(torch.equal(found[name], expected[name]) for name in expected), seed
        shutil.rmtree(source)


@pytest.mark.long
@pytest.mark.parametrize("layout", ["fsdp2", "hsdp", "fsdp1"])
def test_hostile_pickles_of_shards_raise_or_merge(written: Path, tmp_path: Path, layout: str) -> None:
    """Without an oracle: integers of shapes, meshes and placements are changed, and no other exception is raised."""
    shards = sorted((written / layout).glob("*.pt"))
    for seed in range(60):
        source = tmp_path / f"in-{seed}"
        source.mkdir()
        for path in shards:
            (source / path.name).write_bytes(path.read_bytes())
        chosen = source / Random(seed).choice(shards).name
        chosen.write_bytes(mutations.damage_pickle(chosen.read_bytes(), Random(seed)))
        try:
            merge(source, tmp_path / f"out-{seed}")
        except UserError:
            assert not (tmp_path / f"out-{seed}").exists()


def test_hostile_metadata_of_a_distributed_checkpoint_raise_or_merge(written: Path, tmp_path: Path) -> None:
    for seed in range(60):
        source = tmp_path / f"in-{seed}"
        source.mkdir()
        for path in (written / "dcp").iterdir():
            if path.is_file():
                (source / path.name).write_bytes(path.read_bytes())
        metadata = source / ".metadata"
        metadata.write_bytes(mutations.damaged(metadata.read_bytes(), Random(seed)))
        try:
            merge(source, tmp_path / f"out-{seed}")
        except UserError:
            assert not (tmp_path / f"out-{seed}").exists()
