"""Runs that need no environment, and the layout ``stamped`` of their directories."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from rlcore.config.layers import values_layer
from rlcore.config.resolve import resolve
from rlcore.config.resolved import Resolved
from rlcore.errors import ConfigError, UserError
from rlcore.plugins.registry import Registry
from rlcore.runs.directory import (
    Asked,
    RunDirectory,
    best_checkpoint,
    check_name,
    checkpoint_to_resume,
    config_layer,
    last_checkpoint,
)
from rlcore.session.checks import check_run
from rlcore.session.plan import RunPlan
from rlcore.session.session import RunSession

IMITATES = "imitates.py:Imitates"
ASKED = Asked(argv=("rlcore", "run", "-c", "a file.toml"))


@pytest.fixture
def imitates(toy: Any) -> None:
    """A trainer that needs no environment, named by its file."""
    text = (
        "class Imitates:\n    needs_environment = False\n    def __init__(self, run): ...\n    def train(self): ...\n"
    )
    (toy.work / "imitates.py").write_text(text, encoding="utf-8")


def resolved(purpose: Any = "run", **values: Any) -> Resolved:
    tree = {"model": {"path": "builtin:tiny"}, "trainer": {"id": IMITATES}, **values}
    return resolve([values_layer(tree, "values")], Registry(), purpose=purpose)


def session_of(found: Resolved) -> RunSession:
    return RunSession(RunPlan(resolved=found))


def test_trainer_without_rollouts_needs_no_environment_or_reward(imitates: None) -> None:
    found = resolved(data={"id": "toy"})
    assert found.config.environment.id == ""
    assert found.config.reward == []
    check_run(session_of(found))
    tree = found.tree()
    assert "environment" not in tree
    assert "reward" not in tree
    again = resolve([values_layer(tree, "again")], Registry())
    assert again.tree() == tree


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('modalities=frozenset({"text", "image"}), ', ["cannot read the observations", "image"]),
        ('action="control", ', ["sampler 'local'"]),
    ],
)
def test_unsupported_environment_is_rejected_before_its_import(
    toy: Any, imitates: None, line: str, says: list[str]
) -> None:
    source = (toy.site / "toy_rl.py").read_text(encoding="utf-8")
    wanted = source.replace('EnvironmentSpec(id="toy", ', f'EnvironmentSpec(id="toy", {line}')
    (toy.site / "toy_rl.py").write_text(f"{wanted}\ndel Environment\n", encoding="utf-8")
    with pytest.raises(UserError) as caught:
        check_run(session_of(resolved(environment={"id": "toy"}, reward=[{"id": "exact"}])))
    assert [word for word in says if word not in str(caught.value)] == [], caught.value


def test_trainer_without_rollouts_can_have_environment_and_reward(imitates: None) -> None:
    found = resolved(environment={"id": "toy"}, reward=[{"id": "exact"}])
    assert found.tree()["environment"]["id"] == "toy"
    assert found.tree()["data"]["id"] == "toy"
    with pytest.raises(ConfigError, match="no reward 'exakt'"):
        resolved(environment={"id": "toy"}, reward=[{"id": "exakt"}])
    with pytest.raises(ConfigError, match="no environment 'toi'"):
        resolved(environment={"id": "toi"}, data={"id": "toy"})


def test_dataset_is_required_without_an_environment(imitates: None) -> None:
    with pytest.raises(ConfigError) as caught:
        resolved()
    assert "missing key  data.id" in str(caught.value)
    assert "data.id=chat reads files of conversations" in str(caught.value)
    assert "environment" not in str(caught.value).replace("no environment", "")


def test_other_trainers_need_environment_and_reward(imitates: None) -> None:
    with pytest.raises(ConfigError, match="missing key  environment"):
        resolved(trainer={"id": "policy-gradient"}, reward=[{"id": "exact"}])
    with pytest.raises(ConfigError, match="missing key  reward"):
        resolved(trainer={"id": "policy-gradient"}, environment={"id": "toy"})
    with pytest.raises(ConfigError, match="missing key  environment"):
        resolved(purpose="evaluation", data={"id": "toy"}, reward=[{"id": "exact"}])


def test_evaluation_of_a_run_without_an_environment_suggests_a_command(imitates: None, rlcore: Any) -> None:
    done = rlcore("run", f"trainer.id={IMITATES}", "model=builtin:tiny", "data.id=toy", "name=mine")
    assert done.status == 0, done.err
    done = rlcore("eval", "runs/mine")
    assert done.status == 2
    assert "no environment and no reward" in done.err
    assert "rlcore eval -p PLUGIN model=runs/mine" in done.err
    named = rlcore("eval", "runs/mine", "environment.id=toy", 'reward=[{id="exact"}]')
    assert "-p PLUGIN" not in named.err


def stamped(**values: Any) -> Resolved:
    return resolved(data={"id": "toy"}, layout="stamped", **values)


def test_stamped_directory_has_time_tag_and_additional_names(imitates: None) -> None:
    directory = RunDirectory.create(stamped(name="SFT"), ASKED)
    assert re.fullmatch(r"\d{8}_\d{6}_SFT", directory.path.name)
    assert {"backup", "ckpt", "result", "tensorboard", "output.log"} <= {path.name for path in directory.path.iterdir()}
    (directory.checkpoints / "000003").mkdir()
    assert (directory.path / "ckpt" / "000003").is_dir()
    assert checkpoint_to_resume(directory.path)[1] == last_checkpoint(directory.path)
    directory.close()


def test_stamped_run_without_event_files_suggests_a_tracker(
    imitates: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (note,) = check_run(session_of(stamped()))
    assert "trackers.use=\"['console', 'jsonl', 'tensorboard']\"" in note
    information = tmp_path / "site" / "tensorboard-2.20.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: tensorboard\nVersion: 2.20.0\n", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert check_run(session_of(stamped(trackers={"use": ["tensorboard"]}))) == []
    (note,) = check_run(session_of(stamped()))
    assert "pip install" not in note
    assert check_run(session_of(resolved(data={"id": "toy"}))) == []


def test_backup_contains_configuration_versions_and_command(imitates: None) -> None:
    directory = RunDirectory.create(stamped(name="SFT", seed=7), ASKED)
    backup = directory.path / "backup"
    assert "seed = 7" in (backup / "config.toml").read_text("utf-8")
    assert '"pydantic": ' in (backup / "environment.json").read_text("utf-8")
    assert (backup / "asked.toml").is_file()
    assert (backup / "command.txt").read_text("utf-8") == "rlcore run -c 'a file.toml'\n"
    again = resolve([config_layer(directory.path), values_layer({"seed": 8}, "later")], Registry())
    directory.resume(again, Asked(argv=("rlcore", "run", "--resume", "x")), None)
    assert "seed = 8" in (backup / "config.toml").read_text("utf-8")
    assert (backup / "command.txt").read_text("utf-8").splitlines()[1] == "rlcore run --resume x"
    directory.close()


def test_stamped_directories_of_the_same_second_differ(imitates: None) -> None:
    found = stamped(name="SFT")
    first = RunDirectory.create(found, ASKED)
    check_name(found)
    second = RunDirectory.create(found, ASKED)
    assert first.path != second.path
    for directory in (first, second):
        directory.close()
    with pytest.raises(UserError) as raised:
        check_name(stamped(name="../x"))
    assert "../x" in raised.value.message


def test_plain_directory_has_no_backup(imitates: None) -> None:
    directory = RunDirectory.create(resolved(data={"id": "toy"}, name="mine"), ASKED)
    assert not (directory.path / "backup").exists()
    directory.close()


def test_best_checkpoint_is_the_linked_one(imitates: None) -> None:
    directory = RunDirectory.create(resolved(data={"id": "toy"}, name="mine"), ASKED)
    for step in (10, 20):
        (directory.checkpoints / f"{step:06d}").mkdir()
    directory.metrics.write_text('{"step": 20, "evaluation/accuracy": 1.0}\n')
    (directory.checkpoints / "best").symlink_to("000010")
    assert best_checkpoint(directory.path) == Path("runs/mine/checkpoints/000010")
    (directory.checkpoints / "000010").rename(directory.checkpoints / "000010.left")
    assert best_checkpoint(directory.path) == Path("runs/mine/checkpoints/000020")
    directory.close()


def test_next_command_without_an_environment_names_a_plugin(imitates: None, toy: Any, rlcore: Any) -> None:
    text = (toy.work / "imitates.py").read_text(encoding="utf-8")
    text = text.replace("run): ...", "run):\n        self.run = run").replace(
        "train(self): ...",
        "train(self):\n        (self.run.directory.checkpoints / '000001/model').mkdir(parents=True)"
        "\n        return {}",
    )
    (toy.work / "imitates.py").write_text(text, encoding="utf-8")
    (toy.work / "run.toml").write_text(f'model = "builtin:tiny"\ntrainer = "{IMITATES}"\ndata.id = "toy"\n')
    done = rlcore("run", "-c", "run.toml", "name=one")
    assert done.status == 0, done.err
    checkpoint = Path("runs/one/checkpoints/000001")
    assert done.out.splitlines()[-1] == f"next      rlcore eval -p PLUGIN model={checkpoint}"
    assert rlcore("eval", str(checkpoint)).status == 2  # where the policy acts is said by nobody
