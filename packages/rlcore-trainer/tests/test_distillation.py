"""Distillation in updates and in runs: the gradient, the teacher's part of advantages, and resumed runs."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from bandit_sampler import BAD, GOOD, PROMPT
from rlcore.errors import UserError
from rlcore.plugins.registry import Registry
from rlcore.types import Group
from rlcore_trainer.algorithms.config import AlgorithmConfig, DistillationConfig
from rlcore_trainer.algorithms.configured import configured
from rlcore_trainer.batching.packing import pack
from rlcore_trainer.config import PolicyGradientConfig
from rlcore_trainer.controller.policy_gradient import PolicyGradientTrainer
from rlcore_trainer.controller.updates import PolicyUpdate, Updated
from rlcore_trainer.distributed.ranks import Ranks
from rlcore_trainer.distributed.strategies.single import SingleProcess, SingleProcessConfig
from rlcore_trainer.learner.distillation import Distillation
from rlcore_trainer.learner.learner import Learner, offer_reinforcement
from rlcore_trainer.learner.objective import Objective
from rlcore_trainer.learner.policy_learner import PolicyLearner
from rlcore_trainer.learner.trained_policy import TrainedPolicy
from rlcore_trainer.policy.causal_lm import CausalLanguageModel
from rlcore_trainer.policy.forward import PackedForward
from test_vision_forward import mixed
from token_trajectories import group, only_segment, segment, trajectory
from torch import Tensor
from vision_models import processor_of, vision_language_model

Build = Callable[..., Any]
COEFFICIENT, TEMPERATURE = 0.5, 1.25


def component(kind: str, id: str) -> Any:
    model = Registry().config_model(kind, id)
    return configured(id, Registry().load(kind, id), model and model())


class KeptGradient(SingleProcess):
    """Computes gradients, and leaves the weights as they are."""

    def optimise(self, model: Any, **settings: Any) -> Any:
        made: Any = super().optimise(model, **settings)
        made.step = lambda *_: (0.0, True)
        return made


def update(model: Any, teacher: Any, groups: Sequence[Group], *, loss: str = "clip", **algorithm: Any) -> Updated:
    """Compute the gradient of an update, with micro-batches of a few tokens."""
    table = AlgorithmConfig(**{"rollout_importance_sampling": {"mode": "none"}, "loss": loss, **algorithm})
    trainer, strategy = PolicyGradientConfig(max_tokens_per_batch=20), KeptGradient(SingleProcessConfig())
    advantage, policy_loss = component("advantage", table.advantage.id), component("loss", loss)
    taught = Distillation(CausalLanguageModel(teacher), table.distillation, temperature=TEMPERATURE)
    learner = PolicyLearner(
        TrainedPolicy(CausalLanguageModel(model), strategy, trainer),
        None,
        None,
        Objective(policy_loss, table, comparable=False),
        trainer,
        temperature=TEMPERATURE,
        distillation=taught,
    )
    ranks = Ranks(strategy.processes)
    offer_reinforcement(ranks, learner)
    made = PolicyUpdate(Learner(ranks, 20), advantage, policy_loss, trainer, table)
    return made.run(groups, learning_rate=0.0, key=(0, 1))


def rollout() -> list[Group]:
    """Two groups whose members share a prompt; one has tokens in between that the policy did not write."""
    rows = [[5, 6, 7, 8, 9], [5, 6, 7, 1, 2, 3, 4], [11, 12, 13, 14], [11, 12, 3]]
    masks = [[0, 0, 1, 1, 1], [0, 0, 1, 0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 1]]
    made = [
        trajectory(segment(ids, map(bool, mask)), reward=reward)
        for ids, mask, reward in zip(rows, masks, [1.0, 0.0, 0.25, 0.5], strict=True)
    ]
    return [group(*made[:2]), group(*made[2:])]


def slow_terms(
    model: Any, teacher: Any, groups: Sequence[Group], vocabulary: int = 32
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return log p and log q [T, V], and the tokens, of each trajectory, without packing."""
    found = []
    for one in (member for each in groups for member in each.trajectories):
        ids, mask = (list(values) for values in (only_segment(one).token_ids, only_segment(one).loss_mask))
        places = [t for t, written in enumerate(mask) if written]
        before, ids_1T = [t - 1 for t in places], torch.tensor([ids])
        logits = [net(input_ids=ids_1T).logits[0, before, :vocabulary] for net in (model, teacher)]
        log_p_TV, log_q_TV = (one_TV.double().div(TEMPERATURE).log_softmax(1) for one_TV in logits)
        found.append((log_p_TV, log_q_TV.detach(), torch.tensor([ids[t] for t in places])))
    return found


def gradients(model: Any) -> list[Tensor]:
    found = [one.grad.clone() for one in model.parameters()]
    model.zero_grad()
    return found


FULL = ("reverse-kl", "forward-kl", "jsd")


@pytest.mark.parametrize(
    ("divergence", "loss"), [("sampled", "clip"), *((one, loss) for one in FULL for loss in ("clip", "gspo"))]
)
def test_gradient_is_that_of_the_mean_divergence_of_the_sampled_tokens(
    qwen2: Build, divergence: str, loss: str
) -> None:
    """With `clip`, every token has the same weight, and with `gspo` every trajectory, also in the divergence."""
    model, teacher, groups = qwen2(0, num_hidden_layers=1), qwen2(1, hidden_size=48, num_hidden_layers=1), rollout()
    teacher.resize_token_embeddings(40)  # padded further than the policy
    distillation = {"teacher": "", "divergence": divergence, "beta": 0.3, "coefficient": COEFFICIENT}
    result = update(model, teacher, groups, loss=loss, advantage="none", distillation=distillation)
    found = gradients(model)

    terms = slow_terms(model, teacher, groups, 40 if divergence == "sampled" else 32)
    total, values, entropies = torch.zeros(()).double(), [], []
    count = sum(len(ids_T) for *_, ids_T in terms)
    for log_p_TV, log_q_TV, ids_T in terms:
        p_TV, q_TV, rows = log_p_TV.exp(), log_q_TV.exp(), torch.arange(len(ids_T))
        gap_T = log_q_TV[rows, ids_T] - log_p_TV[rows, ids_T]
        if divergence == "reverse-kl":
            value_T = (p_TV * (log_p_TV - log_q_TV)).sum(1)
        elif divergence == "forward-kl":
            value_T = (q_TV * (log_q_TV - log_p_TV)).sum(1)
        elif divergence == "jsd":
            log_m_TV = (0.3 * q_TV + 0.7 * p_TV).log()
            value_T = (0.3 * q_TV * (log_q_TV - log_m_TV) + 0.7 * p_TV * (log_p_TV - log_m_TV)).sum(1)
        else:
            value_T = -gap_T.detach() * log_p_TV[rows, ids_T]
        weight = 1 / count if loss == "clip" else 1 / (len(terms) * len(ids_T))
        total = total + COEFFICIENT * weight * value_T.sum()
        values.append(weight * torch.stack([value_T, -gap_T, (gap_T > 0).double()]).sum(1).detach())
        entropies.append(weight * -(q_TV * log_q_TV).sum())
    total.backward()
    for one, other in zip(found, gradients(model), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    value, gap, preferred = torch.stack(values).sum(0).tolist()
    assert result.metrics["distillation/kl"] == pytest.approx(gap, abs=1e-5)
    assert result.metrics["distillation/preferred"] == pytest.approx(preferred, abs=1e-5)
    assert result.metrics["distillation/teacher_entropy"] == pytest.approx(float(sum(entropies)), abs=1e-5)
    if divergence != "sampled":
        assert result.metrics["distillation/divergence"] == pytest.approx(value, abs=1e-5)
        assert result.metrics["loss/total"] == pytest.approx(COEFFICIENT * value, abs=1e-5)


@pytest.mark.parametrize("divergence", ["reverse-kl", "sampled"])
def test_rewards_and_distillation_add_up(qwen2: Build, divergence: str) -> None:
    model, teacher = (qwen2(seed, num_hidden_layers=1) for seed in range(2))
    table = {"teacher": "", "divergence": divergence}
    found: list[list[Tensor]] = []
    for advantage, coefficient in (("dr-grpo", 1.0), ("none", 1.0), ("dr-grpo", 1e-12)):
        options = {"advantage": advantage, "distillation": {**table, "coefficient": coefficient}}
        result = update(model, teacher, rollout(), **options)
        found.append(gradients(model))
        if divergence == "sampled" and advantage == "none":  # what is stored for each token is what trained it
            assert result.tokens is not None
            terms = slow_terms(model, teacher, rollout())
            gaps = [(log_q - log_p).gather(1, ids[:, None])[:, 0] for log_p, log_q, ids in terms]
            torch.testing.assert_close(
                result.tokens.columns["advantage"].double(), torch.cat(gaps), atol=2e-3, rtol=1e-3
            )
    for both, taught, rewarded in zip(*found, strict=True):
        torch.testing.assert_close(both, taught + rewarded, rtol=1e-4, atol=1e-6)


def test_teacher_sees_the_images_of_packed_rows() -> None:
    family = "qwen2_5_vl"
    processor = processor_of(family)
    forward, rows = PackedForward(processor), mixed(processor)
    model, teacher = vision_language_model(family), copy.deepcopy(vision_language_model(family))
    for parameter in teacher.parameters():
        parameter.data.mul_(1.1)
    policy, taught = (CausalLanguageModel(one, forward=forward) for one in (model, teacher))
    distillation = Distillation(taught, DistillationConfig(), temperature=1.0)
    rows = [replace(row, weight=0.1 * (i + 1)) for i, row in enumerate(rows)]
    for batch in pack(rows, 60, policy.device):
        with policy.computing():
            expected_M, _ = policy.evaluate(batch)
            found = policy.loss(batch, lambda *_: (torch.zeros(()), {}), loss_of_output=distillation.loss_of(batch))
        with taught.computing():
            teacher_M, entropy_M = taught.evaluate(batch)
        weights_M, (*_, metrics) = batch.weights_M.float(), found.metrics
        gap = (weights_M * (expected_M - teacher_M)).sum()
        torch.testing.assert_close(metrics["distillation/kl"], gap.detach(), rtol=1e-4, atol=1e-5)
        entropy = (weights_M * entropy_M).sum().detach()
        torch.testing.assert_close(metrics["distillation/teacher_entropy"], entropy, rtol=1e-4, atol=1e-5)


def preference(model: Any) -> float:
    """Return the probability of the good token rather than the bad one."""
    with torch.no_grad():
        logits_V = model(input_ids=torch.tensor([[PROMPT, 4]])).logits[0, -1]
    return float(logits_V[[GOOD, BAD]].softmax(-1)[0])


@pytest.fixture
def teacher_folder(tmp_path: Path, model_folder: Path, qwen2: Build) -> Path:
    """A wider model that gives nearly all its probability to the good token."""
    model, folder = qwen2(3, hidden_size=48), tmp_path / "teacher"
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(40):
        ids_BT = torch.tensor([[PROMPT, 4 + i] for i in range(10)])
        loss = -model(input_ids=ids_BT).logits[:, -1].log_softmax(1)[:, GOOD].mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_bytes((model_folder / "tokenizer.json").read_bytes())
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("divergence", ["reverse-kl", "sampled"])
def test_run_without_rewards_learns_from_a_teacher_and_resumes_to_the_same_bits(
    bandit: Build, tmp_path: Path, teacher_folder: Path, divergence: str
) -> None:
    def tables() -> dict[str, Any]:
        distillation = {"teacher": str(teacher_folder), "divergence": divergence}
        return {
            "trainer": {"steps": 10, "tasks_per_step": 8, "learning_rate": 0.01},
            "algorithm": {"advantage": "none", "distillation": distillation},
            "rollout": {"group_size": 1},
            "evaluation": {"every": 0},
            "checkpoint": {"every": 2, "keep": 9},
        }

    def trained(**options: Any) -> Any:
        run = bandit(**options, **tables())
        trainer = PolicyGradientTrainer(run)
        before = preference(trainer.session.policy.module)
        trainer.train()
        return trainer.session.policy.module, run.logged, before

    whole, logged, before = trained(directory="whole")
    if divergence != "sampled":
        assert logged[10]["distillation/divergence"] < 0.5 * logged[1]["distillation/divergence"]
    assert preference(whole) > max(0.9, before)
    trained(directory="cut")
    for later in (tmp_path / "cut/checkpoints").iterdir():  # as if it had been killed after step 4
        if later.name > "000004" and later.is_dir():
            later.rename(later.with_name("." + later.name))
    rest, *_ = trained(directory="cut", resume_from=tmp_path / "cut/checkpoints/000004")
    assert all(torch.equal(one, other) for one, other in zip(whole.parameters(), rest.parameters(), strict=True))


def renamed_token(folder: Path) -> None:
    path = folder / "tokenizer.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"w7"', '"other"'), encoding="utf-8")


def test_teacher_with_another_tokenizer_is_refused_with_the_first_different_token(
    bandit: Build, teacher_folder: Path
) -> None:
    renamed_token(teacher_folder)
    run = bandit(directory=None, algorithm={"distillation": {"teacher": str(teacher_folder)}})
    with pytest.raises(UserError) as raised:
        PolicyGradientTrainer(run)
    assert raised.value.message == "the teacher must have the tokenizer of the policy"
    assert raised.value.found == "token 7 is 'w7' for the policy, and 'other' for the teacher"


def test_teacher_without_a_token_of_the_policy_is_refused(bandit: Build, teacher_folder: Path, qwen2: Build) -> None:
    model = qwen2()
    model.resize_token_embeddings(31)
    model.save_pretrained(teacher_folder)
    path = teacher_folder / "tokenizer.json"
    run = bandit(directory=None, algorithm={"distillation": {"teacher": str(teacher_folder)}})
    with pytest.raises(UserError, match="must know every token"):
        PolicyGradientTrainer(run)
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    del tokenizer["model"]["vocab"]["w31"]
    path.write_text(json.dumps(tokenizer), encoding="utf-8")
    with pytest.raises(UserError) as raised:
        PolicyGradientTrainer(run)
    assert raised.value.found == "token 31 is 'w31' for the policy, and unknown for the teacher"
