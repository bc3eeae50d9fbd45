"""SmolLM2-135M learns GSM8K with the calculator: supervised training on its solutions, then GRPO.

The runs of two seeds are computed side by side, with half of the cores each, which takes less time than one after the
other. The stages are kept in ``RLCORE_PROOFS`` (default ``~/.cache/rlcore/proofs``), so that a second run of this test
continues where the first was interrupted. ``RLCORE_PROOF_SEEDS`` selects the seeds, such as ``0``.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
from finished_runs import commit, measured, metrics
from rlcore.episodes.evaluation import wilson
from rlcore.rollouts.records import read_groups
from workspace import ROOT

PAGE = ROOT / "docs" / "results" / "smollm2-135m.md"
FOLDER = Path(os.environ.get("RLCORE_PROOFS") or Path.home() / ".cache" / "rlcore" / "proofs") / "smollm2-135m"
SEEDS = tuple(int(seed) for seed in os.environ.get("RLCORE_PROOF_SEEDS", "0 1").split())
WINDOW = 5
SHORT = 3
"""Most calculations in the solution of a short problem."""
TOGETHER = 2
"""Number of runs that are computed side by side."""
CORES = os.cpu_count() or 1
THREADS = max(1, CORES // TOGETHER)
MINUTES_CLAIMED = 100
"""Of a seed, if it had all cores."""
PROBLEMS = 1319
GOAL = 0.10
ORDER = ("base", "sft", "grpo", "control")
PREPARED = {
    "gsm8k_conversations": ("train", "conversations=true", "max_calculations=4"),
    "gsm8k_short": ("train", "max_calculations=2"),
    "gsm8k_test": ("test",),
}


@dataclass(frozen=True, kw_only=True)
class Trained:
    """The cost of a training run, without interruptions."""

    seconds: float
    gigabytes: float
    """Largest resident memory."""
    tokens: int
    """Tokens in the loss of supervised training, or sampled tokens."""
    curve: dict[int, float]
    """Mean reward of the sampled answers of `WINDOW` steps, by the last of them; empty for supervised training."""


@dataclass(frozen=True, kw_only=True)
class Scored:
    """Greedy accuracy on the test set, and on its problems with at most `SHORT` calculations."""

    solved: int
    solved_short: int
    short: int
    seconds: float

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.solved / PROBLEMS, PROBLEMS)

    @property
    def interval_short(self) -> tuple[float, float]:
        return wilson(self.solved_short / self.short, self.short)


def rlcore(name: str, *arguments: str) -> float:
    """Run a command with its output in files of this name, and return its largest resident memory in GB."""
    variables = {"OMP_NUM_THREADS": str(THREADS)}
    usage = measured(*arguments, out=FOLDER / name, folder=FOLDER, variables=variables)
    return usage.ru_maxrss * 1024 / 1e9


def prepare(data: Path, model: Path) -> None:
    """The model and the data, from the commands in the guide."""
    for name, (source, *words) in PREPARED.items():
        out = FOLDER / "data" / f"{name}.jsonl"
        if not out.exists():
            source = str(data / "gsm8k" / f"{source}.jsonl")
            rlcore(name, "data", "prepare", "gsm8k-tools", f"source={source}", f"out={out}", *words)
    if not (FOLDER / "model").exists():
        rlcore("model", "merge", str(model), "--out", "model", "--dtype", "bf16")


def train(name: str, *words: str) -> Trained:
    """Train, or continue an interrupted run."""
    run, record = FOLDER / "runs" / name, FOLDER / f"{name}.json"
    if record.exists():
        stored = json.loads(record.read_text(encoding="utf-8"))
        return Trained(**{**stored, "curve": {int(step): value for step, value in stored["curve"].items()}})
    if (run / "checkpoints" / "last").exists():
        gigabytes = rlcore(name, "run", "--resume", str(run))
    else:
        shutil.rmtree(run, ignore_errors=True)
        gigabytes = rlcore(name, "run", "-p", "gsm8k-tools", *words, f"name={name}")
    lines = metrics(run)
    found = Trained(
        seconds=sum(line.get("time/step_s", 0.0) + line.get("time/evaluation_s", 0.0) for line in lines),
        gigabytes=gigabytes,
        tokens=int(sum(line.get("tokens/sampled", line.get("tokens/trained", 0)) for line in lines)),
        curve=means({line["step"]: line["reward/mean"] for line in lines if "reward/mean" in line}),
    )
    record.write_text(json.dumps(asdict(found)), encoding="utf-8")
    return found


def means(values: Mapping[int, float]) -> dict[int, float]:
    """Return the means of windows of steps, by the last step of each."""
    steps = sorted(values)
    windows = [steps[first : first + WINDOW] for first in range(0, len(steps), WINDOW)]
    return {window[-1]: sum(values[step] for step in window) / len(window) for window in windows}


def evaluate(name: str, model: str) -> Scored:
    """Greedy accuracy of a model on all problems of the test set."""
    stored = FOLDER / f"{name}.eval.json"
    if not stored.exists():
        saved = FOLDER / f"{name}.jsonl.gz"
        recipe = ("-p", "gsm8k-tools", "-r", "smollm2-135m-grpo", f"model={model}", f"evaluation.tasks={PROBLEMS}")
        rlcore(f"{name}.eval", "eval", *recipe, "--json", "--save", str(saved))
        result = json.loads((FOLDER / f"{name}.eval.out").read_text(encoding="utf-8"))
        counts = {"solved": 0, "solved_short": 0, "short": 0}
        for group in read_groups(saved):
            solved, short = group.trajectories[0].reward == 1, calculations(group.task.fields) <= SHORT
            counts["solved"] += solved
            counts["short"] += short
            counts["solved_short"] += solved and short
        stored.write_text(json.dumps({**counts, "seconds": result["seconds"]}), encoding="utf-8")
    return Scored(**json.loads(stored.read_text(encoding="utf-8")))


def calculations(fields: Mapping[str, object]) -> int:
    """The number of calculations in the solution of a problem."""
    return str(fields["solution"]).count("<<")


@pytest.mark.proof
@pytest.mark.timeout(6 * 3600)
def test_smollm2_learns_gsm8k_on_every_seed() -> None:
    """SFT and GRPO on every seed, and GRPO with shuffled rewards on the first one."""
    data, model = os.environ.get("RLCORE_DATA"), os.environ.get("RLCORE_SMOLLM2")
    if not data or not model:
        pytest.skip("RLCORE_DATA or RLCORE_SMOLLM2 is not set")
    FOLDER.mkdir(parents=True, exist_ok=True)
    prepare(Path(data), Path(model))
    trained: dict[str, Trained] = {}
    scored: dict[str, Scored] = {}

    def learn(seed: int) -> None:
        sft = f"sft-{seed}"
        trained[sft] = train(sft, "-r", "smollm2-135m-sft", "model.path=model", f"seed={seed}")
        score(sft, f"runs/{sft}")
        reinforce(f"grpo-{seed}", seed)

    def reinforce(name: str, seed: int, *words: str) -> None:
        recipe = ("-r", "smollm2-135m-grpo", f"model=runs/sft-{seed}", f"seed={seed}")
        trained[name] = train(name, *recipe, *words)
        score(name, f"runs/{name}/checkpoints/last")

    def score(name: str, model: str) -> None:
        scored[name] = evaluate(name, model)
        write_page(trained, scored)

    control = f"control-{SEEDS[0]}"
    with ThreadPoolExecutor(TOGETHER) as pool:
        for done in [pool.submit(learn, seed) for seed in SEEDS]:
            done.result()
        others = [
            pool.submit(reinforce, control, SEEDS[0], "algorithm.shuffle_rewards=true"),
            pool.submit(score, "base", "model"),
        ]
        for done in others:
            done.result()
    for seed in SEEDS:
        before, after = scored[f"sft-{seed}"], scored[f"grpo-{seed}"]
        assert after.interval_short[0] > before.interval_short[1], f"seed {seed}"
        assert after.solved >= before.solved, f"seed {seed}"
        assert after.solved / PROBLEMS >= GOAL, f"seed {seed}"
        if CORES >= 2 and os.getloadavg()[0] < 3:
            parts = [f"sft-{seed}", f"grpo-{seed}"]
            seconds = sum(trained[name].seconds + scored[name].seconds for name in parts)
            assert seconds / TOGETHER < MINUTES_CLAIMED * 60, f"seed {seed}"
    shuffled, before = scored[control], scored[f"sft-{SEEDS[0]}"]
    assert shuffled.interval_short[0] <= before.interval_short[1], "shuffled rewards improve the model"


def write_page(trained: Mapping[str, Trained], scored: Mapping[str, Scored]) -> None:
    """Write the page of results."""
    short = next(iter(scored.values())).short
    lines = [
        "# smollm2-135m: GSM8K with the calculator",
        "",
        f"Greedy accuracy of SmolLM2-135M-Instruct on the {PROBLEMS:,} problems of GSM8K's test set with 95 %",
        f"intervals (Wilson), and on its {short} problems with at most {SHORT} calculations. SFT is the recipe",
        "`smollm2-135m-sft` on GSM8K's own solutions, GRPO the recipe `smollm2-135m-grpo` after it. The control has",
        "shuffled rewards. The number after a name is the seed, and a run that is not listed has not been computed.",
        "Tokens are those in the loss of SFT and the sampled ones of GRPO.",
        f"Seconds are those of training and of the evaluation of all problems, with {THREADS} of {CORES}",
        f"cores for each run and {TOGETHER} runs at a time. Written by",
        "`RLCORE_SMOLLM2=FILE.gguf uv run pytest -m proof tests/end_to_end/test_smollm2_learns.py`",
        f"at commit {commit()}.",
        "",
        "| run | all problems | short problems | tokens | training, s | evaluation, s | memory, GB |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, one in sorted(scored.items(), key=lambda item: ORDER.index(item[0].split("-")[0])):
        whole = share(one.solved / PROBLEMS, one.interval)
        of_short = share(one.solved_short / one.short, one.interval_short)
        cost = trained.get(name)
        spent = f"{cost.tokens:,} | {cost.seconds:.0f}" if cost else " | "
        memory = f"{cost.gigabytes:.1f}" if cost else ""
        lines.append(f"| {name} | {whole} | {of_short} | {spent} | {one.seconds:.0f} | {memory} |")
    curves = {name: one.curve for name, one in trained.items() if one.curve}
    steps = sorted({step for curve in curves.values() for step in curve})
    lines += [
        "",
        "Share of right answers among those sampled in training, in problems with at most two calculations, as means",
        f"of {WINDOW} steps. The rewards of the control are shuffled after they are counted:",
        "",
        "| run | " + " | ".join(map(str, steps)) + " |",
        "|---|" + "---|" * len(steps),
        *(f"| {name} | " + " | ".join(f"{curve[step]:.3f}" for step in steps) + " |" for name, curve in curves.items()),
    ]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def share(value: float, interval: tuple[float, float]) -> str:
    """A share in percent with its interval."""
    return f"{value:.1%} ({interval[0]:.1%} to {interval[1]:.1%})"
