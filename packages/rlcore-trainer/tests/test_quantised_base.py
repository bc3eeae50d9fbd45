"""An adapter on a base in 4 bits, with the real bitsandbytes: it is the adapter on what the 4 bits say."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rlcore.errors import NotInstalledError, UserError
from rlcore.models.adapter import base_quantization
from rlcore.plugins.loading import pip_line
from safetensors.torch import load_file

pytest.importorskip("peft")
pytest.importorskip("bitsandbytes")

from bitsandbytes.nn import Linear4bit
from peft.utils.integrations import dequantize_module_weight
from rlcore_models.lora import adapter_parameters, attach, description
from rlcore_models.lora_config import LoraTable
from rlcore_trainer.batching.packing import pack
from rlcore_trainer.checks import lora_check
from rlcore_trainer.controller.policy_gradient import PolicyGradientTrainer
from rlcore_trainer.policy.attention.packed import packed_attention_of
from rlcore_trainer.policy.hidden import batch_logprobs
from rlcore_trainer.policy.model import load_policy, output_head
from token_trajectories import sequence

CPU = torch.device("cpu")
IDS = torch.tensor([[3, 7, 1, 9, 4, 30, 2]])
KINDS: dict[str, dict[str, Any]] = {
    "lora": {"rank": 4, "alpha": 8.0},
    "dora": {"rank": 4, "alpha": 8.0, "dora": True},
    "whole head": {"rank": 4, "modules_to_save": ["lm_head", "norm"]},
}


@pytest.fixture
def pair(model_folder: Path) -> Callable[..., tuple[Any, Any]]:
    """Makes a quantised policy, and a whole one of the values that its 4 bits say; both with one shaken adapter."""

    def make(**table: Any) -> tuple[Any, Any]:
        quantised = load_policy(model_folder, dtype="float32", device=CPU, quantization="nf4")
        whole = load_policy(model_folder, dtype="float32", device=CPU)
        with torch.no_grad():
            for name, module in quantised.named_modules():
                if isinstance(module, Linear4bit):
                    whole.get_submodule(name).weight.copy_(dequantize_module_weight(module))
        for model in (quantised, whole):
            attach(model, LoraTable(**table), base=model_folder, seed=0)
            torch.manual_seed(7)
            with torch.no_grad():
                for parameter in adapter_parameters(model).values():
                    parameter.add_(0.1 * torch.randn_like(parameter))
        return quantised, whole

    return make


@torch.no_grad()
def logits(model: Any) -> torch.Tensor:
    found: torch.Tensor = model(input_ids=IDS, use_cache=False).logits
    return found


def held(model: Any) -> dict[str, torch.Tensor]:
    """Everything that is not the adapter's, with the constants of quantised weights."""
    own = {id(parameter) for parameter in adapter_parameters(model).values()}
    found = {name: p.detach().clone() for name, p in model.named_parameters() if id(p) not in own}
    for name, module in model.named_modules():
        if isinstance(module, Linear4bit):
            found[f"{name}.values"] = dequantize_module_weight(module).detach().clone()
    return found


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.numeric
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_log_probabilities_and_gradients_match_dequantised_weights(
    kind: str, checkpointing: bool, pair: Callable[..., tuple[Any, Any]]
) -> None:
    rows = [[3, 7, 1, 9, 4], [3, 7, 1, 11, 12, 13]]
    sequences = [
        sequence(token_ids=row, loss_mask=[False] * 3 + [True] * (len(row) - 3), prompt_length=3) for row in rows
    ]
    (batch,) = pack(sequences, 1000, CPU)
    found = []
    for model in pair(**KINDS[kind]):
        if checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            model.train()
        with packed_attention_of(model):
            logprobs_M, _ = batch_logprobs(model, batch)
            gradients = torch.autograd.grad(logprobs_M.sum(), list(adapter_parameters(model).values()))
        found.append((logprobs_M.detach(), gradients))
    (logprobs_M, gradients), (wanted_M, wanted) = found
    torch.testing.assert_close(logprobs_M, wanted_M, rtol=0, atol=1e-5)
    for one, other in zip(gradients, wanted, strict=True):
        assert other.abs().max() > 0
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_only_linear_layers_are_quantised_and_the_base_is_frozen(model_folder: Path) -> None:
    model: Any = load_policy(model_folder, dtype="float32", device=CPU, quantization="nf4")
    whole: Any = load_policy(model_folder, dtype="float32", device=CPU)
    quantised = {name for name, module in model.named_modules() if isinstance(module, Linear4bit)}
    assert quantised == {
        name for name, module in whole.model.named_modules(prefix="model") if hasattr(module, "in_features")
    }
    assert output_head(model) is model.get_input_embeddings().weight
    assert torch.equal(output_head(model), output_head(whole))
    assert model.num_parameters() == whole.num_parameters()
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert (logits(model) - logits(whole)).abs().max() > 1e-4


def test_evaluation_between_updates_does_not_repack_the_weights(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a CPU with bfloat16 products, where bitsandbytes would."""
    monkeypatch.setattr("bitsandbytes.nn.modules.has_avx512bf16", lambda: True)
    model = load_policy(model_folder, dtype="float32", device=CPU, quantization="nf4")
    attach(model, LoraTable(rank=2), base=model_folder, seed=0)
    before, told = held(model), logits(model)
    model.train()
    model(input_ids=IDS, use_cache=False).logits.sum().backward()
    model.train(False)
    assert torch.equal(logits(model), told)
    assert_same(held(model), before)


def test_quantised_model_is_rejected(model_folder: Path, tmp_path: Path) -> None:
    load_policy(model_folder, dtype="float32", device=CPU, quantization="nf4").save_pretrained(tmp_path / "small")
    shutil.copyfile(model_folder / "tokenizer.json", tmp_path / "small/tokenizer.json")
    for quantization in ("none", "nf4"):
        with pytest.raises(UserError, match="unquantised weights"):
            load_policy(tmp_path / "small", dtype="float32", device=CPU, quantization=quantization)


def test_missing_bitsandbytes_names_the_install_command(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore_models.quantization.NEEDS", ("bitsandbytes>=999",))
    with pytest.raises(NotInstalledError) as caught:
        load_policy(model_folder, dtype="float32", device=CPU, quantization="nf4")
    assert pip_line(["rlcore[quantization]"]) in str(caught.value)


# Runs

NF4: dict[str, Any] = {"lora": {"rank": 4}, "checkpoint": {"every": 2, "keep": 9}}


@pytest.fixture
def quantised(bandit: Callable[..., Any], model_folder: Path) -> Callable[..., Any]:
    """Makes a run on a base in nf4."""

    def make(*names: Any, **tables: Any) -> Any:
        model = {"path": str(model_folder), "device": "cpu", "quantization": "nf4"}
        return bandit(*names, **{"model": model, **copy.deepcopy(NF4), **tables})

    return make


def test_run_trains_the_adapter_and_not_the_base(quantised: Callable[..., Any], model_folder: Path) -> None:
    run = quantised(trainer={"steps": 12, "learning_rate": 0.03}, algorithm={"kl": {"coefficient": 0.01}})
    trainer = PolicyGradientTrainer(run)
    metrics = trainer.train()
    assert metrics["evaluation/accuracy"] == 1.0
    assert run.logged[0]["evaluation/accuracy"] < 1.0 or run.logged[1]["reward/mean"] < 1.0
    fresh = load_policy(model_folder, dtype="float32", device=CPU, quantization="nf4")
    attach(fresh, LoraTable(rank=4), base=model_folder, seed=0)
    assert_same(held(trainer.session.policy.module), held(fresh))
    assert any("LoRA of rank 4 on 14 layers" in line and "frozen nf4 base" in line for line in run.said)
    saved = run.directory.path / "checkpoints/last/model"
    assert base_quantization(saved) == "nf4"
    assert not (saved / "model.safetensors").exists()
    assert "nf4" in description(trainer.session.policy.module)


def test_resumed_run_is_identical_and_requires_the_same_base(
    quantised: Callable[..., Any], bandit: Callable[..., Any], tmp_path: Path
) -> None:
    whole = quantised("whole")
    PolicyGradientTrainer(whole).train()
    shutil.copytree(tmp_path / "whole", tmp_path / "part", symlinks=True)
    before = tmp_path / "part/checkpoints/000002"
    PolicyGradientTrainer(quantised("part", before)).train()
    name = "checkpoints/000004/model/adapter_model.safetensors"
    assert_same(load_file(tmp_path / "whole" / name), load_file(tmp_path / "part" / name))
    other = bandit("part", before, **copy.deepcopy(NF4))
    found = next(lora_check.check(other, reinforcement=True))
    assert (found.key, found.text) == ("model.quantization", f"{before} was trained with model.quantization=nf4")
    assert "model.quantization=nf4, or start a new run" in found.fix
