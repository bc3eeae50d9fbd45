"""The default recipe learns with ``schedule.ahead=1`` on Ray although its workers are killed and stopped all the time.

``RLCORE_FAULTS`` is the number of faults, 50 by default.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from finished_runs import evaluations
from ray_cluster import MARK, until, worker_processes

FAULTS = int(os.environ.get("RLCORE_FAULTS", "50"))
SETTINGS = (
    *("-p", "gsm8k-tools", "name=run", "schedule.ahead=1", "sampler.id=ray", "sampler.address=local"),
    "checkpoint.every=0",
)


def sampled(folder: Path, model: Path, steps: int, faults: int) -> tuple[dict[int, float], str, int]:
    """Train a model with faults; its accuracies by step, what the run prints, and the number of faults.

    Every third fault stops a worker. Each is injected when all workers have started after those before.
    """
    folder.mkdir()
    printed, mark, injected, stopped = folder / "printed.txt", secrets.token_hex(8), 0, set[int]()
    with printed.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "rlcore", "run", *SETTINGS, f"model={model}", f"trainer.steps={steps}"],
            cwd=folder,
            env={**os.environ, MARK: mark},
            stdout=output,
            stderr=subprocess.STDOUT,
        )

    def recovered() -> bool:
        text = printed.read_text(encoding="utf-8")
        count = text.count("has been started")
        return process.poll() is not None or ("step     1  " in text and count == injected)

    try:
        while injected < faults and until(recovered, 900) and process.poll() is None:
            pids = [pid for pid in worker_processes(mark) if pid not in stopped]
            pid, number = pids[injected % len(pids)], signal.SIGKILL if injected % 3 else signal.SIGSTOP
            os.kill(pid, number)
            stopped |= {pid} if number == signal.SIGSTOP else set()
            injected += 1
        assert process.wait(timeout=7200) == 0, printed.read_text(encoding="utf-8")
    finally:
        process.kill()
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # Ray does not end a stopped process
    return evaluations(folder / "runs/run"), printed.read_text(encoding="utf-8"), injected


@pytest.mark.proof
@pytest.mark.timeout(14400)
def test_faults_do_not_change_what_is_learned(warmed_up: Path, tmp_path: Path) -> None:
    steps = max(30, 10 * FAULTS)
    undisturbed, _, _ = sampled(tmp_path / "undisturbed", warmed_up, steps, 0)
    disturbed, printed, faults = sampled(tmp_path / "disturbed", warmed_up, steps, FAULTS)
    print(f"{faults} faults in {steps} steps\nundisturbed  {undisturbed}\ndisturbed    {disturbed}")
    assert faults == FAULTS, "the run ended before all faults: give it more steps"
    assert printed.count("is lost and will be replaced") == FAULTS
    found = re.search(r"groups    (\d+) submitted: (\d+) trained(?:, (\d+) dropped)?.*, (\d+) left", printed)
    assert found is not None, printed
    submitted, trained, dropped, left = (int(count or 0) for count in found.groups())
    assert submitted == trained + dropped + left
    assert list(disturbed) == list(undisturbed)
    assert disturbed[steps] > 0.85
    assert undisturbed[steps] > 0.85
