from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rlcore_trainer.batching.packing import TrainingSequence, divide, pack
from rlcore_trainer.batching.sequence_metrics import split
from rlcore_trainer.batching.sharding import SINGLE_RANK, Rank, fair_size, joined, shards, share
from rlcore_trainer.policy.attention.packed import packed_attention_of
from rlcore_trainer.policy.hidden import batch_logprobs
from token_trajectories import sequence

CPU = torch.device("cpu")
SIZES = st.lists(st.integers(0, 50), max_size=30)
COUNTS = st.integers(1, 5)


@given(st.integers(0, 40), COUNTS)
def test_joined_shares_restore_the_order(items: int, count: int) -> None:
    shares = [share(list(range(items)), Rank(index, count)) for index in range(count)]
    assert joined(shares) == list(range(items))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@given(SIZES, COUNTS)
def test_work_is_divided_once_and_evenly(sizes: list[int], count: int) -> None:
    hands = shards(sizes, count)
    assert sorted(piece for hand in hands for piece in hand) == list(range(len(sizes)))
    loads = [sum(max(1, sizes[piece]) for piece in hand) for hand in hands]
    assert max(loads) - min(loads) <= max([1, *sizes])  # as each piece went to who had least
    assert bool(hands[0]) == bool(sizes)


def test_largest_piece_is_assigned_first() -> None:
    assert shards([1, 5, 3, 3], 2) == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("sizes", "limit", "expected"),
    [
        ([10, 10, 10, 10], 100, 20),  # a share each
        ([10, 10, 10, 10], 15, 15),  # never more than the limit
        ([30, 2], 100, 30),  # enough for everybody: nothing is cut
        ([30], 100, 15),  # cut, so that nobody idles
        ([], 100, 1),
    ],
)
def test_work_is_split_only_for_idle_processes(sizes: list[int], limit: int, expected: int) -> None:
    assert fair_size(sizes, limit, 2) == expected


def test_first_process_draws_like_a_single_process() -> None:
    assert (SINGLE_RANK.key, Rank(0, 3).key, Rank(2, 3).key) == ((), (), (2,))


def families() -> list[TrainingSequence]:
    """Four prompts with three responses each, of different lengths."""
    return [
        sequence(
            token_ids=[3 + prompt] * 4 + [(prompt * 5 + k * 3 + t) % 30 for t in range(2 + prompt + k)],
            loss_mask=[False] * 4 + [True] * (2 + prompt + k),
            prompt_length=4,
        )
        for prompt in range(4)
        for k in range(3)
    ]


@pytest.mark.parametrize(("count", "team_size"), [(1, 1), (2, 1), (3, 1), (7, 1), (4, 2), (3, 3)])
@pytest.mark.parametrize("max_tokens", [1, 12, 1000])
def test_processes_pack_every_trained_token_once(
    qwen2: Callable[..., Any], count: int, team_size: int, max_tokens: int
) -> None:
    model, rows = qwen2(), families()
    found: dict[int, torch.Tensor] = {}
    idle = 0
    with packed_attention_of(model), torch.no_grad():
        for one in (shares := divide(rows, max_tokens, count, team_size=team_size)):
            batches = one.micro_batches(CPU)
            idle += not one.batches
            for batch in batches:
                part = split(batch_logprobs(model, batch)[0], batch.sequence_M)
                assert not part.keys() & found.keys()
                found |= part
        (whole,) = pack(rows, 1000, CPU)
        expected = split(batch_logprobs(model, whole)[0], whole.sequence_M)
    assert idle == 0
    assert len({len(one.micro_batches(CPU)) for one in shares}) == 1
    assert found.keys() == expected.keys()
    for i, row in found.items():
        torch.testing.assert_close(row, expected[i])
