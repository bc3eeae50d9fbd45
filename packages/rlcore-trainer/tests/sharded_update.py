"""One process of updates whose weights FSDP2 shards, which prints how much they differ from those of one process."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rlcore.plugins.registry import Registry
from rlcore_models.lora import attach
from rlcore_models.lora_config import LoraTable
from rlcore_models.sharded import put
from rlcore_trainer.algorithms.config import AlgorithmConfig, DistillationConfig
from rlcore_trainer.algorithms.configured import configured
from rlcore_trainer.batching.packing import TrainingSequence
from rlcore_trainer.config import PolicyGradientConfig
from rlcore_trainer.distributed.adamw import AdamW
from rlcore_trainer.distributed.config import FullyShardedConfig, SingleProcessConfig
from rlcore_trainer.distributed.ranks import Ranks
from rlcore_trainer.distributed.strategies.data_parallel import SummedGradients
from rlcore_trainer.distributed.strategies.fully_sharded import FullySharded
from rlcore_trainer.distributed.strategies.single import SingleProcess
from rlcore_trainer.distributed.strategy import Strategy
from rlcore_trainer.learner.critic import Critic
from rlcore_trainer.learner.critic_config import CriticConfig
from rlcore_trainer.learner.distillation import Distillation
from rlcore_trainer.learner.learner import Learner, offer_reinforcement
from rlcore_trainer.learner.objective import Objective
from rlcore_trainer.learner.policy_learner import PolicyLearner, Update
from rlcore_trainer.learner.trained_policy import TrainedPolicy
from rlcore_trainer.policy.causal_lm import CausalLanguageModel
from rlcore_trainer.policy.forward import PackedForward, PlainForward
from rlcore_trainer.policy.model import load_policy
from test_vision_forward import mixed
from token_trajectories import sequence
from torch import nn
from torch.distributed.tensor import DTensor
from transformers import Qwen2Config, Qwen2ForCausalLM
from vision_models import processor_of, vision_language_model

CASES: Mapping[str, Mapping[str, Any]] = {
    "text": {},
    "sequence": {"loss": "gspo"},
    "head": {"critic": "head"},
    "copy": {"critic": "copy"},
    "adapter": {"lora": True},
    "quantised": {"lora": True, "quantised": True},
    "plain": {"forward": PlainForward(), "lengths": [5, 5, 5]},
    "half": {"dtype": torch.bfloat16},
    "images": {"images": "qwen2_5_vl", "tokens": 8},
    "idle": {"lengths": [3]},
    "kept": {"strategy": {"reshard_after_forward": False}},
    "hybrid": {"strategy": {"shard_size": 2}, "critic": "copy"},
    "team": {"team": 2},
    "team-of-all": {"team": 0, "lengths": [60]},
    "team-sequence": {"team": 2, "loss": "gspo"},
    "team-adapter": {"team": 2, "lora": True, "dtype": torch.bfloat16},
    "teacher": {"teacher": "jsd"},
    "teacher-sampled": {"teacher": "sampled"},
    "team-teacher": {"team": 2, "teacher": "reverse-kl"},
    "team-images": {"team": 2, "images": "qwen3_vl", "tokens": 8},
}
"""In ``idle``, a process has nothing to compute. In the others they have different numbers of micro-batches, except for
``images``: one process has images and the other one has not, and the vision tower is trained. With ``team``, so many
processes compute each micro-batch together, 0 for all of them. With ``hybrid``, four processes have two copies."""


class Recording:
    """An optimisation and its strategy, which keep the gradient and do not change the weights."""

    def __init__(self, strategy: Strategy) -> None:
        self.strategy, self.gradients = strategy, dict[str, Any]()
        self.processes, self.shards, self.shard = strategy.processes, strategy.shards, strategy.shard

    def optimise(self, model: nn.Module, **settings: Any) -> Recording:
        made = Recording(self.strategy)
        made.real = self.strategy.optimise(model, **settings)  # type: ignore[attr-defined]
        made.gradients, made.model = self.gradients, model  # type: ignore[attr-defined]
        return made

    def backward(self, loss: torch.Tensor) -> None:
        self.real.backward(loss)  # type: ignore[attr-defined]

    def step(self, *_: Any) -> tuple[float, bool]:
        real: AdamW = self.real  # type: ignore[attr-defined]
        if isinstance(real, SummedGradients):
            real._sum_gradients()
        trained = [name for name, one in self.model.named_parameters() if one.requires_grad]  # type: ignore[attr-defined]
        for name, master in zip(trained, real._masters, strict=True):
            if (found := master.grad) is not None:
                whole = found.full_tensor() if isinstance(found, DTensor) else found
                self.gradients[f"{type(self.model).__name__}.{name}"] = whole.clone()  # type: ignore[attr-defined]
            master.grad = None
        return 0.0, True


def rows(lengths: list[int]) -> list[TrainingSequence]:
    return [
        sequence(
            token_ids=[(5 * i + 3 * t * t) % 30 for t in range(length)],
            loss_mask=[t >= 2 for t in range(length)],
            advantage=(-1.0) ** i * (1 + i),
            weight=0.1,
        )
        for i, length in enumerate(lengths)
    ]


def computed(case: Mapping[str, Any], distributing: Strategy) -> dict[str, Any]:
    """Return what an update computes, in the main process."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}
    model: Any = Qwen2ForCausalLM(
        Qwen2Config(vocab_size=32, num_key_value_heads=2, tie_word_embeddings=True, **sizes)  # type: ignore[arg-type]
    )
    model = model.eval().to(case.get("dtype"))
    if case.get("quantised"):
        model = load_policy(Path(sys.argv[1]), dtype="float32", device=torch.device("cpu"), quantization="nf4")
    given, forward, most = rows(case.get("lengths", [4, 7, 11, 5, 12])), case.get("forward"), case.get("tokens", 12)
    if family := case.get("images"):
        processor = processor_of(family)
        model, forward = vision_language_model(family), PackedForward(processor)
        given = [
            replace(one, advantage=(-1.0) ** i * (1 + i), weight=0.1) for i, one in enumerate(mixed(processor)[3:5])
        ]
    if case.get("lora"):
        attach(model, LoraTable(rank=2), base=Path(sys.argv[1]), seed=0)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                nn.init.normal_(parameter)
    policy = CausalLanguageModel(model, forward=forward or PackedForward())
    processes = distributing.processes
    strategy: Any = Recording(distributing)
    settings = PolicyGradientConfig(max_tokens_per_batch=most)
    if case.get("critic") == "copy":
        folder = Path(sys.argv[2])
        if processes.rank.index == 0:
            CausalLanguageModel(model, Path(sys.argv[1])).save(folder)
        processes.any(False)
        policy = CausalLanguageModel(model, folder, forward=PackedForward())
    trained = TrainedPolicy(policy, strategy, settings)
    critic = Critic(CriticConfig(model=case["critic"]), policy, strategy, settings) if "critic" in case else None
    if critic is not None:
        put(critic._head.weight, torch.linspace(-1, 1, 32)[None])
    chosen, registry = case.get("loss", "clip"), Registry()
    options: Any = registry.config_model("loss", chosen)
    loss = configured(chosen, registry.load("loss", chosen), options and options())
    objective = Objective(loss, AlgorithmConfig(entropy=0.1), comparable=False)  # type: ignore[call-arg]
    teacher = taught(case["teacher"], distributing) if "teacher" in case else None
    local = PolicyLearner(trained, None, critic, objective, settings, distillation=teacher)
    with Ranks(processes) as ranks:
        offer_reinforcement(ranks, local)
        ranks.offer(weights=lambda: {f"sent {one.name}": one.tensor.clone() for one in policy.weights()})
        if not ranks.is_main:
            ranks.serve()
            return {}
        learner = Learner(ranks, most)
        numbered = dict(enumerate(given))
        known = {"old": learner.logprobs(numbered, "policy")}
        if case.get("teacher") == "sampled":
            known["teacher"] = learner.logprobs(numbered, "teacher")
        if critic is not None:
            known["values"] = learner.values(numbered)
            known["returns"] = {i: torch.linspace(-1, 1, one.trained) for i, one in numbered.items()}
        tokens = sum(one.trained for one in given)
        asked = Update(learning_rate=0.0, tokens=tokens, weight=0.1 * tokens)
        alone = numbered if critic is not None and not critic.shares_trunk else None
        _, metrics, *_ = learner.update(asked, policy=numbered, critic=alone, known=known)
        made = {name: one.clone() for name, one in strategy.gradients.items()}
        imitated_loss, *_ = learner.imitate(
            [replace(one, weight=0.0) for one in given], learning_rate=0.0, max_gradient_norm=1.0
        )
        joined = {name: torch.cat([found[i] for i in sorted(found)]) for name, found in known.items()}
        numbers = {
            "loss": torch.tensor(imitated_loss),
            **{name: torch.tensor(value) for name, value in metrics.items()},
        }
        sent = ranks.call_all("weights")[0]
        imitated = {f"imitated {name}": one for name, one in strategy.gradients.items()}
        return made | imitated | joined | numbers | sent


def taught(divergence: Any, strategy: Strategy) -> Distillation:
    """Return a teacher that is wider than the policy."""
    sizes = {"hidden_size": 48, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    model: Any = Qwen2ForCausalLM(Qwen2Config(vocab_size=40, num_key_value_heads=2, **sizes))  # type: ignore[arg-type]
    teacher = CausalLanguageModel(model.eval().requires_grad_(False), forward=PackedForward())
    strategy.shard(teacher.root)
    return Distillation(teacher, DistillationConfig(divergence=divergence), temperature=1.0)


def main() -> None:
    torch.set_num_threads(1)
    count = int(os.environ["WORLD_SIZE"])
    for name, case in CASES.items():
        settings = {"sequence_parallel": case.get("team", 1) or count, **case.get("strategy", {})}
        sharded = FullySharded(FullyShardedConfig(**settings))
        if len(sys.argv) > 3 and name not in sys.argv[3]:
            continue
        found = computed(case, sharded)
        if sharded.processes.rank.index == 0:
            worst, where = largest_difference(found, computed(case, SingleProcess(SingleProcessConfig())))
            print(name, worst, where, flush=True)


def largest_difference(found: Mapping[str, Any], expected: Mapping[str, Any]) -> tuple[float, str]:
    """Return the largest difference in units of the expected tensor, and its name. Tiny tensors count less."""
    assert expected.keys() == found.keys(), expected.keys() ^ found.keys()
    least = 1e-3 * max(float(one.double().norm()) for one in expected.values())
    return max(
        (float((found[name].double() - one.double()).norm()) / max(float(one.double().norm()), least), name)
        for name, one in expected.items()
    )
