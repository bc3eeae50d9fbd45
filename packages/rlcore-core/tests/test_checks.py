"""Checks before a run: what those of components find, and the error that reports all failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rlcore.checks import failure, is_set, raise_failures, setting, unread, warning
from rlcore.config.layers import values_layer
from rlcore.config.messages import ProblemsError
from rlcore.doctor import recipe_findings
from rlcore.errors import NotInstalledError, PluginError, UserError
from rlcore.plugins.registry import Registry
from rlcore.session.checks import check_run
from rlcore.session.session import RunSession

VALUES: dict[str, Any] = {
    "model": {"path": "builtin:tiny"},
    "environment": {"id": "toy", "max_turns": 2},
    "reward": [{"id": "exact"}],
    "trainer": {"id": "policy-gradient", "steps": 2},
}


def session(**tables: Any) -> RunSession:
    return RunSession.create({**VALUES, **tables})


def checked(toy: Any, check: str, **tables: Any) -> RunSession:
    """A session whose trainer has this check."""
    source = (toy.site / "toy_rl.py").read_text(encoding="utf-8")
    (toy.site / "toy_rl.py").write_text(f"{source}\n{check}\n", encoding="utf-8")
    return session(**tables)


def test_settings_are_found_by_their_key(toy: Any) -> None:
    resolved = session(algorithm={"advantage": "grpo", "kl": {"x": 1.0}}, rollout={"group_size": 3}).resolved
    assert setting(resolved, "trainer.steps") == (2, True)
    assert setting(resolved, "rollout.group_size") == (3, True)
    assert setting(resolved, "trainer.learning_rate") == (0.001, False)
    assert setting(resolved, "model.images.max_pixels") == (None, False)
    assert setting(resolved, "strategy.id")[0] == "single"
    for unknown in ("", "trainer", "trainer.none", "none.steps", "environment.0.weight"):
        assert setting(resolved, unknown) == (None, False)


def test_keys_without_effect_are_reported_if_they_are_set(toy: Any) -> None:
    resolved = session(rollout={"group_size": 8, "top_k": 5}).resolved
    assert is_set(resolved, "rollout.top_k")
    assert not is_set(resolved, "rollout.top_p")
    found = list(unread(resolved, "rollout", ["top_p", "top_k"], "no effect", "remove it"))
    assert found == [failure("rollout.top_k", "no effect", "remove it")]


def test_failures_are_reported_together_with_value_and_origin(toy: Any) -> None:
    resolved = session().resolved
    found = [
        failure("trainer.steps", "too few", "trainer.steps=9"),
        warning("a note"),
        failure("rollout.group_size", "too many", value="8 of 9"),
    ]
    with pytest.raises(ProblemsError) as raised:
        raise_failures(resolved, found)
    assert str(raised.value).split("\n")[2:] == [
        "  bad value    trainer.steps = 2",
        "      from values",
        "      too few",
        "      fix: trainer.steps=9",
        "",
        "  bad value    rollout.group_size = 8 of 9",
        "      from default",
        "      too many",
    ]
    assert raise_failures(resolved, found[1:2]) == ["a note"]


def test_conflicts_of_several_components_are_reported_together(toy: Any) -> None:
    with pytest.raises(ProblemsError) as raised:
        check_run(session(rollout={"engine": "remote"}, model={"path": "builtin:tiny", "quantization": "nf4"}))
    assert [one.path for one in raised.value.problems] == ["rollout.engine", "model.quantization"]


def test_missing_packages_hide_no_conflict_and_no_missing_file(toy: Any) -> None:
    broken = {"rollout": {"engine": "absent"}, "data": {"id": "toy", "train": "absent.jsonl"}}
    with pytest.raises(ProblemsError) as raised:
        check_run(session(**broken, model={"path": "builtin:tiny", "quantization": "nf4"}))
    problems = raised.value.problems
    assert [one.kind for one in problems] == ["not installed", "bad value", "bad value"]
    told = [("no-such-distribution-here", "pip install"), ("quantization", "none"), ("absent.jsonl", "prepare toy")]
    for problem, texts in zip(problems, told, strict=True):
        assert all(text in str(problem) for text in texts), str(problem)
    with pytest.raises(NotInstalledError):  # alone, it is the error of a missing package
        check_run(session(rollout={"engine": "absent"}))


CHECK = "def look_at(run):\n    {}"


ABSENT = {"id": "toy", "train": "absent.jsonl"}


def test_missing_file_hides_no_conflict_of_the_trainer(toy: Any) -> None:
    check = CHECK.format("yield Finding(status='fail', key='trainer.steps', text='too few')")
    with pytest.raises(ProblemsError) as raised:
        check_run(checked(toy, check, data=ABSENT))
    assert [one.path for one in raised.value.problems] == ["trainer.steps", "data"]


@pytest.mark.parametrize("check", ["run.dataset.tasks('train')", "run.nothing"])
def test_missing_file_is_reported_once(toy: Any, check: str) -> None:
    with pytest.raises(UserError, match=r"absent\.jsonl") as raised:
        check_run(checked(toy, CHECK.format(check), data=ABSENT))
    assert not isinstance(raised.value, ProblemsError)


def test_finding_of_a_component_without_a_key_is_about_the_component(toy: Any) -> None:
    with pytest.raises(ProblemsError, match=r"trainer.id = policy-gradient\n      from values\n      no"):
        check_run(checked(toy, CHECK.format("yield Finding(status='fail', text='no')")))


@pytest.mark.parametrize(
    "answer", ["return ['a note']", "return 3", "yield 'a note'", "yield Finding(status=1, text='')"]
)
def test_check_that_returns_something_else_is_a_plugin_error(toy: Any, answer: str) -> None:
    with pytest.raises(PluginError, match="the check of trainer 'policy-gradient'"):
        check_run(checked(toy, CHECK.format(answer)))


def test_check_without_findings_is_accepted(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_run(checked(toy, CHECK.format("return None"))) == []
    assert Path("runs").exists() is False


def test_doctor_reports_each_failure_with_its_key_and_fix(toy: Any) -> None:
    strategy = "class Alone:\n    def device(self): ...\n    def optimise(self): ..."
    source = (toy.site / "toy_rl.py").read_text(encoding="utf-8")
    (toy.site / "toy_rl.py").write_text(f"{source}\n{strategy}\n", encoding="utf-8")
    tree = {**VALUES, "rollout": {"engine": "remote"}, "model": {"path": "builtin:tiny", "quantization": "nf4"}}
    tree["strategy"] = {"id": "toy_rl:Alone"}
    findings = recipe_findings(Registry(), "toy/mine", values_layer(tree, "mine"))
    found = [one for one in findings if one.status == "fail"]
    assert [one.text.partition(": ")[0] for one in found] == ["rollout.engine", "model.quantization"]
    assert all(one.fix for one in found)
