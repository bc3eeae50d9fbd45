"""Every advantage, loss, divergence and filter raises the accuracy of the default recipe, and shuffled rewards do not.

All runs of a seed start from the same warmed-up policy. Losses differ only off policy, so their runs use four updates
per rollout. In the fast tests, each algorithm learns the bandit of ``test_algorithms_in_a_run.py``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from draw_grid import draw

REPOSITORY = Path(__file__).parents[2]
TABLE = REPOSITORY / "docs" / "results" / "algorithms.md"
PICTURE = REPOSITORY / "docs" / "images" / "algorithms.svg"
PAGES = REPOSITORY / "docs" / "algorithms"
CURVE = re.compile(r"<!-- curve: (\S+) -->\n(?:On the default recipe, .*\n)?")
"""The line of a page with its result."""
SEEDS = (0, 1)
STEPS = 10
"""A third of the steps of the recipe, where its curve becomes flat."""
OFF_POLICY = "trainer.updates_per_rollout=4"
CRITIC = ("critic.learning_rate=1e-3", "critic.warmup_steps=2")

EXPERIMENTS: Mapping[str, tuple[str, ...]] = {
    "grpo": (),
    "dr-grpo": ("algorithm.advantage=dr-grpo", "algorithm.aggregation=seq-mean-token-sum-norm"),
    "rloo": ("algorithm.advantage=rloo",),
    "opo": ("algorithm.advantage=opo",),
    "pass-at-k": ("algorithm.advantage=pass-at-k", "rollout.group_size=2", "trainer.tasks_per_step=64"),
    "grpo-batch": ("algorithm.advantage.normalise_by_std=batch",),
    "max-rl": ("algorithm.advantage=max-rl",),
    "gdpo": ("algorithm.advantage=gdpo",),
    "optimal-token-baseline": ("algorithm.advantage=optimal-token-baseline",),
    "reinforce-plus-plus": ("algorithm.advantage=reinforce-plus-plus",),
    "reinforce-plus-plus-baseline": ("algorithm.advantage=reinforce-plus-plus-baseline",),
    "remax": ("algorithm.advantage=remax",),
    "gae": ("algorithm.advantage=gae", "critic.model=copy", *CRITIC),
    "gae-head": ("algorithm.advantage=gae", "critic.model=head", "critic.warmup_steps=2"),
    "clip": (OFF_POLICY,),
    "dual-clip": (OFF_POLICY, "algorithm.loss.dual_clip=3.0"),
    "gspo": (OFF_POLICY, "algorithm.loss=gspo"),
    "gspo-token": (OFF_POLICY, "algorithm.loss=gspo-token"),
    "cispo": (OFF_POLICY, "algorithm.loss=cispo"),
    "sapo": (OFF_POLICY, "algorithm.loss=sapo"),
    "luspo": (OFF_POLICY, "algorithm.loss=luspo"),
    "vespo": (OFF_POLICY, "algorithm.loss=vespo"),
    "dppo-tv": (OFF_POLICY, "algorithm.loss=dppo-tv"),
    "dppo-kl": (OFF_POLICY, "algorithm.loss=dppo-kl"),
    "symmetric-tv": (OFF_POLICY, "algorithm.loss=symmetric-tv"),
    "clip-cov": (OFF_POLICY, "algorithm.loss=clip-cov"),
    "kl-cov": (OFF_POLICY, "algorithm.loss=kl-cov"),
    "off-policy-mask": (OFF_POLICY, "algorithm.off_policy_threshold=0.1"),
    "kl-straight-through": ("algorithm.kl.coefficient=0.01", "algorithm.kl.estimator=k3+"),
    "kl-in-loss": ("algorithm.kl.coefficient=0.01", "algorithm.kl.estimator=k3"),
    "kl-in-reward": (
        "algorithm.kl.coefficient=0.01",
        "algorithm.kl.estimator=k1",
        "algorithm.kl.target=reward",
        "algorithm.kl.controller=adaptive",
    ),
    "dapo": (
        "algorithm.loss.clip_high=0.28",
        "algorithm.filter.metric=accuracy",
        "algorithm.filter.oversample=1.5",
        "algorithm.overlong.buffer=8",
    ),
}
"""Overrides for ``rlcore run --plugin gsm8k-tools``."""
CONTROL = {"rewards shuffled": ("algorithm.shuffle_rewards=true",)}


@dataclass(frozen=True, kw_only=True)
class Finished:
    """Greedy accuracy on the held-out tasks and accuracy of training samples, by step, and the time of the run."""

    accuracy: dict[int, float]
    sampled: dict[int, float]
    seconds: float

    @property
    def last(self) -> float:
        return self.accuracy[max(self.accuracy)]


def rlcore(folder: Path, *words: str) -> Finished:
    """A run of the default recipe in ``folder``, in one thread."""
    started, where = time.monotonic(), (f"runs={folder.parent}", f"name={folder.name}")
    done = subprocess.run(
        [sys.executable, "-m", "rlcore", "run", "-p", "gsm8k-tools", *words, *where],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    seconds = time.monotonic() - started
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    accuracy, sampled = (
        {line["step"]: line[name] for line in lines if name in line} for name in ("evaluation/accuracy", "accuracy")
    )
    return Finished(accuracy=accuracy, sampled=sampled, seconds=seconds)


def warmed_up(folder: Path, seed: int) -> Path:
    """The policy after the warm-up of the recipe."""
    run = folder / f"warm-{seed}"
    rlcore(run, f"seed={seed}", "trainer.steps=1", "evaluation.every=0", "checkpoint.every=1", "checkpoint.keep=2")
    return run / "checkpoints" / "000000" / "model"


def learn(
    folder: Path, policies: Mapping[int, Path], experiments: Mapping[str, tuple[str, ...]], *words: str
) -> dict[str, dict[int, Finished]]:
    """Run every experiment on every seed, with one run per core."""

    def one(name: str, seed: int) -> Finished:
        where = folder / f"{name.replace(' ', '-')}-{seed}"
        return rlcore(where, f"model={policies[seed]}", "warmup.steps=0", f"seed={seed}", *experiments[name], *words)

    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        jobs = {(name, seed): threads.submit(one, name, seed) for name in experiments for seed in policies}
    return {name: {seed: jobs[name, seed].result() for seed in policies} for name in experiments}


@pytest.mark.proof
@pytest.mark.timeout(14400)
def test_every_algorithm_learns_and_control_does_not(tmp_path: Path) -> None:
    policies = {seed: warmed_up(tmp_path, seed) for seed in SEEDS}
    found = learn(tmp_path, policies, {**EXPERIMENTS, **CONTROL}, f"trainer.steps={STEPS}", "checkpoint.every=0")
    write_table(found)
    shuffled = found.pop("rewards shuffled")
    reached = {(name, seed): one.last for name, seeds in found.items() for seed, one in seeds.items()}
    assert {key: last for key, last in reached.items() if last < 0.8} == {}
    assert all(one.last < one.accuracy[0] + 0.2 for one in shuffled.values())


def write_table(found: Mapping[str, Mapping[int, Finished]]) -> None:
    """Write the curves as a table and as an image."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True)
    steps = sorted(next(iter(found["grpo"].values())).accuracy)
    lines = [
        "# Every algorithm on the default recipe",
        "",
        "Greedy accuracy on 128 held-out problems by training step. All runs of a seed start from the same warmed-up",
        f"policy. Each run is `rlcore run --plugin gsm8k-tools trainer.steps={STEPS}` with the overrides of its row.",
        "Losses differ only off policy, so their runs use four updates per rollout. Written by",
        f"`uv run pytest -m proof {_path()}`",
        f"at commit {commit.stdout.strip() or 'unknown'} on {os.cpu_count()} cores.",
        "",
        "The charts show the accuracy of the training samples, at temperature 1.",
        "",
        "![Sampled accuracy by step of every algorithm](../images/algorithms.svg)",
        "",
        "| algorithm | overrides | seed | " + " | ".join(f"step {step}" for step in steps) + " | seconds |",
        "|---|---|---|" + "---|" * (len(steps) + 1),
    ]
    for name, seeds in found.items():
        words = " ".join(f"`{word}`" for word in {**EXPERIMENTS, **CONTROL}[name]) or "none"
        for seed, one in seeds.items():
            lines.append(f"| {name} | {words} | {seed} | {_cells(one, steps)} | {one.seconds:.0f} |")
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    curves = {
        name: {str(seed): {str(step): share for step, share in one.sampled.items()} for seed, one in seeds.items()}
        for name, seeds in found.items()
    }
    PICTURE.write_text(draw(curves, "accuracy of training samples by training step"), encoding="utf-8")
    for page in PAGES.glob("*.md"):
        page.write_text(CURVE.sub(lambda match: _curve(match[1], found), page.read_text("utf-8")), encoding="utf-8")


def _curve(name: str, found: Mapping[str, Mapping[int, Finished]]) -> str:
    ends = ", ".join(
        f"{one.accuracy[min(one.accuracy)]:.3f} to {one.last:.3f} (seed {seed})" for seed, one in found[name].items()
    )
    sentence = f"On the default recipe, `{name}`: accuracy {ends}; [all curves](../results/algorithms.md)."
    return f"<!-- curve: {name} -->\n{sentence}\n"


def _cells(one: Finished, steps: Sequence[int]) -> str:
    return " | ".join(f"{one.accuracy[step]:.3f}" for step in steps)


def _path() -> str:
    return str(Path(__file__).relative_to(REPOSITORY))
