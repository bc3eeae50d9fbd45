"""What the scheduler of the torch engine shares: prompts of equal tokens and equal images, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence as Series
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from rlcore.errors import EngineError  # noqa: E402
from rlcore.types import Completion, MediaSpan, Prompt, Sampling, TokenIds  # noqa: E402
from rlcore_rollout.engines.torch.decoder import Decoder  # noqa: E402
from rlcore_rollout.engines.torch.prefill import CHUNK, TOKEN_PAD  # noqa: E402
from rlcore_rollout.engines.torch.prompts import LANES  # noqa: E402
from rlcore_rollout.engines.torch.scheduler import Scheduler  # noqa: E402
from rlcore_rollout.engines.torch.sequences import Sequence, Session, common_prefix  # noqa: E402
from rlcore_rollout.engines.torch.weights import read_weights  # noqa: E402
from torch_models import build, needs_equal_rows, prompts  # noqa: E402

PAD = 7
PICTURE = (1, 2, PAD, PAD, PAD, 3)
"""A prompt with three placeholder tokens from position 2 on."""


def picture(sha256: str | None, ids: Series[int] = PICTURE) -> Prompt:
    media = () if sha256 is None else (MediaSpan(sha256=sha256, offset=2, length=3),)
    return Prompt(token_ids=TokenIds(ids), media=media)


class Calls:
    """Runs calls on a scheduler, without an engine around it."""

    def __init__(self, slots: int = 16) -> None:
        self.scheduler = Scheduler(read_weights(build()), slots, keep_all=True)
        self.results: list[Completion | EngineError] = []

    @torch.inference_mode()
    def __call__(self, *asked: tuple[str, Prompt], steps: int | None = None) -> list[Sequence]:
        sampling = Sampling(max_new_tokens=4, temperature=0.0)
        sequences = [
            Sequence(prompt=prompt, sampling=sampling, session=session, limit=4, finish=self.results.append)
            for session, prompt in asked
        ]
        for sequence in sequences:
            self.scheduler.submit(sequence)
        count = 0
        while self.scheduler.busy and count != steps:
            self.scheduler.step()
            count += 1
        return sequences


def test_shared_prompt_is_stored_once_per_row() -> None:
    calls, prompt = Calls(slots=2 * LANES), prompts(1, seed=5, shortest=300, longest=300)[0]
    sequences = calls(*((f"{n}", Prompt(token_ids=TokenIds(prompt))) for n in range(2 * LANES)), steps=1)
    assert len({id(sequence.shared) for sequence in sequences}) == 1
    assert len({sequence.seat for sequence in sequences}) == 2
    assert all(sequence.place < 4 for sequence in sequences), "rows hold what follows the prompt alone"


def test_prompts_are_shared_by_tokens_and_images() -> None:
    calls = Calls()
    one, equal, other, plain = calls(
        ("a", picture("cat")), ("b", picture("cat")), ("c", picture("dog")), ("d", picture(None)), steps=1
    )
    assert one.prompt.token_ids == other.prompt.token_ids == plain.prompt.token_ids
    assert one.shared is equal.shared
    assert len({id(sequence.shared) for sequence in (one, other, plain)}) == 3
    (later,) = calls(("e", picture("dog")))
    assert later.shared is other.shared


@pytest.mark.parametrize(("sha256", "kept"), [("cat", True), ("dog", False), (None, False)])
def test_session_continues_only_with_the_same_images(sha256: str | None, kept: bool) -> None:
    calls = Calls()
    (first,) = calls(("a", picture("cat")))
    longer = [*PICTURE, *first.tokens, 4, 5]
    (second,) = calls(("a", picture(sha256, longer)), steps=1)
    assert (second.shared is first.shared) is kept
    assert second.shared_length == (len(PICTURE) if kept else len(longer))


@pytest.mark.parametrize(
    ("sha256", "offset", "expected"),
    [("cat", 4, 8), ("dog", 4, 4), ("cat", 3, 3), (None, 0, 4)],
    ids=["the same image", "another image", "another place", "no image"],
)
def test_positions_are_reused_up_to_the_first_different_image(sha256: str | None, offset: int, expected: int) -> None:
    def span(sha256: str, offset: int) -> MediaSpan:
        return MediaSpan(sha256=sha256, offset=offset, length=2)

    shared: Any = None  # not asked
    session = Session(tokens=TokenIds(range(8)), media=(span("cat", 4),), shared=shared, row=None)
    media = () if sha256 is None else (span(sha256, offset),)
    prompt = Prompt(token_ids=TokenIds(range(12)), media=(*media, span("bird", 9)))
    assert common_prefix(session, prompt) == expected


def with_a_common_start(common: int = 150) -> list[Prompt]:
    """Prompts of different lengths that begin with the same tokens, one of which ends with a chunk."""
    (start,) = prompts(1, seed=6, shortest=common, longest=common)
    ends = [(), *prompts(3, seed=7, shortest=20, longest=70)]
    return [Prompt(token_ids=TokenIds([*start, *end])) for end in (*ends, start[: 2 * CHUNK - common % CHUNK])]


def answers(calls: Calls, asked: list[Prompt]) -> list[Any]:
    """The tokens and log-probabilities of new sessions."""
    sequences = calls(*((f"{len(calls.results)}-{n}", prompt) for n, prompt in enumerate(asked)))
    return [(sequence.tokens, sequence.logprobs) for sequence in sequences]


@needs_equal_rows
def test_prompts_with_a_common_start_have_the_bits_that_they_have_alone() -> None:
    asked = with_a_common_start()
    together, later = answers(Calls(), asked), Calls()
    for n, prompt in enumerate(asked):
        alone = answers(Calls(), [prompt])[0]
        assert together[n] == alone
        assert answers(later, [prompt])[0] == alone, "continues a prefix of an earlier prompt"


def test_common_start_of_prompts_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []
    extend = Decoder.extend

    def counted(self: Decoder, tokens_BT: Any, *others: Any) -> Any:
        computed.append(tokens_BT.numel())
        return extend(self, tokens_BT, *others)

    monkeypatch.setattr(Decoder, "extend", counted)
    asked, calls = with_a_common_start(), Calls()
    answers(calls, asked)
    shared = 150 // CHUNK * CHUNK
    apart = sum(-(-(len(prompt) - shared) // TOKEN_PAD) * TOKEN_PAD for prompt in asked)
    assert sum(computed) == shared + apart
    computed.clear()
    answers(calls, [Prompt(token_ids=TokenIds([*asked[0].token_ids, 5]))])
    assert sum(computed) == TOKEN_PAD * -(-(151 - shared) // TOKEN_PAD)


def test_start_with_another_image_is_not_shared() -> None:
    ids = (*PICTURE, *prompts(1, seed=8, shortest=100, longest=100)[0])
    calls = Calls()
    one, other, equal = calls(
        ("a", picture("cat", ids)), ("b", picture("dog", ids)), ("c", picture("cat", (*ids, 9))), steps=1
    )
    assert one.shared is not None
    assert common_prefix(one.shared, other.prompt) // CHUNK == 0
    assert common_prefix(one.shared, equal.prompt) // CHUNK == 1
