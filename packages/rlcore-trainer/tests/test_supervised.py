"""The supervised trainer on conversations of a few words; the chat format is one token for a header, one for an end."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rlcore.config.schema import RunConfig
from rlcore.errors import DataError, UserError
from rlcore.runs.progress import Meter, silent
from rlcore.types import Demonstration, Message
from rlcore_models.lora_config import LoraTable
from rlcore_trainer.batching.data_order import Cursor
from rlcore_trainer.batching.packing import TrainingSequence
from rlcore_trainer.config import SupervisedConfig
from rlcore_trainer.controller.schedule import learning_rate
from rlcore_trainer.distributed.adamw import AdamW
from rlcore_trainer.distributed.ranks import Ranks
from rlcore_trainer.distributed.strategies.single import SingleProcess, SingleProcessConfig
from rlcore_trainer.learner.learner import Learner, offer_training
from rlcore_trainer.learner.trained_policy import TrainedPolicy
from rlcore_trainer.policy.causal_lm import CausalLanguageModel
from rlcore_trainer.supervised.check import check
from rlcore_trainer.supervised.data import encode, hold_out, next_batch
from rlcore_trainer.supervised.trainer import SupervisedTrainer

Make = Callable[..., Any]
HEADERS = {"user": 31, "assistant": 30, "tool": 28}
END = 29


def conversation_ids(messages: Sequence[Message], tools: object = ()) -> tuple[list[int], list[bool]]:
    ids: list[int] = []
    mask: list[bool] = []
    for message in messages:
        words = [*(int(word[1:]) for word in message.text.split()), END]
        ids += [HEADERS[message.role], *words]
        mask += [False, *[message.role == "assistant"] * len(words)]
    return ids, mask


FORMAT: Any = SimpleNamespace(conversation=conversation_ids)


def chat(*texts: str) -> Demonstration:
    """User and assistant in turn."""
    roles = ("user", "assistant")
    messages = (Message(role=roles[place % 2], content=text) for place, text in enumerate(texts))  # type: ignore[arg-type]
    return Demonstration(messages=tuple(messages))


def counting(count: int, *, step: int = 1, seed: int = 0) -> list[Demonstration]:
    """The assistant says the number ``step`` behind the user's, once or twice."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        first, second = rng.randrange(20), rng.randrange(20)
        turns = [f"w{first}", f"w{first + step}"]
        found.append(chat(*turns, f"w{second}", f"w{second + step}") if rng.random() < 0.5 else chat(*turns))
    return found


class Chats:
    """Stands in for a `rlcore.session.session.RunSession` without an environment."""

    def __init__(self, folder: Path, directory: Path | None, resume_from: Path | None, tables: dict[str, Any]) -> None:
        self._folder, self.resume_from = folder, resume_from
        self.directory = SimpleNamespace(path=directory) if directory else None
        self.rows = {"train": tables.pop("train", counting(10)), "evaluation": tables.pop("held", counting(4, seed=9))}
        self.stop_after: int | None = tables.pop("stop_after", None)
        trainer = {"conversations_per_step": 4, "learning_rate": 0.01, "epochs": 2, **tables.pop("trainer", {})}
        self._options = {"trainer": SupervisedConfig(**trainer), "strategy": SingleProcessConfig()}
        self._options["lora"] = LoraTable(**tables.pop("lora", {}))
        values: dict[str, Any] = {
            "model": {"path": str(folder), "device": "cpu"},
            "environment": {"id": ""},
            "reward": [],
            "evaluation": {"every": 2},
        }
        self.config = RunConfig(**{**values, **tables})
        self.resolved = SimpleNamespace(
            config=self.config, origin=lambda path: "a test", options=self._options, environments=()
        )
        self.logged: dict[int, dict[str, float]] = {}
        self.said: list[str] = []
        self.saved: list[int] = []
        self.dataset = self

    def conversations(self, split: str) -> list[Demonstration]:
        return self.rows[split]  # type: ignore[no-any-return]

    def tasks(self, split: str) -> list[Any]:
        return []

    def options(self, table: str) -> Any:
        return self._options[table]

    def load(self, kind: str, id: str) -> Any:
        return {"single": SingleProcess}[id]

    def model_folder(self) -> Path:
        return self._folder

    def chat_format(self, folder: Path) -> Any:
        return FORMAT

    def log(self, step: int, metrics: dict[str, float]) -> None:
        self.logged[step] = {
            name: value for name, value in metrics.items() if not name.startswith(("time/", "memory/"))
        }

    def progress(self, phase: str, total: int, unit: str) -> Meter:
        return Meter(phase, total, unit, silent)

    def say(self, text: str) -> None:
        self.said.append(text)

    @property
    def stop_requested(self) -> bool:
        return self.stop_after is not None and max(self.logged, default=0) >= self.stop_after

    def checkpoint_saved(self, step: int, path: Path) -> None:
        self.saved.append(step)


@pytest.fixture
def chats(model_folder: Path, tmp_path: Path) -> Make:
    """Makes a run; keyword arguments are tables, and rows of ``train`` and ``held``."""

    def make(directory: str | None = None, resume_from: Path | None = None, **tables: Any) -> Chats:
        return Chats(model_folder, tmp_path / directory if directory else None, resume_from, tables)

    return make


def trained(run: Any) -> dict[str, torch.Tensor]:
    """The weights after the run."""
    trainer = SupervisedTrainer(run)
    trainer.train()
    return {name: value.clone() for name, value in trainer.session.policy.module.state_dict().items()}


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def sequences(count: int = 7) -> list[TrainingSequence]:
    return encode(counting(count, seed=3), FORMAT, SupervisedConfig(), limit=100).sequences


def gradients(model: Any, batch: list[TrainingSequence], max_tokens: int) -> tuple[float, list[torch.Tensor]]:
    class Kept(AdamW):
        def step(self, learning_rate: float, max_gradient_norm: float) -> tuple[float, bool]:
            found.extend(parameter.grad.clone() for parameter in model.parameters())
            return 0.0, False

    class Keeping(SingleProcess):
        def optimise(self, model: Any, **settings: Any) -> AdamW:
            return Kept(model, **settings)

    model.zero_grad()
    found: list[torch.Tensor] = []
    learner = learner_of(model, max_tokens, Keeping(SingleProcessConfig()))
    loss, _, _ = learner.imitate(batch, learning_rate=0.0, max_gradient_norm=1.0)
    return loss, found


def learner_of(model: Any, max_tokens: int, strategy: SingleProcess) -> Learner:
    ranks = Ranks(strategy.processes)
    offer_training(ranks, TrainedPolicy(CausalLanguageModel(model), strategy, SupervisedConfig()))
    return Learner(ranks, max_tokens)


def test_only_assistant_tokens_are_trained() -> None:
    (one,) = encode([chat("w1 w2", "w3", "w4", "w5 w6")], FORMAT, SupervisedConfig(), limit=100).sequences
    assert [token for token, counts in zip(one.token_ids, one.loss_mask, strict=True) if counts] == [3, END, 5, 6, END]


def test_loss_is_the_mean_over_all_trained_tokens(qwen2: Make) -> None:
    model, batch = qwen2().double(), sequences()
    loss, found = gradients(model, batch, max_tokens=12)
    model.zero_grad()
    losses = []
    for one in batch:
        logits = model(input_ids=torch.tensor([list(one.token_ids)]), use_cache=False).logits[0]
        for t, counts in enumerate(one.loss_mask):
            if counts:
                losses.append(-logits[t - 1].log_softmax(-1)[one.token_ids[t]])
    mean = torch.stack(losses).mean()
    mean.backward()
    expected = mean.item()
    assert loss == pytest.approx(expected, rel=1e-12)
    for parameter, gradient in zip(model.parameters(), found, strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-9, atol=1e-12)
    learner = learner_of(model, 12, SingleProcess(SingleProcessConfig()))
    assert learner.mean_loss(batch) == pytest.approx(expected, rel=1e-12)


def test_gradient_is_independent_of_token_budget_and_order(qwen2: Make) -> None:
    model, batch = qwen2().double(), sequences()
    loss, expected = gradients(model, batch, max_tokens=10_000)
    for changed, budget in ((batch, 1), (batch, 20), (batch[::-1], 20)):
        other, found = gradients(model, changed, budget)
        assert other == pytest.approx(loss, rel=1e-12)
        for one, two in zip(expected, found, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-12)


def test_every_epoch_is_a_different_permutation_of_the_conversations() -> None:
    steps, cursor = list[list[int]](), Cursor()
    for _ in range(6):
        members, cursor = next_batch(cursor, examples=10, per_step=4, seed=5)
        steps.append(members)
    assert [len(members) for members in steps] == [4, 4, 2, 4, 4, 2]
    first, second = list(chain(*steps[:3])), list(chain(*steps[3:]))
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    assert next_batch(Cursor(), examples=10, per_step=4, seed=6)[0] != steps[0]
    others = next_batch(Cursor(position=8), examples=10, per_step=3, seed=5)[0]
    assert sorted(chain(*steps[:2], others)) == list(range(10))  # also with another size from the third step on


@pytest.mark.parametrize("budget", [1, 9, 4096])
def test_schedule_ends_with_the_last_step_for_any_accumulation(chats: Make, budget: int) -> None:
    run = chats(trainer={"lr_warmup_ratio": 0.3, "schedule": "linear", "max_tokens_per_batch": budget, "epochs": 2})
    trained(run)
    rates = [run.logged[step]["learning_rate"] for step in sorted(run.logged) if step]
    assert rates == pytest.approx([0.005, 0.01, 0.01, 0.0075, 0.005, 0.0025])  # six steps, of which two warm up
    assert sum(run.logged[step]["updates"] for step in range(1, 7)) == 6


def test_steps_can_be_set_instead_of_epochs(chats: Make) -> None:
    run = chats(trainer={"steps": 4, "schedule": "cosine"})
    trained(run)
    assert max(run.logged) == 4
    assert run.logged[4]["learning_rate"] == pytest.approx(
        learning_rate(4, steps=4, peak=0.01, schedule="cosine"), rel=1e-12
    )
    assert run.logged[4]["data/epoch"] == 1.4  # ten conversations, four in a step


def test_trainer_is_complete_before_training(chats: Make) -> None:
    trainer = SupervisedTrainer(chats())
    parts: list[object] = [trainer, trainer.session, trainer.session.policy, trainer.session.trained]
    before = [set(vars(part)) for part in parts]
    assert trainer.data.train
    trainer.train()
    assert [set(vars(part)) for part in parts] == before


def test_demonstrations_are_learnt(chats: Make) -> None:
    run = chats(
        train=counting(60),
        held=counting(20, seed=9),
        trainer={"steps": 80, "learning_rate": 0.02, "conversations_per_step": 8},
        evaluation={"every": 80},
    )
    trained(run)
    assert run.logged[0]["evaluation/loss"] > 3
    # Half of the trained tokens are ends. Whoever knows just that, and not what follows a number, has 1.5 nats a token.
    assert run.logged[80]["evaluation/loss"] < 1.2
    assert run.logged[80]["evaluation/perplexity"] == pytest.approx(math.exp(run.logged[80]["evaluation/loss"]))


def test_evaluation_runs_before_the_first_and_after_the_last_step(chats: Make) -> None:
    with_it = chats(trainer={"steps": 5}, evaluation={"every": 2})
    without = chats(trainer={"steps": 5}, evaluation={"every": 0})
    assert equal(trained(with_it), trained(without))
    assert [step for step in with_it.logged if "evaluation/loss" in with_it.logged[step]] == [0, 2, 4, 5]
    assert not any("evaluation/loss" in metrics for metrics in without.logged.values())


def test_best_checkpoint_has_the_smallest_evaluation_loss(chats: Make, tmp_path: Path) -> None:
    # What is held out counts the other way: the more is learnt, the worse it gets after the first steps.
    run = chats(
        directory="run",
        train=counting(12),
        held=counting(12, step=2),
        trainer={"steps": 18, "schedule": "constant", "learning_rate": 0.03},
        evaluation={"every": 3},
        checkpoint={"every": 9, "keep": 1},
    )
    trained(run)
    losses = {step: metrics["evaluation/loss"] for step, metrics in run.logged.items() if "evaluation/loss" in metrics}
    best = min((step for step in losses if step), key=lambda step: losses[step])
    assert 0 < best < 18
    links = tmp_path / "run" / "checkpoints"
    assert (links / "best").resolve().name == f"{best:06d}"
    assert (links / "last").resolve().name == "000018"
    assert sorted(path.name for path in links.iterdir() if path.name.isdigit()) == [f"{best:06d}", "000018"]


def test_resumed_run_equals_an_uninterrupted_run(model_folder: Path, qwen2: Make, chats: Make, tmp_path: Path) -> None:
    qwen2(tie_word_embeddings=True, attention_dropout=0.2).save_pretrained(model_folder)
    tables: dict[str, Any] = {
        "trainer": {"epochs": 3, "schedule": "cosine", "lr_warmup_steps": 2, "weight_decay": 0.1},
        "checkpoint": {"every": 2, "keep": 9},
    }
    whole = chats(directory="whole", **tables)
    weights = trained(whole)
    trained(chats(directory="part", stop_after=5, **tables))
    again = chats(directory="part", resume_from=tmp_path / "part" / "checkpoints" / "000005", **tables)
    assert equal(trained(again), weights)
    assert again.logged == {step: metrics for step, metrics in whole.logged.items() if step > 5}
    assert 0 not in again.logged


def test_dropout_differs_between_steps(model_folder: Path, qwen2: Make, chats: Make) -> None:
    qwen2(tie_word_embeddings=True, attention_dropout=0.5).save_pretrained(model_folder)
    run = chats(train=[chat("w1", "w2")], trainer={"steps": 3, "learning_rate": 1e-12}, evaluation={"every": 0})
    trained(run)
    assert len({run.logged[step]["loss"] for step in (1, 2, 3)}) == 3


def test_long_conversations_are_skipped_and_counted(chats: Make) -> None:
    rows = [chat("w1", "w2"), chat("w1", "w2 w3 w4 w5 w6 w7")]
    run = chats(train=rows, trainer={"max_tokens": 8, "epochs": 1})
    trained(run)
    assert run.logged[1]["conversations"] == 1
    assert run.logged[1]["data/unused"] == 1
    assert any("2 training conversations: 1 skipped (longer than 8 tokens)" in line for line in run.said)


def test_long_conversations_are_cut_and_counted() -> None:
    rows = [chat("w1", "w2"), chat("w1", "w2 w3 w4 w5 w6 w7"), chat("w1 w2 w3 w4 w5 w6 w7 w8", "w9")]
    found = encode(rows, FORMAT, SupervisedConfig(on_long="cut"), limit=8)
    assert [list(one.token_ids) for one in found.sequences] == [[31, 1, 29, 30, 2, 29], [31, 1, 29, 30, 2, 3, 4, 5]]
    assert (found.cut, found.untrained, found.skipped) == (1, 1, 0)
    assert found.sentence("training", 8) == (
        "3 training conversations: 1 cut to 8 tokens, 1 skipped (no assistant tokens)"
    )


def test_long_conversations_can_raise_an_error() -> None:
    with pytest.raises(DataError, match="conversation 2 is longer than 8 tokens") as caught:
        encode([chat("w1", "w2"), chat("w1", "w2 w3 w4 w5 w6 w7")], FORMAT, SupervisedConfig(on_long="raise"), limit=8)
    assert caught.value.found == "11 tokens, beginning 'w1'"


def test_model_limits_the_length_by_default(model_folder: Path, qwen2: Make, chats: Make) -> None:
    qwen2(tie_word_embeddings=True, max_position_embeddings=8).save_pretrained(model_folder)
    run = chats(train=[chat("w1", "w2"), chat("w1", "w2 w3 w4 w5 w6 w7")], trainer={"epochs": 1})
    trained(run)
    assert any("longer than 8 tokens" in line for line in run.said)


def test_held_out_conversations_are_not_trained_on() -> None:
    rows = [chat(f"w{i % 6}", f"w{i % 6 + 1}") for i in range(12)]  # each stands there twice
    found = encode(rows, FORMAT, SupervisedConfig(), limit=100).sequences
    train, held = hold_out(found, 3, seed=1)
    contents = [{tuple(one.token_ids) for one in part} for part in (train, held)]
    assert not contents[0] & contents[1]
    assert len(contents[0] | contents[1]) == 6
    assert hold_out(found, 3, seed=2)[1] != held
    with pytest.raises(DataError) as caught:
        hold_out(found, 12, seed=1)
    assert caught.value.where == "trainer.held_out"


def test_dataset_without_evaluation_rows_uses_held_out_conversations(chats: Make) -> None:
    run = chats(held=[], trainer={"held_out": 3, "epochs": 1})
    assert list(check(run)) == []
    trained(run)
    assert any(line.startswith("held out  3 conversations") for line in run.said)
    assert "evaluation/loss" in run.logged[2]


def test_held_out_conversations_without_evaluation_give_a_warning(chats: Make) -> None:
    (found,) = check(chats(held=[], trainer={"held_out": 3}, evaluation={"every": 0}))
    assert found.status == "warn"
    assert found.text.startswith("trainer.held_out has no effect")


def test_evaluation_rows_in_the_training_data_give_a_note(chats: Make) -> None:
    rows = counting(10)
    run = chats(train=rows, held=rows[:2], trainer={"steps": 1})
    trained(run)
    assert any("2 evaluation conversations" in line for line in run.said)


def test_bad_input_is_rejected(chats: Make) -> None:
    for tables, key, fix in (
        ({"held": []}, "evaluation.every", "trainer.held_out"),
        ({"train": []}, "data.train", ""),
        ({"trainer": {"rollouts": True}}, "trainer.rollouts", "add it"),
        ({"trainer": {"steps": 4, "lr_warmup_steps": 4}}, "trainer.lr_warmup_steps", "fewer than 4"),
        ({"trainer": {"lr_warmup_ratio": 0.1, "lr_warmup_steps": 4}}, "trainer.lr_warmup_ratio", "remove one"),
    ):
        found = list(check(chats(**tables)))
        assert {(one.status, one.key) for one in found} == {("fail", key)}
        assert all(fix in one.fix for one in found)
    with pytest.raises(UserError, match="the warm-up of 9 steps"):
        SupervisedTrainer(chats(trainer={"lr_warmup_steps": 9})).train()
    with pytest.raises(UserError) as user:
        SupervisedTrainer(chats(trainer={"max_tokens": 3})).train()
    assert user.value.where == "trainer.max_tokens"


def test_stop_saves_a_checkpoint(chats: Make) -> None:
    run = chats(directory="run", stop_after=3, checkpoint={"every": 0}, evaluation={"every": 0})
    trained(run)
    assert run.saved == [3]
