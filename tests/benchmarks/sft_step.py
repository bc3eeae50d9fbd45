"""Supervised training against TRL's SFTTrainer: trained tokens per second, same model, same tokens, same batches.

The model is ``builtin:tiny-qwen2`` (0.9 million parameters). ``one-problem`` trains on generated demonstrations of
gsm8k-tools, which have similar lengths. ``one-to-eight`` joins one to eight demonstrations into a conversation, so that
lengths vary as in real data. Each side trains one epoch in steps of 32 conversations with AdamW in float32. It is
measured from its first to its last step, without start-up, loading and encoding. TRL uses padding, because its packing
requires a GPU kernel, and no gradient checkpointing. Both sides must reach the same mean loss.

With ``--model FOLDER``, both train this model in float32 on conversations of one to eight demonstrations.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from comparison import Absent, Comparison
from rlcore.session.session import RunSession
from rlcore_trainer.supervised.trainer import SupervisedTrainer

sys.path.insert(0, str(Path(__file__).parents[1] / "references"))

import peers

VERSIONS = ("rlcore-trainer", "torch", "transformers")
CONVERSATIONS_PER_STEP, RATE = 32, 5e-4
AGREE = 0.03
"""Maximum relative difference of the mean losses. Batches have the same size but another order."""


def conversations(count: int, most: int) -> list[dict[str, Any]]:
    """Rows of the dataset ``chat``: one to ``most`` demonstrations each."""
    from rl_plugin_gsm8k_tools.calculator import calculator
    from rl_plugin_gsm8k_tools.demonstrations import as_rows
    from rl_plugin_gsm8k_tools.problems import demonstrations

    rng, drawn, rows = random.Random(0), demonstrations(count * most, seed=0), []
    for _ in range(count):
        messages = [row for _ in range(rng.randint(1, most)) for row in as_rows(next(drawn))]
        rows.append({"messages": messages, "tools": [calculator.schema.as_json()]})
    return rows


class Noted(RunSession):
    """A run that stores its metrics."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Store them."""
        self.__dict__.setdefault("noted", []).append(dict(metrics))


def make(rows: Path, model: str) -> tuple[Any, SupervisedTrainer]:
    """A run and its trainer, after reading the data and before training."""
    run = Noted.create(
        {
            "model": {"path": model, "dtype": "float32"},
            "data": {"id": "chat", "train": [str(rows)]},
            "trainer": {
                "id": "sft",
                "conversations_per_step": CONVERSATIONS_PER_STEP,
                "learning_rate": RATE,
                "schedule": "constant",
            },
            "evaluation": {"every": 0},
        }
    )
    return run, SupervisedTrainer(run)


def comparison(
    name: str, folder: Path, count: int, most: int, *, floor: float, smoke: bool, source: str = "builtin:tiny-qwen2"
) -> Comparison:
    """One epoch on each side."""
    missing = peers.missing("trl") if smoke else ""
    rows, tokens, model = folder / f"{name}.jsonl", folder / f"{name}.json", folder / f"{name}-model"
    rows.write_text("\n".join(map(json.dumps, conversations(count, most))), encoding="utf-8")
    run, trainer = make(rows, source)
    shutil.copytree(run.model_folder(), model)
    encoded = [
        {"input_ids": list(one.token_ids), "assistant_masks": [int(counts) for counts in one.loss_mask]}
        for one in trainer.data.train
    ]
    trained = sum(sum(row["assistant_masks"]) for row in encoded)
    tokens.write_text(json.dumps(encoded), encoding="utf-8")
    losses: dict[str, float] = {}

    def ours() -> float:
        run, trainer = make(rows, str(model))
        started = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - started
        assert sum(metrics["tokens/trained"] for metrics in run.noted) == trained
        losses["ours"] = sum(metrics["loss"] for metrics in run.noted) / len(run.noted)
        print(f"  rlcore: {trained / seconds:,.0f} trained tokens/s", flush=True)
        return seconds

    def peer() -> float:
        output = folder / f"{name}-measured.json"
        peers.run("trl", "sft_seconds.py", str(model), str(tokens), str(output), str(CONVERSATIONS_PER_STEP), str(RATE))
        measured = json.loads(output.read_text(encoding="utf-8"))
        assert measured["tokens"] == trained
        assert abs(measured["loss"] / losses["ours"] - 1) < AGREE, (measured, losses)
        print(f"  trl {measured['version']}: {trained / measured['seconds']:,.0f} trained tokens/s", flush=True)
        return float(measured["seconds"])

    return Comparison(name=name, ours=ours, peer=Absent(missing) if missing else peer, floor=floor)


_KEPT: list[tempfile.TemporaryDirectory[str]] = []
"""Temporary folders, removed at the end of the process."""


def comparisons(*, smoke: bool = False, model: Path | None = None) -> list[Comparison]:
    """Conversations of many lengths, and of similar lengths, where packing saves little padding."""
    _KEPT.append(tempfile.TemporaryDirectory())
    folder = Path(_KEPT[-1].name)
    if model is not None:
        return [comparison("model", folder, 64, 8, floor=1.3, smoke=smoke, source=str(model))]
    return [
        comparison("one-to-eight", folder, 32 if smoke else 320, 8, floor=1.5, smoke=smoke),
        comparison("one-problem", folder, 32 if smoke else 640, 1, floor=1.0, smoke=smoke),
    ]
