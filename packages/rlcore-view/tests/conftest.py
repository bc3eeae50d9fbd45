"""A small run with everything that the page shows."""

from __future__ import annotations

import array
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from byte_level import byte_level_tokenizer
from pictured_groups import groups as pictured
from rlcore.rollouts.evidence import write_times, write_tokens
from rlcore.rollouts.index import evidence_file, read_index
from rlcore.rollouts.writing import Unfinished, write_record
from rlcore.types import (
    Group,
    Message,
    NumberArray,
    RewardResult,
    Sampling,
    Segment,
    Stop,
    Task,
    Timing,
    ToolCall,
    Trajectory,
    Turn,
)
from rlcore_view.library import Library
from rlcore_view.routes import answer

HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m\ud800 end"
TOKENIZER = byte_level_tokenizer(["the answer is forty two", "print"], 300)
CONFIG = """\
[model]
path = "builtin:tiny-qwen2"  # recipe gsm8k-tools/default:5

[environment]
id = "gsm8k-tools"  # default

[trainer]
steps = 9            # command line: trainer.steps=9
api_key = "secret-of-the-service"
"""
Ask = Callable[..., Any]


def chat(id: str, *rewards: float | None, said: str = "the answer is 42") -> Group:
    """A group whose trajectories call a tool and answer."""
    task = Task(
        id=id, messages=(Message(role="user", content=f"{id}? {HOSTILE}"),), fields={"answer": 42, "x": "y" * 9000}
    )
    return Group(task=task, trajectories=tuple(_trajectory(task, i, reward, said) for i, reward in enumerate(rewards)))


def _trajectory(task: Task, sibling: int, reward: float | None, said: str) -> Trajectory:
    prompt, answer = TOKENIZER.encode("the question").ids, TOKENIZER.encode(f"{said} {sibling} 你好").ids
    call = ToolCall(name="python", arguments={"code": "print(6 * 7)"})
    other = ToolCall(name="calculator", arguments={"expression": "6*7", "digits": 2})
    turns = (
        Turn(kind="observation", start=0, end=len(prompt), messages=task.messages),
        Turn(
            kind="policy",
            start=len(prompt),
            end=len(prompt) + len(answer),
            messages=(Message(role="assistant", content=f"{said} {sibling} 你好", tool_calls=(call, other)),),
            finish_reason="stop",
            policy_version=3,
        ),
    )
    segment = Segment(
        token_ids=(*prompt, *answer),  # type: ignore[arg-type]
        loss_mask=(*(False for _ in prompt), *(True for _ in answer)),  # type: ignore[arg-type]
        logprobs=(*(0.0 for _ in prompt), *(-0.5 for _ in answer)),  # type: ignore[arg-type]
        turns=turns,
    )
    result = RewardResult(value=reward, components={"equal": reward or 0.0}, text="The judge said: fine.")
    return Trajectory(
        task_id=task.id,
        sibling=sibling,
        segments=(segment,),
        stop=Stop.LENGTH if sibling else Stop.DONE,
        reward=reward,
        rewards={"math": result},
        metrics={"tool_errors": float(sibling), "odd": float("nan")},
        sampling=Sampling(max_new_tokens=8, seed=2**60 + sibling),
        times=(Timing("turn", "", 100.5, 2.0), Timing("queue", "", 100.0, 0.5)),
    )


def control() -> Group:
    """An episode of a robot with two cameras."""
    state = NumberArray(dtype="float32", shape=(2, 3), data=array.array("f", [0.5, 1, 2, 3, 4, float("nan")]).tobytes())
    film = NumberArray(dtype="uint8", shape=(2, 4, 6, 3), data=bytes(range(144)))
    planes = NumberArray(dtype="uint8", shape=(2, 3, 4, 6), data=bytes(range(144)))
    turns = tuple(Turn(kind="policy", start=i, end=i + 1, messages=(), reward=float(i)) for i in range(2))
    segment = Segment(
        token_ids=(0, 0),  # type: ignore[arg-type]
        loss_mask=(True, True),  # type: ignore[arg-type]
        logprobs=(-1.0, -2.0),  # type: ignore[arg-type]
        turns=turns,
        arrays={"observation/state": state, "observation/camera": film, "planes": planes},
    )
    task = Task(id="reach", messages=())
    return Group(task=task, trajectories=(Trajectory(task_id="reach", sibling=0, segments=(segment,), reward=1.0),))


def rollouts(run: Path, purpose: str, step: int) -> Path:
    return run / "rollouts" / f"{purpose}-{step:06d}.jsonl.gz"


def values(run: Path, step: int, place: tuple[int, int, int], count: int) -> None:
    """Write values of the tokens of one trajectory."""
    sequence = zip(("step", "group", "sibling", "segment", "count"), (*place, 0, count), strict=True)
    columns = {name: NumberArray.of(array.array("i", [value])) for name, value in sequence}
    numbers = {"logprob": -0.25, "advantage": 1.5, "log_ratio": 0.5}
    columns |= {name: NumberArray.of(array.array("f", [value] * count)) for name, value in numbers.items()}
    write_tokens(run / "evidence" / f"train-{step:06d}.tokens.safetensors", columns, {"share": 0.5})


def write_run(run: Path) -> Path:
    """Write the run: an evaluation with images, carried and dropped groups, a robot, and a step in progress."""
    for name in ("rollouts", "checkpoints/000002", "media", "model", "evidence"):
        (run / name).mkdir(parents=True)
    TOKENIZER.save(str(run / "model" / "tokenizer.json"))
    (run / "config.toml").write_text(CONFIG, encoding="utf-8")
    (run / "asked.toml").write_text('recipe = "gsm8k-tools/default"\noverrides = ["trainer.steps=9"]\n', "utf-8")
    facts = {"time": "2026-11-29T22:06:35+00:00", "python": "3.11", "versions": {"rlcore": "0.1.0"}, "argv": ["a b"]}
    (run / "environment.json").write_text(json.dumps(facts), encoding="utf-8")
    (run / "output.log").touch()
    lines = [json.dumps({"step": step, "time": 5.0, "reward/mean": step / 10, "odd": float("nan")}) for step in (1, 2)]
    (run / "metrics.jsonl").write_text("\n".join([lines[0], '{"step": 1, "da', lines[1], ""]), encoding="utf-8")
    write_record(rollouts(run, "evaluation", 0), pictured(2, siblings=2))
    kept: Mapping[str, Any] = {"fate": "kept", "trained_step": 1, "trained_version": 0, "staleness": 0}
    groups = [chat("a", 0.0, 1.0), chat("b", 0.0, 0.0), chat("c", None, 1.0, said="quicksilver Straße")]
    first = rollouts(run, "train", 1)
    write_record(first, groups, notes=[kept, {"fate": "dropped", "why": "equal"}, {"fate": "carried"}])
    write_times(evidence_file(first, "times.jsonl.gz"), groups)
    places = ("offset", "length", "fate")
    carried = [
        {name: value for name, value in row.items() if name not in places}
        | {"fate": "kept", "trained_step": 2, "trained_version": 1, "staleness": 1}
        for row in read_index(first)
        if row["group"] == 2
    ]
    write_record(rollouts(run, "train", 2), [chat("d", 1.0)], notes=[kept | {"trained_step": 2}], brought=carried)
    values(run, 1, (1, 0, 1), groups[0].trajectories[1].sampled_tokens)
    values(run, 2, (1, 2, 1), groups[2].trajectories[1].sampled_tokens)
    write_record(rollouts(run, "train", 3), [control()], notes=[kept | {"trained_step": 3}])
    growing = Unfinished(run, "train", 4)
    growing.add(chat("e", 1.0, 0.0))
    growing.close()
    return run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The run directory."""
    return write_run(tmp_path / "runs" / "first")


@pytest.fixture
def write_values() -> Callable[..., None]:
    """`values`."""
    return values


@pytest.fixture
def ask(run: Path) -> Ask:
    """Asks a library with the run, as the page does. The answer is JSON."""
    library = Library([run.parent])

    def ask(path: str, **query: str) -> Any:
        return json.loads(json.dumps(answer(library, path, query), allow_nan=False, ensure_ascii=False).encode())

    return ask
