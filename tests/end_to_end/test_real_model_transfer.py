"""Engine and trainer on a pretrained model of 30 layers: equal tokens, small gaps, and transfers that are verified."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from engine_alone import EngineAlone  # noqa: E402
from live_weights import LiveWeights  # noqa: E402
from rlcore.errors import EngineError  # noqa: E402
from rlcore.types import LossMask, Prompt, Sampling, TokenIds  # noqa: E402
from rlcore_models.streaming import named_tensors  # noqa: E402
from rlcore_rollout.engines.context import EngineContext  # noqa: E402
from rlcore_rollout.engines.torch.config import TorchEngineConfig  # noqa: E402
from rlcore_rollout.engines.torch.engine import TorchEngine  # noqa: E402
from rlcore_trainer.batching.packing import TrainingSequence, pack  # noqa: E402
from rlcore_trainer.controller.sync_check import compare, prove  # noqa: E402
from rlcore_trainer.policy.causal_lm import CausalLanguageModel  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402

TEXTS = (
    "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May.",
    "A robe takes 2 bolts of blue fiber and half that much white fiber. How many bolts in total does it take?",
    "Weng earns $12 an hour for babysitting. Yesterday, she just did 50 minutes of babysitting.",
    "James decides to run 3 sprints 3 times a week. He runs 60 meters each sprint.",
)


class Copy(EngineAlone):
    """A torch engine with a copy of the policy's weights, some of which a faulty transfer leaves out."""

    def __init__(self, policy: CausalLanguageModel) -> None:
        self.module: Any = copy.deepcopy(policy.module)
        self.folder = policy.folder
        self.forgotten: str | None = None
        super().__init__(TorchEngine(TorchEngineConfig(), self._source(policy.version), EngineContext()))

    def _source(self, version: int) -> Any:
        return LiveWeights(self.module, self.folder, version)

    @torch.no_grad()
    def update_weights(self, source: Any) -> None:
        for own, new in zip(named_tensors(self.module), source.weights(), strict=True):
            if own.name != self.forgotten:
                own.tensor.copy_(new.tensor)
        super().update_weights(self._source(source.version))


@pytest.fixture(params=["float32", "bfloat16"])
def policy(request: pytest.FixtureRequest) -> CausalLanguageModel:
    """SmolLM2 in a precision."""
    folder = request.getfixturevalue("smollm2" if request.param == "float32" else "smollm2_bf16")
    return CausalLanguageModel.load(folder, dtype=request.param, device=torch.device("cpu"))


def missed(policy: CausalLanguageModel, names: Sequence[str]) -> list[str]:
    """The tensors whose absence from a transfer is not detected."""
    found = []
    with closing(Copy(policy)) as engine:
        prove(engine, policy)  # type: ignore[arg-type]
        compare(engine, policy)  # type: ignore[arg-type]
        for name in names:
            engine.forgotten = name
            try:
                prove(engine, policy)  # type: ignore[arg-type]
                found.append(name)
            except EngineError:
                pass
            engine.forgotten = None
            engine.update_weights(policy)
    return found


@pytest.mark.parametrize(
    "policy",
    [pytest.param("float32", marks=pytest.mark.slow), pytest.param("bfloat16", marks=pytest.mark.long)],
    indirect=True,
)
def test_stale_tensor_of_a_real_model_is_detected(policy: CausalLanguageModel) -> None:
    assert missed(policy, ["model.layers.4.self_attn.q_proj.weight", "model.layers.29.input_layernorm.weight"]) == []


@pytest.mark.proof
@pytest.mark.timeout(7200)
def test_each_stale_tensor_of_a_real_model_is_detected(policy: CausalLanguageModel) -> None:
    names = [name for name, _ in policy.module.named_parameters()]
    assert len(names) == 272
    assert missed(policy, names) == []


@pytest.mark.slow
def test_greedy_tokens_of_a_real_model_equal_transformers(smollm2: Path) -> None:
    policy = CausalLanguageModel.load(smollm2, dtype="float32", device=torch.device("cpu"))
    end = policy.module.generation_config.eos_token_id  # excluded by min_new_tokens
    for ids in _encoded(smollm2)[:2]:
        sampling = Sampling(max_new_tokens=16, temperature=0.0, suppressed_token_ids=(end,))  # type: ignore[arg-type]
        with closing(Copy(policy)) as engine:
            answer = engine.generate(Prompt(token_ids=ids), sampling)
        expected = policy.module.generate(  # type: ignore[operator]
            torch.tensor([list(ids)]), do_sample=False, max_new_tokens=16, min_new_tokens=16
        )
        assert list(answer.token_ids) == expected[0, len(ids) :].tolist()


@pytest.mark.long
def test_engine_and_trainer_differ_little_in_bfloat16(smollm2_bf16: Path) -> None:
    """With sums over the layers and logits in bfloat16, the mean gap was 0.037 nats. With float32 it is 0.018."""
    policy = CausalLanguageModel.load(smollm2_bf16, dtype="bfloat16", device=torch.device("cpu"))
    gaps: list[float] = []
    for seed, ids in enumerate(_encoded(smollm2_bf16)):
        with closing(Copy(policy)) as engine:
            answer = engine.generate(Prompt(token_ids=ids), Sampling(max_new_tokens=64, seed=seed))
        whole = TokenIds([*ids, *answer.token_ids])
        mask = LossMask([False] * len(ids) + [True] * len(answer.token_ids))
        sequence = TrainingSequence(token_ids=whole, loss_mask=mask, prompt_length=len(ids))
        (batch,) = pack([sequence], 1000, policy.device)
        with torch.no_grad(), policy.computing():
            logprobs_M, _ = policy.evaluate(batch)
        gaps += (logprobs_M - torch.tensor(answer.logprobs)).abs().tolist()
    assert sum(gaps) / len(gaps) < 0.025


def _encoded(folder: Path) -> list[TokenIds]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return [TokenIds(tokenizer(text)["input_ids"]) for text in TEXTS]
