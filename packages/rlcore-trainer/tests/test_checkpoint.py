from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from rlcore.errors import UserError, WriteError
from rlcore.runs.checkpoint_folder import check_checkpoint, write_manifest
from rlcore_trainer.checkpoints import checkpoint, state_file
from rlcore_trainer.checkpoints.checkpoint import Checkpoints, Progress, write_part
from rlcore_trainer.policy.causal_lm import CausalLanguageModel


@pytest.fixture
def model(qwen2: Callable[..., Any]) -> Any:
    return qwen2()


def save(folder: Path, model: Any, tokenizer: Path, *steps: int, keep: int = 2, best: int | None = None) -> Path:
    checkpoints = Checkpoints(folder, keep=keep)
    for step in steps:
        progress = Progress(step=step, updates=2 * step, best_step=best if best and best <= step else None)
        policy, state = CausalLanguageModel(model, tokenizer), {"masters": [torch.ones(2)], "at": {"step": step}}
        path = checkpoints.save(progress, state, partial(write_part, policy=policy, state=state, main=True)).result()
    return path


def test_saved_checkpoint_is_restored(tmp_path: Path, model: Any, model_folder: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2)
    progress, carried = Progress(step=7, updates=14), {"batch": 9, "carried": ["x"]}
    state = {"at": [{"step": 7}, None, 0.1], "odd": torch.ones(3, dtype=torch.uint8), "none": torch.zeros(0, 2)}
    state |= {"half": torch.arange(6, dtype=torch.bfloat16).view(2, 3).T, "one": torch.tensor(2.5)}
    write = partial(write_part, policy=CausalLanguageModel(model, model_folder), state=state, main=True)
    path = checkpoints.save(progress, state, write, collection=carried).result()
    progress, found, collection = checkpoint.read(path)
    assert collection == carried
    assert progress == Progress(step=7, updates=14)
    assert found["at"] == state["at"]
    assert all(torch.equal(found[name], one) for name, one in state.items() if isinstance(one, torch.Tensor))


def test_newest_and_best_checkpoints_are_kept(tmp_path: Path, model: Any, model_folder: Path) -> None:
    folder = tmp_path / "checkpoints"
    save(folder, model, model_folder, 1, 2, 3, 4, 5, best=2)
    assert sorted(path.name for path in folder.iterdir()) == ["000002", "000004", "000005", "best", "last"]
    assert (folder / "best").resolve().name == "000002"
    assert (folder / "last").resolve().name == "000005"


def test_interrupted_checkpoint_is_never_visible(
    tmp_path: Path, model: Any, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "checkpoints"
    save(folder, model, model_folder, 1)

    def killed(*arguments: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(state_file, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            save(folder, model, model_folder, 2)
    assert [path.name for path in sorted(folder.iterdir()) if path.name.isdigit()] == ["000001"]
    assert (folder / "last").resolve().name == "000001"
    save(folder, model, model_folder, 2)
    assert not any(path.name.startswith(".") for path in folder.iterdir())


def test_step_can_be_saved_twice(tmp_path: Path, model: Any, model_folder: Path) -> None:
    save(tmp_path / "checkpoints", model, model_folder, 3)
    path = save(tmp_path / "checkpoints", model, model_folder, 3)
    assert checkpoint.read(path)[0].step == 3


@pytest.mark.parametrize("name", ["model/model.safetensors", "state.safetensors", "model/tokenizer.json"])
@pytest.mark.parametrize("damage", ["removed", "shortened"])
def test_damaged_checkpoint_is_rejected(tmp_path: Path, model: Any, model_folder: Path, name: str, damage: str) -> None:
    path = save(tmp_path / "checkpoints", model, model_folder, 1)
    file = path / name
    if damage == "removed":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(UserError, match="damaged") as caught:
        checkpoint.read(path)
    assert name in str(caught.value)


def test_garbled_checkpoint_of_the_right_size_is_rejected(tmp_path: Path, model: Any, model_folder: Path) -> None:
    path = save(tmp_path / "checkpoints", model, model_folder, 1)
    state = path / "state.safetensors"
    state.write_bytes(b"\x00\xff" * (state.stat().st_size // 2) + b"x" * (state.stat().st_size % 2))
    with pytest.raises(UserError, match="damaged"):
        checkpoint.read(path)


def test_failed_checkpoint_write_leaves_no_folder(
    tmp_path: Path, model: Any, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any, **named: Any) -> None:
        raise RuntimeError("the disk is full")

    folder = tmp_path / "checkpoints"
    save(folder, model, model_folder, 1)
    monkeypatch.setattr(state_file, "write", full)
    with pytest.raises(WriteError, match="cannot be written") as caught:
        save(folder, model, model_folder, 2)
    assert "the disk is full" in str(caught.value)
    assert sorted(path.name for path in folder.iterdir()) == ["000001", "last"]


@pytest.mark.parametrize("text", [None, "", "{}", json.dumps({"progress": {"other": 1}})])
@pytest.mark.parametrize("manifest", [False, True])
def test_folder_without_a_checkpoint_is_rejected(tmp_path: Path, text: str | None, manifest: bool) -> None:
    if text is not None:
        (tmp_path / "trainer.json").write_text(text, encoding="utf-8")
    if manifest:
        write_manifest(tmp_path, 1)
    with pytest.raises(UserError) as caught:
        checkpoint.read(tmp_path)
    assert caught.value.where == str(tmp_path)
    assert ("trainer.json" if manifest else "manifest.json") in str(caught.value.found)


@pytest.mark.parametrize("name", ["model/model.safetensors", "state.safetensors", "trainer.json", "manifest.json"])
def test_flipped_byte_is_found_by_the_checksums(tmp_path: Path, model: Any, model_folder: Path, name: str) -> None:
    path = save(tmp_path / "checkpoints", model, model_folder, 1)
    check_checkpoint(path)
    content = bytearray((path / name).read_bytes())
    content[len(content) // 2] ^= 1
    (path / name).write_bytes(content)
    with pytest.raises(UserError) as caught:
        check_checkpoint(path)
    assert name in str(caught.value.found)
