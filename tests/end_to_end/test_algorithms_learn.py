"""Every advantage, loss, divergence and filter raises the accuracy of the default recipe, and shuffled rewards do not.

All runs of a seed start from the same warmed-up policy. Losses differ only off policy, so their runs use four updates
per rollout. In the fast tests, each algorithm learns the bandit of ``test_algorithms_in_a_run.py``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from draw_grid import draw
from finished_runs import Learned, commit, learned_by_seed, metrics, write_page
from workspace import ROOT

PICTURE = ROOT / "docs" / "images" / "algorithms.svg"
PAGES = ROOT / "docs" / "algorithms"
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


def sampled(one: Learned) -> dict[str, float]:
    """The accuracy of training samples by step."""
    return {str(row["step"]): row["accuracy"] for row in metrics(one.run) if "accuracy" in row}


@pytest.mark.proof
@pytest.mark.timeout(14400)
def test_every_algorithm_learns_and_control_does_not(tmp_path: Path) -> None:
    words = (f"trainer.steps={STEPS}", "checkpoint.every=0")
    found = learned_by_seed(tmp_path, {**EXPERIMENTS, **CONTROL}, SEEDS, *words)
    write_table(found)
    shuffled = found.pop("rewards shuffled")
    reached = {(name, seed): one.last for name, seeds in found.items() for seed, one in seeds.items()}
    assert {key: last for key, last in reached.items() if last < 0.8} == {}
    assert all(one.last < one.accuracy[0] + 0.2 for one in shuffled.values())


def write_table(found: Mapping[str, Mapping[int, Learned]]) -> None:
    """Write the curves as a table and as an image."""
    introduction = (
        "# Every algorithm on the default recipe",
        "",
        "Greedy accuracy on 128 held-out problems by training step. All runs of a seed start from the same warmed-up",
        f"policy. Each run is `rlcore run --plugin gsm8k-tools trainer.steps={STEPS}` with the overrides of its row.",
        "Losses differ only off policy, so their runs use four updates per rollout. Written by",
        "`uv run pytest -m proof tests/end_to_end/test_algorithms_learn.py`",
        f"at commit {commit()} on {os.cpu_count()} cores.",
        "",
        "The charts show the accuracy of the training samples, at temperature 1.",
        "",
        "![Sampled accuracy by step of every algorithm](../images/algorithms.svg)",
    )
    rows = []
    for name, seeds in found.items():
        words = " ".join(f"`{word}`" for word in {**EXPERIMENTS, **CONTROL}[name]) or "none"
        rows += [[name, words, str(seed), *one.cells(), f"{one.seconds:.0f}"] for seed, one in seeds.items()]
    steps = sorted(next(iter(found["grpo"].values())).accuracy)
    write_page("algorithms", introduction, ("algorithm", "overrides", "seed", *steps, "seconds"), rows)
    curves = {name: {str(seed): sampled(one) for seed, one in seeds.items()} for name, seeds in found.items()}
    PICTURE.write_text(draw(curves, "accuracy of training samples by training step"), encoding="utf-8")
    for page in PAGES.glob("*.md"):
        page.write_text(CURVE.sub(lambda match: _curve(match[1], found), page.read_text("utf-8")), encoding="utf-8")


def _curve(name: str, found: Mapping[str, Mapping[int, Learned]]) -> str:
    ends = ", ".join(f"{one.first:.3f} to {one.last:.3f} (seed {seed})" for seed, one in found[name].items())
    sentence = f"On the default recipe, `{name}`: accuracy {ends}; [all curves](../results/algorithms.md)."
    return f"<!-- curve: {name} -->\n{sentence}\n"
