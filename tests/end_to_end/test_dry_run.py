"""``rlcore run --dry-run`` with real trainers and models: it rejects what a run rejects, and estimates the memory."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from finished_runs import succeeded
from preloaded import rlcore_command
from rlcore.session.checks import check_run
from rlcore.session.session import RunSession
from rlcore_trainer.checks.demonstrations import check
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2_5_VLConfig

pytestmark = pytest.mark.slow

RUN = ("run", "-p", "gsm8k-tools", "trainer.steps=1", "trainer.tasks_per_step=2", "evaluation.every=0")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of the default recipe in a folder."""
    folder = tmp_path_factory.mktemp("built")
    succeeded(rlcore_command([*RUN, "warmup.steps=0", "rollout.group_size=2", "name=one"], folder))
    return folder / "runs/one/model"


def refused_alike(model: Path, tmp_path: Path, *more: str) -> CompletedProcess[str]:
    """Check that a run and a dry run end with the same error, and return the dry run."""
    done, dry = (rlcore_command([*RUN, f"model={model}", *more, *last], tmp_path) for last in ([], ["--dry-run", "-v"]))
    assert (done.returncode, dry.returncode) == (2, 2), (done.stderr, dry.stderr)
    error = [line for line in done.stderr.splitlines() if not line.startswith("the run did not start")]
    assert error == dry.stderr.splitlines()
    assert dry.stdout == ""
    return dry


def test_dry_run_rejects_a_model_without_a_chat_format(built: Path, tmp_path: Path) -> None:
    model = tmp_path / "llama"
    shutil.copytree(built, model)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(**sizes, num_key_value_heads=2, vocab_size=1000, bos_token_id=1, eos_token_id=2)
    LlamaForCausalLM(config).save_pretrained(model)
    settings = json.loads((model / "tokenizer_config.json").read_text(encoding="utf-8"))
    kept = {key: value for key, value in settings.items() if "chat" not in key}
    (model / "tokenizer_config.json").write_text(json.dumps(kept), encoding="utf-8")
    for file in (*model.glob("*.jinja"), model / "rlcore.json"):
        file.unlink(missing_ok=True)
    assert "chat" in refused_alike(model, tmp_path).stderr
    assert (
        rlcore_command([*RUN, f"model={model}", "--dry-run", "-v", "model.chat_format=plain"], tmp_path).returncode == 0
    )


def test_dry_run_rejects_a_vision_language_model(built: Path, tmp_path: Path) -> None:
    model = tmp_path / "vision"
    shutil.copytree(built, model)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    Qwen2_5_VLConfig(text_config={**sizes, "num_key_value_heads": 2, "vocab_size": 1000}).save_pretrained(model)
    assert "error: " in refused_alike(model, tmp_path).stderr


def test_dry_run_counts_tasks_with_long_prompts(built: Path, tmp_path: Path) -> None:
    done = rlcore_command([*RUN, f"model={built}", "rollout.max_prompt_tokens=28", "--dry-run", "-v"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"skipped   [\d,]+ tasks in data.train: a prompt of more than 28 tokens", done.stderr)
    assert "no task of data.train can be used" in refused_alike(built, tmp_path, "rollout.max_prompt_tokens=3").stderr


def test_dry_run_rejects_damaged_weights(built: Path, tmp_path: Path) -> None:
    model = tmp_path / "damaged"
    shutil.copytree(built, model)
    weights = bytearray((model / "model.safetensors").read_bytes())
    weights[-4:] = b"\x00\x00\xc0\x7f"
    (model / "model.safetensors").write_bytes(weights)
    assert "NaN" in refused_alike(model, tmp_path).stderr


def test_dry_run_of_a_given_model_is_ready_and_leaves_nothing(built: Path, tmp_path: Path) -> None:
    done = succeeded(rlcore_command([*RUN, f"model={built}", "--dry-run", "-v"], tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert tomllib.loads(done.stdout)["warmup"]["steps"] == 0
    verdict, memory, disk = done.stdout.splitlines()[:3]
    for part in ("weights", "optimiser", "activations", "logits"):
        assert part in memory
    assert re.search(r"checkpoints of \d+ MiB; [\d.]+ GiB are free", disk)
    assert verdict == "# verdict   ready: settings, data, model and trainer were loaded and checked"


def test_dry_run_reads_the_size_of_a_built_control_policy_from_its_weights(tmp_path: Path) -> None:
    done = succeeded(rlcore_command(["run", "-p", "gymnasium", "-r", "control", "--dry-run", "-v"], tmp_path))
    memory = done.stdout.splitlines()[1]
    assert memory.startswith("# memory")
    assert "model's name" not in memory


def test_dry_run_says_that_a_model_is_too_large(tmp_path: Path) -> None:
    done = rlcore_command([*RUN, "model=acme-test/Large-9000B", "--dry-run", "-v"], tmp_path)
    assert done.returncode in (0, 2)  # with a network, the hub answers that there is no such model
    if done.returncode == 0:
        assert done.stdout.startswith("# verdict   too large for this machine: needs about ")


def test_run_prints_estimated_and_measured_memory(built: Path, tmp_path: Path) -> None:
    done = succeeded(rlcore_command([*RUN, f"model={built}", "rollout.group_size=2"], tmp_path))
    lines = [line for line in done.stdout.splitlines() if line.startswith("memory")]
    assert len(lines) == 2
    assert re.fullmatch(r"memory    peak [\d.]+ [GM]iB, estimated [\d.]+ [GM]iB", lines[1])


def test_doctor_checks_a_named_recipe(tmp_path: Path) -> None:
    done = rlcore_command(["doctor", "-p", "gsm8k-tools", "-r", "qwen2.5-3b", "--json"], tmp_path)
    assert done.returncode == 1
    rows = [row for row in json.loads(done.stdout) if row["check"] == "gsm8k-tools/qwen2.5-3b"]
    assert [row["fix"] for row in rows if row["status"] == "fail"]  # the data is not prepared
    assert any("Qwen/Qwen2.5-3B-Instruct" in row["text"] for row in rows)
    assert any(row["text"].startswith("memory about ") for row in rows)
    assert rlcore_command(["doctor", "-r", "gsm8k-tools/none"], tmp_path).returncode == 2


def spell(word: str) -> str:
    """Spell a word.

    Args:
        word: the word
    """
    return "-".join(word)


@pytest.mark.parametrize(("tool", "noted"), [(f"{__name__}:spell", True), ("calculator", False)])
def test_demonstrations_with_another_tool_are_noted(tool: str, noted: bool) -> None:
    values = {
        "model": {"path": "builtin:tiny-qwen2"},
        "environment": {"id": "gsm8k-tools", "tools": [tool]},
        "data": {"train": "generated"},
        "warmup": {"steps": 1},
        "reward": [{"id": "math-numeric-equal"}],
        "trainer": {"steps": 1},
    }
    found = [one.text for one in check(RunSession.create(values))]
    assert [text.partition(".")[0] for text in found] == noted * [
        "the demonstrations call calculator, which is not among the tools: spell"
    ]


@pytest.mark.parametrize(("evaluation", "noted"), [("generated", True), ("rows.jsonl", False)])
def test_generated_evaluation_beside_rows_is_noted(
    evaluation: str, noted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text('{"question": "2+2?", "answer": "4"}\n', encoding="utf-8")
    values = {
        "model": {"path": "builtin:tiny-qwen2"},
        "environment": {"id": "gsm8k-tools"},
        "data": {"train": "rows.jsonl", "evaluation": evaluation},
        "reward": [{"id": "math-numeric-equal"}],
        "trainer": {"steps": 1, "tasks_per_step": 1},
    }
    notes = [note for note in check_run(RunSession.create(values)) if "evaluations are generated" in note]
    assert len(notes) == noted
