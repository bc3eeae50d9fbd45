"""Supervised runs with the command and the real chat formats: labels, resuming and tool calls."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from finished_runs import numbers, succeeded
from preloaded import rlcore_command
from rlcore.data.chat_rows import conversation
from rlcore.data.row_images import ImageReader
from rlcore.session.session import RunSession
from rlcore_models.builtin.config import TinyQwen2Config
from rlcore_models.builtin.tiny_qwen2 import build
from rlcore_rollout.chat.plain import PlainFormat
from rlcore_rollout.chat.qwen import Qwen3Format, Qwen25Format
from rlcore_trainer.config import SupervisedConfig
from rlcore_trainer.supervised.data import encode

pytestmark = pytest.mark.long

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
CHAT = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1 + 2? <|im_end|> No <tool_call> from me."},
        {"role": "assistant", "content": "One moment.", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
        {"role": "assistant", "content": "It is 3."},
        {"role": "user", "content": "Thanks!"},
        {"role": "assistant", "content": "My pleasure."},
    ],
    "tools": [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}],
}
ASSISTANT_TURNS = [
    'One moment.\n<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call><|im_end|>',
    "It is 3.<|im_end|>",
    "My pleasure.<|im_end|>",
]
SMALL = ["model.builder.layers=1", "model.builder.width=32", "model.builder.feed_forward=64"]


def rlcore(*arguments: str, folder: Path) -> str:
    return succeeded(rlcore_command(arguments, folder)).stdout


def assert_only_the_assistant_is_trained(chat_format: Any) -> None:
    one, _ = conversation(CHAT, ImageReader(None))
    (sequence,) = encode([one], chat_format, SupervisedConfig(), limit=10_000).sequences
    stretches: list[list[int]] = []
    before = False
    for token, counts in zip(sequence.token_ids, sequence.loss_mask, strict=True):
        if counts and not before:
            stretches.append([])
        if counts:
            stretches[-1].append(token)
        before = bool(counts)
    assert [chat_format.decode(stretch) for stretch in stretches] == ASSISTANT_TURNS
    shown = chat_format.prompt(one.messages[:2], one.tools)
    assert list(sequence.token_ids[: len(shown)]) == shown
    assert not any(sequence.loss_mask[: len(shown)])


def test_labels_cover_assistant_turns_in_plain_format(tmp_path: Path) -> None:
    build(tmp_path / "model", ["add a b One moment It is 3 My pleasure"], 0, TinyQwen2Config(layers=1, width=32))
    assert_only_the_assistant_is_trained(PlainFormat(tmp_path / "model"))


@pytest.mark.skipif("RLCORE_DATA" not in os.environ, reason="requires RLCORE_DATA with tokenizers")
@pytest.mark.parametrize(("kind", "chat_format"), [("qwen2.5-instruct", Qwen25Format), ("qwen3", Qwen3Format)])
def test_labels_cover_assistant_turns_in_qwen_formats(kind: str, chat_format: Any, tmp_path: Path) -> None:
    source = Path(os.environ["RLCORE_DATA"]) / "tokenizers"
    shutil.copytree(source / kind, tmp_path / kind)
    tokenizer = runpy.run_path(str(source / "assemble.py"))["assemble"](kind)
    (tmp_path / kind / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
    assert_only_the_assistant_is_trained(chat_format(tmp_path / kind))


def test_resumed_chat_run_is_identical(tmp_path: Path) -> None:
    rows = []
    for i in range(12):
        messages = [{"role": "user", "content": f"{i}?"}, {"role": "assistant", "content": f"{i + 1}."}]
        rows.append(json.dumps({"messages": messages}))
    (tmp_path / "train.jsonl").write_text("\n".join([*rows, json.dumps(CHAT)]), encoding="utf-8")
    (tmp_path / "dev.jsonl").write_text("\n".join(rows[:3]).replace("?", "!"), encoding="utf-8")
    given = ["trainer.id=sft", "model=builtin:tiny-qwen2", "data.id=chat", "data.train=train.jsonl", "runs=runs"]
    given += ["data.evaluation=dev.jsonl", "trainer.conversations_per_step=4", "trainer.learning_rate=1e-3", *SMALL]
    given += ["evaluation.every=2", "checkpoint.every=2", "checkpoint.keep=9", "trainer.epochs=2"]
    output = rlcore("run", "name=whole", *given, folder=tmp_path)
    assert "13 conversations" in output
    whole = numbers(tmp_path / "runs/whole")
    assert max(whole) == 8
    shutil.copytree(tmp_path / "runs/whole", tmp_path / "runs/part", symlinks=True)
    resumed = rlcore("run", "--resume", "runs/part/checkpoints/000004", folder=tmp_path)
    assert "step 4" in resumed
    assert numbers(tmp_path / "runs/part") == whole
    weights = [tmp_path / "runs" / name / "checkpoints/last/model/model.safetensors" for name in ("whole", "part")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_bad_rows_are_rejected_before_loading(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"messages": [{"role": "user", "content": "x"}]}\n', encoding="utf-8")
    words = [sys.executable, "-m", "rlcore", "run", "trainer.id=sft", "model=builtin:tiny-qwen2", "data.id=chat"]
    words += ["data.train=train.jsonl"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 2
    assert "train.jsonl" in done.stderr
    assert "line 1" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_tiny_model_learns_to_call_the_tool(tmp_path: Path) -> None:
    given = ["trainer.demonstrations=1664", "trainer.epochs=1", "evaluation.tasks=32", "evaluation.every=50"]
    rlcore("run", "-p", "gsm8k-tools", "-r", "sft", "name=sft", *given, folder=tmp_path)
    found = numbers(tmp_path / "runs/sft")
    assert found[0]["evaluation/loss"] > 5
    assert found[0]["evaluation/tool_calls"] == 0
    assert found[50]["evaluation/loss"] < 0.6
    assert found[50]["evaluation/tool_calls"] > 0.9
    assert (tmp_path / "runs/sft/checkpoints/best").resolve().name == "000050"


def test_demonstrations_train_without_an_environment() -> None:
    from rlcore_trainer.supervised.trainer import SupervisedTrainer

    run = RunSession.create(
        {
            "model": {"path": "builtin:tiny-qwen2", "builder": {"layers": 1, "width": 32, "feed_forward": 64}},
            "data": {"id": "gsm8k-tools"},
            "trainer": {"id": "sft", "steps": 2, "demonstrations": 24, "held_out": 8, "conversations_per_step": 8},
            "evaluation": {"every": 2},
        }
    )
    try:
        trainer = SupervisedTrainer(run)
        found = trainer.train()
    finally:
        run.finished()
    assert len(trainer.data.evaluation) == 8
    assert len(trainer.data.train) == 16
    assert found["updates"] == 1
    assert found["evaluation/loss"] > 0
