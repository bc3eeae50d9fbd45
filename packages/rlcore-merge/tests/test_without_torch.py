from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rlcore.errors import UserError
from rlcore_merge import compare, merge


def write_safetensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    """Write the format without a library: the length of the JSON header, the header, the data."""
    header, data = {}, b""
    for name, array in tensors.items():
        header[name] = {
            "dtype": "F32",
            "shape": list(array.shape),
            "data_offsets": [len(data), len(data) + array.nbytes],
        }
        data += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def read_safetensors(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header.pop("__metadata__", None)
    return {
        name: (
            entry["dtype"],
            entry["shape"],
            content[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]],
        )
        for name, entry in header.items()
    }


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    rows = np.arange(12, dtype=np.float32).reshape(4, 3) / 7
    write_safetensors(folder / "model.safetensors", {"a": rows, "b": rows[0] - 1})
    (folder / "config.json").write_text("{}", encoding="utf-8")
    return folder


def test_merged_folder_is_bitwise_equal(source: Path, tmp_path: Path) -> None:
    merge(source, out=tmp_path / "out")
    found = read_safetensors(tmp_path / "out" / "model.safetensors")
    assert found == read_safetensors(source / "model.safetensors")
    assert compare(tmp_path / "out", source).equal


def test_bfloat16_is_rounded_to_nearest_even(source: Path, tmp_path: Path) -> None:
    merge(source, out=tmp_path / "out", dtype="bf16")
    dtype, shape, data = read_safetensors(tmp_path / "out" / "model.safetensors")["a"]
    bits = (np.arange(12, dtype=np.float32) / np.float32(7)).view(np.uint32).astype(np.uint64)
    expected = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    assert (dtype, shape) == ("BF16", [4, 3])
    assert data == expected.tobytes()


def test_merge_does_not_import_torch(source: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from rlcore_merge import merge; merge(sys.argv[1], out=sys.argv[2]); "
        "print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    command = [sys.executable, "-c", code, str(source), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_folder_without_a_checkpoint_raises_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError) as caught:
        merge(tmp_path / "empty", out=tmp_path / "out")
    assert caught.value.where == str(tmp_path / "empty")
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
