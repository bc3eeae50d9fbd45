from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rlcore.types import MediaSpan
from rlcore_trainer.batching.packing import TrainingSequence, pack
from rlcore_trainer.batching.prefix_groups import Family, families_of
from rlcore_trainer.policy.attention.packed import packed_attention_of
from rlcore_trainer.policy.hidden import batch_logprobs
from token_trajectories import sequence

pytestmark = pytest.mark.numeric

CPU = torch.device("cpu")


def branch(
    token_ids: list[int], trained: list[int], *, media: tuple[MediaSpan, ...] = (), **options: Any
) -> TrainingSequence:
    """A segment among several, trained at some places."""
    mask = [t in trained for t in range(len(token_ids))]
    return sequence(token_ids, mask, media=media, **{"shares_any_prefix": True, **options})


def rewritten(seed: int = 0, *, vocabulary: int = 32) -> list[TrainingSequence]:
    """Groups whose trajectories have several segments, each of which repeats a beginning of the one before it."""
    rng = random.Random(seed)
    made = []
    for _ in range(rng.randint(1, 3)):
        prompt = [rng.randrange(vocabulary) for _ in range(rng.randint(1, 8))]
        for _ in range(rng.randint(1, 3)):
            tokens, segments = list(prompt), rng.randint(1, 4)
            for number in range(segments):
                start = len(tokens)
                tokens = [*tokens, *(rng.randrange(vocabulary) for _ in range(rng.randint(1, 8)))]
                trained = [t for t in range(start, len(tokens)) if rng.random() < 0.7]
                length = len(prompt) if number == 0 else start
                made.append(branch(tokens, trained, prompt_length=length, shares_any_prefix=segments > 1))
                tokens = tokens[: rng.randint(1, len(tokens))]
    rng.shuffle(made)
    return made


def by_whole_prompts(rows: list[TrainingSequence]) -> list[Family]:
    """Families of sequences with one segment each, by a slow loop."""
    members: dict[object, list[int]] = {}
    for i, row in enumerate(rows):
        if row.fed:
            members.setdefault(tuple(row.token_ids[: row.prompt_length]) or i, []).append(i)
    found = []
    for each in members.values():
        prompt = max(min(rows[i].fed, rows[i].prompt_length) for i in each) if len(each) > 1 else 0
        found.append(Family(tuple(each), prompt, tuple(rows[i].fed for i in each)))
    return found


@given(st.integers(0, 2000))
def test_single_segment_sequences_share_only_whole_prompts(seed: int) -> None:
    rng = random.Random(seed)
    rows = []
    for _ in range(rng.randint(1, 4)):
        prompt = [rng.randrange(3) for _ in range(rng.randint(1, 5))]
        for _ in range(rng.randint(1, 4)):
            response = [rng.randrange(3) for _ in range(rng.randint(0, 5))]
            mask = [False] * len(prompt) + [rng.random() < 0.6 for _ in response]
            rows.append(sequence(prompt + response, mask, prompt_length=len(prompt) * (rng.random() < 0.8)))
    rng.shuffle(rows)
    assert families_of(rows) == by_whole_prompts(rows)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("max_tokens", [1, 20, 10_000])
def test_shared_contexts_do_not_change_logprobs_or_gradients(
    qwen2: Callable[..., Any], seed: int, max_tokens: int
) -> None:
    model, rows = qwen2(tie_word_embeddings=True).double(), rewritten(seed)
    parameters = list(model.parameters())
    results = []
    for case in (rows, [sequence(row.token_ids, row.loss_mask) for row in rows]):
        found: dict[int, torch.Tensor] = {}
        with packed_attention_of(model):
            for batch in pack(case, max_tokens, CPU):
                logprobs = batch_logprobs(model, batch)[0]
                for i in batch.sequence_M.unique().tolist():
                    assert i not in found
                    found[i] = logprobs[batch.sequence_M == i]
            total = sum((value * (i + 1)).sum() for i, value in found.items())
            results.append((found, torch.autograd.grad(total, parameters)))
    (shared, gradients), (apart, expected) = results
    assert shared.keys() == apart.keys() == {i for i, row in enumerate(rows) if row.trained}
    for i in shared:
        assert len(shared[i]) == rows[i].trained
        torch.testing.assert_close(shared[i], apart[i], rtol=0, atol=1e-5)
    for one, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@given(st.integers(0, 2000))
def test_families_contain_every_sequence_once_and_never_feed_more(seed: int) -> None:
    rows = rewritten(seed, vocabulary=2)
    found = families_of(rows)
    assert sorted(i for family in found for i in family.members) == [i for i, row in enumerate(rows) if row.fed]
    assert [family.members[0] for family in found] == sorted(family.members[0] for family in found)
    assert sum(family.fed for family in found) <= sum(row.fed for row in rows)
    for family in found:
        beginnings = {tuple(rows[i].token_ids[: min(family.prompt, rows[i].fed)]) for i in family.members}
        longest = max(beginnings, key=len)
        assert len(longest) == family.prompt
        assert all(longest[: len(one)] == one for one in beginnings)


def test_completion_in_a_later_context_is_fed_once() -> None:
    first, second = [5, 6, 1, 2], [5, 6, 1, 2, 7, 3, 4]
    rows = [branch(first, [2, 3]), branch(second, [5, 6])]
    (batch,) = pack(rows, 100, CPU)
    assert batch.token_ids_1N.tolist() == [[5, 6, 1, 2, 7, 3]]
    assert batch.before_M.tolist() == [1, 2, 4, 5]
    assert batch.targets_M.tolist() == [1, 2, 3, 4]
    assert batch.sequence_M.tolist() == [0, 0, 1, 1]


def test_longer_prefix_is_shared_if_it_saves_more() -> None:
    """Two trajectories with one prompt of 2 tokens: the segments of each have 6 tokens in common."""
    rows = [branch([1, 2, *[middle] * 4, *[end] * 3], [7, 8]) for middle in (3, 4) for end in (5, 6)]
    assert [(family.members, family.prompt) for family in families_of(rows)] == [((0, 1), 6), ((2, 3), 6)]
    short = [branch([1, 2, 9, 9, middle, *[end] * 3], [6, 7]) for middle in (3, 4) for end in (5, 6)]
    assert [(family.members, family.prompt) for family in families_of(short)] == [((0, 1, 2, 3), 4)]


def test_whole_prompt_is_never_shared_in_part() -> None:
    """Tasks with a common beginning stay apart, as they are without segments; a segment may join their prompt."""
    tasks = [sequence([1, 2, 3, *rest], [False] * 4 + [True] * 2, prompt_length=4) for rest in ([4, 8, 8], [5, 8, 8])]
    assert [family.members for family in families_of(tasks)] == [(0,), (1,)]
    segments = [branch([1, 2, 3, 4, 7, 7], [4, 5]), branch([1, 2, 3, 4, 9, 9], [4, 5])]
    found = families_of([*tasks, *segments])
    assert [(family.members, family.prompt) for family in found] == [((0, 2, 3), 4), ((1,), 0)]


def picture(name: str, offset: int = 2, length: int = 3) -> MediaSpan:
    return MediaSpan(sha256=name * 64, offset=offset, length=length)


@pytest.mark.parametrize("shares_any_prefix", [False, True])
def test_different_images_with_equal_tokens_are_not_shared(shares_any_prefix: bool) -> None:
    tokens = [[1, 2, 9, 9, 9, 4, end, end] for end in (5, 6, 5, 6)]
    rows = [
        branch(ids, [6, 7], media=(picture(name),), prompt_length=6, shares_any_prefix=shares_any_prefix)
        for ids, name in zip(tokens, "aabb", strict=True)
    ]
    # Six tokens with the picture, two tokens before it.
    assert [(family.members, family.prompt) for family in families_of(rows)] == [((0, 1), 6), ((2, 3), 6)]
    found = families_of([rows[0], rows[2]])
    if shares_any_prefix:
        assert [(family.members, family.prompt) for family in found] == [((0, 1), 2)]
    else:
        assert [family.members for family in found] == [(0,), (1,)]
    (batch,) = pack([rows[0], rows[2]], 100, CPU)
    assert batch.token_ids_1N[0].tolist().count(9) == 6


def test_image_at_another_offset_or_of_another_size_is_not_shared() -> None:
    tokens = [1, 2, 9, 9, 9, 9, 4, 5, 5]
    for other in (picture("a", offset=3), picture("a", length=4)):
        rows = [branch(tokens, [7, 8], media=(span,)) for span in (picture("a"), other)]
        assert [family.prompt for family in families_of(rows)] == [2]


def test_trajectory_with_many_segments_is_one_family() -> None:
    rows = [branch([3] * (t + 2), [t + 1]) for t in range(1000)]
    (family,) = families_of(rows)
    assert family.fed == 1000
