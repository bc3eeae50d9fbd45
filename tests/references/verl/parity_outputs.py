"""Run verl's own functions on the parity inputs: ``python parity_outputs.py INPUTS OUTPUTS`` (safetensors).

Writes, per line of the table, ``NAME/value``, ``NAME/gradient`` (with respect to the log-probabilities, or to the new
values) and what else the function returns. Everything is float64; verl computes in the type of its arguments.
"""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights
from verl.workers.config import ActorConfig
from verl.workers.config.actor import PolicyLossConfig

sys.path.insert(0, str(Path(__file__).parents[1]))
from parity_cases import of_case
from parity_lines import LINES, Line


def outcome_rewards(case: dict[str, Tensor]) -> Tensor:
    """The score of each row on its last written token (on the first where there is none), as verl expects it."""
    mask_BT = case["mask"]
    positions_T = torch.arange(mask_BT.shape[1])
    last_B = torch.where(mask_BT, positions_T, 0).amax(dim=1)
    return torch.zeros(mask_BT.shape, dtype=torch.float64).scatter(1, last_B[:, None], case["rewards"][:, None])


def advantage(line: Line, case: dict[str, Tensor]) -> dict[str, Tensor]:
    """Advantages and returns where the mask holds; verl leaves other values elsewhere in some estimators."""
    settings: dict[str, Any] = dict(line.theirs)
    estimator, groups_B = settings.pop("estimator"), case[settings.pop("groups")].numpy()
    mask_BT = case["mask"].long()
    if estimator == "gae":
        found = core_algos.compute_gae_advantage_return(case["token-rewards"], case["values"], mask_BT, **settings)
        return {"value": found[0] * mask_BT, "returns": found[1] * mask_BT}
    function = core_algos.get_adv_estimator_fn(estimator)
    if estimator in ("reinforce_plus_plus", "remax"):
        arguments = {"token_level_rewards": case["token-rewards"].clone(), "config": AlgoConfig(**settings)}
        if estimator == "remax":
            arguments["reward_baselines"] = case["baselines"]
    else:
        arguments = {"token_level_rewards": outcome_rewards(case), "index": groups_B, "config": AlgoConfig(**settings)}
        if estimator.endswith("optimal_token_baseline"):
            probabilities = {"old_log_probs": case["old-logprobs"], "sum_pi_squared": case["square-sums"]}
            arguments |= {"token_level_rewards": case["token-rewards"], **probabilities}
        if estimator == "gdpo":
            rows = {f"reward-{k}": values.numpy() for k, values in enumerate(case["several-rewards"].unbind(1))}
            arguments["config"] = AlgoConfig(gdpo_reward_keys=list(rows), **settings)
            prompts_BT = torch.zeros(len(mask_BT), 0, dtype=torch.long)
            arguments |= {"non_tensor_batch": rows, "batch": {"prompts": prompts_BT, "attention_mask": mask_BT}}
        if estimator == "grpo":
            arguments |= settings
    return {"value": function(response_mask=mask_BT, **arguments)[0] * mask_BT}


def correction_weights(line: Line, case: dict[str, Tensor]) -> Tensor:
    """Weights ``[B, T]``, zero where the mask does not hold."""
    log_ratio_BT = case["old-logprobs"] - case["engine-logprobs"]
    names = ("rollout_is", "rollout_is_threshold")
    settings = {name: line.theirs[name] for name in names}
    return compute_rollout_correction_weights(log_ratio_BT, case["mask"].long(), **settings)[0]


def loss(line: Line, case: dict[str, Tensor]) -> dict[str, Tensor]:
    """The policy loss over one batch, or summed over micro-batches as verl's actor accumulates them."""
    settings: dict[str, Any] = dict(line.theirs)
    function = core_algos.get_policy_loss_fn(settings.pop("loss"))
    aggregation = settings.pop("loss_agg_mode", "seq-mean-token-mean")
    micro_batches, of_whole = settings.pop("micro_batches", 1), settings.pop("global_batch_info", None)
    advantages = case[settings.pop("advantages")]
    weights_BT = correction_weights(line, case) if "rollout_is" in settings else None
    settings = {key: value for key, value in settings.items() if not key.startswith("rollout_is")}
    mask_BT = case["mask"].long()
    advantages_BT = advantages[:, None].expand(mask_BT.shape) if advantages.dim() == 1 else advantages
    logprobs_BT = case["logprobs"].clone().requires_grad_()
    of_loss = {name: settings.pop(name) for name in list(settings) if name in PolicyLossConfig.__dataclass_fields__}
    settings["policy_loss"] = PolicyLossConfig(**of_loss)
    torch.manual_seed(0)  # clip_cov selects tokens at random
    config = ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, **settings)
    scale = 1.0
    if of_whole:
        config.global_batch_info.update(
            dp_size=1, batch_num_tokens=int(mask_BT.sum()), global_batch_size=int(mask_BT.any(dim=1).sum())
        )
    elif micro_batches > 1:
        scale = 1 / micro_batches
    total = torch.zeros((), dtype=torch.float64)
    for rows in torch.arange(len(mask_BT)).chunk(micro_batches):
        value, _ = function(
            old_log_prob=case["old-logprobs"][rows],
            log_prob=logprobs_BT[rows],
            advantages=advantages_BT[rows],
            response_mask=mask_BT[rows],
            loss_agg_mode=aggregation,
            config=config,
            rollout_is_weights=None if weights_BT is None else weights_BT[rows],
        )
        total = total + value * scale
    total.backward()
    return {"value": total.detach(), "gradient": logprobs_BT.grad}


def kl(line: Line, case: dict[str, Tensor]) -> dict[str, Tensor]:
    """The estimate of each token, and the gradient of their sum over the mask."""
    logprobs_BT = case["logprobs"].clone().requires_grad_()
    value_BT = core_algos.kl_penalty(logprobs_BT, case["reference-logprobs"], line.theirs["kl_penalty"]) * case["mask"]
    value_BT.sum().backward()
    return {"value": value_BT.detach(), "gradient": logprobs_BT.grad}


def correction(line: Line, case: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights alone."""
    return {"value": correction_weights(line, case)}


def value_loss(line: Line, case: dict[str, Tensor]) -> dict[str, Tensor]:
    """The critic's loss and its gradient with respect to the new values."""
    values_BT = case["new-values"].clone().requires_grad_()
    value, _ = core_algos.compute_value_loss(
        values_BT, case["returns"], case["values"], case["mask"].long(), **line.theirs
    )
    value.backward()
    return {"value": value.detach(), "gradient": values_BT.grad}


def controller(line: Line, case: dict[str, Tensor]) -> dict[str, Tensor]:
    """The coefficient after each measured divergence."""
    settings: dict[str, Any] = dict(line.theirs)
    measured, steps = settings.pop("measured"), settings.pop("n_steps")
    adaptive, values = core_algos.AdaptiveKLController(**settings), []
    for divergence in measured:
        adaptive.update(divergence, steps)
        values.append(float(adaptive.value))
    return {"value": torch.tensor(values, dtype=torch.float64)}


KINDS = {
    "advantage": advantage,
    "loss": loss,
    "kl": kl,
    "correction": correction,
    "value-loss": value_loss,
    "controller": controller,
}


def main(inputs_path: str, outputs_path: str) -> None:
    """Compute every line of verl and write it."""
    inputs, outputs = load_file(inputs_path), {}
    for line in LINES:
        if line.peer == "verl":
            found = KINDS[line.kind](line, of_case(inputs, line.case))
            outputs |= {f"{line.name}/{key}": tensor.contiguous() for key, tensor in found.items()}
    versions = {name: importlib.metadata.version(name) for name in ("verl", "torch", "transformers")}
    save_file(outputs, outputs_path, metadata=versions)


if __name__ == "__main__":
    main(*sys.argv[1:])
