from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from rlcore.errors import UserError
from rlcore.types import LossMask, TokenIds
from rlcore_trainer.batching.packing import TrainingSequence, pack
from rlcore_trainer.policy.causal_lm import CausalLanguageModel
from rlcore_trainer.policy.forward import PackedForward, PlainForward, choose_forward
from torch import Tensor
from transformers import PreTrainedModel, Qwen2ForCausalLM

pytestmark = pytest.mark.numeric

CPU = torch.device("cpu")
VOCABULARY = 32
SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "pad_token_id": 0,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
PACKED: dict[str, dict[str, Any]] = {
    "Llama": {},
    "Mistral": {"sliding_window": 4},
    "Phi3": {},
    "Gemma3Text": {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]},
    "Qwen3Moe": {**EXPERTS, "decoder_sparse_step": 1, "mlp_only_layers": []},
}
PLAIN: dict[str, dict[str, Any]] = {
    "Gemma2": {"final_logit_softcapping": 0.5, "attn_logit_softcapping": 1.0, "sliding_window": 4},
    "Phi": {},  # a bias in its output layer
    "GptOss": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 4},
    "Mamba": {"state_size": 4},
    "Cohere": {"logit_scale": 0.1},
}


def built(name: str, seed: int = 0) -> PreTrainedModel:
    """A tiny model of an architecture with random weights."""
    torch.manual_seed(seed)
    own = {**SMALL, **{**PACKED, **PLAIN}[name]}
    config = getattr(transformers, f"{name}Config")(**own)
    model: PreTrainedModel = transformers.AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():  # weights that start as zeros or ones take part, too
        parameter.data += 0.05 * torch.randn_like(parameter)
    return model.float().eval()


def sequences() -> list[TrainingSequence]:
    """Two siblings of one prompt, a sequence of its own, and one with untrained tokens in the middle."""
    generator = torch.Generator().manual_seed(1)

    def row(length: int) -> list[int]:
        return [int(t) for t in torch.randint(1, VOCABULARY, (length,), generator=generator)]

    prompt = row(7)
    rows = [(prompt + row(9), 7), (prompt + row(4), 7), (row(12), 0), (row(10), 0)]
    found = []
    for ids, shared in rows:
        mask = [t >= max(1, shared) for t in range(len(ids))]
        mask[-3] = False
        found.append(TrainingSequence(token_ids=TokenIds(ids), loss_mask=LossMask(mask), prompt_length=shared))
    return found


def slow_loop(model: PreTrainedModel, row: TrainingSequence, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies of the trained tokens from a separate call of the model."""
    ids_1T = torch.tensor([list(row.token_ids)])
    logits_TV = model(input_ids=ids_1T, use_cache=False).logits[0, :-1].float() / temperature
    trained = torch.tensor(list(row.loss_mask)[1:]).bool()
    all_TV = logits_TV.log_softmax(-1)
    entropy_T = -(all_TV.exp() * all_TV).sum(-1)
    return all_TV.gather(1, ids_1T[0, 1:, None])[:, 0][trained], entropy_T[trained]


@pytest.mark.parametrize("name", [*PACKED, *PLAIN])
@pytest.mark.parametrize("max_tokens", [1000, 20])
def test_log_probabilities_equal_a_slow_loop(name: str, max_tokens: int, tmp_path: Path) -> None:
    model, rows = built(name), sequences()
    forward = choose_forward(model, tmp_path)
    assert isinstance(forward, PackedForward if name in PACKED else PlainForward)
    policy = CausalLanguageModel(model, tmp_path, forward=forward)
    checked = 0
    for batch in pack(rows, max_tokens, CPU):
        with policy.computing(), torch.no_grad():
            logprobs_M, entropy_M = policy.evaluate(batch, temperature=0.7)
        assert logprobs_M.dtype == entropy_M.dtype == torch.float32
        for i in batch.sequence_M.unique().tolist():
            own = batch.sequence_M == i
            expected, entropy = slow_loop(model, rows[i], 0.7)
            torch.testing.assert_close(logprobs_M[own], expected, atol=2e-5, rtol=2e-5)
            torch.testing.assert_close(entropy_M[own], entropy, atol=2e-5, rtol=2e-5)
            checked += int(own.sum())
    assert checked == sum(row.trained for row in rows)


def test_plain_and_packed_passes_agree_on_loss_and_gradients(qwen2: Callable[..., Qwen2ForCausalLM]) -> None:
    (batch,) = pack(sequences(), 1000, CPU)
    weights_M = torch.linspace(-1, 1, len(batch.targets_M))
    found = []
    head = torch.nn.Linear(32, 1)
    for forward in (PackedForward(), PlainForward()):
        model = qwen2()
        policy = CausalLanguageModel(model, forward=forward)
        policy.root.value_head = head

        def of_chunk(rows: slice, logprobs_C: Tensor, entropy_C: Tensor | None) -> tuple[Tensor, dict[str, Tensor]]:
            assert entropy_C is not None
            return (weights_M[rows] * logprobs_C).sum() + 0.1 * entropy_C.sum(), {"count": logprobs_C.sum()}

        with policy.computing():
            loss = policy.loss(batch, of_chunk)
            loss.loss.backward()  # type: ignore[no-untyped-call]
        gradients = {key: parameter.grad for key, parameter in model.named_parameters()}
        assert loss.values_M is not None
        found.append((loss.loss.detach(), loss.values_M.detach(), gradients))
    torch.testing.assert_close(found[0][:2], found[1][:2], atol=1e-5, rtol=1e-4)
    for key, gradient in found[0][2].items():
        torch.testing.assert_close(gradient, found[1][2][key], atol=1e-5, rtol=1e-3, msg=key)


def test_values_of_a_plain_trunk_equal_those_of_the_loss() -> None:
    (batch,) = pack(sequences(), 1000, CPU)
    policy = CausalLanguageModel(built("Gemma2"), forward=PlainForward())
    trunk = policy.trunk()
    policy.root.value_head = trunk.root.value_head = torch.nn.Linear(trunk.width, 1)
    with torch.no_grad():
        loss = policy.loss(batch, lambda rows, logprobs_C, entropy_C: (logprobs_C.sum(), {}))
        torch.testing.assert_close(trunk.values(batch), loss.values_M)


def test_plain_pass_is_reported_in_one_line_with_its_reason(tmp_path: Path) -> None:
    model = built("Gemma2")
    _, line = CausalLanguageModel(model, forward=choose_forward(model, tmp_path)).description()
    assert "Gemma2ForCausalLM" in line
    assert "logits" in line


@pytest.mark.parametrize("name", PLAIN)
def test_choice_does_not_depend_on_small_weights(name: str, tmp_path: Path) -> None:
    model = built(name)
    for parameter in model.parameters():
        parameter.data *= 1e-3
    assert isinstance(choose_forward(model, tmp_path), PlainForward)


def test_models_that_see_later_tokens_are_rejected(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.BertConfig(**SMALL, is_decoder=False)
    model = transformers.BertLMHeadModel(config).eval()
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    with pytest.raises(UserError, match="causal"):
        choose_forward(model, tmp_path)
