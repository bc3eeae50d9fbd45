"""The trainers on pairs of answers, with the words and the chat format of `test_supervised`."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rlcore.config.schema import ComponentTable
from rlcore.errors import DataError, UserError
from rlcore.models.reward_model import check_reward_model
from rlcore.types import Message, Preference
from rlcore_trainer.algorithms.preferences.config import PreferenceConfig
from rlcore_trainer.algorithms.preferences.dpo import dpo
from rlcore_trainer.algorithms.preferences.simpo import simpo
from rlcore_trainer.batching.packing import divide
from rlcore_trainer.config import PreferenceTrainerConfig, RewardModelTrainerConfig
from rlcore_trainer.policy.model import check_folder
from rlcore_trainer.preferences.check import check
from rlcore_trainer.preferences.data import PairEncoder, scored
from rlcore_trainer.preferences.trainer import PreferenceTrainer, RewardModelTrainer
from test_supervised import END, FORMAT, Chats, chat, equal
from transformers import AutoModelForSequenceClassification

Make = Callable[..., Any]
LOSSES = {"dpo": dpo, "simpo": simpo}


def said(role: str, text: str) -> Message:
    return Message(role=role, content=text)  # type: ignore[arg-type]


def preference(question: str, chosen: str, rejected: str, *earlier: str, margin: float = 0.0) -> Preference:
    roles = ("user", "assistant")
    before = (said(roles[place % 2], text) for place, text in enumerate(earlier))
    return Preference(
        prompt=(*before, said("user", question)),
        chosen=(said("assistant", chosen),),
        rejected=(said("assistant", rejected),),
        margin=margin,
    )


def smaller(count: int, seed: int = 0, *, swapped: bool = False) -> list[Preference]:
    """A number below 10 is preferred to one above, whatever the question is."""
    rng, found = random.Random(seed), []
    for _ in range(count):
        answers = [f"w{rng.randrange(10)}", f"w{rng.randrange(10, 20)}"]
        found.append(preference(f"w{rng.randrange(20)}", *(answers[::-1] if swapped else answers)))
    return found


class Runs(Chats):
    """A run on preferences."""

    def __init__(self, folder: Path, directory: Path | None, resume_from: Path | None, tables: dict[str, Any]) -> None:
        kind, loss = tables.pop("kind", PreferenceTrainerConfig), tables.pop("loss", "dpo")
        trainer = {"pairs_per_step": 4, "learning_rate": 0.01, "epochs": 2, **tables.pop("trainer", {})}
        rows = {"train": tables.pop("train", smaller(10)), "evaluation": tables.pop("held", smaller(4, seed=9))}
        options = tables.pop("options", {})
        super().__init__(folder, directory, resume_from, tables)
        self.rows: Any = rows
        self._options |= {
            "trainer": kind(**trainer),
            "preference": PreferenceConfig(loss=ComponentTable(id=loss)),
            "preference.loss": LOSSES[loss].Config(**options),  # type: ignore[attr-defined]
        }

    def preferences(self, split: str) -> list[Preference]:
        return self.rows[split]  # type: ignore[no-any-return]

    def load(self, kind: str, id: str) -> Any:
        return LOSSES[id] if kind == "preference_loss" else super().load(kind, id)


@pytest.fixture
def pairs(model_folder: Path, tmp_path: Path) -> Make:
    """Makes a run; keyword arguments are tables, and rows of ``train`` and ``held``."""

    def make(directory: str | None = None, resume_from: Path | None = None, **tables: Any) -> Runs:
        return Runs(model_folder, tmp_path / directory if directory else None, resume_from, tables)

    return make


def trained(run: Any, kind: Any = PreferenceTrainer) -> dict[str, torch.Tensor]:
    """The weights after the run."""
    trainer = kind(run)
    trainer.train()
    return {name: value.clone() for name, value in trainer.session.policy.module.state_dict().items()}


def test_only_the_answer_is_trained_and_the_prompt_is_computed_once() -> None:
    pair = PairEncoder(FORMAT).pair(preference("w5", "w6 w7", "w8", "w1", "w2 w3"), "one")
    for sequence, expected in ((pair.chosen, [6, 7, END]), (pair.rejected, [8, END])):
        trained = [token for token, counts in zip(sequence.token_ids, sequence.loss_mask, strict=True) if counts]
        assert trained == expected
    (share,) = divide(pair.sequences, 1, pairs=True)
    ((family,),) = share.batches  # in one micro-batch, although it holds more than one token
    assert family.prompt == pair.chosen.prompt_length
    assert family.fed == family.prompt + 2 + 1
    end = scored(pair.chosen)
    assert (end.trained, end.fed) == (1, len(pair.chosen))


def test_pairs_stay_together_in_every_division() -> None:
    encoder = PairEncoder(FORMAT)
    sequences = [one for row in smaller(9) for one in encoder.pair(row, "one").sequences]
    for processes, budget in ((1, 20), (2, 20), (3, 4096)):
        seen = []
        for share in divide(sequences, budget, processes, pairs=True):
            for batch in share.batches:
                places = {share.places[i] for family in batch for i in family.members}
                assert all(place ^ 1 in places for place in places)
                seen += places
        assert sorted(seen) == list(range(18))


def test_preferences_are_learnt_and_the_reference_is_the_first_policy(pairs: Make) -> None:
    settings = {"steps": 20, "pairs_per_step": 8}
    trained(run := pairs(train=smaller(40), held=smaller(30, seed=9), trainer=settings))
    first, last = run.logged[0], run.logged[20]
    assert first["evaluation/loss"] == pytest.approx(0.6931, abs=1e-3)
    assert first["evaluation/preference/margin"] == pytest.approx(0, abs=1e-4)
    assert last["evaluation/preference/accuracy"] > 0.9
    assert last["evaluation/loss"] < 0.5
    trained(control := pairs(train=smaller(40, swapped=True), held=smaller(30, seed=9), trainer=settings))
    assert control.logged[20]["evaluation/preference/accuracy"] < 0.1  # the labels decide what is learnt


@pytest.mark.parametrize("loss", ["dpo", "simpo"])
def test_resumed_run_equals_an_uninterrupted_run(pairs: Make, loss: str) -> None:
    stop, settings = 3, {"loss": loss, "checkpoint": {"every": 1}}
    expected = trained(whole := pairs("whole", **settings))
    trained(stopped := pairs("stopped", stop_after=stop, **settings))
    last = stopped.directory.path / "checkpoints" / f"{stop:06d}"
    found = trained(resumed := pairs("stopped", resume_from=last, **settings))
    assert equal(expected, found)
    assert resumed.logged == {step: metrics for step, metrics in whole.logged.items() if step > stop}
    newest = (last.parent / "last").resolve()
    if loss == "dpo":
        with pytest.raises(UserError, match="needs the pairs that it started with"):
            PreferenceTrainer(pairs("stopped", resume_from=newest, train=smaller(10, seed=5), **settings))
    else:
        with pytest.raises(UserError, match="needs the log-probabilities of the policy before the first step"):
            PreferenceTrainer(pairs("stopped", resume_from=newest, **{**settings, "loss": "dpo"}))


def test_reward_model_learns_and_is_a_classifier_of_transformers(pairs: Make) -> None:
    settings = {
        "kind": RewardModelTrainerConfig,
        "train": smaller(40),
        "held": smaller(30, seed=9),
        "trainer": {"steps": 20, "pairs_per_step": 8},
        "checkpoint": {"every": 10, "keep": 20},
    }
    expected = trained(run := pairs("whole", **settings), RewardModelTrainer)
    assert run.logged[0]["evaluation/loss"] == pytest.approx(0.6931, abs=1e-3)
    assert run.logged[20]["evaluation/preference/accuracy"] > 0.9
    folder = run.directory.path / "checkpoints" / "000020" / "model"
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    assert equal(expected, model.state_dict())
    pair = PairEncoder(FORMAT).pair(settings["held"][0], "one")  # type: ignore[index]
    scores = [float(model(input_ids=torch.tensor([list(one.token_ids)])).logits.detach()) for one in pair.sequences]
    single = RewardModelTrainer(pairs(resume_from=folder.parent, **{**settings, "held": settings["held"][:1]}))  # type: ignore[index]
    assert single._held_out()["evaluation/preference/margin"] == pytest.approx(scores[0] - scores[1], abs=1e-5)
    check_reward_model(folder, where="a test")
    with pytest.raises(UserError, match="expected a language model"):
        check_folder(folder)
    last = folder.parents[1] / "000010"
    assert equal(expected, trained(pairs(resume_from=last, **settings), RewardModelTrainer))


def test_margin_is_part_of_the_loss(pairs: Make) -> None:
    rows = [preference("w1", "w2", "w3", margin=2.0)]
    run = pairs(kind=RewardModelTrainerConfig, train=rows, held=rows)
    trainer = RewardModelTrainer(run)
    assert trainer._held_out()["evaluation/loss"] == pytest.approx(torch.nn.functional.softplus(torch.tensor(2.0)))


def test_data_of_the_wrong_kind_is_rejected(pairs: Make) -> None:
    run = pairs()
    assert not [one for one in check(run) if one.status == "fail"]
    run.dataset = SimpleNamespace(conversations=lambda split: [chat("w1", "w2")], tasks=lambda split: [])
    with pytest.raises(DataError, match="needs a dataset of preferences") as raised:
        list(check(run))
    assert "trainer.id=sft" in str(raised.value.fix)
    run = pairs(held=[])
    (found,) = [one for one in check(run) if one.status == "fail"]
    assert "held-out pairs" in found.text


def test_long_pairs_are_skipped_or_rejected(pairs: Make) -> None:
    rows = [*smaller(4), preference("w1", "w2", "w3 w4 w5 w6 w7 w8"), preference("w1", "w2", "w2 ")]
    run = pairs(train=rows, trainer={"max_tokens": 8})
    trainer = PreferenceTrainer(run)
    assert (len(trainer.data.train), trainer.data.unused) == (4, 2)
    assert "are the same tokens" in trainer.data.notes[1]
    with pytest.raises(DataError, match="preference 5 is longer than 8 tokens"):
        PreferenceTrainer(pairs(train=rows, trainer={"max_tokens": 8, "on_long": "raise"}))
    with pytest.raises(UserError, match="no training pairs remain"):
        PreferenceTrainer(pairs(trainer={"max_tokens": 2}))
