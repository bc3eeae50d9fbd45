"""Run TRL's own trainers on the parity inputs: ``python parity_outputs.py INPUTS OUTPUTS`` (safetensors).

The trainer is a real one around a model of a few weights; replaced is only where its numbers come from: the
log-probabilities of ``_get_per_token_logps_and_entropies``, the completions of ``_generate`` and the rewards of
``_calculate_rewards``. Loss, advantages and importance weights are computed by TRL's code, in float64.
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
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

sys.path.insert(0, str(Path(__file__).parents[1]))
from parity_cases import of_case
from parity_lines import LINES, Line

PROMPT_TOKENS = 2


def make_trainer(kind: str, *, generations: int, max_completion_length: int, batch: int, **settings: Any) -> Any:
    """A trainer of TRL around a tiny model; ``settings`` are those of its configuration class."""
    words = Tokenizer(models.WordLevel({"a": 0, "<pad>": 1, "<eos>": 2}, unk_token="a"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=4,
            hidden_size=8,
            intermediate_size=8,
            num_hidden_layers=1,
            num_attention_heads=1,
            num_key_value_heads=1,
        )
    )
    configuration, trainer = {"grpo": (GRPOConfig, GRPOTrainer), "rloo": (RLOOConfig, RLOOTrainer)}[kind]
    with tempfile.TemporaryDirectory() as folder:
        return trainer(
            model=model,
            reward_funcs=[lambda completions, **_: [0.0] * len(completions)]
            * len(settings.get("reward_weights") or [1]),
            args=configuration(
                output_dir=folder,
                use_cpu=True,
                report_to=[],
                per_device_train_batch_size=batch,
                num_generations=generations,
                max_completion_length=max_completion_length,
                **settings,
            ),
            train_dataset=Dataset.from_dict({"prompt": ["a"] * batch}),
            processing_class=tokenizer,
        )


def generated(trainer: Any, case: dict[str, Tensor]) -> dict[str, Any]:
    """What TRL's ``_generate_and_score_completions`` makes of given completions, rewards and log-probabilities."""
    mask_BT = case["mask"]
    rows = range(len(mask_BT))
    lengths = [int(mask.nonzero().max()) + 1 if mask.any() else mask.numel() for mask in mask_BT]
    completions = [[0] * length for length in lengths]
    written = [mask_BT[row, : lengths[row]].int().tolist() for row in rows]
    sampled = [case["engine-logprobs"][row, : lengths[row]].tolist() for row in rows]
    prompts = [[0] * PROMPT_TOKENS for _ in rows]
    texts = ["a"] * len(lengths)
    if isinstance(trainer, GRPOTrainer):
        answer: tuple[Any, ...] = (prompts, completions, written, texts, sampled, {}, None, None)
    else:
        answer = (prompts, completions, texts)
    trainer._generate = lambda *_: answer
    several = len(trainer.reward_funcs) > 1
    trainer._calculate_rewards = lambda *_: (
        case["several-rewards"].clone() if several else case["rewards"][:, None].clone()
    )
    longest = max(lengths)
    old_logprobs = (case["old-logprobs"][:, :longest], None, None)
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: old_logprobs
    trainer.model.train()
    return trainer._generate_and_score_completions([{"prompt": "a"} for _ in rows])


def advantage(line: Line, case: dict[str, Tensor]) -> dict[str, Tensor]:
    """TRL's advantage of each trajectory, shown on its trained tokens."""
    settings: dict[str, Any] = dict(line.theirs)
    mask_BT = case["mask"]
    trainer = make_trainer(
        settings.pop("trainer"),
        generations=len(mask_BT) // 2,
        max_completion_length=mask_BT.shape[1],
        batch=len(mask_BT),
        beta=0.0,
        **settings,
    )
    return {"value": generated(trainer, case)["advantages"][:, None] * mask_BT}


def importance_weights(trainer: Any, line: Line, case: dict[str, Tensor]) -> Tensor:
    """The weights for the gap to the engine, ``[B, T]``, by TRL's own code for vLLM."""
    trainer.use_vllm, trainer.vllm_importance_sampling_correction = True, True
    trainer.vllm_importance_sampling_mode = line.theirs["vllm_importance_sampling_mode"]
    trainer.vllm_importance_sampling_clip_min = line.theirs["low"]
    trainer.vllm_importance_sampling_clip_max = line.theirs["high"]
    return generated(trainer, case)["importance_sampling_ratio"].expand(case["mask"].shape)


def correction(line: Line, case: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights alone, on the trained tokens."""
    trainer = make_trainer(
        "grpo",
        generations=len(case["mask"]) // 2,
        max_completion_length=case["mask"].shape[1],
        batch=len(case["mask"]),
    )
    return {"value": importance_weights(trainer, line, case) * case["mask"]}


def loss(line: Line, case: dict[str, Tensor]) -> dict[str, Tensor]:
    """``GRPOTrainer._compute_loss``, summed over micro-batches as the trainer accumulates them."""
    settings: dict[str, Any] = dict(line.theirs)
    micro_batches, beta = settings.pop("micro_batches", 1), settings.pop("beta", 0.0)
    corrected = "vllm_importance_sampling_mode" in settings
    settings = {key: value for key, value in settings.items() if key not in ("low", "high")}
    mask_BT = case["mask"]
    trainer = make_trainer(
        "grpo",
        generations=len(mask_BT) // 2,
        max_completion_length=mask_BT.shape[1],
        batch=len(mask_BT) // micro_batches,
        gradient_accumulation_steps=micro_batches,
        **settings,
    )
    weights_BT = importance_weights(trainer, line, case) if corrected else None
    trainer.beta = beta  # set only now: a trainer that is made with it loads the reference model from a folder
    logprobs_BT = case["logprobs"].clone().requires_grad_()
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = micro_batches
    total = torch.zeros((), dtype=torch.float64)
    for rows in torch.arange(len(mask_BT)).chunk(micro_batches):
        taken_BT = logprobs_BT[rows]
        answer = (taken_BT, torch.zeros_like(taken_BT), None)
        trainer._get_per_token_logps_and_entropies = lambda *_, answer=answer, **__: answer
        inputs = {
            "prompt_ids": torch.zeros(len(rows), PROMPT_TOKENS, dtype=torch.long),
            "prompt_mask": torch.ones(len(rows), PROMPT_TOKENS, dtype=torch.long),
            "completion_ids": torch.zeros(len(rows), mask_BT.shape[1], dtype=torch.long),
            "completion_mask": torch.ones(len(rows), mask_BT.shape[1], dtype=torch.long),
            "tool_mask": mask_BT[rows].long(),
            "advantages": case["advantages"][rows],
            "num_items_in_batch": mask_BT.sum(),
            "old_per_token_logps": case["old-logprobs"][rows],
            "ref_per_token_logps": case["reference-logprobs"][rows],
            "sampling_per_token_logps": case["engine-logprobs"][rows],
        }
        if weights_BT is not None:
            inputs["importance_sampling_ratio"] = weights_BT[rows]
        total = total + trainer._compute_loss(types.SimpleNamespace(), inputs)
    total.backward()
    return {"value": total.detach(), "gradient": logprobs_BT.grad}


KINDS = {"advantage": advantage, "loss": loss, "correction": correction}


def main(inputs_path: str, outputs_path: str) -> None:
    """Compute every line of TRL and write it."""
    inputs, outputs = load_file(inputs_path), {}
    for line in LINES:
        if line.peer == "trl":
            found = KINDS[line.kind](line, of_case(inputs, line.case))
            outputs |= {f"{line.name}/{key}": tensor.contiguous() for key, tensor in found.items()}
    versions = {name: importlib.metadata.version(name) for name in ("trl", "torch", "transformers")}
    save_file(outputs, outputs_path, metadata=versions)


if __name__ == "__main__":
    main(*sys.argv[1:])
