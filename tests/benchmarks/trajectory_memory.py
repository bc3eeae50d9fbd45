"""1,000 trajectories of 32,768 tokens: bytes a token in memory and pickled, and the time to packed batches.

Groups of 8 with prompts of 1,024 tokens, then turns of 768 sampled tokens and observations of 256. The other side of
``packed-batches`` is a Python loop over tuples of numbers, on a fiftieth of the trajectories, times fifty; its row is
compared with ours before anything is measured.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from comparison import Comparison
from rlcore.types import Logprobs, LossMask, Segment, TokenIds, Trajectory, Turn
from rlcore_trainer.batching.packing import MicroBatch, TrainingSequence, pack

VERSIONS = ("rlcore-core", "rlcore-trainer", "torch")
TRAJECTORIES, TOKENS, PROMPT, SIBLINGS = 1000, 32_768, 1024, 8
SAMPLED, TURN = 768, 1024
VOCABULARY = 150_000
LARGEST_BYTES = 16.0
"""A token, in memory and pickled: 4 for its id, 8 for its log-probability, 1 for the mask, and little else."""
SHARE = 50
CPU = torch.device("cpu")


def anonymous_memory() -> int:
    """Of this process, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def make(count: int, tokens: int) -> list[Trajectory]:
    """Random trajectories."""
    generator = torch.Generator().manual_seed(0)
    place_T = torch.arange(tokens)
    sampled_T = (place_T >= PROMPT) & ((place_T - PROMPT) % TURN < SAMPLED)
    prompt = Turn(kind="observation", start=0, end=PROMPT, messages=())
    made, prompt_T = [], torch.empty(0)
    for i in range(count):
        ids_T = torch.randint(VOCABULARY, (tokens,), generator=generator, dtype=torch.int32)
        if i % SIBLINGS == 0:
            prompt_T = ids_T[:PROMPT].clone()
        ids_T[:PROMPT] = prompt_T
        logprobs_T = -torch.rand(tokens, generator=generator, dtype=torch.float64) * sampled_T
        segment = Segment(
            token_ids=TokenIds.from_bytes(ids_T.numpy().tobytes()),
            loss_mask=LossMask.from_bytes(sampled_T.numpy().tobytes()),
            logprobs=Logprobs.from_bytes(logprobs_T.numpy().tobytes()),
            turns=(prompt,),
        )
        made.append(Trajectory(task_id=str(i // SIBLINGS), sibling=i % SIBLINGS, segments=(segment,)))
    return made


def packed(trajectories: Sequence[Trajectory], max_tokens: int) -> list[MicroBatch]:
    """The micro-batches of an update."""
    sequences = [
        TrainingSequence(
            token_ids=segment.token_ids,
            loss_mask=segment.loss_mask,
            logprobs=segment.logprobs,
            prompt_length=segment.prompt_length,
            advantage=0.5,
            weight=1.0,
        )
        for trajectory in trajectories
        for segment in trajectory.segments
    ]
    return pack(sequences, max_tokens, CPU)


Plain = tuple[tuple[int, ...], tuple[bool, ...], tuple[float, ...]]


def by_loop(trajectories: Sequence[Plain]) -> dict[str, torch.Tensor]:
    """The tensors of one row, each trajectory with its prompt, by a loop over tuples."""
    ids, positions, before, targets, owners, engine = [], [], [], [], [], []
    advantages: list[float] = []
    weights: list[float] = []
    for i, (token_ids, loss_mask, logprobs) in enumerate(trajectories):
        shift = len(ids)
        trained = [t for t, is_trained in enumerate(loss_mask) if is_trained]
        ids += token_ids[: trained[-1]]
        positions += range(trained[-1])
        before += [shift + t - 1 for t in trained]
        targets += [token_ids[t] for t in trained]
        owners += [i] * len(trained)
        advantages += [0.5] * len(trained)
        weights += [1.0] * len(trained)
        engine += [logprobs[t] for t in trained]
    integers = {"ids": ids, "positions": positions, "before": before, "targets": targets, "owners": owners}
    numbers = {"advantages": advantages, "weights": weights, "engine": engine}
    tensors = {name: torch.tensor(values, dtype=torch.long) for name, values in integers.items()}
    return tensors | {name: torch.tensor(values, dtype=torch.float64) for name, values in numbers.items()}


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """Two budgets of 16 bytes a token, and the time."""
    count, tokens = (SHARE, 2 * TURN + PROMPT) if smoke else (TRAJECTORIES, TOKENS)
    make(1, tokens)
    before = anonymous_memory()
    trajectories = make(count, tokens)
    in_memory = (anonymous_memory() - before) / (count * tokens)
    few = [trajectory.segments[0] for trajectory in trajectories[: max(1, count // SHARE)]]
    plain = [tuple(map(tuple, (one.token_ids, one.loss_mask, one.logprobs))) for one in few]
    (row,) = packed(trajectories[:1], tokens)
    expected = by_loop(plain[:1])
    found = {"ids": row.token_ids_1N[0], "before": row.before_M, "targets": row.targets_M}
    found["engine"] = row.engine_logprobs_M
    assert all(torch.equal(values, expected[name]) for name, values in found.items())
    sampled = sum(trajectory.sampled_tokens for trajectory in trajectories)

    def pickled() -> float:
        size = 0
        for trajectory in trajectories:
            data = pickle.dumps(trajectory)
            size += len(data)
        assert pickle.loads(data) == trajectories[-1]
        return size / (count * tokens)

    def ours() -> float:
        start = time.perf_counter()
        batches = packed(trajectories, 2 * tokens)
        seconds = time.perf_counter() - start
        assert sum(len(batch.targets_M) for batch in batches) == sampled
        return seconds

    def loop() -> float:
        start = time.perf_counter()
        by_loop(plain)
        return (time.perf_counter() - start) * count / len(plain)

    return [
        Comparison(name="bytes-in-memory", ours=lambda: in_memory, peer=LARGEST_BYTES, floor=1.0, unit="B"),
        Comparison(name="bytes-pickled", ours=pickled, peer=LARGEST_BYTES, floor=1.0, unit="B", warm_ups=0),
        Comparison(name="packed-batches", ours=ours, peer=loop, floor=10.0),
    ]
