"""A generated run with many trajectories, to measure what reads runs.

20 steps in groups of 8, messages of about 1,500 characters, 400 tokens, of which 300 are trained.
"""

from __future__ import annotations

import array
import json
import random
from collections.abc import Iterator
from pathlib import Path

from rlcore.rollouts.evidence import write_times, write_tokens
from rlcore.rollouts.index import evidence_file
from rlcore.rollouts.writing import write_record
from rlcore.types import (
    Group,
    Logprobs,
    LossMask,
    Message,
    NumberArray,
    RewardResult,
    Sampling,
    Segment,
    Stop,
    Task,
    Timing,
    TokenIds,
    ToolCall,
    Trajectory,
    Turn,
)

STEPS, SIBLINGS = 20, 8
TOKENS, PROMPT = 400, 100
WORDS = 180
"""Of an answer: about 1,200 characters."""
VOCABULARY = 600
RARE = "quicksilver"
"""A word in one of 1,000 trajectories."""
CONFIG = """\
[model]
path = "builtin:tiny-qwen2"  # default

[environment]
id = "gsm8k-tools"  # default

[trainer]
steps = 20  # default
"""


def write_large_run(folder: Path, trajectories: int) -> None:
    """Write a run directory with about this many trajectories."""
    for name in ("rollouts", "checkpoints", "media", "evidence"):
        (folder / name).mkdir(parents=True)
    (folder / "config.toml").write_text(CONFIG, encoding="utf-8")
    (folder / "output.log").touch()
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 9))) for _ in range(2_000)]
    rows = []
    for step in range(1, STEPS + 1):
        groups = [_group(rng, words, f"{step}-{place}") for place in range(-(-trajectories // STEPS // SIBLINGS))]
        path = folder / "rollouts" / f"train-{step:06d}.jsonl.gz"
        kept = {"fate": "kept", "trained_step": step, "trained_version": step, "staleness": 0}
        write_record(path, groups, notes=[kept] * len(groups))
        write_times(evidence_file(path, "times.jsonl.gz"), groups)
        write_tokens(evidence_file(path, "tokens.safetensors"), _columns(rng, step, len(groups)), {"share": 1.0})
        rewards = [one.reward for group in groups for one in group.trajectories if one.reward is not None]
        rows.append(
            {"step": step, "time": 1e9 + step, "reward/mean": sum(rewards) / len(rewards), "loss": rng.random()}
        )
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def _group(rng: random.Random, words: list[str], id: str) -> Group:
    question = Message(role="user", content=" ".join(rng.choices(words, k=WORDS // 4)))
    task = Task(id=id, messages=(question,), fields={"answer": str(rng.randint(0, 999))})
    prompt = rng.choices(range(VOCABULARY), k=PROMPT)
    return Group(task=task, trajectories=tuple(_trajectory(rng, words, task, prompt, i) for i in range(SIBLINGS)))


def _trajectory(rng: random.Random, words: list[str], task: Task, prompt: list[int], sibling: int) -> Trajectory:
    said = rng.choices(words, k=WORDS)
    said += [RARE] if rng.random() < 0.001 else []
    call = ToolCall(name="calculator", arguments={"expression": f"{rng.randint(0, 99)} + {rng.randint(0, 99)}"})
    middle = PROMPT + (TOKENS - PROMPT) // 2
    turns = (
        Turn(kind="observation", start=0, end=PROMPT, messages=task.messages),
        Turn(kind="policy", start=PROMPT, end=middle, messages=(Message(role="assistant", tool_calls=(call,)),)),
        Turn(kind="policy", start=middle, end=TOKENS, messages=(Message(role="assistant", content=" ".join(said)),)),
    )
    sampled = TOKENS - PROMPT
    segment = Segment(
        token_ids=TokenIds([*prompt, *rng.choices(range(VOCABULARY), k=sampled)]),
        loss_mask=LossMask([False] * PROMPT + [True] * sampled),
        logprobs=Logprobs([0.0] * PROMPT + [-rng.random() for _ in range(sampled)]),
        turns=turns,
    )
    reward = float(rng.random() < 0.3)
    return Trajectory(
        task_id=task.id,
        sibling=sibling,
        segments=(segment,),
        stop=Stop.LENGTH if rng.random() < 0.05 else Stop.DONE,
        rewards={"math-numeric-equal": RewardResult(value=reward, components={"equal": reward, "readable": 1.0})},
        reward=reward,
        metrics={"turns": 2.0, "tool_calls": 1.0, "tool_errors": float(rng.random() < 0.01)},
        sampling=Sampling(max_new_tokens=300, seed=rng.getrandbits(40)),
        times=tuple(Timing(kind, "", 1e9 + rng.random(), rng.random()) for kind in ("queue", "turn", "turn", "reward")),
    )


def _columns(rng: random.Random, step: int, groups: int) -> dict[str, NumberArray]:
    """Random values of all trained tokens."""
    places = [(step, group, sibling, 0, TOKENS - PROMPT) for group in range(groups) for sibling in range(SIBLINGS)]
    columns = {name: _numbers("i", column) for name, column in zip(_SEQUENCE, zip(*places, strict=True), strict=True)}
    values = array.array("f", (rng.uniform(-2, 0) for _ in range(TOKENS - PROMPT))) * len(places)
    return columns | {name: _numbers("f", values) for name in ("logprob", "advantage", "entropy", "log_ratio")}


_SEQUENCE = ("step", "group", "sibling", "segment", "count")


def _numbers(code: str, values: Iterator[float] | tuple[int, ...] | array.array[float]) -> NumberArray:
    return NumberArray.of(array.array(code, values))


__all__ = ["RARE", "write_large_run"]
