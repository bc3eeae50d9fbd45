"""Stored trajectories judged again, by any reward, without touching the run."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlcore.episodes.evaluation import wilson
from rlcore.rollouts.records import read_groups, write_groups
from rlcore.session.rescoring import Comparison
from rlcore.testing import make_trajectory
from rlcore.types import Boundary, Failure, Group, RewardResult, Stop, Task, Trajectory

REWARDS = '''
from pydantic import BaseModel
from rlcore.errors import UserError
from rlcore.types import RewardResult

class Parity:
    """1 where the task's answer has the wanted parity."""
    class Config(BaseModel):
        odd: bool = True
    def __init__(self, config): self.config = config
    async def __call__(self, trajectory, task):
        return float(task.fields["answer"] % 2 == self.config.odd)

def stubborn(trajectory, task):
    if task.fields["answer"] == 1:
        raise ValueError("the judge is out")
    return 0.25

class Gone:
    """Scores some tasks itself, and asks a service about the others, which is gone."""
    reward_timeout_s = 5.0
    refusal = None
    async def __call__(self, trajectory, task):
        if task.fields["answer"] == 1:
            return 1.0
        self.refusal = UserError("the endpoint does not respond", fix="start it")
        return RewardResult(value=None, error="gone")
    async def close(self): self.refusal = None

def ranks(group):
    return [n / len(group.trajectories) for n, _ in enumerate(group.trajectories)]
ranks.scope = "group"
'''

Run = Callable[..., Any]


@pytest.fixture
def run(rlcore: Run, toy: Any) -> Path:
    """A run of three steps: each has two tasks of two trajectories, half of them with the reward 1."""
    assert rlcore("run", "-p", "toy", "name=it").status == 0
    (toy.work / "rewards.py").write_text(REWARDS)
    return Path("runs/it")


def bytes_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def group(*trajectories: Trajectory, answer: int = 1) -> Group:
    return Group(task=Task(id=f"t{answer}", messages=(), fields={"answer": answer}), trajectories=trajectories)


def judged(text: str, value: float | None, **changes: Any) -> Trajectory:
    return make_trajectory(text).replace(reward=value, rewards={"old": RewardResult(value=value)}, **changes)


def test_rewards_of_the_run_are_the_default_and_the_run_is_not_changed(rlcore: Run, run: Path) -> None:
    before = bytes_of(run)
    result = rlcore("data", "rescore", run, "--json")
    assert result.status == 0, result.err
    found = json.loads(result.out)
    assert list(found) == [f"train-00000{n}" for n in (1, 2, 3)]
    for train in found.values():
        assert (train["groups"], train["trajectories"], train["changed"]) == (2, 4, 2)  # toy's reward gives 1.0 to all
        assert (train["before"]["mean"], train["now"]["mean"]) == (0.5, 1.0)
        assert train["now"]["interval"] == list(wilson(1.0, 2))
        assert train["confusion"]["not solved"] == {"solved": 2, "not solved": 0, "not scored": 0}
    assert bytes_of(run) == before


def test_reward_from_a_file_receives_the_task_fields(rlcore: Run, run: Path) -> None:
    result = rlcore("data", "rescore", run, "reward.0.id=rewards.py:Parity", "reward.0.odd=false", "--json")
    assert json.loads(result.out)["train-000001"]["now"]["mean"] == 0.5  # answers are 0 and 1
    result = rlcore("data", "rescore", run, "reward.0.id=rewards.py:ranks", "--json")
    assert json.loads(result.out)["train-000001"]["now"]["mean"] == 0.25


def test_new_id_replaces_the_table_and_next_index_adds_a_reward(rlcore: Run, run: Path) -> None:
    words = [
        "reward.0.id=rewards.py:Parity",
        "reward.0.weight=0.25",
        "reward.0.odd=false",
        "reward.2.id=rewards.py:ranks",
    ]
    result = rlcore("data", "rescore", run, *words, "out=again")
    assert result.status == 0, result.err
    assert "rewards   rewards.py:Parity (weight 0.25), length (weight 0), rewards.py:ranks (weight 1)" in result.out
    first = next(read_groups(Path("again/rescored-train-000001.jsonl.gz")))
    assert first.rewards_G == (0.25, 0.75)
    assert set(first.trajectories[0].rewards) == {"rewards.py:Parity", "length", "rewards.py:ranks"}


def test_written_records_differ_only_in_their_results(rlcore: Run, run: Path) -> None:
    assert rlcore("data", "rescore", run, "out=deep/again").status == 0
    names = sorted(path.name for path in Path("deep/again").iterdir())
    assert names == [f"rescored-train-00000{n}.jsonl.gz" for n in (1, 2, 3)]
    old = list(read_groups(run / "rollouts" / "train-000002.jsonl.gz"))
    new = list(read_groups(Path("deep/again/rescored-train-000002.jsonl.gz")))
    assert [group.task for group in new] == [group.task for group in old]
    for before, now in zip(old, new, strict=True):
        for left, right in zip(before.trajectories, now.trajectories, strict=True):
            assert right.reward == 1.0
            assert right.replace(reward=left.reward, rewards=left.rewards) == left
    again = rlcore("data", "rescore", "deep/again/rescored-train-000002.jsonl.gz", "reward.0.id=exact")
    assert again.status == 0
    assert again.out.splitlines()[3].split()[-1] == "0"
    shown = rlcore("data", "show", "deep/again")
    assert shown.status == 0, shown.err
    assert "rescored-train-000003.jsonl.gz" in shown.out
    assert (
        "trajectory 1 of 2: done, 2 tokens (1 sampled), reward 1\n  rewards of the other trajectories: 1\n" in shown.out
    )


def test_every_step_has_its_own_row(rlcore: Run, run: Path) -> None:
    lines = rlcore("data", "rescore", run).out.splitlines()
    rows = [line.split() for line in lines if line.startswith("train-")]
    assert [row[0] for row in rows] == [f"train-00000{n}" for n in (1, 2, 3)]
    assert all(row[1:4] == ["4", "→", "4"] for row in rows)
    assert "train: 12 trajectories" in lines


def test_repeated_task_is_not_an_independent_trial() -> None:
    comparison = Comparison(success=1.0)
    for _ in range(2):
        comparison.add(group(judged("a", 1.0)), group(judged("a", 0.0)))
    assert (comparison.now.solved, comparison.now.interval) == (0.0, None)


def test_progress_is_printed(rlcore: Run, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore.cli.data.rescoring.PROGRESS_EVERY_S", 0.0)
    lines = rlcore("data", "rescore", run, "--json").err.splitlines()
    assert lines[0] == "1 group scored, file 1 of 3"
    assert lines[-1] == "6 groups scored, file 3 of 3"


@pytest.mark.parametrize("out", ["taken", "runs/it/again"])
def test_existing_folder_and_folder_in_the_run_are_rejected(out: str, rlcore: Run, run: Path) -> None:
    Path("taken").mkdir()
    before = bytes_of(run)
    result = rlcore("data", "rescore", run, f"out={out}")
    assert result.status == 2
    assert out in result.err
    assert bytes_of(run) == before
    assert not any(Path("taken").iterdir())


def test_failed_episodes_stay_not_scored_and_failed_rewards_are_repeated(rlcore: Run, toy: Any) -> None:
    (toy.work / "rewards.py").write_text(REWARDS)
    broken = judged("x", None, failure=Failure(boundary=Boundary.ENVIRONMENT, message="the phone is gone"))
    unjudged = judged("y", None, failure=Failure(boundary=Boundary.REWARD, message="reward old: down"))
    write_groups(Path("some.jsonl"), [group(broken, unjudged, answer=2), group(judged("z", 1.0), answer=1)])
    result = rlcore("data", "rescore", "some.jsonl", "reward.0.id=rewards.py:stubborn")
    assert result.status == 0, result.err
    assert "environment: the phone is gone" in result.out
    assert "reward: reward rewards.py:stubborn: it raised ValueError: the judge is out" in result.out
    found = json.loads(rlcore("data", "rescore", "some.jsonl", "reward.0.id=rewards.py:stubborn", "--json").out)["some"]
    assert found["confusion"]["not scored"] == {"solved": 0, "not solved": 1, "not scored": 1}
    assert found["confusion"]["solved"] == {"solved": 0, "not solved": 0, "not scored": 1}
    assert found["now"]["mean"] == 0.25


def test_earlier_reward_failure_is_removed_when_scored_again(rlcore: Run, toy: Any) -> None:
    (toy.work / "rewards.py").write_text(REWARDS)
    cut = judged("y", 0.5, stop=Stop.LENGTH).replace(reward=None, rewards={})
    write_groups(Path("some.jsonl.gz"), [group(cut)])
    assert rlcore("data", "rescore", "some.jsonl.gz", "reward.0.id=rewards.py:stubborn", "out=failed").status == 1
    (failed,) = next(read_groups(Path("failed/rescored-some.jsonl.gz"))).trajectories
    assert failed.failure is not None
    assert failed.failure.boundary is Boundary.REWARD
    assert failed.replace(failure=None, rewards={}) == cut
    again = rlcore("data", "rescore", "failed/rescored-some.jsonl.gz", "reward.0.id=exact", "out=again")
    assert again.status == 0, again.err
    (scored,) = next(read_groups(Path("again/rescored-rescored-some.jsonl.gz"))).trajectories
    assert (scored.reward, scored.failure, scored.stop) == (1.0, None, Stop.LENGTH)


@pytest.mark.parametrize(
    "content",
    [
        b"not json\n",
        b'{"task": 3, "trajectories": []}\n',
        b'{"task": {}, "trajectories": [{"rewards": []}]}\n',
        b'{"half": \n',
        b"[" * 200_000 + b"\n",
    ],
)
def test_damaged_line_is_named_and_nothing_is_written(content: bytes, rlcore: Run, toy: Any) -> None:
    path = Path("some.jsonl")
    write_groups(path, [group(judged("a", 1.0))])
    path.write_bytes(path.read_bytes() + content)
    result = rlcore("data", "rescore", path, "reward.0.id=exact", "out=again")
    assert result.status == 2
    assert "this is not a stored group" in result.err
    assert "some.jsonl:2" in result.err
    assert [entry.name for entry in Path().iterdir()] == ["some.jsonl"]


@pytest.mark.parametrize("wrong", [{"reward": "abc"}, {"reward": math.nan}, {"metrics": 3}])
def test_stored_value_of_the_wrong_type_is_named(wrong: dict[str, Any], rlcore: Run, toy: Any) -> None:
    path = Path("some.jsonl")
    write_groups(path, [group(judged("a", 1.0))])
    line = json.loads(path.read_text(encoding="utf-8"))
    line["trajectories"][0].update(wrong)
    path.write_text(json.dumps(line), encoding="utf-8")
    result = rlcore("data", "rescore", path, "reward.0.id=exact")
    assert result.status == 2
    assert "this is not a stored group" in result.err
    assert "some.jsonl:1" in result.err


@pytest.mark.parametrize(
    "source", ["def r(trajectory): return 1\n", "def r(group): return [1]\nr.scope = 'trajectory'\n"]
)
def test_reward_with_a_wrong_signature_is_rejected(source: str, rlcore: Run, toy: Any) -> None:
    Path("wrong.py").write_text(source, encoding="utf-8")
    result = rlcore("run", "-p", "toy", "reward.0.id=wrong.py:r", "--dry-run")
    assert result.status == 2
    assert "is called with (trajectory, task)" in result.err
    assert "wrong.py:1" in result.err


@pytest.mark.parametrize(("id", "found"), [("needs:Two", "missing 2 required"), ("needs:Room", "needs.py:7")])
def test_reward_that_cannot_be_created_is_reported_and_nothing_is_written(
    id: str, found: str, rlcore: Run, toy: Any
) -> None:
    write_groups(Path("some.jsonl"), [group(judged("a", 1.0))])
    Path("needs.py").write_text(
        "class Two:\n    def __init__(self, a, b): ...\n    def __call__(self, trajectory, task): ...\n"
        "class Room:\n    def __init__(self):\n        # a file that is not there\n        open('gone')\n"
        "    def __call__(self, trajectory, task): ...\n",
        encoding="utf-8",
    )
    result = rlcore("data", "rescore", "some.jsonl", f"reward.0.id={id.replace(':', '.py:')}", "out=again")
    assert result.status == 2
    assert "cannot be created" in result.err
    assert found in result.err
    assert not Path("again").exists()


def test_two_processes_with_the_same_output_folder_do_not_interfere(rlcore: Run, run: Path) -> None:
    other = Path(".again.1.partial")
    other.mkdir()
    Path(".again.partial").mkdir()
    assert rlcore("data", "rescore", run, "out=again").status == 0
    assert other.is_dir()
    assert Path(".again.partial").is_dir()


def test_unusable_service_is_an_error_and_nothing_is_written(rlcore: Run, run: Path) -> None:
    result = rlcore("data", "rescore", run, "reward.0.id=rewards.py:Gone", "out=again")
    assert result.status == 2
    assert "the endpoint does not respond" in result.err
    assert "start it" in result.err
    assert not Path("again").exists()


def test_damaged_archive_is_named(rlcore: Run, toy: Any) -> None:
    path = Path("some.jsonl.gz")
    write_groups(path, [group(judged("a" * 999, 1.0))])
    whole = path.read_bytes()
    for damaged in (whole[:40], whole[:30] + b"\xff" * 40 + whole[70:], b"plain"):
        path.write_bytes(damaged)
        result = rlcore("data", "rescore", path, "reward.0.id=exact")
        assert result.status == 2
        assert "some.jsonl.gz" in result.err
        assert "Traceback" not in result.err


def test_all_errors_in_overrides_are_reported_at_once(rlcore: Run, run: Path) -> None:
    result = rlcore("data", "rescore", run, "reward.0.id=exakt", "reward.1.weight=x", "evaluation.every=1", "bogus=1")
    assert result.status == 2
    for text in ("4 problems", "did you mean 'exact'?", "reward.1.weight = 'x'", "evaluation: success", "bogus"):
        assert text in result.err


@pytest.mark.parametrize(
    ("source", "words", "text"),
    [
        ("nowhere", (), "there is no run or file nowhere"),
        (".", (), "has no stored rollouts"),
        ("some.jsonl", (), "no reward is configured"),
        ("some.jsonl", ("reward=exact",), "no reward is configured"),
        ("some.jsonl", ("reward.3.id=exact",), "reward.3"),
    ],
)
def test_invalid_source_is_rejected_with_a_fix(
    source: str, words: tuple[str, ...], text: str, rlcore: Run, toy: Any
) -> None:
    if source == "some.jsonl":
        write_groups(Path(source), [group(judged("a", 1.0))])
    result = rlcore("data", "rescore", source, *words)
    assert result.status == 2
    assert text in result.err
    assert "fix" in result.err or "there are" in result.err


def test_comparison_matches_hand_computed_values() -> None:
    comparison = Comparison(success=1.0)
    comparison.add(group(judged("a", 1.0), judged("b", 0.0)), group(judged("a", 1.0), judged("b", 1.0)))
    other = group(judged("a", 0.0), judged("b", None), answer=2)
    comparison.add(group(judged("a", None), judged("b", 0.5), answer=2), other)
    assert comparison.before.scored == 3
    assert comparison.before.mean == 0.5
    assert comparison.before.solved == (0.5 + 0.0) / 2
    assert comparison.before.interval == wilson(0.25, 2)
    assert comparison.now.solved == (1.0 + 0.0) / 2
    assert comparison.changed == 3
    assert comparison.confusion["not solved", "solved"] == 1
    assert comparison.confusion["not solved", "not scored"] == 1
    assert comparison.confusion["not scored", "not solved"] == 1


def test_records_without_gz_are_plain_lines(tmp_path: Path) -> None:
    groups = [group(judged("a", 1.0)), group(judged("b", None))]
    write_groups(tmp_path / "a.jsonl", groups)
    write_groups(tmp_path / "a.jsonl.gz", groups)
    assert (tmp_path / "a.jsonl").read_bytes() == gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes())
    assert list(read_groups(tmp_path / "a.jsonl")) == groups == list(read_groups(tmp_path / "a.jsonl.gz"))
