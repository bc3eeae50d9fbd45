"""The rules of the diagnosis, each on both sides of its border, and the diagnosis of run directories."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rlcore.diagnosis.diagnosing import diagnose
from rlcore.diagnosis.evidence import MOST, Evidence
from rlcore.diagnosis.rules import GUIDE, RULES
from rlcore.errors import UserError
from rlcore.plugins.loading import load_attribute
from rlcore.rollouts.records import write_groups
from rlcore.types import (
    Group,
    Logprobs,
    LossMask,
    Message,
    RewardResult,
    Sampling,
    Segment,
    Stop,
    Task,
    TokenIds,
    ToolCall,
    ToolSchema,
    Trajectory,
    Turn,
)

Call = Callable[..., Any]
Tree = Mapping[str, Any]
USUAL = {"updates": 1, "learning_rate": 1e-3, "gradient_norm": 1.0, "reward/mean": 0.5, "accuracy": 0.5} | {
    "groups/equal": 0.5,
    "stop/done": 10,
    "tokens/sampled": 100,
}
CUT = {"stop/done": 5, "stop/length": 5}
WARM: Tree = {"warmup": {"steps": 8}}
RISING: Tree = {"trainer": {"learning_rate": 1e-3, "lr_warmup_steps": 9, "steps": 9}}
RARE: Tree = {"accuracy": 0.01, "groups/equal": 0.8}
TURNS: Tree = {"environment": {"max_turns": 2}}
LOSS = {"reward/mean": None, "accuracy": None, "groups/equal": None}
CASES: list[tuple[str, Tree, Tree, Tree, Tree]] = [
    ("learning-rate-tiny", {}, {}, {"learning_rate": 9e-11}, {"learning_rate": 1e-10}),
    ("rate-warms-up", RISING, {}, {"learning_rate": 1.9e-5}, {"learning_rate": 2e-5}),
    ("no-gradient", {}, {}, {"gradient_norm": 0}, {"gradient_norm": 1e-9}),
    ("no-gradient", {}, {}, {"gradient_norm": 0, "advantage/std": 1}, {"gradient_norm": 0, "advantage/std": 0}),
    ("rewards-zero", {}, {}, {"reward/mean": 0, "groups/equal": 1}, {"reward/mean": 0, "groups/equal": 0.9}),
    ("rewards-zero", {}, {}, {"reward/mean": 0, "groups/equal": None, "accuracy": 0}, {"reward/mean": 0.01}),
    ("rewards-rare", {}, {}, {"accuracy": 0.05, "groups/equal": 0.8}, {"accuracy": 0.06, "groups/equal": 0.8}),
    ("rewards-rare", {}, {}, {"accuracy": 0.01, "groups/equal": 0.8}, {"accuracy": 0.01, "groups/equal": 0.7}),
    ("rewards-rare", {}, {}, {"accuracy": 0, "groups/equal": 0.9}, {"accuracy": 0, "groups/equal": 1}),
    ("rewards-rare", {}, {}, RARE, {**RARE, "reward/mean": 0}),
    ("rewards-maximal", {}, {}, {"accuracy": 1, "groups/equal": 1}, {"accuracy": 0.99, "groups/equal": 1}),
    ("rewards-maximal", {}, {}, {"accuracy": 1, "groups/equal": 1}, {"accuracy": 1, "groups/equal": 0.9}),
    ("groups-equal", {}, {}, {"groups/equal": 1}, {"groups/equal": 0.99}),
    ("siblings-equal", {}, {}, {"groups/same_answers": 0.9}, {"groups/same_answers": 0.89}),
    ("rewards-contradict", {}, {}, {"groups/contradictory": 0.02}, {"groups/contradictory": 0.019}),
    ("not-scored", {}, {}, {"not_scored": 2}, {"not_scored": 1.9}),
    ("reward-raises", {}, {}, {"reward_error/own/error": 1}, {"reward_error/own/timeout": 1}),
    ("reward-raises", {}, {}, {"reward_error/own/error": 1}, {"reward_error/own/error": 1, "not_scored": 9}),
    ("cut-by-turn", {}, {}, {"length/turn": 5}, {"length/turn": 4.9}),
    ("cut-by-context", {}, {}, {"length/context": 5}, {"length/context": 4.9}),
    ("turns-used-up", TURNS, {}, {"stop/done": 5, "stop/max_turns": 5, "accuracy": 0.4}, {"stop/max_turns": 9}),
    ("turns-used-up", TURNS, {}, {"stop/max_turns": 90, "accuracy": 0.4}, {"stop/max_turns": 90, "accuracy": 0.5}),
    (
        "calls-unreadable",
        {},
        {},
        {"tools/calls": 1, "tools/unreadable": 0.5},
        {"tools/calls": 1, "tools/unreadable": 0.4},
    ),
    ("calls-missed", {}, {}, {"tools/calls": 0, "tools/missed": 0.1}, {"tools/calls": 0, "tools/missed": 0.09}),
    ("calls-missed", {}, {}, {"tools/calls": 1, "tools/missed": 0.5}, {"tools/calls": 1, "tools/missed": 0.4}),
    ("tools-fail", {}, {}, {"tools/calls": 1, "tools/errors": 0.9}, {"tools/calls": 1, "tools/errors": 0.89}),
    ("tools-fail", {}, {}, {"tools/calls": 0.1, "tools/errors": 0.1}, {"tools/calls": 0.09, "tools/errors": 0.09}),
    ("same-answer", {}, {}, {"answers/same": 0.9, "accuracy": 0.4}, {"answers/same": 0.89, "accuracy": 0.4}),
    ("same-answer", {}, {}, {"answers/same": 0.9, "accuracy": 0.4}, {"answers/same": 0.9, "accuracy": 0.5}),
    ("template-changed", {"model": {"chat_format": "qwen3"}}, {}, CUT, {"stop/done": 6, "stop/length": 5}),
    (
        "template-changed",
        {"model": {"chat_template": "x.jinja"}},
        {},
        {"tools/unreadable": 0.5},
        {"tools/unreadable": 0.4},
    ),
    ("warm-up-short", WARM, {}, CUT, {"stop/done": 6, "stop/length": 5}),
    (
        "warm-up-short",
        WARM,
        {},
        {"turns/mean": 2, "info/invalid_actions": 1},
        {"turns/mean": 2, "info/invalid_actions": 0.9},
    ),
    (
        "warm-up-short",
        WARM,
        {},
        {"tools/calls": 0.1, "tools/unreadable": 1},
        {"tools/calls": 0.09, "tools/unreadable": 1},
    ),
    ("reference-differs", {}, {}, {"kl/mean": 0.5}, {"kl/mean": 0.49}),
    ("divergence-high", {}, {"kl/mean": 0.1}, {"kl/mean": 1}, {"kl/mean": 0.99}),
    ("ratio-high", {}, {}, {"ratio/max": 1000}, {"ratio/max": 999}),
    ("clipped", {}, {}, {"clip/fraction": 0.4}, {"clip/fraction": 0.39}),
    ("gradient-limited", {"trainer": {"max_gradient_norm": 1}}, {}, {"gradient_norm": 50}, {"gradient_norm": 49}),
    ("engine-differs", {}, {}, {"logprob_gap/mean": 0.1}, {"logprob_gap/mean": 0.09}),
    (
        "entropy-collapsed",
        {},
        {"entropy/mean": 1},
        {"entropy/mean": 0.019, "accuracy": 0.4},
        {"entropy/mean": 0.02, "accuracy": 0.4},
    ),
    (
        "entropy-collapsed",
        {},
        {"entropy/mean": 1},
        {"entropy/mean": 0, "accuracy": 0},
        {"entropy/mean": -9, "accuracy": 0},
    ),
    ("evaluation-lower", {}, {}, {"evaluation/accuracy": 0.09}, {"evaluation/accuracy": 0.11}),
    ("evaluation-higher", {}, {}, {"evaluation/accuracy": 0.91}, {"evaluation/accuracy": 0.89}),
    ("reward-fell", {}, {"reward/mean": 0.4}, {"reward/mean": 0.1}, {"reward/mean": 0.11}),
    ("loss-rises", {}, {**LOSS, "loss": 1}, {**LOSS, "loss": 1.21}, {**LOSS, "loss": 1.2}),
    ("length-drifts", {}, {"tokens/sampled": 100}, {"tokens/sampled": 400}, {"tokens/sampled": 399}),
    ("length-drifts", {}, {"tokens/sampled": 100}, {"tokens/sampled": 25}, {"tokens/sampled": 26}),
]


def row(step: int, changes: Tree) -> dict[str, Any]:
    return {name: value for name, value in {"step": step, **USUAL, **changes}.items() if value is not None}


def held(rule: str, config: Tree, first: Tree, later: Tree) -> str | None:
    """What a rule finds in a run of five steps."""
    evidence = Evidence(Path("nowhere"), config)
    (spec,) = (spec for spec in RULES if spec.id == rule)
    condition = load_attribute(spec.target)
    for step in range(1, 6):
        evidence.add(row(step, (first or later) if step == 1 else later))
        if (found := condition(evidence)) is not None:
            return str(found)
    return None


@pytest.mark.parametrize(
    ("rule", "config", "first", "holds", "border"), CASES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_rule_holds_from_its_border(rule: str, config: Tree, first: Tree, holds: Tree, border: Tree) -> None:
    assert held(rule, config, first, holds)
    assert held(rule, config, first, border) is None


def test_rules_of_the_configuration() -> None:
    assert held("rewards-shuffled", {"algorithm": {"shuffle_rewards": True}}, {}, {})
    assert held("rewards-shuffled", {"algorithm": {"shuffle_rewards": False}}, {}, {}) is None
    assert held("weights-negative", {"reward": [{"weight": -1}, {"weight": 0}]}, {}, {})
    assert held("weights-negative", {"reward": [{"weight": -1}, {"id": "other"}]}, {}, {}) is None
    without = {"reward/mean": 0, "accuracy": 0, "groups/equal": None}
    assert held("rewards-zero", {"algorithm": {"advantage": {"id": "none"}}}, {}, without) is None
    short = {"trainer": {**RISING["trainer"], "lr_warmup_steps": 8}}
    assert held("rate-warms-up", short, {}, {"learning_rate": 1e-6}) is None


def test_the_evaluation_falls_while_training_improves() -> None:
    (spec,) = (spec for spec in RULES if spec.id == "evaluation-falls")
    condition = load_attribute(spec.target)
    for last, found in ((0.4, True), (0.41, False)):
        evidence = Evidence(Path("nowhere"), {})
        for step in range(1, 7):
            evaluated = {"evaluation/reward": 0.5 if step == 1 else last} if step % 2 else {}
            evidence.add(row(step, {"reward/mean": 0.2 if step < 4 else 0.31, **evaluated}))
        assert (condition(evidence) is not None) is found


def test_every_rule_is_tested_and_in_the_guide() -> None:
    tested = {case[0] for case in CASES} | {"rewards-shuffled", "evaluation-falls", "weights-negative"}
    tested |= {"turn-rewards-missing", "episodes-cut"}
    assert {spec.id for spec in RULES} == tested
    assert all(spec.guide == f"{GUIDE}#{spec.id}" and spec.summary and spec.fix and spec.metrics for spec in RULES)


def test_a_usual_run_has_no_finding() -> None:
    assert [spec.id for spec in RULES if held(spec.id, {}, {}, {})] == []


# Run directories


def run_with(folder: Path, rows: list[dict[str, Any]], config: str = "") -> Path:
    (folder / "rollouts").mkdir(parents=True)
    (folder / "config.toml").write_text(config, encoding="utf-8")
    lines = "".join(json.dumps(one) + "\n" for one in rows)
    (folder / "metrics.jsonl").write_text(lines, encoding="utf-8")
    return folder


def answered(text: str, *calls: ToolCall, reply: str = "", stop: Stop = Stop.DONE) -> Trajectory:
    """A trajectory with one answer of the model, and the reply of a tool."""
    messages = (Message(role="assistant", content=text, tool_calls=calls),)
    replies = (Message(role="tool", content=reply),) if reply else ()
    turns = (
        Turn(
            kind="policy", start=0, end=2, messages=messages, finish_reason="length" if stop is Stop.LENGTH else "stop"
        ),
        Turn(kind="observation", start=2, end=2, messages=replies),
    )
    segment = Segment(
        token_ids=TokenIds([1, 2]), loss_mask=LossMask([True, True]), logprobs=Logprobs([-1.0, -1.0]), turns=turns
    )
    tool = ToolSchema(name="adder", description="", parameters={})
    error = {"toy": RewardResult(value=None, error="the judge is down")}
    return Trajectory(task_id="1", sibling=0, segments=(segment,), stop=stop, tools=(tool,), rewards=error)


@pytest.mark.parametrize(
    ("rule", "trajectory", "changes", "shown"),
    [
        (
            "calls-unreadable",
            answered("", ToolCall(name="", error="bad JSON")),
            {"tools/calls": 1, "tools/unreadable": 1},
            "bad JSON",
        ),
        ("calls-missed", answered('{"name": "adder"}'), {"tools/calls": 0, "tools/missed": 1}, '{"name": "adder"}'),
        ("tools-fail", answered("", reply="no such tool"), {"tools/calls": 1, "tools/errors": 1}, "no such tool"),
        ("not-scored", answered(""), {"not_scored": 5}, "the judge is down"),
        ("same-answer", answered("42"), {"answers/same": 1, "accuracy": 0.1}, "42"),
        ("cut-by-turn", answered("the end of it", stop=Stop.LENGTH), {"length/turn": 9}, "the end of it"),
        (
            "cut-by-turn",
            replace(answered("the end", stop=Stop.LENGTH), sampling=Sampling(max_new_tokens=2)),
            {"length/turn": 9},
            "at 2 tokens, which is max_tokens of the agent's requests",
        ),
    ],
)
def test_a_finding_shows_the_first_example(
    tmp_path: Path, rule: str, trajectory: Trajectory, changes: Tree, shown: str
) -> None:
    limits = "[rollout]\nmax_new_tokens = 64\n"
    run = run_with(tmp_path / "run", [row(step, changes) for step in (1, 2, 3)], limits)
    group = Group(task=Task(id="1", messages=()), trajectories=(trajectory,))
    for step in (1, 2, 3):
        write_groups(run / "rollouts" / f"train-{step:06d}.jsonl.gz", [group])
    found = {one.rule: one for one in diagnose(run).found}
    assert shown in found[rule].text


@pytest.mark.parametrize(("limit", "found"), [(1, "turns-used-up"), (2, "episodes-cut")])
def test_limits_of_turns_and_of_the_environment_are_told_apart(tmp_path: Path, limit: int, found: str) -> None:
    changes = {"stop/done": None, "stop/max_turns": 1, "accuracy": 0}
    run = run_with(tmp_path / "run", [row(step, changes) for step in (1, 2)], f"[environment]\nmax_turns = {limit}\n")
    group = Group(task=Task(id="1", messages=()), trajectories=(answered("", stop=Stop.MAX_TURNS),))
    for step in (1, 2):
        write_groups(run / "rollouts" / f"train-{step:06d}.jsonl.gz", [group])
    assert [one.rule for one in diagnose(run).found] == [found]


@pytest.mark.parametrize(("reward", "found"), [(None, "turn-rewards-missing"), (0.5, "groups-equal")])
def test_rewards_of_turns_are_missing(tmp_path: Path, reward: float | None, found: str) -> None:
    """The groups of a run that trains on the rewards of turns alone look equal if no turn has one."""
    config = '[algorithm]\nturn_rewards = "only"\n'
    run = run_with(tmp_path / "run", [row(step, {"groups/equal": 1}) for step in (1, 2, 3)], config)
    turns = (Turn(kind="policy", start=0, end=1, messages=(), reward=reward),)
    segment = Segment(token_ids=[1], loss_mask=[True], logprobs=[0.0], turns=turns)  # type: ignore[arg-type]
    group = Group(
        task=Task(id="1", messages=()), trajectories=(Trajectory(task_id="1", sibling=0, segments=(segment,)),)
    )
    for step in (1, 2, 3):
        write_groups(run / "rollouts" / f"train-{step:06d}.jsonl.gz", [group])
    assert [one.rule for one in diagnose(run).found] == [found]


def test_damaged_files_of_a_run_are_left_out(tmp_path: Path) -> None:
    changes = {"tools/calls": 1, "tools/unreadable": 1, "learning_rate": 0}
    run = run_with(
        tmp_path / "run", [row(1, changes), row(2, changes)], "[trainer]\nmax_gradient_norm = 'x'\n[rollout]\nid = 5\n"
    )
    (run / "rollouts" / "train-000002.jsonl.gz").write_bytes(b"\x1f\x8b\x08 cut")
    odd = [
        '{"step": 3',
        "[1]",
        '{"step": -4}',
        '{"step": 1e999}',
        f'{{"step": 1{"0" * 400}}}',
        '{"step": 3, "loss": "a", "kl/mean": 1e999}',
    ]
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write("\n".join([*odd, f'{{"step": 4, "loss": {"9" * 400}}}', '{"step": 5, "updates"']))
    found = diagnose(run)
    assert {"learning-rate-tiny", "calls-unreadable"} <= {one.rule for one in found.found}
    assert found.trained is True  # step 3 does not say


def test_metrics_that_are_a_pipe_are_not_read(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", [])
    (run / "metrics.jsonl").unlink()
    os.mkfifo(run / "metrics.jsonl")
    with pytest.raises(UserError, match="not a regular file"):
        diagnose(run)


def test_long_runs_are_kept_in_part() -> None:
    evidence = Evidence(Path("nowhere"), {})
    for step in range(1, 3 * MOST):
        evidence.add(row(step, {}))
    assert (len(evidence.rows), evidence.rows[0]["step"], evidence.step) == (MOST, 1, 3 * MOST - 1)


# Commands

RULES_FILE = """
def third_step(run):
    return "step 3" if run.step == 3 else None

def broken(run):
    raise ValueError("oops")
"""


def test_run_prints_a_finding_once_and_again_at_its_end(rlcore: Call, caplog: pytest.LogCaptureFixture) -> None:
    Path("mine.py").write_text(RULES_FILE, encoding="utf-8")
    done = rlcore("run", "-p", "toy", "diagnosis=['mine.py:third_step','mine.py:broken']", "trainer.steps=4")
    assert done.status == 0, done.err
    lines = done.out.splitlines()
    assert lines.count("finding   step 3: step 3") == 2
    assert lines[-1].startswith("next")
    assert caplog.text.count("oops") == 1
    (run,) = Path("runs").iterdir()
    assert "step 3: step 3" not in rlcore("diagnose", str(run)).out  # it may be the run of somebody else
    shown = rlcore("diagnose", str(run), "--rule", "mine.py:third_step")
    assert (shown.status, "finding   step 3: step 3" in shown.out) == (1, True)
    found = json.loads(rlcore("diagnose", str(run), "--json", "--rule", "mine.py:third_step").out)
    assert [one["rule"] for one in found["diagnosis"] if ":" in one["rule"]] == ["mine.py:third_step"]


IDLE = """
from rlcore import hookimpl

class Idle:
    @hookimpl
    def rlcore_step_finished(self):
        return {"updates": 0.0}
"""


def test_a_run_without_updates_says_so_in_its_last_line(rlcore: Call) -> None:
    Path("idle.py").write_text(IDLE, encoding="utf-8")
    done = rlcore("run", "-p", "toy", "observers=['idle.py:Idle']", "trackers.use=[jsonl]")
    assert done.out.splitlines()[-1] == "untrained nothing was trained after the warm-up: no step changed the policy"
    assert "next      rlcore data show" in done.out
    (run,) = Path("runs").iterdir()
    shown = rlcore("diagnose", str(run)).out.splitlines()
    assert shown[-1] == done.out.splitlines()[-1]
    assert shown[-2] == "asked     observers=['idle.py:Idle'] trackers.use=[jsonl]"
    found = json.loads(rlcore("run", "-p", "toy", "observers=['idle.py:Idle']", "--json").out)
    assert (found["trained"], found["finished"]) == (False, True)


def test_the_error_of_a_failed_run_is_a_finding(tmp_path: Path) -> None:
    run, log = run_with(tmp_path / "run", [], ""), tmp_path / "run" / "output.log"
    started = "run       runs/one\n"
    log.write_text(f"{started}failed: DataError: no rows\n      found  0\n      fix    add rows\nTraceback\n", "utf-8")
    (found,) = diagnose(run).found
    assert (found.rule, found.text, found.fix) == ("failed", "the run failed: DataError: no rows: 0", "add rows")
    log.write_text(log.read_text("utf-8") + started, "utf-8")
    assert diagnose(run).found == []  # it was resumed


@pytest.mark.parametrize("idle", ["updates", "learning_rate", "gradient_norm"])
def test_one_step_with_a_change_is_training(tmp_path: Path, idle: str) -> None:
    for last, trained in ((0, False), (1, True)):
        run = run_with(tmp_path / str(last), [row(1, {idle: 0}), row(2, {idle: last})], "[warmup]\nsteps = 3\n")
        found = diagnose(run)
        assert (found.trained, "after the warm-up" in "".join(found.verdict())) == (trained, not trained)


def test_diagnose_refuses_what_is_no_run(rlcore: Call) -> None:
    assert rlcore("diagnose", "nowhere").status == 2
