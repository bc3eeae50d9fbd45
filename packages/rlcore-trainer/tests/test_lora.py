"""Adapters on the policy, with the real peft: what is trained, what stays, what is saved and read."""

from __future__ import annotations

import copy
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rlcore.errors import EngineError, UserError
from rlcore.models.adapter import read_settings
from rlcore.runs.checkpoint_folder import check_kept_model
from safetensors.torch import load_file

peft = pytest.importorskip("peft")

from rlcore_models.lora import adapter_parameters, attach, read_values, save_adapter, switched_off  # noqa: E402
from rlcore_models.lora_config import LoraTable  # noqa: E402
from rlcore_models.lora_names import layers_of_folder  # noqa: E402
from rlcore_trainer.batching.packing import pack  # noqa: E402
from rlcore_trainer.checkpoints.reference import reference_policy  # noqa: E402
from rlcore_trainer.checks import lora_check  # noqa: E402
from rlcore_trainer.controller.policy_gradient import PolicyGradientTrainer  # noqa: E402
from rlcore_trainer.controller.sync_check import fixed_prompt  # noqa: E402
from rlcore_trainer.policy.attention.packed import packed_attention_of  # noqa: E402
from rlcore_trainer.policy.causal_lm import CausalLanguageModel  # noqa: E402
from rlcore_trainer.policy.hidden import batch_logprobs  # noqa: E402
from rlcore_trainer.policy.model import load_policy, output_head  # noqa: E402
from rlcore_trainer.policy.references import AdapterReference  # noqa: E402
from token_trajectories import sequence  # noqa: E402

CPU = torch.device("cpu")
KINDS = {
    "lora": {"rank": 4, "alpha": 8.0},
    "rslora": {"rank": 4, "alpha": 8.0, "rslora": True},
    "dora": {"rank": 4, "alpha": 8.0, "dora": True},
    "whole-head": {"rank": 4, "alpha": 8.0, "modules_to_save": ["lm_head", "norm"]},
    "whole-embedding": {"rank": 2, "targets": ["q_proj"], "modules_to_save": ["embed_tokens"]},
    "pattern": {"rank": 2, "targets": r".*layers\.1\.self_attn\.[qv]_proj"},
}
IDS = torch.tensor([[3, 7, 1, 9, 4, 30, 2]])


@pytest.fixture
def attached(model_folder: Path) -> Callable[..., Any]:
    """Makes a policy with an adapter; keyword arguments are the table's."""

    def make(adapter: Path | None = None, *, shake: bool = False, **table: Any) -> Any:
        model = load_policy(model_folder, dtype="float32", device=CPU)
        attach(model, LoraTable(**table), base=model_folder, seed=0, adapter=adapter)
        if shake:
            torch.manual_seed(7)
            with torch.no_grad():
                for parameter in adapter_parameters(model).values():
                    parameter.add_(0.1 * torch.randn_like(parameter))
        return model

    return make


@torch.no_grad()
def logits(model: Any) -> torch.Tensor:
    found: torch.Tensor = model(input_ids=IDS, use_cache=False).logits
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_new_or_disabled_adapter_does_not_change_the_output(
    kind: str, attached: Callable[..., Any], model_folder: Path
) -> None:
    base = logits(load_policy(model_folder, dtype="float32", device=CPU))
    assert (logits(attached(**KINDS[kind])) - base).abs().max() < 1e-6
    model = attached(shake=True, **KINDS[kind])
    changed = logits(model)
    assert (changed - base).abs().max() > 1e-3
    with switched_off(model):
        assert torch.equal(logits(model), base)
    assert torch.equal(logits(model), changed)


@pytest.mark.parametrize("kind", KINDS)
def test_only_adapter_parameters_are_trained(kind: str, attached: Callable[..., Any]) -> None:
    model = attached(shake=True, **KINDS[kind])
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    own = {id(parameter) for parameter in adapter_parameters(model).values()}
    assert {name for name, parameter in model.named_parameters() if id(parameter) in own} == trained
    with switched_off(model):
        pass
    assert {name for name, parameter in model.named_parameters() if parameter.requires_grad} == trained


def test_weights_of_a_whole_embedding_can_be_verified(attached: Callable[..., Any], model_folder: Path) -> None:
    policy = CausalLanguageModel(attached(**KINDS["whole-embedding"]), model_folder)
    assert policy.vocabulary == policy.module.config.vocab_size
    assert max(fixed_prompt(policy).token_ids) < policy.vocabulary


@pytest.mark.numeric
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_packed_log_probabilities_and_gradients_use_the_adapter(
    kind: str, checkpointing: bool, attached: Callable[..., Any]
) -> None:
    model = attached(shake=True, **KINDS[kind])
    rows = [[3, 7, 1, 9, 4], [3, 7, 1, 11, 12, 13]]
    sequences = [
        sequence(token_ids=row, loss_mask=[False] * 3 + [True] * (len(row) - 3), prompt_length=3) for row in rows
    ]
    (batch,) = pack(sequences, 1000, CPU)
    plain = torch.zeros(())
    expected = []
    for row in (rows[i] for i in dict.fromkeys(batch.sequence_M.tolist())):
        row_logprobs = model(input_ids=torch.tensor([row]), use_cache=False).logits[0].log_softmax(-1)
        expected.append(row_logprobs[2:-1].gather(1, torch.tensor(row[3:])[:, None])[:, 0])
        plain = plain + expected[-1].sum()
    parameters = list(adapter_parameters(model).values())
    wanted = torch.autograd.grad(plain, parameters)
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.train()
    with packed_attention_of(model):
        logprobs_M, _ = batch_logprobs(model, batch)
        found = torch.autograd.grad(logprobs_M.sum(), parameters)
    torch.testing.assert_close(logprobs_M, torch.cat(expected), rtol=0, atol=1e-5)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.numeric
@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")
@pytest.mark.parametrize("kind", KINDS)
def test_saved_adapter_is_loaded_by_peft_and_restored(
    kind: str, attached: Callable[..., Any], model_folder: Path, tmp_path: Path
) -> None:
    model = attached(shake=True, **KINDS[kind])
    save_adapter(model, tmp_path / "adapter")
    again = attached(tmp_path / "adapter")
    assert torch.equal(logits(again), logits(model))
    base = load_policy(model_folder, dtype="float32", device=CPU)
    theirs = peft.PeftModel.from_pretrained(base, str(tmp_path / "adapter")).eval()
    torch.testing.assert_close(logits(theirs), logits(model), rtol=0, atol=1e-6)
    settings = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text(encoding="utf-8"))
    assert settings["base_model_name_or_path"] == str(model_folder.resolve())


def test_saved_adapter_is_byte_identical(attached: Callable[..., Any], tmp_path: Path) -> None:
    model = attached(shake=True, **KINDS["whole-head"])
    for number in range(8):
        save_adapter(model, tmp_path / str(number))
    assert len({(tmp_path / str(number) / "adapter_model.safetensors").read_bytes() for number in range(8)}) == 1


@pytest.mark.numeric
def test_adapter_scale_matches_the_papers(attached: Callable[..., Any]) -> None:
    for kind, scale in (("lora", 2.0), ("rslora", 4.0)):
        layer = attached(shake=True, **KINDS[kind]).model.layers[0].mlp.up_proj
        x = torch.randn(3, layer.in_features)
        down, up = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        torch.testing.assert_close(layer(x), layer.base_layer(x) + scale * x @ down.T @ up.T, rtol=1e-5, atol=1e-5)


def test_dropout_is_active_only_in_training(model_folder: Path) -> None:
    model = load_policy(model_folder, dtype="float32", device=CPU)
    attach(model, LoraTable(rank=4, dropout=0.5), base=model_folder, seed=0, dropout=True)
    with torch.no_grad():
        for parameter in adapter_parameters(model).values():
            parameter.add_(0.1)
    assert torch.equal(logits(model), logits(model))
    model.train()
    assert not torch.equal(logits(model), logits(model))
    other = load_policy(model_folder, dtype="float32", device=CPU)
    attach(other, LoraTable(rank=4, dropout=0.5), base=model_folder, seed=0)
    other.train()
    assert torch.equal(logits(other), logits(other))


def test_initial_adapter_depends_only_on_the_seed(model_folder: Path) -> None:
    values = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed + 99)
        model = load_policy(model_folder, dtype="float32", device=CPU)
        attach(model, LoraTable(rank=2), base=model_folder, seed=seed)
        values.append(model.model.layers[0].mlp.up_proj.lora_A["default"].weight.detach())
    assert torch.equal(values[0], values[1])
    assert not torch.equal(values[0], values[2])


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"targets": ["q_proj", "vproj"]}, "did you mean 'v_proj'"),
        ({"targets": "nothing.*"}, "down_proj, gate_proj, k_proj"),
        ({"targets": "(unclosed"}, "one regular expression"),
        ({"targets": ["norm"]}, "cannot attach this adapter"),
        ({"targets": ["lm_head"]}, "modules_to_save"),
        ({"targets": ["embed_tokens"]}, "modules_to_save"),
        ({"modules_to_save": ["lmhead"]}, "did you mean 'lm_head'"),
    ],
)
def test_layers_without_adapter_support_are_rejected(
    table: dict[str, Any], sentence: str, attached: Callable[..., Any]
) -> None:
    with pytest.raises(UserError) as caught:
        attached(rank=2, **table)
    assert sentence in str(caught.value)


def test_adapter_of_another_base_is_rejected(
    attached: Callable[..., Any], qwen2: Callable[..., Any], model_folder: Path, tmp_path: Path
) -> None:
    save_adapter(attached(rank=2), tmp_path / "adapter")
    qwen2(seed=5, tie_word_embeddings=True).save_pretrained(model_folder)
    with pytest.raises(UserError, match="another base") as caught:
        attached(tmp_path / "adapter")
    assert str(model_folder) in str(caught.value)


def test_adapter_of_another_form_is_rejected(attached: Callable[..., Any], tmp_path: Path) -> None:
    save_adapter(attached(rank=2, targets=["q_proj"]), tmp_path / "adapter")
    for table in ({"rank": 4}, {"alpha": 3.0}, {"dora": True}, {"targets": ["v_proj"]}):
        with pytest.raises(UserError) as caught:
            attached(tmp_path / "adapter", **table)
        assert f"lora.{next(iter(table))}=" in (caught.value.fix or "")
    assert attached(tmp_path / "adapter", rank=2, targets=["q_proj"]) is not None


def test_changed_table_differs_from_the_settings_of_its_adapter(attached: Callable[..., Any], tmp_path: Path) -> None:
    made: dict[str, Any] = {"rank": 2, "alpha": 8.0, "rslora": True, "modules_to_save": ["norm"], "targets": ["q_proj"]}
    save_adapter(attached(**made), tmp_path / "adapter")
    settings = read_settings(tmp_path / "adapter")
    assert LoraTable(**made).differences(settings, made_here=True) == []
    for key, value in (("rank", 4), ("alpha", None), ("rslora", False), ("modules_to_save", []), ("dora", True)):
        ((name, asked, _),) = LoraTable(**{**made, key: value}).differences(settings, made_here=True)
        assert (name, asked) == (key, 2 if key == "alpha" else value)
    save_adapter(attached(rank=2), tmp_path / "plain")
    ((name, _, _),) = LoraTable(rank=4).differences(read_settings(tmp_path / "plain"), made_here=True)
    assert name == "rank", "alpha followed the rank then and would now"


def test_incompatible_file_is_rejected(attached: Callable[..., Any], tmp_path: Path) -> None:
    model = attached(rank=2)
    save_adapter(model, tmp_path / "adapter")
    save_adapter(attached(rank=3), tmp_path / "other")
    with pytest.raises(UserError, match="does not fit"):
        read_values(model, tmp_path / "other")
    (tmp_path / "adapter/adapter_model.safetensors").write_bytes(b"x" * 9)
    with pytest.raises(UserError, match="cannot be read"):
        read_values(model, tmp_path / "adapter")


# Runs


def weights_of(model: Any) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def adapter_of(run: Any, step: int) -> dict[str, torch.Tensor]:
    return load_file(run.directory.path / f"checkpoints/{step:06d}/model/adapter_model.safetensors")


def continued(bandit: Callable[..., Any], run: Path, **tables: Any) -> Any:
    """A copy of a run that goes on from its second step."""
    part = run.with_name(f"{run.name}-part")
    shutil.copytree(run, part, symlinks=True)
    return bandit(part.name, resume_from=part / "checkpoints/000002", **tables)


def test_run_trains_the_adapter_and_not_the_base(bandit: Callable[..., Any], model_folder: Path) -> None:
    run = bandit(lora={"rank": 4}, trainer={"steps": 12, "learning_rate": 0.03}, checkpoint={"every": 2})
    trainer = PolicyGradientTrainer(run)
    metrics = trainer.train()
    assert metrics["evaluation/accuracy"] == 1.0
    assert run.logged[0]["evaluation/accuracy"] < 1.0 or run.logged[1]["reward/mean"] < 1.0
    before = load_policy(model_folder, dtype="float32", device=CPU)
    own = {id(parameter) for parameter in adapter_parameters(trainer.session.policy.module).values()}
    base = {
        name.replace(".base_layer", ""): parameter
        for name, parameter in trainer.session.policy.module.named_parameters()
        if id(parameter) not in own
    }
    assert base.keys() == dict(before.named_parameters()).keys()
    assert all(torch.equal(base[name], parameter) for name, parameter in before.named_parameters())
    assert any("LoRA of rank 4 on 14 layers" in line for line in run.said)
    saved = sorted(path.name for path in (run.directory.path / "checkpoints/last/model").iterdir())
    assert saved == ["README.md", "adapter_config.json", "adapter_model.safetensors", "tokenizer.json"] or saved == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "tokenizer.json",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kl", [{}, {"coefficient": 0.1}])
@pytest.mark.parametrize("lora", [{"rank": 4}, {"rank": 2, "dora": True, "modules_to_save": ["norm"]}])
def test_resumed_run_is_identical(
    bandit: Callable[..., Any], tmp_path: Path, kl: dict[str, Any], lora: dict[str, Any]
) -> None:
    tables = {"lora": lora, "algorithm": {"kl": kl}, "checkpoint": {"every": 2, "keep": 9}}
    whole = bandit("whole", **copy.deepcopy(tables))
    PolicyGradientTrainer(whole).train()
    part = continued(bandit, tmp_path / "whole", **copy.deepcopy(tables))
    PolicyGradientTrainer(part).train()
    one, other = adapter_of(whole, 4), adapter_of(part, 4)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_reference_after_a_warm_up_is_the_adapter_at_that_time(bandit: Callable[..., Any], tmp_path: Path) -> None:
    tables: dict[str, Any] = {
        "lora": {"rank": 4},
        "warmup": {"steps": 2},
        "algorithm": {"kl": {"coefficient": 0.1}},
        "checkpoint": {"every": 2, "keep": 9},
    }
    whole = bandit("whole", **copy.deepcopy(tables))
    PolicyGradientTrainer(whole).train()
    check_kept_model(tmp_path / "whole/checkpoints/reference")
    kept = load_file(tmp_path / "whole/checkpoints/reference/adapter_model.safetensors")
    assert any(value.any() for name, value in kept.items() if "lora_B" in name)
    assert whole.logged[1]["kl/mean"] == pytest.approx(0.0, abs=1e-6)
    assert whole.logged[4]["kl/mean"] > 1e-5
    part = continued(bandit, tmp_path / "whole", **copy.deepcopy(tables))
    PolicyGradientTrainer(part).train()
    assert part.logged[4]["kl/mean"] == whole.logged[4]["kl/mean"]


@pytest.mark.numeric
def test_reference_uses_the_module_of_the_policy(bandit: Callable[..., Any], attached: Callable[..., Any]) -> None:
    model = attached(shake=True, rank=4)
    base = attached(rank=4)
    config = bandit(algorithm={"kl": {"coefficient": 0.1}}).options("algorithm").kl
    policy = CausalLanguageModel(model)
    reference = reference_policy(policy, config, checkpoints=None, keep=False, resumed=False)
    assert isinstance(reference, AdapterReference)
    with reference.standing_in() as standing:
        assert standing.module is model
        torch.testing.assert_close(logits(standing.module), logits(base))
    then = logits(model)
    kept = reference_policy(policy, config, checkpoints=None, keep=True, resumed=False)
    assert isinstance(kept, AdapterReference)
    with torch.no_grad():
        for parameter in adapter_parameters(model).values():
            parameter.mul_(1.5)
    now = logits(model)
    with kept.standing_in() as standing:
        assert torch.equal(logits(standing.module), then)
    assert torch.equal(logits(model), now)
    assert not torch.equal(now, then)


@pytest.mark.slow
def test_run_starts_from_an_adapter(bandit: Callable[..., Any], tmp_path: Path) -> None:
    first = bandit("first", lora={"rank": 4}, trainer={"steps": 8, "learning_rate": 0.03})
    PolicyGradientTrainer(first).train()
    folder = tmp_path / "first/checkpoints/last/model"
    tables: dict[str, Any] = {"lora": {"adapter": str(folder)}, "algorithm": {"kl": {"coefficient": 0.1}}}
    tables["checkpoint"] = {"every": 2, "keep": 9}
    second = bandit("second", **copy.deepcopy(tables))
    PolicyGradientTrainer(second).train()
    assert second.logged[0]["evaluation/reward"] == first.logged[8]["evaluation/reward"]
    assert second.logged[1]["kl/mean"] == pytest.approx(0.0, abs=1e-6)
    part = continued(bandit, tmp_path / "second", **copy.deepcopy(tables))
    PolicyGradientTrainer(part).train()
    assert part.logged[4]["kl/mean"] == second.logged[4]["kl/mean"]


def test_checkpoint_of_the_other_kind_is_rejected(bandit: Callable[..., Any], tmp_path: Path) -> None:
    often = {"every": 2, "keep": 9}
    PolicyGradientTrainer(bandit("whole", checkpoint=often)).train()
    PolicyGradientTrainer(bandit("low", lora={"rank": 2}, checkpoint=often)).train()
    for directory, lora, sentence in (
        ("whole", {"rank": 2}, "/whole-part/checkpoints/000002 was trained without an adapter"),
        ("low", {}, "/low-part/checkpoints/000002 was trained with an adapter of rank 2"),
    ):
        run = continued(bandit, tmp_path / directory, lora=lora)
        found = next(lora_check.check(run, reinforcement=True))
        assert found.key == "lora.rank"
        assert sentence in found.text
        shutil.rmtree(tmp_path / f"{directory}-part")


def checked(run: Any) -> dict[str, str]:
    """Return the reasons of the problems with a run's ``[lora]`` by key."""
    run.engine_spec = SimpleNamespace(unserved=())
    found = lora_check.check(run, reinforcement=True)
    return {one.key: f"{one.text}\nfix: {one.fix}" for one in found if one.status == "fail"}


def test_resumed_run_cannot_change_its_initial_adapter(bandit: Callable[..., Any], tmp_path: Path) -> None:
    tables = {"trainer": {"steps": 2}, "checkpoint": {"every": 2}, "evaluation": {"every": 0}}
    PolicyGradientTrainer(bandit("low", lora={"rank": 2, "targets": ["q_proj"]}, **tables)).train()
    began, moved, other = (tmp_path / name for name in ("began", "moved", "other"))
    for folder in (began, moved, other):
        shutil.copytree(tmp_path / "low/checkpoints/000002/model", folder)
    weights = other / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"abcd")
    q, adapter = {"rank": 2, "targets": ["q_proj"]}, {"adapter": str(began)}

    def found(before: dict[str, Any], now: dict[str, Any]) -> dict[str, str]:
        text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in before.items())
        (tmp_path / "low/config.toml").write_text(f"[lora]\n{text}", encoding="utf-8")
        run = bandit("low", resume_from=tmp_path / "low/checkpoints/000002", lora=now)
        return checked(run)

    assert found(q, q) == found(adapter, adapter) == found(adapter, {"adapter": str(moved)}) == {}
    assert found({"rank": 2}, {"rank": 2}) == {}
    assert 'lora.targets=["q_proj"]' in found(q, {"rank": 2})["lora.targets"]
    assert f"the run started from {began}" in found(adapter, {"adapter": str(other)})["lora.adapter"]
    assert f"lora.adapter={began}" in found(adapter, q)["lora.adapter"]
    assert "the run started from a new adapter" in found(q, adapter)["lora.adapter"]
    shutil.rmtree(began)  # the weights can no longer be compared
    assert found(adapter, {"adapter": str(moved)}) == {}


def test_unknown_layers_are_found_in_the_files_of_the_base(bandit: Callable[..., Any], model_folder: Path) -> None:
    modules = dict(load_policy(model_folder, dtype="float32", device=CPU).named_modules())
    layers = layers_of_folder(model_folder)
    assert layers is not None
    assert {*layers.linear, "lm_head"} == {
        name for name, module in modules.items() if isinstance(module, torch.nn.Linear)
    }
    assert set(layers.all) <= set(modules)
    assert checked(bandit(lora={"rank": 2, "targets": ["q_proj"], "modules_to_save": ["norm", "lm_head"]})) == {}
    assert checked(bandit(lora={"rank": 2, "targets": r".*layers\.1\.self_attn\.[qv]_proj"})) == {}
    found = checked(bandit(lora={"rank": 2, "targets": ["q_porj"], "modules_to_save": ["nrom"]}))
    assert "did you mean 'q_proj'?" in found["lora.targets"]
    assert "did you mean 'norm'?" in found["lora.modules_to_save"]
    assert "its linear layers are down_proj" in checked(bandit(lora={"rank": 2, "targets": ".*zzz"}))["lora.targets"]
    with pytest.raises(UserError, match="one regular expression"):
        checked(bandit(lora={"rank": 2, "targets": "(q_proj"}))


@pytest.mark.parametrize("forgotten", ["lora_B", "layers.1.mlp.down_proj.lora_A"])
def test_incomplete_adapter_transfer_is_detected(bandit: Callable[..., Any], forgotten: str) -> None:
    run = bandit(lora={"rank": 4}, forgotten=forgotten)
    with pytest.raises(EngineError, match="weight transfer"):
        PolicyGradientTrainer(run).train()


def test_adapter_is_restored_after_the_transfer_check(bandit: Callable[..., Any], model_folder: Path) -> None:
    run = bandit(lora={"rank": 4}, trainer={"steps": 1, "learning_rate": 1e-30})
    trainer = PolicyGradientTrainer(run)
    trainer.train()
    base = logits(load_policy(model_folder, dtype="float32", device=CPU))
    assert math.isclose(float((logits(trainer.session.policy.module) - base).abs().max()), 0.0, abs_tol=1e-6)


def test_value_head_trains_with_an_adapter(bandit: Callable[..., Any]) -> None:
    run = bandit(lora={"rank": 2}, algorithm={"advantage": "gae"}, critic={"model": "head"})
    trainer = PolicyGradientTrainer(run)
    trainer.train()
    assert run.logged[4]["critic/loss"] >= 0
    assert output_head(trainer.session.policy.module).requires_grad is False
