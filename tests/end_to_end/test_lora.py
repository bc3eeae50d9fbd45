"""Adapters by the command: a run, what goes on from it, its evaluation, its merge, and a base that is another one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from preloaded import rlcore_command
from rlcore.fingerprint import fingerprint_of_folder
from rlcore_merge.fingerprint import fingerprint
from rlcore_merge.safetensors_files import read
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

SMALL = ["model.builder.layers=1", "model.builder.width=32", "model.builder.feed_forward=64"]
SHORT = ["trainer.steps=2", "trainer.tasks_per_step=2", "rollout.group_size=2", "rollout.max_new_tokens=8"]
SHORT += ["evaluation.tasks=2", "evaluation.every=2", "checkpoint.every=1", "checkpoint.keep=9"]
WARM = ["warmup.steps=2", "warmup.demonstrations_per_step=4"]


def rlcore(*arguments: str, folder: Path, fails: bool = False, **environment: str) -> str:
    if environment:  # read where libraries are imported, so in a process of its own
        command = [sys.executable, "-m", "rlcore", *arguments]
        surroundings = {**os.environ, **environment}
        done = subprocess.run(
            command, cwd=folder, env=surroundings, capture_output=True, text=True, check=False, timeout=900
        )
    else:
        done = rlcore_command(arguments, folder)
    assert done.returncode == (2 if fails else 0), done.stdout[-2000:] + done.stderr[-3000:]
    return done.stderr if fails else done.stdout


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model.eval()(input_ids=torch.tensor([[1, 5, 9, 3, 20]])).logits
        return found


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of the default recipe, cut short, that trained an adapter."""
    folder = tmp_path_factory.mktemp("lora")
    rlcore("run", "-p", "gsm8k-tools", "lora.rank=4", "name=low", *SMALL, *SHORT, *WARM, folder=folder)
    return folder


def test_the_merged_run_is_its_base_with_its_adapter(trained: Path, tmp_path: Path) -> None:
    run = trained / "runs/low"
    checkpoint = run / "checkpoints/000002"
    assert not (checkpoint / "model/model.safetensors").exists()
    rlcore("merge", str(checkpoint), "--out", str(tmp_path / "merged"), folder=tmp_path)
    base = AutoModelForCausalLM.from_pretrained(run / "model", dtype=torch.float32)
    before = logits(base)
    theirs = logits(PeftModel.from_pretrained(base, str(checkpoint / "model")))
    merged = logits(AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.float32))
    torch.testing.assert_close(merged, theirs, rtol=1e-4, atol=1e-5)
    assert (merged - before).abs().max() > 1e-4


@pytest.mark.slow
def test_an_evaluation_of_the_adapter_is_that_of_the_merged_model(trained: Path, tmp_path: Path) -> None:
    checkpoint = trained / "runs/low/checkpoints/000002"
    rlcore("merge", str(checkpoint), "--out", str(tmp_path / "merged"), folder=tmp_path)
    few = ["evaluation.tasks=4", "rollout.max_new_tokens=8", "--json"]
    one = json.loads(rlcore("eval", str(checkpoint), *few, folder=trained))
    two = json.loads(rlcore("eval", "-p", "gsm8k-tools", f"model={tmp_path / 'merged'}", *few, folder=trained))
    for told in (one, two):
        del told["model"], told["seconds"]
    assert one == two


@pytest.mark.slow
def test_the_base_of_an_adapter_may_be_a_model_in_the_cache_of_the_hub(trained: Path, tmp_path: Path) -> None:
    cached = tmp_path / "cache/hub/models--someone--base"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs/main").write_text("0123456789abcdef0123456789abcdef01234567", encoding="utf-8")
    shutil.copytree(trained / "runs/low/model", cached / "snapshots/0123456789abcdef0123456789abcdef01234567")
    adapter = tmp_path / "adapter"
    shutil.copytree(trained / "runs/low/checkpoints/000002/model", adapter)
    settings = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache")}
    few = ["evaluation.tasks=2", "rollout.max_new_tokens=8", "--json"]

    def evaluate(base: str, *, fails: bool = False) -> str:
        named = json.dumps({**settings, "base_model_name_or_path": base})
        (adapter / "adapter_config.json").write_text(named, encoding="utf-8")
        return rlcore("eval", "-p", "gsm8k-tools", "adapter", *few, folder=tmp_path, fails=fails, **offline)

    assert "cannot get the model someone/other from the hub" in evaluate("someone/other", fails=True)
    assert json.loads(evaluate("someone/base"))["scored"] == 2  # the adapter says the fingerprint of its base
    rlcore("merge", "adapter", "--out", "merged", folder=tmp_path, **offline)
    assert (tmp_path / "merged/model.safetensors").exists()


@pytest.mark.slow
def test_a_run_that_is_continued_is_the_same_to_the_bit_wherever_it_was_moved(
    equal_rows: None, trained: Path, tmp_path: Path
) -> None:
    shutil.copytree(trained / "runs", tmp_path / "elsewhere", symlinks=True)
    rlcore("run", "--resume", "elsewhere/low/checkpoints/000001", folder=tmp_path)
    name = "low/checkpoints/000002/model/adapter_model.safetensors"
    one, two = load_file(trained / "runs" / name), load_file(tmp_path / "elsewhere" / name)
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("dry", [["--dry-run"], []])
def test_what_a_checkpoint_cannot_go_on_with_is_refused_and_the_run_stays_as_it_was(
    dry: list[str], trained: Path, tmp_path: Path
) -> None:
    shutil.copytree(trained / "runs/low/model", tmp_path / "other")
    weights = tmp_path / "other/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"abcd")

    def content() -> dict[str, bytes | None]:
        paths = [path for path in (trained / "runs/low").rglob("*") if path.name != ".lock"]
        return {str(path): path.read_bytes() if path.is_file() else None for path in paths}

    before = content()
    resumed = ["run", "--resume", "runs/low/checkpoints/000001", *dry]
    said = rlcore(*resumed, "model.quantization=nf4", "lora.rank=8", folder=trained, fails=True)
    for sentence in ("lora.rank = 8", "has 4", "lora.rank=4", "model.quantization = nf4", "model.quantization=none"):
        assert sentence in said
    said = rlcore(*resumed, "lora.rank=null", folder=trained, fails=True)
    assert "an adapter of rank 4 was trained until runs/low/checkpoints/000001" in said
    said = rlcore(*resumed, f"model={tmp_path / 'other'}", folder=trained, fails=True)
    assert "the adapter was trained on another base" in said
    assert content() == before


def test_another_base_is_refused_by_whatever_reads_the_adapter(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "runs/low", tmp_path / "low", symlinks=True)
    for path in (tmp_path / "low/checkpoints").glob("[0-9]*/model/adapter_config.json"):
        settings = json.loads(path.read_text(encoding="utf-8"))
        settings["base_model_name_or_path"] = str(tmp_path / "low/model")
        path.write_text(json.dumps(settings, indent=2), encoding="utf-8")
    weights = tmp_path / "low/model/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"abcd")
    adapter = "low/checkpoints/000002/model"
    for command in (
        ["run", "-p", "gsm8k-tools", "model=low/model", f"lora.adapter={adapter}", "--dry-run"],
        ["eval", "-p", "gsm8k-tools", f"model={adapter}"],
        ["merge", adapter, "--out", "merged"],
    ):
        said = rlcore(*command, folder=tmp_path, fails=True)
        assert "the adapter was trained on another base" in said
        assert adapter in said
        assert "low/model" in said.replace(adapter, "")
    assert not (tmp_path / "merged").exists()


def test_the_fingerprint_is_the_one_of_the_merge(trained: Path) -> None:
    folder = trained / "runs/low/model"
    assert fingerprint_of_folder(folder) == fingerprint(read(folder / "model.safetensors")[0])


@pytest.mark.parametrize(
    ("given", "sentences"),
    [
        (["lora.rank=0"], ["lora.rank"]),
        (["lora.alpha=8"], ["lora.alpha", "lora.rank is not set"]),
        (["lora.rank=4", "lora.dropout=0.1"], ["lora.dropout", "random"]),
        (["lora.rank=4", "lora.rnk=4"], ["lora.rnk", "rank"]),
        (["lora.rank=4", "algorithm.advantage=gae", "critic.model=copy"], ["critic.model", "second base"]),
        (["model.quantization=nf4"], ["model.quantization", "a quantised base is not trained itself", "lora.rank=16"]),
        (["model.quantization=int8", "lora.rank=4"], ["model.quantization", "nf4"]),
        (
            ["model.quantization=nf4", "lora.rank=4", "algorithm.advantage=gae", "critic.model=copy"],
            ["critic.model", "second base"],
        ),
        (["lora.adapter=nowhere"], ["lora.adapter", "no such folder"]),
        (["lora.adapter=runs/low/checkpoints/000002/model", "lora.rank=8", "model=runs/low/model"], ["has 4"]),
        (["model=runs/low/checkpoints/000002/model"], ["a run starts from its base", "lora.adapter="]),
        (["model=runs/low"], ["a run starts from its base"]),
    ],
)
def test_what_contradicts_itself_is_refused_before_anything_loads(
    given: list[str], sentences: list[str], trained: Path
) -> None:
    said = rlcore("run", "-p", "gsm8k-tools", *given, "--dry-run", folder=trained, fails=True)
    for sentence in sentences:
        assert sentence in said
    assert "Traceback" not in said


def test_an_adapter_on_random_numbers_is_warned_about(tmp_path: Path) -> None:
    said = rlcore("run", "-p", "gsm8k-tools", "lora.rank=4", "--dry-run", folder=tmp_path)
    assert said.startswith("# note: the base is made of random numbers")


@pytest.mark.slow
def test_a_supervised_run_trains_an_adapter_with_dropout_and_a_run_goes_on_from_it(trained: Path) -> None:
    given = ["trainer.steps=2", "trainer.demonstrations=32", "trainer.held_out=4", "evaluation.tasks=2"]
    given += ["evaluation.every=2", "lora.rank=4", "lora.dropout=0.1", "lora.rslora=true", "name=sft"]
    said = rlcore("run", "-p", "gsm8k-tools", "-r", "sft", *given, *SMALL, folder=trained)
    assert "rsLoRA of rank 4" in said
    settings = json.loads((trained / "runs/sft/checkpoints/last/model/adapter_config.json").read_text("utf-8"))
    assert settings["lora_dropout"] == 0.1
    given = ["model=runs/sft/model", "lora.adapter=runs/sft/checkpoints/last/model", "warmup.steps=0", "name=rl"]
    said = rlcore("run", "-p", "gsm8k-tools", *SHORT, *given, folder=trained)
    assert "rsLoRA of rank 4" in said
    settings = json.loads((trained / "runs/rl/checkpoints/last/model/adapter_config.json").read_text("utf-8"))
    assert settings["lora_dropout"] == 0.0


@pytest.mark.slow
def test_a_quantised_base_is_trained_on_continued_evaluated_and_merged_whole(tmp_path: Path) -> None:
    given = ["lora.rank=4", "model.quantization=nf4", "name=low"]
    said = rlcore("run", "-p", "gsm8k-tools", *given, *SMALL, *SHORT, *WARM, folder=tmp_path)
    assert "its base in nf4" in said
    assert "the base stays in nf4" in said
    checkpoint = "runs/low/checkpoints/000002"
    few = ["evaluation.tasks=2", "rollout.max_new_tokens=8"]
    assert "its base in nf4" in rlcore("eval", checkpoint, *few, folder=tmp_path)
    rlcore("merge", checkpoint, "--out", "merged", folder=tmp_path)
    merged = load_file(tmp_path / "merged/model.safetensors")
    base = load_file(tmp_path / "runs/low/model/model.safetensors")
    assert merged.keys() == base.keys()
    name = "model.layers.0.mlp.up_proj.weight"
    assert 0 < (merged[name] - base[name]).abs().max() < 0.05
