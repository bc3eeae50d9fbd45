"""Signals to all processes of a run, at any moment and repeated, end it with a checkpoint and without an error."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

GSM8K = (
    *("run", "-p", "gsm8k-tools", "name=run", "model.builder.layers=1", "warmup.steps=400", "trainer.steps=400"),
    *("warmup.demonstrations_per_step=8", "trainer.tasks_per_step=4", "evaluation.tasks=16", "checkpoint.every=1"),
)
CONTROL = (
    *("run", "-p", "gymnasium", "-r", "control", "name=run", "sampler.vector=async", "trainer.steps=400"),
    *("evaluation.tasks=32", "checkpoint.every=1"),
)
SANDBOX = (
    *("run", "-p", "visual-search", "name=run", "warmup.steps=2", "warmup.demonstrations_per_step=4"),
    *("trainer.steps=400", "trainer.tasks_per_step=4", "evaluation.tasks=8"),
)
MOMENTS = {
    "warm-up": "output.log:warm-up  +[1-9]",
    "evaluation": "output.log:rollouts  ",
    "rollouts": "metrics.jsonl:",
    "update": "rollouts/train-000001.jsonl.gz:",
    "checkpoint": "checkpoints/000001/",
}
IN_EACH_RUN = ["gsm8k-warm-up", "gsm8k-checkpoint", "ddp-rollouts"]
"""Cases of the slow tests. The others are long."""
CASES = [
    ("gsm8k", GSM8K, "warm-up", signal.SIGINT),
    ("gsm8k", (*GSM8K, "warmup.steps=2"), "checkpoint", signal.SIGTERM),
    ("ddp", (*GSM8K, "strategy.id=ddp", "strategy.processes=2"), "warm-up", signal.SIGTERM),
    ("ddp", (*GSM8K, "warmup.steps=2", "strategy.id=ddp", "strategy.processes=2"), "rollouts", signal.SIGINT),
    ("interpreter", (*GSM8K, "warmup.steps=2", f"environment.python={sys.executable}"), "rollouts", signal.SIGINT),
    ("control", CONTROL, "evaluation", signal.SIGTERM),
    ("control", CONTROL, "rollouts", signal.SIGTERM),
    ("control", CONTROL, "update", signal.SIGINT),
    ("sandbox", SANDBOX, "rollouts", signal.SIGINT),
]


def reached(run: Path, moment: str) -> bool:
    name, _, pattern = MOMENTS[moment].partition(":")
    path = run / name
    return path.exists() and (not pattern or re.search(pattern, path.read_text(encoding="utf-8")) is not None)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("arguments", "moment", "number"),
    [
        pytest.param(*others, id=id, marks=pytest.mark.slow if id in IN_EACH_RUN else pytest.mark.long)
        for name, *others in CASES
        for id in [f"{name}-{others[1]}"]
    ],
)
def test_signals_to_all_processes_end_with_a_checkpoint(
    arguments: tuple[str, ...], moment: str, number: signal.Signals, tmp_path: Path
) -> None:
    """SIGTERM is sent to the process group, as by ``timeout``, and SIGINT to each process, as by Slurm."""
    run, output = tmp_path / "runs" / "run", tmp_path / "output.txt"
    with output.open("w", encoding="utf-8") as file:
        command = [sys.executable, "-c", "import signal; signal.signal(2, signal.default_int_handler); "]
        command[-1] += "from rlcore.cli import main; raise SystemExit(main())"
        process = subprocess.Popen(
            [*command, *arguments],
            **{"cwd": tmp_path, "stdout": file, "stderr": subprocess.STDOUT, "start_new_session": True},
        )
    try:
        while not reached(run, moment):
            assert process.poll() is None, output.read_text(encoding="utf-8")
            time.sleep(0.01)
        everybody = [process.pid, *(child.pid for child in psutil.Process(process.pid).children(recursive=True))]
        for _ in range(3):
            if number == signal.SIGTERM:
                os.killpg(process.pid, number)
            for each in everybody if number == signal.SIGINT else []:
                with suppress(ProcessLookupError):
                    os.kill(each, number)
            time.sleep(0.2)
        status = process.wait(timeout=120)
    finally:
        process.kill()
    text = output.read_text(encoding="utf-8")
    assert status == 128 + number, text
    assert text.count("stopping  ") == text.count("stopped   resume with: ") == 1, text
    assert not re.search("Traceback|error|not scored|terminated|interrupted$", text), text
    assert (run / "checkpoints" / "last").exists()
