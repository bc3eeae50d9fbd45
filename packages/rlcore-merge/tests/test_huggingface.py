"""Hugging Face folders: shards, dtypes, tied weights, copied files; output folder, comparison and command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from rlcore.errors import UserError
from rlcore_merge import compare, merge
from rlcore_merge.cli import merge as command
from rlcore_merge.comparison import lines
from safetensors import safe_open
from safetensors.torch import load_file

Write = Callable[..., Path]

TENSORS = {
    "model.embed_tokens.weight": torch.randn(10, 4, generator=torch.Generator().manual_seed(0)),
    "model.layers.0.w.weight": torch.randn(300, 4, generator=torch.Generator().manual_seed(1)),
    "model.layers.1.w.weight": torch.randn(300, 4, generator=torch.Generator().manual_seed(2)).bfloat16(),
    "model.layers.1.flags": torch.tensor([True, False]),
    "model.layers.1.empty": torch.zeros(0, 3),
    "model.layers.1.count": torch.tensor(7),
}
CONFIG = {"vocab_size": 10, "hidden_size": 4, "num_hidden_layers": 2, "dtype": "float32", "text_config": None}


def all_of(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for path in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(path).items()}


def test_shards_and_index_contain_every_tensor_once(huggingface: Write, tmp_path: Path) -> None:
    merge(huggingface(TENSORS, CONFIG), tmp_path / "out", max_shard_size="5KB")
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) == 2
    for name, file in index["weight_map"].items():
        with safe_open(tmp_path / "out" / file, "pt") as opened:
            assert torch.equal(opened.get_tensor(name), TENSORS[name])
    assert index["weight_map"].keys() == TENSORS.keys()
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in TENSORS.values())
    merge(tmp_path / "out", tmp_path / "again")
    assert compare(tmp_path / "again", tmp_path / "base").equal


@pytest.mark.parametrize(
    ("option", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16), ("fp32", torch.float32)]
)
def test_dtype_applies_to_floating_tensors_only(
    huggingface: Write, tmp_path: Path, option: str, dtype: torch.dtype
) -> None:
    merge(huggingface(TENSORS, CONFIG), tmp_path / "out", dtype=option)
    found = all_of(tmp_path / "out")
    for name, tensor in TENSORS.items():
        expected = tensor.to(dtype) if tensor.is_floating_point() else tensor
        assert found[name].dtype == expected.dtype
        assert torch.equal(found[name], expected)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == str(dtype).removeprefix("torch.")


def test_bin_file_is_read(tmp_path: Path) -> None:
    torch.save(
        {name: tensor.t() if tensor.ndim == 2 else tensor for name, tensor in TENSORS.items()},
        tmp_path / "pytorch_model.bin",
    )
    merge(tmp_path, tmp_path / "out")
    found = all_of(tmp_path / "out")
    assert all(
        torch.equal(found[name].t() if tensor.ndim == 2 else found[name], tensor) for name, tensor in TENSORS.items()
    )


def test_fp16_overflow_raises(huggingface: Write, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        merge(huggingface({"w": torch.tensor([1.0, 1e6])}), tmp_path / "out", dtype="fp16")
    assert str(caught.value.found).startswith("1e+06")
    assert "--dtype bf16" in str(caught.value.fix)
    assert not (tmp_path / "out").exists()


def test_tied_output_layer_is_written_once(huggingface: Write, tmp_path: Path) -> None:
    tied = {**TENSORS, "lm_head.weight": TENSORS["model.embed_tokens.weight"].clone()}
    merge(huggingface(tied, {**CONFIG, "tie_word_embeddings": True}), tmp_path / "out")
    assert all_of(tmp_path / "out").keys() == TENSORS.keys()
    apart = {**tied, "lm_head.weight": tied["lm_head.weight"] + 1}
    merged = merge(huggingface(apart, {**CONFIG, "tie_word_embeddings": True}, name="apart"), tmp_path / "two")
    assert all_of(tmp_path / "two").keys() == apart.keys()
    assert json.loads((tmp_path / "two" / "config.json").read_text())["tie_word_embeddings"] is False
    assert any("differ" in note for note in merged.notes)


def test_files_other_than_weights_are_copied(huggingface: Write, tmp_path: Path) -> None:
    base = huggingface(TENSORS, {**CONFIG, "quantization_config": {"bits": 4}})
    kept = [
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "preprocessor_config.json",
        "chat_template.jinja",
        "modeling_own.py",
        "merges.txt",
        "tokenizer.model",
    ]
    for name in [*kept, "optimizer.pt", "trainer_state.json", "notes.txt"]:
        (base / name).write_text("{}")
    merge(base, tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {*kept, "config.json", "model.safetensors", "rlcore-merge.json"}
    assert "quantization_config" not in json.loads((tmp_path / "out" / "config.json").read_text())
    record = json.loads((tmp_path / "out" / "rlcore-merge.json").read_text())
    assert record["layout"] == "huggingface"
    assert record["inputs"][0]["bytes"] == (base / "model.safetensors").stat().st_size


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"vocab_size": 11}, "vocab_size is 11"),
        ({"hidden_size": 8}, "hidden_size is 8"),
        ({"num_hidden_layers": 3}, "such as 2"),
        ({"num_hidden_layers": 10**12}, "such as 2"),
        ({"num_hidden_layers": 3, "text_config": [1]}, "such as 2"),
        ({"num_hidden_layers": 1}, "has 2 layers, num_hidden_layers is 1"),
    ],
)
def test_config_that_contradicts_the_tensors_raises(
    huggingface: Write, tmp_path: Path, config: dict[str, int], found: str
) -> None:
    base = huggingface(TENSORS, {**CONFIG, **config})
    with pytest.raises(UserError) as caught:
        merge(base, tmp_path / "out")
    assert found in str(caught.value.found)
    assert caught.value.where == str(base)


def test_quantised_weights_are_not_converted(huggingface: Write, tmp_path: Path) -> None:
    quantised = {"w.weight": torch.zeros(4, 1, dtype=torch.uint8), "w.weight.absmax": torch.ones(1)}
    base = huggingface(quantised, {"quantization_config": {"bits": 4}})
    merge(base, tmp_path / "out")
    assert "quantization_config" in json.loads((tmp_path / "out" / "config.json").read_text())
    with pytest.raises(UserError) as caught:
        merge(base, tmp_path / "other", dtype="bf16")
    assert caught.value.where == str(base)
    assert "--dtype keep" in str(caught.value.fix)


def test_best_checkpoint_of_a_run_is_merged(huggingface: Write, tmp_path: Path) -> None:
    checkpoints = tmp_path / "run" / "checkpoints"
    for name, value in (("000010", 1.0), ("000020", 2.0)):
        (checkpoints / name).mkdir(parents=True)
        huggingface({"w": torch.tensor([value])}, name=f"run/checkpoints/{name}/model")
    huggingface({"w": torch.tensor([0.0])}, name="run/model")  # the initial model of the run
    (checkpoints / "last").symlink_to("000020")
    (checkpoints / "best").symlink_to("000010")
    for number, (source, value) in enumerate(
        ((tmp_path / "run", 1.0), (checkpoints / "000020", 2.0), (checkpoints, 1.0))
    ):
        merge(source, tmp_path / str(number))
        assert all_of(tmp_path / str(number))["w"].item() == value


def test_initial_model_is_not_a_checkpoint_of_the_run(huggingface: Write, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.toml").touch()
    initial = huggingface({"w": torch.tensor([0.0])}, name="run/model")
    with pytest.raises(UserError) as caught:
        merge(run, tmp_path / "out")
    assert str(run) in str(caught.value)
    assert str(initial) in str(caught.value)
    with pytest.raises(UserError) as caught:
        merge(tmp_path, tmp_path / "out")
    assert str(initial) not in str(caught.value)
    assert not (tmp_path / "out").exists()
    merge(initial, tmp_path / "initial")  # accepted if passed explicitly
    (run / "checkpoints" / "000010").mkdir()
    huggingface({"w": torch.tensor([1.0])}, name="run/checkpoints/000010/model")
    merge(run, tmp_path / "out")  # a copy without the links best and last
    assert all_of(tmp_path / "out")["w"].item() == 1.0


def test_empty_output_folder_is_filled(huggingface: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base, out = huggingface(TENSORS), tmp_path / "out"
    out.mkdir()
    merge(base, out)
    assert all_of(out).keys() == TENSORS.keys()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for path in (".", tmp_path / "here"):
        with pytest.raises(UserError) as caught:
            merge(base, path)
        assert caught.value.found == "the current folder"
        assert caught.value.where == str(path)
    (tmp_path / "link").symlink_to(tmp_path / "here")
    with pytest.raises(UserError) as caught:
        merge(base, tmp_path / "link")
    assert caught.value.where == str(tmp_path / "link")
    assert {path.name for path in tmp_path.iterdir()} == {"base", "out", "here", "link"}


def test_existing_output_raises_and_is_unchanged(huggingface: Write, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").touch()
    with pytest.raises(UserError) as caught:
        merge(huggingface(TENSORS), tmp_path / "out")
    assert str(caught.value).splitlines() == [
        "the output folder already exists",
        "  found  1 entries",
        f"  from   {tmp_path / 'out'}",
        "  fix    pass another --out, or remove the folder first",
    ]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["file"]


def test_full_disk_raises_before_anything_is_written(
    huggingface: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    usage = shutil.disk_usage(tmp_path)
    base = huggingface(TENSORS)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(UserError) as caught:
        merge(base, tmp_path / "out")
    assert "0.00 GB free" in str(caught.value.found)
    assert caught.value.where == str(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"base"}


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system that is not a disk")
def test_unwritable_output_reports_the_system_error(huggingface: Write) -> None:
    with pytest.raises(UserError) as caught:
        merge(huggingface(TENSORS), "/proc/out")
    assert "No such file or directory" in str(caught.value.found)
    assert caught.value.where == "/proc/out"


def test_missing_shard_and_missing_tensor_are_named(huggingface: Write, tmp_path: Path) -> None:
    base = huggingface(TENSORS)
    (base / "model.safetensors").rename(base / "model-00001-of-00002.safetensors")
    index = {"weight_map": dict.fromkeys(TENSORS, "model-00001-of-00002.safetensors")}
    index["weight_map"]["more"] = "model-00001-of-00002.safetensors"
    (base / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UserError) as caught:
        merge(base, tmp_path / "out")
    assert caught.value.found == "1 missing, such as more"
    assert caught.value.where == str(base)
    index["weight_map"]["more"] = "model-00002-of-00002.safetensors"
    (base / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UserError) as caught:
        merge(base, tmp_path / "out")
    assert caught.value.found == "no model-00002-of-00002.safetensors"
    assert caught.value.where == str(base / "model.safetensors.index.json")
    os.mkfifo(base / "model-00002-of-00002.safetensors")
    with pytest.raises(UserError, match=r"model-00002-of-00002\.safetensors is not a regular file"):
        merge(base, tmp_path / "out")


def test_truncated_safetensors_file_is_named(huggingface: Write, tmp_path: Path) -> None:
    base = huggingface(TENSORS)
    path = base / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError) as caught:
        merge(base, tmp_path / "out")
    assert caught.value.where == str(path)


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ({"data_offsets": [-4, 0]}, "offsets"),
        ({"data_offsets": [0.0, 4.0]}, "offsets"),
        ({"shape": [-1, -1]}, "shape"),
        ({"data_offsets": [0, 4]}, "begins at 0"),
        ({"data_offsets": [8, 12]}, "begins at 8"),
    ],
)
def test_header_that_does_not_match_the_data_raises(tmp_path: Path, entry: dict[str, list[float]], found: str) -> None:
    first = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    header = json.dumps({"a": first, "b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8], **entry}}).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(12))
    with pytest.raises(UserError) as caught:
        merge(tmp_path, tmp_path / "out")
    assert found in str(caught.value.found)
    assert caught.value.where == str(path)


def test_trailing_bytes_raise(huggingface: Write, tmp_path: Path) -> None:
    path = huggingface(TENSORS) / "model.safetensors"
    path.write_bytes(path.read_bytes() + b"12")
    with pytest.raises(UserError) as caught:
        merge(path.parent, tmp_path / "out")
    assert str(caught.value).splitlines() == [
        "a safetensors file cannot be read",
        "  found  it is truncated or damaged: 2 bytes follow the last tensor",
        f"  from   {path}",
        "  fix    copy or save the file again",
    ]


def test_index_without_file_names_raises(huggingface: Write, tmp_path: Path) -> None:
    base = huggingface(TENSORS)
    (base / "model.safetensors").rename(base / "model-1.safetensors")
    (base / "model.safetensors.index.json").write_text('{"weight_map": {"a": 5}}')
    with pytest.raises(UserError) as caught:
        merge(base, tmp_path / "out")
    assert caught.value.where == str(base / "model.safetensors.index.json")


@pytest.mark.parametrize("architectures", [5, "FSDPQwen2ForCausalLM", None])
def test_architectures_other_than_lists_are_unchanged(
    huggingface: Write, tmp_path: Path, architectures: object
) -> None:
    merge(huggingface(TENSORS, {**CONFIG, "architectures": architectures}), tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["architectures"] == architectures


@pytest.mark.parametrize("more", [["--check", "nowhere"], ["--check", ".", "--tolerance", "nan"]])
def test_invalid_check_raises_before_anything_is_written(huggingface: Write, tmp_path: Path, more: list[str]) -> None:
    arguments = [str(huggingface(TENSORS)), "--out", str(tmp_path / "out"), *more]
    with pytest.raises(UserError):
        CliRunner().invoke(command, arguments, standalone_mode=False, catch_exceptions=False)
    assert not (tmp_path / "out").exists()


def test_comparison_lists_the_differences(huggingface: Write) -> None:
    changed = {**TENSORS, "model.layers.0.w.weight": TENSORS["model.layers.0.w.weight"] + 0.5}
    changed["model.layers.1.w.weight"] = TENSORS["model.layers.1.w.weight"].float()
    changed["model.layers.1.count"] = torch.tensor([7])
    changed["model.layers.1.empty"] = torch.zeros(0, 3, dtype=torch.int64)
    changed["new"] = changed.pop("model.layers.1.flags")
    left, right = huggingface(changed, name="left"), huggingface(TENSORS, name="right")
    rows = {row.name: row for row in compare(left, right).rows}
    assert rows.keys() == {
        "model.layers.0.w.weight",
        "model.layers.1.count",
        "model.layers.1.flags",
        "model.layers.1.empty",
        "new",
    }
    assert rows["model.layers.1.empty"].problem == "dtype I64, the reference's is F32"
    assert rows["model.layers.0.w.weight"].difference == pytest.approx(0.5, abs=1e-6)
    assert "shape" in rows["model.layers.1.count"].problem
    assert compare(left, left).equal
    assert not compare(left, right, tolerance=1.0).equal


def test_different_dtypes_are_compared_in_the_narrower_one(huggingface: Write, tmp_path: Path) -> None:
    wide = huggingface({"w": torch.tensor([1.0, 1.001, 3.14159]), "n": torch.tensor([2])})
    merge(wide, tmp_path / "half", dtype="bf16")
    near = compare(tmp_path / "half", wide)
    assert near.equal
    note = "1 tensor with a different dtype, such as w: dtype BF16, the reference's is F32; compared as BF16"
    assert near.notes == (note,)
    assert f"note: {note}" in list(lines(near))
    assert compare(wide, tmp_path / "half").equal
    assert compare(wide, wide).notes == ()
    other = huggingface({"w": torch.tensor([1.0, 1.001, 3.2]), "n": torch.tensor([2])}, name="other")
    apart = compare(tmp_path / "half", other)
    assert [row.name for row in apart.rows] == ["w"]
    assert compare(tmp_path / "half", other, tolerance=0.1).equal
    merge(wide, tmp_path / "other-half", dtype="fp16")
    assert "compared as F32" in compare(tmp_path / "half", tmp_path / "other-half").notes[0]
    assert not compare(tmp_path / "half", tmp_path / "other-half").equal


def test_difference_of_float64_is_not_rounded_away(huggingface: Write) -> None:
    left = huggingface({"w": torch.tensor([1.0], dtype=torch.float64)}, name="left")
    right = huggingface({"w": torch.tensor([1.0 + 1e-12], dtype=torch.float64)}, name="right")
    assert not compare(left, right).equal


def test_nan_on_one_side_is_a_difference(huggingface: Write) -> None:
    left = huggingface({"w": torch.tensor([float("nan"), 1.0])}, name="left")
    right = huggingface({"w": torch.tensor([0.0, 1.0])}, name="right")
    assert compare(left, right).rows[0].difference == float("inf")
    assert compare(left, left).equal


def test_check_sets_the_exit_status(huggingface: Write, tmp_path: Path) -> None:
    base = huggingface(TENSORS)
    (base / "config.json").unlink()
    other = huggingface({**TENSORS, "model.layers.1.count": torch.tensor(8)}, name="other")
    out = tmp_path / "out"
    run = CliRunner().invoke(command, [str(base), "--out", str(out), "--check", str(base)], standalone_mode=False)
    assert run.return_value == 0, run.output
    assert "6 tensors compared: equal" in run.output
    run = CliRunner().invoke(command, [str(out), "--check", str(other)], standalone_mode=False)
    assert run.return_value == 1
    assert "model.layers.1.count  values  largest difference 1" in run.output


def test_wrong_folder_lists_layouts_and_checkpoints_nearby(huggingface: Write, tmp_path: Path) -> None:
    huggingface(TENSORS, name="deeper")
    with pytest.raises(UserError) as caught:
        merge(tmp_path, tmp_path / "out")
    assert str(caught.value).splitlines() == [
        "there is no checkpoint in this folder",
        "  found  deeper",
        f"  from   {tmp_path}",
        f"  fix    pass {tmp_path / 'deeper'}, which has one",
    ]
    (tmp_path / "nothing").mkdir()
    (tmp_path / "nothing" / "inner").mkdir()
    with pytest.raises(UserError) as caught:
        merge(tmp_path / "nothing" / "inner", tmp_path / "out")
    assert "model_world_size_W_rank_R.pt" in str(caught.value.fix)
    with pytest.raises(UserError) as caught:
        merge(tmp_path / "deepre", tmp_path / "out")
    assert "'deeper'" in str(caught.value.fix)
    with pytest.raises(UserError) as caught:
        merge("Acme/a-model-1.5B", tmp_path / "out")
    assert "hf download Acme/a-model-1.5B" in str(caught.value.fix)


def test_wrong_folder_raises_before_heavy_imports(tmp_path: Path) -> None:
    code = (
        "import sys; from rlcore.errors import UserError; from rlcore_merge import merge\n"
        "try: merge(sys.argv[1], sys.argv[1] + '/out')\n"
        "except UserError: print(sorted({'torch', 'transformers', 'numpy'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


MERGE_AND_MEASURE = """
import os, sys, threading
from pathlib import Path
import numpy as np
from rlcore_merge import writing
from rlcore_merge.merging import merge
def anonymous():
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0])
start, peak = anonymous(), 0
def on_progress(done, total):
    global peak
    peak = max(peak, anonymous())
    if len(sys.argv) > 3:
        os.write(1, b"writing\\n"); threading.Event().wait()
merge(sys.argv[1], sys.argv[2], dtype="bf16", threads=2, progress=on_progress)
print((peak - start) // 1024)
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 MB of zeros in a sparse file."""
    from rlcore_merge.tensors import KINDS
    from rlcore_merge.writing import header

    folder = tmp_path_factory.mktemp("large")
    start, _ = header({f"layer.{index}": (KINDS["F32"], (5000, 5000)) for index in range(3)}, {})
    with (folder / "model.safetensors").open("wb") as file:
        file.write(start)
        file.truncate(len(start) + 3 * 5000 * 5000 * 4)
    return folder


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process from /proc")
def test_memory_does_not_grow_with_the_model(large: Path, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", MERGE_AND_MEASURE, str(large), str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(run.stdout) < 100
    assert (tmp_path / "out" / "model.safetensors").stat().st_size > 3 * 5000 * 5000 * 2


def test_killed_merge_leaves_no_output(large: Path, tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", MERGE_AND_MEASURE, str(large), str(tmp_path / "out"), "wait"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "writing\n"
            with pytest.raises(UserError) as caught:
                merge(large, tmp_path / "out")
            assert caught.value.where == str(tmp_path / ".out.partial")
        finally:
            process.send_signal(signal.SIGKILL)
    assert [path.name for path in tmp_path.iterdir()] == [".out.partial"]
    small = tmp_path / "small"
    small.mkdir()
    torch.save({"w": torch.ones(2)}, small / "pytorch_model.bin")
    merge(small, tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"out", "small"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"model.safetensors", "rlcore-merge.json"}
