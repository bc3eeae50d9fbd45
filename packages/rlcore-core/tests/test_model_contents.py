"""A model folder runs no code of its own, and refers to nothing outside."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rlcore.errors import UserError
from rlcore.models.contents import check_contents, indexed_files, inside
from rlcore.models.fingerprint import fingerprint_of_folder
from rlcore.models.folder import local_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "model"
    made.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (made / name).write_text("{}", encoding="utf-8")
    (made / "model.safetensors").write_bytes(b"")
    (tmp_path / "secret.safetensors").write_bytes(b"secret")
    return made


def test_plain_folder_is_accepted(folder: Path) -> None:
    assert local_folder(str(folder)) == folder


def test_folder_with_code_is_rejected(folder: Path) -> None:
    config = {"model_type": "qwen2", "auto_map": {"AutoModelForCausalLM": "modeling.Model"}}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(UserError) as caught:
        local_folder(str(folder))
    assert "rlcore does not run" in caught.value.message
    assert caught.value.where == str(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "more.safetensors", "generation_config.json", "link.json"])
def test_pipe_in_a_folder_is_rejected_without_reading_it(folder: Path, name: str) -> None:
    (folder / name).unlink(missing_ok=True)
    if name.startswith("link"):
        os.mkfifo(folder / "pipe")
        (folder / name).symlink_to("pipe")
    else:
        os.mkfifo(folder / name)
    with pytest.raises(UserError) as caught:
        local_folder(str(folder))
    assert str(folder) in caught.value.message


OUT = [
    "../secret.safetensors",
    "{absolute}",
    "sub/../../secret.safetensors",
    "link.safetensors",
    "away/x.safetensors",
    "",
]


@pytest.mark.parametrize("name", OUT)
def test_index_cannot_lead_out_of_the_folder(name: str, folder: Path) -> None:
    secret = folder.parent / "secret.safetensors"
    (folder / "model.safetensors").unlink()
    (folder / "other.safetensors").touch()
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": name.format(absolute=secret)}}), encoding="utf-8")
    if name.startswith("link"):
        (folder / name).symlink_to(secret)
    (folder / "away").symlink_to(folder.parent)
    for use in (lambda: local_folder(str(folder)), lambda: fingerprint_of_folder(folder), lambda: indexed_files(index)):
        with pytest.raises(UserError) as caught:
            use()
        assert caught.value.where == str(index) or name.startswith("link")


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json", "generation_config.json", "model.safetensors"])
def test_link_out_of_the_folder_is_rejected(name: str, folder: Path) -> None:
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to("/etc/hostname")
    with pytest.raises(UserError) as caught:
        local_folder(str(folder))
    assert name in (caught.value.found or "")


def test_links_of_the_hugging_face_cache_are_accepted(tmp_path: Path, folder: Path) -> None:
    home = tmp_path / "hub" / "models--acme--small"
    snapshot, blobs = home / "snapshots" / "abc", home / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, name in enumerate(os.listdir(folder)):
        (folder / name).rename(blobs / str(number))
        (snapshot / name).symlink_to(f"../../blobs/{number}")
    assert local_folder(str(snapshot)) == snapshot
    (snapshot / "extra.json").symlink_to("../../../secret")
    with pytest.raises(UserError):
        check_contents(snapshot)


def test_link_within_the_folder_is_accepted(folder: Path) -> None:
    (folder / "real").mkdir()
    (folder / "model.safetensors").rename(folder / "real" / "weights")
    (folder / "model.safetensors").symlink_to("real/weights")
    assert local_folder(str(folder)) == folder


PARTS = st.lists(st.sampled_from(["..", ".", "a", "sub", "away", "/", "~", "a\0", "x.safetensors", "…"]), max_size=5)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=PARTS, joint=st.sampled_from(["/", "//", "\\"]))
@example(parts=["a" * 5000], joint="/")
def test_accepted_names_are_always_inside(parts: list[str], joint: str, folder: Path) -> None:
    for name, to in (("away", folder.parent), ("sub", folder / "a")):
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(to)
    try:
        found = inside(folder, joint.join(parts))
    except UserError:
        return
    assert os.path.realpath(found).startswith(os.path.realpath(folder))


@pytest.mark.parametrize("text", ["[]", "{}", '{"weight_map": []}', '{"weight_map": {"a": 5}}', "no", "\xff"])
def test_unreadable_index_is_rejected(text: str, folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    index.write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError) as caught:
        indexed_files(index)
    assert caught.value.where == str(index)
