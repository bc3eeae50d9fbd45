"""Links in a source folder are followed only inside of it, or inside of the repository of a Hub cache."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rlcore.errors import UserError
from rlcore_merge import compare, merge
from safetensors.torch import load_file, save_file

Write = Callable[..., Path]
TENSORS = {"model.w.weight": torch.arange(6.0)}


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    folder = tmp_path / "secret"
    folder.mkdir()
    (folder / "file.json").write_text('{"secret": 1}')
    save_file(TENSORS, folder / "model.safetensors")
    torch.save(TENSORS, folder / "weights.bin")
    return folder


def refused(source: Path, out: Path, link: Path) -> None:
    with pytest.raises(UserError) as caught:
        merge(source, out)
    assert caught.value.where == str(link)
    assert str(link.resolve()) in str(caught.value.found)
    assert not out.exists()


@pytest.mark.parametrize(
    "name", ["tokenizer.json", "config.json", "LICENSE", "modeling_own.py", "additional_chat_templates/a.jinja"]
)
def test_a_copied_file_is_not_taken_from_elsewhere(huggingface: Write, secret: Path, tmp_path: Path, name: str) -> None:
    source = huggingface(TENSORS)
    link = source / name
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(secret / "file.json")
    refused(source, tmp_path / "out", link)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "model_world_size_1_rank_0.pt"])
def test_weights_are_not_read_from_elsewhere(secret: Path, tmp_path: Path, name: str) -> None:
    source = tmp_path / "in"
    source.mkdir()
    (source / name).symlink_to(secret / ("model.safetensors" if name.endswith("safetensors") else "weights.bin"))
    refused(source, tmp_path / "out", source / name)


@pytest.mark.parametrize(
    "place", ["../secret/model.safetensors", "{secret}/model.safetensors", "a/../../secret/x", "\0"]
)
def test_an_index_cannot_name_a_file_elsewhere(secret: Path, tmp_path: Path, place: str) -> None:
    source = tmp_path / "in"
    source.mkdir()
    index = source / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys(TENSORS, place.format(secret=secret))}))
    with pytest.raises(UserError) as caught:
        merge(source, tmp_path / "out")
    assert caught.value.where == str(index)


def test_folders_are_not_taken_from_elsewhere(huggingface: Write, secret: Path, tmp_path: Path) -> None:
    source = huggingface(TENSORS)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "actor").symlink_to(secret)
    refused(tmp_path / "run", tmp_path / "out", tmp_path / "run" / "actor")
    shards = tmp_path / "shards"
    shards.mkdir()
    torch.save(TENSORS, shards / "model_world_size_1_rank_0.pt")
    (secret / "config.json").write_text("{}")
    (shards / "huggingface").symlink_to(secret)
    refused(shards, tmp_path / "out", shards / "huggingface")
    (source / "additional_chat_templates").symlink_to(secret)
    (secret / "a.jinja").write_text("")
    refused(source, tmp_path / "out", source / "additional_chat_templates" / "a.jinja")


def test_an_adapter_is_not_read_from_elsewhere(
    huggingface: Write, peft_adapter: Write, secret: Path, tmp_path: Path
) -> None:
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        adapter = peft_adapter({}, {}, name=f"adapter-{name}")
        (adapter / name).rename(secret / name)
        (adapter / name).symlink_to(secret / name)
        refused(adapter, tmp_path / "out", adapter / name)


def test_links_in_a_circle_raise(huggingface: Write, tmp_path: Path) -> None:
    source = huggingface(TENSORS)
    (source / "tokenizer.json").symlink_to("vocab.json")
    (source / "vocab.json").symlink_to("tokenizer.json")
    merge(source, tmp_path / "out")
    assert not (tmp_path / "out" / "tokenizer.json").exists()


def test_links_inside_the_source_are_followed(huggingface: Write, tmp_path: Path) -> None:
    source = huggingface(TENSORS)
    (source / "files").mkdir()
    for name in ("model.safetensors", "config.json"):
        (source / name).rename(source / "files" / name)
        (source / name).symlink_to(f"files/{name}")
    (tmp_path / "link").symlink_to(source)
    for number, folder in enumerate((source, tmp_path / "link")):
        merge(folder, tmp_path / f"out-{number}")
        assert load_file(tmp_path / f"out-{number}" / "model.safetensors").keys() == TENSORS.keys()


def snapshot(cache: Path, files: Path) -> Path:
    """The Hub cache's layout of the files: blobs, and a snapshot with links to them."""
    repository = cache / "models--acme--base"
    folder = repository / "snapshots" / "0123abc"
    folder.mkdir(parents=True)
    (repository / "blobs").mkdir()
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123abc")
    for number, path in enumerate(sorted(path for path in files.rglob("*") if path.is_file())):
        blob = repository / "blobs" / f"{number:040x}"
        blob.write_bytes(path.read_bytes())
        link = folder / path.relative_to(files)
        link.parent.mkdir(exist_ok=True)
        link.symlink_to("../" * len(link.relative_to(repository).parts[1:]) + f"blobs/{blob.name}")
    return folder


def test_a_snapshot_of_the_hub_cache_is_merged(huggingface: Write, tmp_path: Path) -> None:
    source = huggingface(TENSORS)
    (source / "tokenizer.json").write_text("{}")
    (source / "additional_chat_templates").mkdir()
    (source / "additional_chat_templates" / "tool.jinja").write_text("template")
    folder = snapshot(tmp_path / "hub", source)
    assert (folder / "model.safetensors").is_symlink()
    merge(folder, tmp_path / "out")
    assert compare(tmp_path / "out", folder).equal
    assert (tmp_path / "out" / "tokenizer.json").read_text() == "{}"
    assert (tmp_path / "out" / "additional_chat_templates" / "tool.jinja").read_text() == "template"


def test_a_base_is_read_from_the_hub_cache(
    huggingface: Write, peft_adapter: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = {"model.q.weight": torch.ones(3, 4)}
    snapshot(tmp_path / "hub", huggingface(tensors))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    lora = {"model.q.lora_A.weight": torch.ones(2, 4), "model.q.lora_B.weight": torch.ones(3, 2)}
    adapter = peft_adapter(lora, {"base_model_name_or_path": "acme/base"})
    merge(adapter, tmp_path / "out")
    assert torch.equal(load_file(tmp_path / "out" / "model.safetensors")["model.q.weight"], torch.full((3, 4), 7.0))


def test_a_snapshot_cannot_refer_to_another_repository(huggingface: Write, secret: Path, tmp_path: Path) -> None:
    folder = snapshot(tmp_path / "hub", huggingface(TENSORS))
    for target in (secret / "file.json", tmp_path / "hub" / "models--acme--other" / "blobs" / "0"):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
        (folder / "tokenizer.json").symlink_to(target)
        refused(folder, tmp_path / "out", folder / "tokenizer.json")
        (folder / "tokenizer.json").unlink()
