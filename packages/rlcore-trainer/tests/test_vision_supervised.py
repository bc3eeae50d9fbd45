"""Supervised training on conversations with images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from rlcore.errors import DataError, UserError
from rlcore.images import ImageProcessor, image_size
from rlcore.types import Demonstration, ImagePart, MediaSpan, Message, TextPart, media_hash
from rlcore_trainer.batching.conversations import ConversationEncoder
from rlcore_trainer.config import SupervisedConfig
from rlcore_trainer.distributed.ranks import Ranks
from rlcore_trainer.distributed.strategies.single import SingleProcess, SingleProcessConfig
from rlcore_trainer.learner.learner import Learner, offer_training
from rlcore_trainer.learner.trained_policy import TrainedPolicy
from rlcore_trainer.policy.causal_lm import CausalLanguageModel
from rlcore_trainer.supervised.data import encode
from test_supervised import FORMAT, Chats, equal, trained
from two_processes import two_processes
from vision_models import IMAGE, picture, processor_of, vision_folder

HEADERS = {"user": 51, "assistant": 50}
END = 49


class Pictures:
    """A chat format of single words and images, each between two marks."""

    placeholder_token_ids = (IMAGE, IMAGE + 2, IMAGE + 3)

    def __init__(self, processor: ImageProcessor | None) -> None:
        self.image_processor = processor

    def conversation(self, messages: Sequence[Message], tools: object = ()) -> tuple[list[int], list[bool]]:
        return self.conversation_with_images(messages, tools, {})[:2]

    def conversation_with_images(
        self, messages: Sequence[Message], tools: object, images: Mapping[str, bytes]
    ) -> tuple[list[int], list[bool], list[MediaSpan]]:
        ids: list[int] = []
        mask: list[bool] = []
        media: list[MediaSpan] = []
        for message in messages:
            parts = (TextPart(text=message.content),) if isinstance(message.content, str) else message.content
            ids.append(HEADERS[message.role])
            for part in parts:
                if isinstance(part, TextPart):
                    ids += [int(word[1:]) for word in part.text.split()]
                    continue
                assert self.image_processor is not None
                columns, rows = (side // self.image_processor.token_side for side in image_size(images[part.sha256]))
                ids.append(IMAGE + 2)
                span = MediaSpan(sha256=part.sha256, offset=len(ids), length=rows * columns, rows=rows, columns=columns)
                media.append(span)
                ids += [IMAGE] * span.length + [IMAGE + 3]
            ids.append(END)
            sampled = message.role == "assistant"
            mask += [False] + [sampled] * (len(ids) - len(mask) - 1)
        return ids, mask, media

    def prompt_with_images(self, *_: Any) -> Any:
        raise NotImplementedError

    observation_with_images = prompt_with_images


def shown(data: bytes, question: str, answer: str) -> Demonstration:
    content = (ImagePart.of(data), TextPart(text=question))
    messages = (Message(role="user", content=content), Message(role="assistant", content=answer))
    return Demonstration(messages=messages, images=(data,))


def texts() -> Demonstration:
    return Demonstration(messages=(Message(role="user", content="w1 w2"), Message(role="assistant", content="w3 w4")))


def encoded(rows: list[Demonstration], *, limit: int = 10_000, **config: Any) -> Any:
    return encode(rows, Pictures(ImageProcessor()), SupervisedConfig(**config), limit=limit)  # type: ignore[arg-type]


def test_images_are_fitted_once_and_shared() -> None:
    data = picture(100, 60, 1)
    rows = [shown(data, "w1", "w2"), shown(data, "w3", "w4"), texts()]
    first, second, third = encoded(rows).sequences
    (name,) = first.images
    assert image_size(first.images[name]) == (112, 56)
    assert media_hash(first.images[name]) == name == first.media[0].sha256
    assert second.images[name] is first.images[name]
    assert (first.media[0].rows, first.media[0].columns, first.media[0].length) == (2, 4, 8)
    assert (third.images, third.media) == ({}, ())


def test_images_are_never_trained() -> None:
    (sequence,) = encoded([shown(picture(56, 56, 1), "w1", "w2 w3")]).sequences
    span = sequence.media[0]
    assert not any(sequence.loss_mask[span.offset : span.offset + span.length])
    assert sequence.trained == 3


def test_truncation_never_cuts_an_image_in_two() -> None:
    data = picture(112, 112, 1)
    user = Message(role="user", content=(ImagePart.of(data), TextPart(text="w1")))
    answer = Message(role="assistant", content="w2")
    row = Demonstration(messages=(user, answer, user, answer), images=(data,))
    (whole,) = encoded([row]).sequences
    second = whole.media[1]
    for limit in range(second.offset + 1, second.offset + second.length):
        (cut,) = encoded([row], limit=limit, on_long="cut").sequences
        assert len(cut) == second.offset
        assert cut.media == whole.media[:1]
    (kept,) = encoded([row], limit=second.offset + second.length, on_long="cut").sequences
    assert kept.media == whole.media


def test_conversations_with_unusable_images_are_counted() -> None:
    narrow = picture(1000, 2, 1)
    rows = [shown(b"no image", "w1", "w2"), shown(narrow, "w1", "w2"), shown(picture(56, 56, 1), "w1", "w2")]
    found = encoded(rows)
    assert (len(found.sequences), found.unreadable) == (1, 2)
    assert "conversation 1" in found.sentence("training", 99)


def test_images_without_bytes_are_refused() -> None:
    row = shown(picture(56, 56, 1), "w1", "w2")
    with pytest.raises(DataError, match="without bytes"):
        ConversationEncoder(Pictures(ImageProcessor())).sequence(  # type: ignore[arg-type]
            Demonstration(messages=row.messages), "a conversation"
        )


@pytest.mark.parametrize("chat_format", [FORMAT, Pictures(None)])
def test_models_without_images_refuse_conversations_with_images(chat_format: Any) -> None:
    with pytest.raises(UserError, match="vision-language"):
        encode([shown(picture(56, 56, 1), "w1", "w2")], chat_format, SupervisedConfig(), limit=99)


class PictureChats(Chats):
    """A run on conversations with images."""

    def chat_format(self, folder: Path) -> Any:
        return Pictures(processor_of("qwen2_5_vl"))

    def check_image_input(self) -> None:
        """Accept the chat format, which is not one of a real tokenizer."""


def rows_of(count: int) -> list[Demonstration]:
    """A picture of one brightness, whose word is the answer."""
    dark, bright = picture(56, 84, 1), picture(84, 56, 2)
    return [shown((dark, bright)[i % 2], f"w{i}", f"w{30 + i % 2}") if i % 3 else texts() for i in range(count)]


def a_run(folder: Path, directory: Path | None = None, resume_from: Path | None = None, **tables: Any) -> PictureChats:
    given = {"train": rows_of(10), "held": rows_of(4), **tables}
    return PictureChats(folder, directory, resume_from, given)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vision_folder(tmp_path_factory.mktemp("model"), "qwen2_5_vl")


def test_a_resumed_run_with_images_equals_an_uninterrupted_one(folder: Path, tmp_path: Path) -> None:
    tables: dict[str, Any] = {"trainer": {"epochs": 2}, "checkpoint": {"every": 2, "keep": 9}}
    whole = a_run(folder, tmp_path / "whole", **tables)
    weights = trained(whole)
    trained(a_run(folder, tmp_path / "part", stop_after=3, **tables))
    checkpoint = tmp_path / "part" / "checkpoints" / "000003"
    again = a_run(folder, tmp_path / "part", resume_from=checkpoint, **tables)
    assert equal(trained(again), weights)
    assert again.logged == {step: metrics for step, metrics in whole.logged.items() if step > 3}


def test_a_frozen_tower_keeps_its_weights_in_a_run(folder: Path) -> None:
    run = a_run(folder, model={"path": str(folder), "device": "cpu", "vision_tower": "frozen"})
    weights = trained(run)
    free = trained(a_run(folder))
    tower = [name for name in weights if ".visual." in name]
    start = a_run(folder, trainer={"steps": 1, "learning_rate": 1e-30})
    before = trained(start)
    assert all(torch.equal(weights[name], before[name]) for name in tower)
    assert any(not torch.equal(free[name], before[name]) for name in tower)
    assert not torch.equal(weights["lm_head.weight"], before["lm_head.weight"])


def stepped(folder: Path, strategy: Any) -> dict[str, Any]:
    """The loss, the norm of the gradient and the weights of one step on a batch with images."""
    policy = CausalLanguageModel.load(folder, dtype="float32", device=torch.device("cpu"))
    ranks = Ranks(strategy.processes)
    offer_training(ranks, TrainedPolicy(policy, strategy, SupervisedConfig()))
    with ranks:
        if not ranks.is_main:
            ranks.serve()
            return {}
        sequences = encoded(rows_of(7)).sequences
        loss, norm, _ = Learner(ranks, 40).imitate(sequences, learning_rate=1e-3, max_gradient_norm=1.0)
    return {"loss": loss, "norm": norm, "weights": policy.module.state_dict()}


IN_SEVERAL = """
import sys
from pathlib import Path
import torch
from rlcore_trainer.distributed.config import DataParallelConfig
from rlcore_trainer.distributed.strategies.data_parallel import DataParallel
from test_vision_supervised import stepped
strategy = DataParallel(DataParallelConfig(processes=2))
found = stepped(Path(sys.argv[1]), strategy)
if strategy.processes.rank.index == 0:
    torch.save(found, sys.argv[2])
strategy.processes.end(None)
"""


@pytest.mark.long
@pytest.mark.timeout(300)
def test_two_processes_with_images_equal_one_with_the_whole_batch(folder: Path, tmp_path: Path) -> None:
    with two_processes(IN_SEVERAL, str(folder), str(tmp_path / "found.pt")) as started:
        one = stepped(folder, SingleProcess(SingleProcessConfig()))
        for process in started:
            _, errors = process.communicate(timeout=240)
            assert process.returncode == 0, errors
    two = torch.load(tmp_path / "found.pt")
    assert two["loss"] == pytest.approx(one["loss"], rel=1e-6)
    assert two["norm"] == pytest.approx(one["norm"], rel=1e-4)
    for name, weight in one["weights"].items():
        torch.testing.assert_close(two["weights"][name], weight, rtol=1e-3, atol=2e-4)
