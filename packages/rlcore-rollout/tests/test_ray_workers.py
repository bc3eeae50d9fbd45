"""What a run sends to its workers in a Ray cluster, without a cluster: weights, files, and the actor itself."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("torch")  # of the extra ray

import numpy as np
import torch
from rlcore.contracts import NamedTensor
from rlcore.errors import EngineError
from rlcore.models.weights import FolderWeights
from rlcore.session.plan import RunPlan
from rlcore.types import Boundary, Message, RolloutRequest, Task
from rlcore_models.streaming import named, named_tensors
from rlcore_rollout.sampler.ray import files, weights
from rlcore_rollout.sampler.ray.calls import WorkerLost
from rlcore_rollout.sampler.ray.config import RaySamplerConfig
from rlcore_rollout.sampler.ray.pool import Worker, WorkerPool
from rlcore_rollout.sampler.ray.worker import CollectedLines, SamplerWorker
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM

TENSORS = {
    "whole": torch.arange(70, dtype=torch.float32).reshape(7, 10),
    "half": torch.linspace(-3, 3, 33).to(torch.bfloat16),
    "transposed": torch.arange(12, dtype=torch.float16).reshape(3, 4).T,
    "scalar": torch.tensor(2.5, dtype=torch.float64),
    "counts": torch.tensor([[1, -2]], dtype=torch.int64),
    "mask": torch.tensor([True, False, True]),
    "empty": torch.empty(0, 5),
}


@dataclass
class Source:
    """The weights of a trainer."""

    tensors: Mapping[str, Tensor]
    adapter: Mapping[str, Any] | None = None
    adapted: Mapping[str, Tensor] = field(default_factory=dict)
    version: int = 3
    folder: Path | None = None

    def weights(self, *, adapter_only: bool = False) -> Iterator[NamedTensor]:
        return (named(*one) for one in (self.adapted if adapter_only else self.tensors).items())


def stored(array: Any) -> Any:
    """Stores an array as Ray does: a copy that cannot be written to."""
    copy: np.ndarray[Any, Any] = array.copy()
    copy.setflags(write=False)
    return copy


def received(packed: weights.PackedWeights) -> weights.ReceivedWeights:
    return weights.ReceivedWeights(packed=packed, folder=None, device=torch.device("cpu"), get=lambda array: array)


@pytest.mark.parametrize("array_bytes", [1, 200, 1 << 28])
def test_weights_arrive_as_they_were_sent(array_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "ARRAY_BYTES", array_bytes)
    packed = weights.pack(Source(TENSORS), stored, wanted=[False, True])
    there = received(packed)
    found = {one.name: one for one in there.weights() or ()}
    assert list(found) == list(TENSORS)
    for name, one in found.items():
        assert one.shape == tuple(TENSORS[name].shape)
        assert one.dtype == str(TENSORS[name].dtype).removeprefix("torch.")
        assert one.tensor.dtype == TENSORS[name].dtype
        assert torch.equal(one.tensor, TENSORS[name])
        assert one.tensor.data_ptr() % 4 == 0
    arrays = packed.tensors[False].arrays
    assert len(arrays) == {1: len(TENSORS), 200: 3}.get(array_bytes, 1)
    assert there.version == 3
    assert there.adapter is None


def test_adapter_is_sent_beside_the_weights_or_alone() -> None:
    source = Source(TENSORS, adapter={"r": 2}, adapted={"lora_A": torch.ones(2, 3)})
    there = received(weights.pack(source, stored, wanted=[False, True]))
    assert [one.name for one in there.weights(adapter_only=True) or ()] == ["lora_A"]
    assert there.read == {True}
    assert there.adapter == {"r": 2}
    alone = received(weights.pack(source, stored, wanted=[True]))
    assert alone.weights() is not None
    with pytest.raises(EngineError, match="not sent"):
        next(alone.weights() or iter(()))


def test_weights_of_a_folder_are_not_sent() -> None:
    packed = weights.pack(FolderWeights(folder=Path("model")), stored, wanted=[False, True])
    assert received(packed).weights() is None
    assert packed.tensors == {}


def test_files_are_sent_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "model"
    (folder / "subfolder").mkdir(parents=True)
    (folder / "weights").write_bytes(bytes(range(256)) * 5)
    (folder / "config.json").write_text("{}", encoding="utf-8")
    (folder / "empty").write_bytes(b"")
    monkeypatch.setattr(files, "PART_BYTES", 1000)
    assert [(name, len(part)) for name, part in files.parts(folder)] == [
        ("config.json", 2),
        ("empty", 0),
        ("weights", 1000),
        ("weights", 280),
    ]
    found = files.listing(folder)
    assert found["config.json"] == (2, hashlib.sha256(b"{}").hexdigest())
    assert files.listing(tmp_path / "none") == {}

    async def sent() -> Path:
        worker = SamplerWorker(str(tmp_path))
        assert await worker.has_folder(folder, found)
        (folder / "config.json").write_text("[]", encoding="utf-8")
        assert not await worker.has_folder(folder, found)
        (folder / "config.json").write_text("{}", encoding="utf-8")
        for name, part in files.parts(folder):
            await worker.write(name, part)
        assert worker._sent is not None
        place = worker._sent.path
        assert files.listing(place) == found
        await worker.close()
        return place

    assert not asyncio.run(sent()).exists()


def test_folder_of_a_killed_process_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "from rlcore_rollout.sampler.ray.files import SentFolder\n"
        "folder = SentFolder()\nfolder.append('config.json', b'{}')\nprint(folder.path, flush=True)\ninput()"
    )
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    built = Path(tempfile.mkdtemp(prefix="rlcore-model-"))  # as a run without a run directory builds its model
    command, environment = [sys.executable, "-c", code], os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        folder, own = Path(other.stdout.readline().strip()), files.SentFolder()
        files.remove_abandoned()
        assert files.listing(folder).keys() == {"config.json"}
        other.kill()
    files.remove_abandoned()
    assert not folder.exists()
    assert own.path.is_dir()
    own.remove()
    assert list(tmp_path.iterdir()) == [built]


def test_worker_samples_with_the_weights_that_it_received(
    make_folder: Callable[[], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The actor as a plain object: it creates a sampler from the pickled plan, and reports warnings as lines."""
    import ray

    monkeypatch.setattr(ray, "get", lambda array: array)
    folder = make_folder()
    small = {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1}
    module = Qwen2ForCausalLM(Qwen2Config(vocab_size=512, intermediate_size=32, tie_word_embeddings=True, **small))
    module.config.save_pretrained(folder)
    plan = RunPlan.of(
        {
            "model": {"path": str(folder), "device": "cpu", "chat_format": "plain"},
            "environment": {"id": "gsm8k-tools"},
            "data": {"id": "gsm8k-tools"},
            "reward": [{"id": "math-numeric-equal"}],
            "rollout": {"max_new_tokens": 4},
            "trainer": {"id": "policy-gradient"},
            "schedule": {"ahead": 1},
        }
    )

    class Module(Source):
        def weights(self, *, adapter_only: bool = False) -> Iterator[NamedTensor]:
            return named_tensors(module)

    async def sampled() -> None:
        worker = SamplerWorker(str(tmp_path))
        try:
            packed = weights.pack(Module({}), stored, wanted=[False])
            assert await worker.start(plan, folder, packed, 2) == [False]
            logging.getLogger("rlcore_rollout").warning("a warning")
            assert (await worker.heartbeat(0))[-1] == "a warning"
            assert await worker.heartbeat(0) == []
            task = Task(id="1", messages=(Message(role="user", content="1 + 1"),), fields={"answer": "2"})
            request = RolloutRequest(tasks=[task], group_size=2, seed=0, step=1)
            group = await worker.sample(task, request.key, 0)
            turns = [turn for trajectory in group.trajectories for turn in trajectory.segments[0].turns]
            assert {turn.policy_version for turn in turns if turn.kind == "policy"} == {3}
            assert all(trajectory.reward == 0 for trajectory in group.trajectories)

            async def failing(*_: Any, **__: Any) -> None:
                raise RuntimeError("no answer")

            assert worker._sampler is not None
            monkeypatch.setattr(worker._sampler._engine, "generate", failing)
            failed = await worker.sample(task, request.key, 1)
            assert {one.failure.boundary for one in failed.trajectories if one.failure} == {Boundary.ENGINE}
            assert await worker.load(weights.pack(Module({}, version=4), stored, wanted=[False])) == [False]

            async def refusing(_: Any) -> None:
                raise EngineError("not while it samples")

            monkeypatch.setattr(worker._sampler._engine, "load_weights", refusing)
            for failure, raised in ((None, EngineError), ("it ended", WorkerLost)):
                monkeypatch.setattr(worker._sampler._engine, "failure", failure, raising=False)
                with pytest.raises(EngineError, match=failure or "not while it samples") as refused:
                    await worker.load(packed)
                assert type(refused.value) is raised
        finally:
            await worker.close()

    asyncio.run(sampled())


class Actor:
    """Answers calls as an actor of Ray does that raises an error."""

    def __init__(self, error: Exception) -> None:
        self.load, self._error = self, error

    def remote(self, *_: Any) -> Any:
        return self

    def future(self) -> Future[Any]:
        from ray.exceptions import RayTaskError

        done: Future[Any] = Future()
        done.set_exception(RayTaskError("load", "", self._error))
        return done


@pytest.mark.parametrize(("error", "lost"), [(EngineError("not while it samples"), 0), (WorkerLost("it ended"), 1)])
def test_worker_whose_engine_refuses_weights_is_not_replaced(
    error: Exception, lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = list[str]()
    monkeypatch.setattr(WorkerPool, "_lose", lambda pool, worker, reason: losses.append(reason))

    async def loaded() -> None:
        packed, unused = weights.pack(FolderWeights(folder=Path("model")), stored, wanted=[]), cast(Any, None)
        options, report = RaySamplerConfig(), CollectedLines()
        pool = WorkerPool(unused, options, unused, concurrency=1, folder=None, packed=packed, report=report)
        pool._workers.append(Worker(0, Actor(error), "here", asyncio.get_running_loop().create_future()))
        await pool.load(packed)

    with pytest.raises(EngineError, match="not while") if not lost else nullcontext():
        asyncio.run(loaded())
    assert len(losses) == lost
