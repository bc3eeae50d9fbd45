"""What is checked about the vllm engine without vLLM. The engine itself: tests/end_to_end/test_vllm_engine.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from rlcore_rollout.engines.vllm.config import VllmEngineConfig

torch = pytest.importorskip("torch")
from rlcore_models.streaming import named  # noqa: E402


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kv_cache_gib": 2, "gpu_memory_utilization": 0.5}, "both set the size of the cache"),
        ({"max_num_seqs": 512, "arguments": {"max_num_batched_tokens": 256}}, "less than one token for each"),
        ({"arguments": {"dtype": "float16"}}, "dtype is set by model.dtype"),
        ({"arguments": {"max_model_len": 10}}, "max_model_len is set by rollout.max_context_tokens"),
        ({"arguments": {"logprobs_mode": "raw_logits"}}, "logprobs_mode is set by rlcore"),
        ({"arguments": {"max_num_seqs": 4}}, "has its own key: rollout.vllm.max_num_seqs"),
        ({"gpu_memory_utilization": 1.5}, "less than or equal to 1"),
    ],
)
def test_contradictory_options_are_rejected(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        VllmEngineConfig(**options)


def test_vllm_takes_gpus_that_no_process_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlcore_rollout.engines.vllm.launch import own_gpus

    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [own_gpus(2, processes) for processes in (1, 2, 3)] == ["", "2,3", ""]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,GPU-6,7")
    assert own_gpus(1, 2) == "GPU-6"


READER = """
import json, sys
from pathlib import Path
from rlcore_rollout.engines.vllm.shared_memory import views
info = json.loads(sys.stdin.readline())
tensors = views(Path(info["path"]), info["places"], info["size"])
while True:
    print(json.dumps({name: float(tensor.double().sum()) for name, tensor in tensors.items()}), flush=True)
    if not sys.stdin.readline():
        break
"""


def test_written_segment_is_shared_and_its_file_is_unlinked() -> None:
    from rlcore_rollout.engines.vllm.shared_memory import Segment

    torch.manual_seed(0)
    tensors = {"a": torch.randn(3, 5), "b": torch.randn(7).bfloat16(), "c": torch.randn(2, 2, 2)}
    segment = Segment(named(*one) for one in tensors.items())
    command = [sys.executable, "-c", READER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        segment.write(named(*one) for one in tensors.items())
        info = {"path": str(segment.path), "places": segment.places, "size": segment.size}
        process.stdin.write(json.dumps(info) + "\n")
        for _ in range(2):
            sums = json.loads(process.stdout.readline())
            assert sums == {name: pytest.approx(float(tensor.double().sum())) for name, tensor in tensors.items()}
            segment.unlink()
            assert not segment.path.exists()
            tensors = {name: tensor + 1 for name, tensor in tensors.items()}
            segment.write(named(*one) for one in tensors.items())
            process.stdin.write("again\n")
        process.stdin.close()


@pytest.mark.parametrize("name", ["a", "b", None])
def test_changed_tensors_are_rejected(name: str | None) -> None:
    from rlcore.errors import EngineError
    from rlcore_rollout.engines.vllm.shared_memory import Segment

    segment = Segment([named("a", torch.zeros(2))])
    segment.unlink()
    with pytest.raises(EngineError, match="differ from those at the start"):
        segment.write([] if name is None else [named(name, torch.zeros(3))])


def test_segment_uses_another_folder_if_shared_memory_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlcore_rollout.engines.vllm import shared_memory

    monkeypatch.setattr(shared_memory, "SHARED_MEMORY", tmp_path / "absent")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = shared_memory.Segment([named("a", torch.ones(4))])
    assert made.path.parent == tmp_path
    made.write([named("a", torch.full((4,), 2.0))])
    assert shared_memory.views(made.path, made.places, made.size)["a"].tolist() == [2.0] * 4
    made.unlink()
