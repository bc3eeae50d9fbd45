"""``examples/visual-cot``: its files, its prompts, and training on real photos and in two processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from documents import blocks
from example_plugin import search_path
from preloaded import rlcore_command
from qwen_folders import qwen_folder
from rlcore.abilities import ConversationDataset
from rlcore.contracts import RendersImages
from rlcore.session.session import RunSession
from rlcore.types import media_hash
from workspace import ROOT

EXAMPLE = ROOT / "examples" / "visual-cot"
FILES = ("train/base.yaml", "train/sft.yaml", "train/grpo.yaml", "eval/eval.yaml")
PLACES = ("examples/visual-cot/tests", "tests/*", "packages/*/tests")
DATA = os.environ.get("RLCORE_DATA")
needs_data = pytest.mark.skipif(DATA is None, reason="RLCORE_DATA is not set")


@pytest.fixture
def rlcore(tmp_path: Path) -> Callable[..., str]:
    plugin = {"PYTHONPATH": os.pathsep.join(search_path(EXAMPLE, tmp_path / ".installed")), "OMP_NUM_THREADS": "1"}

    def run(*arguments: str, new_process: bool = False) -> str:
        if new_process:
            command = [sys.executable, "-m", "rlcore", *arguments]
            done = subprocess.run(
                command, cwd=tmp_path, env=os.environ | plugin, capture_output=True, text=True, timeout=600, check=False
            )
        else:
            done = rlcore_command(arguments, tmp_path, environment=os.environ | plugin, timeout_s=1200)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    return run


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_readme_shows_the_files() -> None:
    shown = {block.rest: block.text for block in blocks(EXAMPLE / "README.md") if block.mode == "file"}
    assert shown == {f"configs/{name}": (EXAMPLE / "configs" / name).read_text(encoding="utf-8") for name in FILES}


def test_every_known_defect_has_a_row_and_an_existing_test() -> None:
    page = (EXAMPLE / "defects.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([A-Z]\d+) \| ", page, re.MULTILINE)
    last = {"C": 6, "D": 9, "R": 8, "S": 9, "B": 10, "V": 8, "L": 6}
    assert rows == [*(f"{letter}{number}" for letter, most in last.items() for number in range(1, most + 1))]
    for part in page.split("`"):
        file, _, test = part.partition("::")
        if file.endswith(".py") and test:
            found = [path.read_text(encoding="utf-8") for place in PLACES for path in ROOT.glob(f"{place}/{file}")]
            assert any(f"def {test}(" in text for text in found), part


def test_every_stage_renders_the_same_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The prompt of a rollout is the beginning of the training conversation, of which only the answer is trained."""
    for place in search_path(EXAMPLE, tmp_path / ".installed"):
        monkeypatch.syspath_prepend(place)
    data = {"questions": 20, "held_out": 20}
    run = RunSession.create(
        {"model": {"path": "builtin:tiny-qwen2.5-vl"}, "environment": {"id": "visual-cot"}}
        | {"reward": [{"id": "visual-cot"}], "data": data},
        purpose="evaluation",
    )
    try:
        chat_format = run.chat_format(run.model_folder())
        assert isinstance(chat_format, RendersImages)
        assert isinstance(run.dataset, ConversationDataset)
        task, shown = run.dataset.tasks("train")[0], run.dataset.conversations("train")[0]
        images = {media_hash(image): image for image in task.images}
        prompt, media = chat_format.prompt_with_images(task.messages, (), images)
        ids, mask, spans = chat_format.conversation_with_images(shown.messages, (), images)
        text = chat_format.decode(prompt)
        answer = chat_format.decode([token for token, trained in zip(ids, mask, strict=True) if trained])
    finally:
        run.finished()
    assert list(ids[: len(prompt)]) == list(prompt)
    assert list(spans) == list(media)
    assert [span.length for span in media] == [16]
    assert not any(mask[: len(prompt)])
    assert f"### Question:\n{task.fields['question']}" in text
    assert text.endswith("<|im_start|>assistant\n")
    assert answer == shown.messages[-1].text + "<|im_end|>"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """The files for the photos, with a tiny random model that has the real tokenizer and processor."""
    assert DATA is not None
    qwen_folder(tmp_path / "base", Path(DATA))
    data = tmp_path / "data" / "multimodal_cot"
    data.mkdir(parents=True)
    source = Path(DATA) / "visual_cot_gqa"
    for name in ("images", "test_images"):
        (data / name).symlink_to(source / "images")
    for name, rows in (("train_data", "train_data"), ("dev_data", "dev_data"), ("test", "dev_data")):
        lines = (source / f"{rows}.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        (data / f"{name}.jsonl").write_text("".join(lines[: 40 if name == "train_data" else 5]), encoding="utf-8")
    for name in FILES[1:]:
        text = (EXAMPLE / "configs" / name).read_text(encoding="utf-8")
        text = text.replace("../../qwen/tiny-base", "../../base").replace(
            "max_prompt_length: 512", "max_prompt_length: 2048"
        )
        (tmp_path / "configs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "configs" / name).write_text(text, encoding="utf-8")
    return tmp_path


SMALL = ("rollout.max_new_tokens=8", "evaluation.tasks=5", "trackers.use=['console','jsonl']")


@pytest.mark.long
@pytest.mark.timeout(1200)
@needs_data
def test_photos_go_through_every_stage(photos: Path, rlcore: Callable[..., str]) -> None:
    steps = ("trainer.steps=2", "trainer.conversations_per_step=4", "evaluation.every=2")
    rlcore("run", "-c", "configs/train/sft.yaml", *steps, *SMALL)
    rlcore("merge", str(only(photos / "logs", "*_SFT")), "--out", "qwen/qwen-merged-sft")
    assert (photos / "qwen/qwen-merged-sft/preprocessor_config.json").is_file()
    legacy = ('reward=[{id="visual-cot-legacy"}]', "rollout.group_size=2")  # gives a signal to random texts
    output = rlcore(
        "run", "-c", "configs/train/grpo.yaml", "trainer.steps=1", "trainer.tasks_per_step=4", *legacy, *SMALL
    )
    assert "Saved 5 evaluation samples" in output
    run = only(photos / "logs", "*_GRPO")
    assert {path.name for path in run.iterdir()} >= {"backup", "ckpt", "result", "tensorboard", "output.log"}
    rlcore("eval", "-c", "configs/eval/eval.yaml", "model.path=qwen/qwen-merged-sft", *SMALL[:2])
    rows = read(only(photos / "logs", "*_Evaluator/result/eval_samples_Evaluator.json"))
    assert [row["gt_answer"] for row in rows] == ["No", "Green", "Right", "Chair", "Yes"]
    assert all(row["instruction"].startswith("Please answer based on the image content:") for row in rows)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_two_processes_write_every_sample_once(tmp_path: Path, rlcore: Callable[..., str]) -> None:
    small = ("trainer.steps=1", "trainer.tasks_per_step=2", "rollout.group_size=2", "rollout.max_new_tokens=4")
    two = ("strategy.id=ddp", "strategy.processes=2", "model.device=cpu", "warmup.steps=1", "name=run")
    rlcore(
        *("run", "-p", "visual-cot", *two, *small, "evaluation.tasks=7", "evaluation.every=1"),
        *("data.held_out=20", "data.questions=20", 'observers=["visual-cot"]'),
        new_process=True,
    )
    rows = read(tmp_path / "runs/run/result/eval_samples_run.json")
    assert sorted(row["image_id"] for row in rows) == [f"evaluation-{number}" for number in range(7)]
