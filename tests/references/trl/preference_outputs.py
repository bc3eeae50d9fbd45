"""Run TRL's preference and reward trainers on seeded tensors: ``python preference_outputs.py OUTPUT`` (safetensors).

The file has two parts, in float64:

- ``logprobs/…``: log-probabilities of both answers of each pair, padded, with the mask of their tokens, and for each
  loss of `parity_preferences.LINES` its value and its gradient.
- ``step/…``: the weights of a tiny model, a batch of pairs, and the loss and the gradient of all weights of a step of
  ``DPOTrainer`` and of ``RewardTrainer``.
"""

from __future__ import annotations

import importlib.metadata
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2ForSequenceClassification,
)
from trl import DPOConfig, DPOTrainer, RewardConfig, RewardTrainer
from trl.experimental.cpo import CPOTrainer
from trl.experimental.orpo import ORPOTrainer

sys.path.insert(0, str(Path(__file__).parents[1]))
from parity_preferences import LINES, MODEL, PAIRS, TOKENS, Line, step_batch


def words() -> PreTrainedTokenizerFast:
    """A tokenizer of a few words."""
    known = Tokenizer(models.WordLevel({"a": 0, "<pad>": 1, "<eos>": 2, "b": 3}, unk_token="a"))
    known.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=known, pad_token="<pad>", eos_token="<eos>")


def make_dpo(model: PreTrainedModel, **settings: Any) -> Any:
    """A ``DPOTrainer`` around a model; ``settings`` are those of its configuration class."""
    row = {"prompt": ["a a"] * 2, "chosen": [" a"] * 2, "rejected": [" b"] * 2}
    with tempfile.TemporaryDirectory() as folder:
        trainer = DPOTrainer(
            model=model,
            ref_model=Qwen2ForCausalLM(model.config),
            args=DPOConfig(output_dir=folder, use_cpu=True, bf16=False, report_to=[], **settings),
            train_dataset=Dataset.from_dict(row),
            processing_class=words(),
        )
    trainer.precompute_ref_logps = True
    return trainer


def tiny(kind: type[PreTrainedModel]) -> PreTrainedModel:
    """A model with seeded weights."""
    torch.manual_seed(5)
    return kind(Qwen2Config(**MODEL)).double()


def logprobs(seed: int) -> dict[str, Tensor]:
    """The log-probabilities of pairs: chosen answers in the first half of the rows."""
    generator = torch.Generator().manual_seed(seed)
    shape = (2 * PAIRS, TOKENS)
    lengths_B = torch.randint(2, TOKENS + 1, (2 * PAIRS,), generator=generator)
    mask_BT = torch.arange(TOKENS) < lengths_B[:, None]
    reference_BT = -4 * torch.rand(*shape, generator=generator, dtype=torch.float64)
    moved_BT = reference_BT + 0.5 * torch.randn(*shape, generator=generator, dtype=torch.float64)
    return {"mask": mask_BT, "logprobs": moved_BT.clamp(max=-0.01), "reference": reference_BT}


def dpo_loss(line: Line, case: dict[str, Tensor], leaf: Tensor) -> Tensor:
    """``DPOTrainer._compute_loss`` with given log-probabilities of the tokens."""
    mask_BT, zeros = case["mask"], torch.zeros_like(leaf)
    trainer = make_dpo(tiny(Qwen2ForCausalLM).float(), **line.theirs)
    trainer.model.train()
    answer = types.SimpleNamespace(
        log_probs=leaf * mask_BT, entropy=zeros, mean_logits=zeros, is_top1=zeros.bool(), log_sum_sq_probs=zeros
    )
    chosen_P, rejected_P = (case["reference"] * mask_BT).sum(dim=1).chunk(2)
    first = torch.zeros(len(mask_BT), 1, dtype=torch.long)
    inputs = {
        "input_ids": torch.zeros(len(mask_BT), TOKENS + 1, dtype=torch.long),
        "attention_mask": torch.ones(len(mask_BT), TOKENS + 1, dtype=torch.long),
        "completion_mask": torch.cat([first, mask_BT.long()], dim=1),
        "ref_chosen_logps": chosen_P,
        "ref_rejected_logps": rejected_P,
    }
    return trainer._compute_loss(lambda **_: answer, inputs, False)


def without_reference(line: Line, case: dict[str, Tensor], leaf: Tensor) -> Tensor:
    """The losses of ``CPOTrainer`` and ``ORPOTrainer``."""
    settings = dict(line.theirs)
    name, averages = settings.pop("trainer"), settings.pop("averages")
    sums_B = (leaf * case["mask"]).sum(dim=1)
    chosen_P, rejected_P = (sums_B / case["mask"].sum(dim=1) if averages else sums_B).chunk(2)
    own = types.SimpleNamespace(alpha=0.0, accelerator=types.SimpleNamespace(device=torch.device("cpu")), **settings)
    if name == "orpo":
        return -ORPOTrainer.odds_ratio_loss(own, chosen_P, rejected_P)[0].mean()
    return CPOTrainer.cpo_loss(own, chosen_P, rejected_P)[0].mean()


def steps() -> dict[str, Tensor]:
    """Loss and gradients of a step of both trainers."""
    batch, found = step_batch(), dict[str, Tensor]()
    ids = {"input_ids": batch["ids"], "attention_mask": batch["attention"]}
    policy = tiny(Qwen2ForCausalLM)
    trainer = make_dpo(policy, loss_type=["sigmoid", "sft"], loss_weights=[1.0, 0.2], beta=0.3)
    chosen_P, rejected_P = batch["reference"].chunk(2)
    loss = trainer._compute_loss(
        policy.train(),
        {**ids, "completion_mask": batch["completion"], "ref_chosen_logps": chosen_P, "ref_rejected_logps": rejected_P},
        False,
    )
    found |= kept("dpo", policy, loss)
    scorer = tiny(Qwen2ForSequenceClassification)
    scorer.config.pad_token_id = 1
    with tempfile.TemporaryDirectory() as folder:
        rewards = RewardTrainer(
            model=scorer,
            args=RewardConfig(
                output_dir=folder, use_cpu=True, bf16=False, report_to=[], center_rewards_coefficient=0.05
            ),
            train_dataset=Dataset.from_dict({"chosen": ["a a"] * 2, "rejected": ["a b"] * 2}),
            processing_class=words(),
        )
    loss = rewards.compute_loss(scorer.train(), {**ids, "margin": batch["margin"]})
    return found | kept("reward", scorer, loss)


def kept(name: str, model: PreTrainedModel, loss: Tensor) -> dict[str, Tensor]:
    """The weights, the loss, and the gradients."""
    loss.backward()
    found = {f"step/{name}/weight/{key}": value.detach().clone() for key, value in model.named_parameters()}
    gradients = ((key, value.grad) for key, value in model.named_parameters() if value.grad is not None)
    found |= {f"step/{name}/gradient/{key}": value.clone() for key, value in gradients}
    return found | {f"step/{name}/loss": loss.detach()}


def main(output: str) -> None:
    """Compute all lines and steps, and write them."""
    found: dict[str, Tensor] = {}
    for seed in (1, 2):
        case = logprobs(seed)
        found |= {f"logprobs/{seed}/{name}": value for name, value in case.items()}
        for line in LINES:
            leaf = case["logprobs"].clone().requires_grad_()
            loss = (without_reference if "trainer" in line.theirs else dpo_loss)(line, case, leaf)
            loss.backward()
            key = f"logprobs/{seed}/{line.name}"
            found |= {f"{key}/value": loss.detach(), f"{key}/gradient": leaf.grad}
    found |= steps()
    save_file(found, output, metadata={name: importlib.metadata.version(name) for name in ("trl", "torch")})


if __name__ == "__main__":
    main(*sys.argv[1:])
