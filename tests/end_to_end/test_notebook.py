"""rlcore in a real notebook: an IPython kernel, whose event loop is running."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook" / "train_and_plot.ipynb"
TINY = (
    "warmup={'steps': 0}, trainer={'steps': %d, 'tasks_per_step': 2}, "
    "rollout={'group_size': 2, 'max_new_tokens': 8}, evaluation={'tasks': 4}"
)
Execute = Callable[..., list[Any]]

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # of the client's sockets
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def execute(tmp_path: Path) -> Execute:
    """Executes a notebook in an empty folder, and returns the outputs of each code cell."""

    def run(notebook: Any, **options: Any) -> list[Any]:
        client = nbclient.NotebookClient(
            notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}, **options
        )
        client.execute()
        return [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]

    return run


def notebook_of(*sources: str) -> Any:
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])


def texts(outputs: list[Any]) -> list[str]:
    """Everything that the outputs of a cell show as text or HTML."""
    found = []
    for output in outputs:
        found += [output["text"]] if output.output_type == "stream" else []
        found += [str(text) for kind, text in output.get("data", {}).items() if kind.startswith("text/")]
        found += output.get("traceback", [])
    return found


def test_notebook_trains_evaluates_and_plots(execute: Execute, warmed_up: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "the notebook is stored without outputs"
    parameters = next(cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ()))
    parameters.source += f"""
settings = {{
    "model": {str(warmed_up)!r},
    "warmup": {{"steps": 0}},
    "trainer": {{"steps": 4}},
    "evaluation": {{"every": 2, "tasks": 32}},
}}"""
    _, training, frame, plot, messages, means, evaluation, resumed = execute(notebook)
    shown = [text for outputs in (training, resumed) for text in texts(outputs)]
    assert not [text for text in shown if "\x1b" in text or "\r" in text]
    lines = [line for text in texts(training) for line in text.splitlines()]
    steps = [line.split("accuracy")[0].split() for line in lines if line.startswith("step ") and "accuracy" in line]
    assert steps == [["step", "0", "evaluation"], ["step", "4", "evaluation"]], "steps replace each other"
    assert "<svg" in training[-1]["data"]["text/html"]
    assert "reward/mean" in frame[0]["data"]["text/html"]
    assert "image/png" in plot[-1]["data"]
    assert "assistant" in messages[0]["text"]
    assert "tokens" in means[0]["data"]["text/html"]
    assert "accuracy" in evaluation[-1]["data"]["text/html"]
    assert all(step in resumed[-1]["data"]["text/plain"] for step in ("5:", "6:"))
    assert not [output for outputs in (training, evaluation) for output in outputs if output.get("name") == "stderr"]


INTERRUPT = """
import os, pathlib, signal, threading, time

def interrupt():  # what Jupyter sends when the user interrupts the kernel
    metrics = pathlib.Path("runs/it/metrics.jsonl")
    while not (metrics.is_file() and metrics.read_bytes().count(b"\\n") > 2):
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
"""


def test_interrupted_cell_leaves_a_run_that_continues(execute: Execute) -> None:
    notebook = notebook_of(
        f"{INTERRUPT}\nimport rlcore\nrun = rlcore.train('gsm8k-tools', name='it', {TINY % 500})",
        "seen = len(rlcore.load_run('runs/it').metrics.rows)",
        "run = rlcore.train(resume='runs/it', trainer={'steps': seen + 1})\nlen(run.metrics.rows) - seen",
    )
    notebook.cells[0].metadata.tags = ["raises-exception"]
    interrupted, _, resumed = execute(notebook)
    assert (interrupted[-1].output_type, interrupted[-1].ename) == ("error", "KeyboardInterrupt")
    assert "runs/it" in interrupted[-1].evalue
    assert int(resumed[-1]["data"]["text/plain"]) >= 1


def test_mistake_in_a_cell_is_shown_without_a_traceback(execute: Execute) -> None:
    notebook = notebook_of("import rlcore\nrlcore.train('gsm8k-tools', trainer={'stepz': 3})")
    ((output,),) = execute(notebook, allow_errors=True)
    assert output.ename == "ProblemsError"
    assert "did you mean trainer.steps" in "\n".join(output.traceback)
    assert "File" not in "\n".join(output.traceback)
