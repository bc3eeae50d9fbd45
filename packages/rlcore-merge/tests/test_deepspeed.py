"""DeepSpeed ZeRO folders, written in their documented format."""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from rlcore.errors import UserError
from rlcore_merge import merge
from safetensors.torch import load_file

WORLD = 2
GROUPS = [{"a.weight": (3, 5), "b.weight": (7, 1)}, {"a.bias": (3,), "scale": ()}]


def values() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) for group in GROUPS for name, shape in group.items()}


def module(full: bool) -> dict[str, torch.Tensor]:
    given = values()
    order = ["a.weight", "a.bias", "b.weight", "scale"]
    half = {name: given[name].bfloat16() if full else torch.empty(0, dtype=torch.bfloat16) for name in order}
    return {**half, "buffer": torch.arange(3.0)}


def shapes() -> list[OrderedDict[str, torch.Size]]:
    return [OrderedDict((name, torch.Size(shape)) for name, shape in group.items()) for group in GROUPS]


def model_file(stage: int) -> dict[str, object]:
    return {
        "module": module(stage < 3),
        "buffer_names": ["buffer"],
        "param_shapes": shapes(),
        "frozen_param_shapes": None,
        "shared_params": {"tied.weight": "a.weight"},
        "ds_version": "0.19.8",
    }


def write_stage_2(folder: Path) -> None:
    folder.mkdir(parents=True)
    given = values()
    torch.save(model_file(2), folder / "mp_rank_00_model_states.pt")
    for rank in range(WORLD):
        partitions = []
        for group in GROUPS:
            flat = torch.cat([given[name].reshape(-1) for name in group])
            flat = torch.cat([flat, torch.zeros(-flat.numel() % (2 * WORLD))])
            partitions.append(flat.chunk(WORLD)[rank].clone())
        state = {
            "zero_stage": 2,
            "partition_count": [WORLD] * len(GROUPS),
            "single_partition_of_fp32_groups": partitions,
        }
        torch.save({"optimizer_state_dict": state}, folder / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")


def write_stage_3(folder: Path) -> None:
    folder.mkdir(parents=True)
    given = values()
    for rank in range(WORLD):
        torch.save(model_file(3), folder / f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt")
        flats = []
        for group in GROUPS:
            parts = []
            for name in group:
                flat = given[name].reshape(-1)
                flat = torch.cat([flat, torch.full((-flat.numel() % WORLD,), 9.0)])
                parts.append(flat.chunk(WORLD)[rank])
            flats.append(torch.cat(parts))
            flats[-1].of_group = len(flats)  # as in DeepSpeed, an attribute changes how the vector is pickled
        state = {"zero_stage": 3, "partition_count": WORLD, "fp32_flat_groups": flats}
        torch.save(
            {"optimizer_state_dict": state, "loss_scaler": None},
            folder / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt",
        )


@pytest.mark.parametrize("stage", [2, 3])
def test_float32_weights_are_bitwise_equal(tmp_path: Path, stage: int) -> None:
    (write_stage_2 if stage == 2 else write_stage_3)(tmp_path / "run" / "global_step5")
    (tmp_path / "run" / "latest").write_text("global_step5")
    merge(tmp_path / "run", tmp_path / "out")
    found = load_file(tmp_path / "out" / "model.safetensors")
    expected = {**values(), "buffer": torch.arange(3.0), "tied.weight": values()["a.weight"]}
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


def test_missing_files_of_a_process_raise(tmp_path: Path) -> None:
    write_stage_3(tmp_path / "in")
    (tmp_path / "in" / "zero_pp_rank_0_mp_rank_00_optim_states.pt").rename(tmp_path / "kept.pt")
    with pytest.raises(UserError) as caught:
        merge(tmp_path / "in", tmp_path / "out")
    assert caught.value.found == "no zero_pp_rank_0_mp_rank_00_optim_states.pt"
    assert caught.value.where == str(tmp_path / "in")
    (tmp_path / "kept.pt").rename(tmp_path / "in" / "zero_pp_rank_0_mp_rank_00_optim_states.pt")
    (tmp_path / "in" / "zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    with pytest.raises(UserError) as caught:
        merge(tmp_path / "in", tmp_path / "out")
    assert str(caught.value).splitlines() == [
        "2 processes saved this checkpoint",
        "  found  files of 1",
        f"  from   {tmp_path / 'in'}",
        "  fix    copy the files of all nodes into one folder, or use an earlier checkpoint",
    ]


def test_pipe_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    write_stage_2(tmp_path / "in")
    (tmp_path / "in" / "mp_rank_00_model_states.pt").unlink()
    os.mkfifo(tmp_path / "in" / "mp_rank_00_model_states.pt")
    with pytest.raises(UserError, match=r"mp_rank_00_model_states\.pt is not a regular file"):
        merge(tmp_path / "in", tmp_path / "out")


def test_unknown_file_names_raise(tmp_path: Path) -> None:
    (tmp_path / "my_zero_pp_rank_a_optim_states.pt").write_bytes(b"")
    with pytest.raises(UserError) as caught:
        merge(tmp_path, tmp_path / "out")
    assert caught.value.found == "my_zero_pp_rank_a_optim_states.pt"
    assert caught.value.where == str(tmp_path)


def test_truncated_vector_raises(tmp_path: Path) -> None:
    write_stage_2(tmp_path / "in")
    path = tmp_path / "in" / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"
    content = torch.load(path)
    content["optimizer_state_dict"]["single_partition_of_fp32_groups"][0] = torch.zeros(3)
    torch.save(content, path)
    with pytest.raises(UserError) as caught:
        merge(tmp_path / "in", tmp_path / "out")
    assert "b.weight" in str(caught.value.found)
    assert caught.value.where == str(tmp_path / "in")


@pytest.mark.parametrize(
    "vector",
    [torch.arange(20.0)[::2], torch.zeros(4, 4).t(), torch.tensor(1.0), torch.zeros(0), 5],
    ids=["strided", "transposed", "scalar", "empty", "number"],
)
def test_vector_of_another_form_raises(tmp_path: Path, vector: Any) -> None:
    source = tmp_path / "in"
    source.mkdir()
    state = {"zero_stage": 2, "partition_count": 1, "single_partition_of_fp32_groups": [vector]}
    torch.save({"optimizer_state_dict": state}, source / "zero_pp_rank_0_mp_rank_00_optim_states.pt")
    model = {"param_shapes": [{"w": torch.Size([4, 4])}], "module": {}, "buffer_names": []}
    torch.save(model, source / "mp_rank_00_model_states.pt")
    with pytest.raises(UserError) as caught:
        merge(source, tmp_path / "out")
    assert caught.value.where == str(source)
    assert not (tmp_path / "out").exists()
