"""Train, resume, evaluate and merge adapters with the command, and reject another base."""

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
from rlcore.models.fingerprint import fingerprint_of_folder
from rlcore.runs.checkpoint_folder import write_manifest
from rlcore_merge.lora import fingerprint
from rlcore_merge.sources.huggingface import read_safetensors
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

pytestmark = pytest.mark.long

SMALL = ["model.builder.layers=1", "model.builder.width=32", "model.builder.feed_forward=64"]
SHORT = ["trainer.steps=2", "trainer.tasks_per_step=2", "rollout.group_size=2", "rollout.max_new_tokens=8"]
SHORT += ["evaluation.tasks=2", "evaluation.every=2", "checkpoint.every=1", "checkpoint.keep=9"]
WARM = ["warmup.steps=2", "warmup.demonstrations_per_step=4"]


def rlcore(*arguments: str, folder: Path, fails: bool = False, **environment: str) -> str:
    if environment:  # libraries read these on import, so start a new process
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
    """A folder with a short run of the default recipe that trains an adapter."""
    folder = tmp_path_factory.mktemp("lora")
    rlcore("run", "-p", "gsm8k-tools", "lora.rank=4", "name=low", *SMALL, *SHORT, *WARM, folder=folder)
    return folder


def test_merged_run_matches_base_with_adapter(trained: Path, tmp_path: Path) -> None:
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


def test_adapter_evaluation_matches_merged_model(trained: Path, tmp_path: Path) -> None:
    checkpoint = trained / "runs/low/checkpoints/000002"
    rlcore("merge", str(checkpoint), "--out", str(tmp_path / "merged"), folder=tmp_path)
    few = ["evaluation.tasks=4", "rollout.max_new_tokens=8", "--json"]
    one = json.loads(rlcore("eval", str(checkpoint), *few, folder=trained))
    two = json.loads(rlcore("eval", "-p", "gsm8k-tools", f"model={tmp_path / 'merged'}", *few, folder=trained))
    for result in (one, two):
        del result["model"], result["seconds"]
    assert one == two


def test_adapter_base_from_hub_cache(trained: Path, tmp_path: Path) -> None:
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

    assert "someone/other" in evaluate("someone/other", fails=True)
    assert json.loads(evaluate("someone/base"))["scored"] == 2  # checked by the fingerprint of the base
    rlcore("merge", "adapter", "--out", "merged", folder=tmp_path, **offline)
    assert (tmp_path / "merged/model.safetensors").exists()


def test_moved_run_resumes_bit_for_bit(equal_rows: None, trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "runs", tmp_path / "elsewhere", symlinks=True)
    rlcore("run", "--resume", "elsewhere/low/checkpoints/000001", folder=tmp_path)
    name = "low/checkpoints/000002/model/adapter_model.safetensors"
    one, two = load_file(trained / "runs" / name), load_file(tmp_path / "elsewhere" / name)
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("dry", [["--dry-run", "-v"], []])
def test_incompatible_resume_leaves_the_run_unchanged(dry: list[str], trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "runs/low/model", tmp_path / "other")
    weights = tmp_path / "other/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"abcd")

    def content() -> dict[str, bytes | None]:
        paths = [path for path in (trained / "runs/low").rglob("*") if path.name != ".lock"]
        return {str(path): path.read_bytes() if path.is_file() else None for path in paths}

    before = content()
    resumed = ["run", "--resume", "runs/low/checkpoints/000001", *dry]
    output = rlcore(*resumed, "model.quantization=nf4", "lora.rank=8", folder=trained, fails=True)
    for text in ("lora.rank = 8", "lora.rank=4", "model.quantization = nf4", "model.quantization=none"):
        assert text in output
    output = rlcore(*resumed, "lora.rank=null", folder=trained, fails=True)
    assert "runs/low/checkpoints/000001" in output
    output = rlcore(*resumed, f"model={tmp_path / 'other'}", folder=trained, fails=True)
    assert str(tmp_path / "other") in output
    assert content() == before


def test_adapter_with_another_base_is_rejected(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "runs/low", tmp_path / "low", symlinks=True)
    for path in (tmp_path / "low/checkpoints").glob("[0-9]*/model/adapter_config.json"):
        settings = json.loads(path.read_text(encoding="utf-8"))
        settings["base_model_name_or_path"] = str(tmp_path / "low/model")
        path.write_text(json.dumps(settings, indent=2), encoding="utf-8")
        write_manifest(path.parents[1], step=int(path.parents[1].name))
    weights = tmp_path / "low/model/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"abcd")
    write_manifest(weights.parent)
    adapter = "low/checkpoints/000002/model"
    for command in (
        ["run", "-p", "gsm8k-tools", "model=low/model", f"lora.adapter={adapter}", "--dry-run", "-v"],
        ["eval", "-p", "gsm8k-tools", f"model={adapter}"],
        ["merge", adapter, "--out", "merged"],
    ):
        output = rlcore(*command, folder=tmp_path, fails=True)
        assert "another base" in output
        assert adapter in output
        assert "low/model" in output.replace(adapter, "")
    assert not (tmp_path / "merged").exists()


def test_fingerprint_matches_merge(trained: Path) -> None:
    folder = trained / "runs/low/model"
    assert fingerprint_of_folder(folder) == fingerprint(read_safetensors(folder / "model.safetensors")[0])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["lora.rank=0"], ["lora.rank"]),
        (["lora.alpha=8"], ["lora.alpha", "lora.rank"]),
        (["lora.rank=4", "lora.dropout=0.1"], ["lora.dropout"]),
        (["lora.rank=4", "lora.rnk=4"], ["lora.rnk", "rank"]),
        (["lora.rank=4", "algorithm.advantage=gae", "critic.model=copy"], ["critic.model"]),
        (["model.quantization=nf4"], ["model.quantization", "lora.rank=16"]),
        (["model.quantization=int8", "lora.rank=4"], ["model.quantization", "nf4"]),
        (
            ["model.quantization=nf4", "lora.rank=4", "algorithm.advantage=gae", "critic.model=copy"],
            ["critic.model"],
        ),
        (["lora.adapter=nowhere"], ["lora.adapter", "nowhere"]),
        (["lora.adapter=runs/low/checkpoints/000002/model", "lora.rank=8", "model=runs/low/model"], ["lora.rank"]),
        (["model=runs/low/checkpoints/000002/model"], ["runs/low", "lora.adapter="]),
        (["model=runs/low"], ["runs/low"]),
    ],
)
def test_conflicting_settings_are_rejected_before_loading(given: list[str], expected: list[str], trained: Path) -> None:
    output = rlcore("run", "-p", "gsm8k-tools", *given, "--dry-run", "-v", folder=trained, fails=True)
    for text in expected:
        assert text in output
    assert "Traceback" not in output


def test_adapter_on_random_base_warns(tmp_path: Path) -> None:
    output = rlcore("run", "-p", "gsm8k-tools", "lora.rank=4", "--dry-run", "-v", folder=tmp_path)
    verdict, *lines = output.splitlines()
    assert verdict.startswith("# verdict")
    assert "random" in next(line for line in lines if line.startswith("# note: "))


def test_run_starts_from_supervised_adapter(trained: Path) -> None:
    given = ["trainer.steps=2", "trainer.demonstrations=32", "trainer.held_out=4", "evaluation.tasks=2"]
    given += ["evaluation.every=2", "lora.rank=4", "lora.dropout=0.1", "lora.rslora=true", "name=sft"]
    output = rlcore("run", "-p", "gsm8k-tools", "-r", "sft", *given, *SMALL, folder=trained)
    assert "rsLoRA of rank 4" in output
    settings = json.loads((trained / "runs/sft/checkpoints/last/model/adapter_config.json").read_text("utf-8"))
    assert settings["lora_dropout"] == 0.1
    given = ["model=runs/sft/model", "lora.adapter=runs/sft/checkpoints/last/model", "warmup.steps=0", "name=rl"]
    output = rlcore("run", "-p", "gsm8k-tools", *SHORT, *given, folder=trained)
    assert "rsLoRA of rank 4" in output
    settings = json.loads((trained / "runs/rl/checkpoints/last/model/adapter_config.json").read_text("utf-8"))
    assert settings["lora_dropout"] == 0.0


def test_quantised_base_trains_evaluates_and_merges(tmp_path: Path) -> None:
    given = ["lora.rank=4", "model.quantization=nf4", "name=low"]
    output = rlcore("run", "-p", "gsm8k-tools", *given, *SMALL, *SHORT, *WARM, folder=tmp_path)
    assert "nf4" in output
    checkpoint = "runs/low/checkpoints/000002"
    few = ["evaluation.tasks=2", "rollout.max_new_tokens=8"]
    assert "nf4" in rlcore("eval", checkpoint, *few, folder=tmp_path)
    rlcore("merge", checkpoint, "--out", "merged", folder=tmp_path)
    merged = load_file(tmp_path / "merged/model.safetensors")
    base = load_file(tmp_path / "runs/low/model/model.safetensors")
    assert merged.keys() == base.keys()
    name = "model.layers.0.mlp.up_proj.weight"
    assert 0 < (merged[name] - base[name]).abs().max() < 0.05
