"""Distillation with the command: what is refused, adapters and several processes, and a student that learns."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from chat_folders import TEMPLATES, write_chat_folder
from finished_runs import metrics
from preloaded import rlcore_command
from rlcore.config.messages import ProblemsError
from rlcore.plugins.registry import Registry
from rlcore.session.checks import check_run
from rlcore.session.plan import RunPlan
from rlcore.session.session import RunSession

SMALL = ["model.builder.layers=1", "model.builder.width=32", "model.builder.feed_forward=64"]
SHORT = ["trainer.steps=2", "trainer.tasks_per_step=2", "rollout.max_new_tokens=8", "evaluation.tasks=2"]
WARM = ["warmup.steps=2", "warmup.demonstrations_per_step=4"]


def rlcore(*arguments: str, folder: Path, status: int = 0, timeout_s: float = 900) -> str:
    done = rlcore_command(arguments, folder, timeout_s=timeout_s)
    assert done.returncode == status, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stderr if status else done.stdout


def values(run: Path, name: str) -> list[float]:
    return [row[name] for row in metrics(run) if name in row]


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A policy and a teacher with one tokenizer and template, whose weights cannot be loaded."""
    policy, teacher = tmp_path / "policy", tmp_path / "teacher"
    write_chat_folder(policy, *TEMPLATES["llama"])
    (policy / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 600}), encoding="utf-8")
    (policy / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    shutil.copytree(policy, teacher)
    return policy, teacher


def refusals(policy: Path, teacher: Path, advantage: str = "none", **algorithm: Any) -> str:
    """Return why a run is refused before anything is loaded; empty if it is not."""
    distillation = {"teacher": str(teacher), **algorithm.pop("distillation", {})}
    rewards = {} if advantage == "none" else {"reward": [{"id": "math-numeric-equal"}]}
    values = {
        **rewards,
        "environment": {"id": "gsm8k-tools"},
        "data": {"train": "generated", "evaluation": "generated"},
        "trainer": {"steps": 1, "tasks_per_step": 2},
        "rollout": {"group_size": 1},
        "algorithm": {"advantage": advantage, **algorithm, "distillation": distillation},
        "model": {"path": str(policy)},
    }
    registry = Registry()
    try:
        check_run(RunSession(RunPlan.of(values, registry=registry, purpose="run"), registry))
    except ProblemsError as error:
        return str(error)
    return ""


def test_teacher_with_another_template_or_tokenizer_is_refused(
    folders: tuple[Path, Path],
) -> None:
    policy, teacher = folders
    assert refusals(policy, teacher) == ""
    settings = teacher / "tokenizer_config.json"
    text = settings.read_text(encoding="utf-8")
    settings.write_text(text.replace("Today: ", "Date: "), encoding="utf-8")
    found = refusals(policy, teacher)
    assert "the teacher must have the chat template of the policy" in found
    assert re.search(r"nToday: [^']*' for the policy, and '[^']*nDate: [^']*' for the teacher", found), found
    settings.write_text(text, encoding="utf-8")
    definition = teacher / "tokenizer.json"
    words = json.loads(definition.read_text(encoding="utf-8"))
    words["model"]["vocab"]["A"], words["model"]["vocab"]["B"] = (words["model"]["vocab"][name] for name in "BA")
    definition.write_text(json.dumps(words), encoding="utf-8")
    found = refusals(policy, teacher)
    assert "the teacher must have the tokenizer of the policy" in found
    assert "is 'A' for the policy, and 'B' for the teacher" in found


def test_run_without_rewards_or_groups_needs_a_teacher(folders: tuple[Path, Path]) -> None:
    policy, teacher = folders
    assert "rewards are not trained on" in refusals(policy, teacher, distillation={"teacher": None})
    assert "none trains on the teacher alone" in refusals(policy, teacher, advantage="grpo")
    assert "reverse-kl does not use it" in refusals(policy, teacher, distillation={"beta": 0.1})


@pytest.mark.long
def test_adapter_learns_from_a_run_resumes_and_is_computed_by_two_processes(tmp_path: Path) -> None:
    rlcore("run", "-p", "gsm8k-tools", "name=taught", *SHORT, *WARM, folder=tmp_path)
    taught = ["algorithm.advantage=none", "algorithm.distillation.teacher=runs/taught", "rollout.group_size=1"]
    said = rlcore("run", "-p", "gsm8k-tools", "name=small", *taught, *SMALL, *SHORT, *WARM, folder=tmp_path)
    assert "distillation reverse-kl × 1 from runs/taught" in said
    rlcore("run", "--resume", "runs/small", "trainer.steps=3", folder=tmp_path)
    kl = values(tmp_path / "runs/small", "distillation/kl")
    assert len(kl) == 3
    student = ["model=runs/small/checkpoints/last/model", "warmup.steps=0", "lora.rank=2"]
    options = ["algorithm.distillation.dtype=bfloat16", "algorithm.distillation.divergence=sampled"]
    rlcore("run", "-p", "gsm8k-tools", "name=low", *taught, *student, *options, *SHORT, folder=tmp_path)
    for strategy in ("ddp", "fsdp2"):
        two = [f"name={strategy}", f"strategy.id={strategy}", "strategy.processes=2"]
        rlcore("run", "-p", "gsm8k-tools", *two, *taught, *student[:2], *SHORT, folder=tmp_path)
    rlcore("run", "-p", "gsm8k-tools", "name=one", *taught, *student[:2], *SHORT, folder=tmp_path)
    one, *others = (values(tmp_path / "runs" / name, "distillation/divergence") for name in ("one", "ddp", "fsdp2"))
    for other in others:
        assert other == pytest.approx(one, rel=1e-4)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of the default recipe. It takes 3 minutes on two cores."""
    folder = tmp_path_factory.mktemp("teacher")
    rlcore("run", "-p", "gsm8k-tools", "name=teacher", folder=folder, timeout_s=1700)
    assert values(folder / "runs/teacher", "evaluation/accuracy")[-1] > 0.9
    return folder / "runs/teacher"


def accuracies(seed: int, teacher: Path, folder: Path) -> list[float]:
    options = [f"seed={seed}", "name=student", f"algorithm.distillation.teacher={teacher}"]
    rlcore("run", "-p", "gsm8k-tools", "-r", "distil", *options, folder=folder, timeout_s=1700)
    return values(folder / "runs/student", "evaluation/accuracy")


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_small_student_learns_from_a_teacher_which_calculation_to_type(
    seed: int, teacher: Path, tmp_path: Path
) -> None:
    """The student has a seventh of the teacher's weights, and its demonstrations are mostly wrong."""
    first, *_, last = accuracies(seed, teacher, tmp_path)
    assert first < 0.1
    assert last > 0.4


@pytest.mark.proof
@pytest.mark.timeout(3600)
def test_student_of_an_untrained_teacher_learns_nothing(teacher: Path, tmp_path: Path) -> None:
    """A control: the teacher is the model that the teacher's run started from."""
    assert max(accuracies(0, teacher / "model", tmp_path)) < 0.1
