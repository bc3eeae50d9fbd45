"""Whatever a plugin returns or raises becomes an answer that names it, and other plugins go on working."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hostile_answers import ACTS, ERRORS, VALUES, Nasty, NastyDict, raises
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rlcore.checks import Finding
from rlcore.cli.interrupts import interrupts_handled
from rlcore.doctor import examine
from rlcore.episodes.rewards import SelectedReward
from rlcore.episodes.scoring import Scorer
from rlcore.episodes.tool import ToolResult, tool
from rlcore.errors import PluginError, ToolFailure
from rlcore.plugin_calls import Ended, Interrupt, error_text, plugin_code, value_text
from rlcore.plugins.discovery import State
from rlcore.plugins.installed import Plugins
from rlcore.plugins.observers import Observers
from rlcore.plugins.registry import KINDS, Registry
from rlcore.session.datasets import checked_dataset
from rlcore.session.session import RunSession
from rlcore.specs import RewardSpec
from rlcore.testing import make_trajectory
from rlcore.types import Demonstration, Group, Message, RewardResult, Task

Install = Callable[..., None]
Act = Callable[[], Any]
WHAT = "dataset 'x' of the plugin acme (acme-rl 1.2)"
TASK = Task(id="t", messages=())

HOOKS = sorted({kind.hook for kind in KINDS.values()} | {"rlcore_step_finished", "rlcore_addhooks"})
HOSTILE = "from rlcore import hookimpl\nact = lambda: None\n" + "".join(
    f"@hookimpl\ndef {hook}({'step' if 'step' in hook else 'pluginmanager' if 'add' in hook else ''}): return act()\n"
    for hook in HOOKS
)
GOOD = """
from rlcore import CheckSpec, RewardSpec, hookimpl
seen = []
@hookimpl
def rlcore_rewards(): yield RewardSpec(id="good", target="somewhere:Reward")
@hookimpl
def rlcore_checks(): yield CheckSpec(id="good", target="zzz_good_plugin:check")
@hookimpl
def rlcore_step_finished(step, metrics): seen.append((step, metrics))
def check():
    from rlcore.checks import Finding
    yield Finding(status="ok", text="fine")
"""
ANY = settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def command() -> Iterator[None]:
    """As in the command: KeyboardInterrupt of a plugin is not Ctrl-C."""
    with interrupts_handled():
        yield


@pytest.fixture
def hostile(install: Install) -> Callable[[Act], Plugins]:
    """A plugin whose every hook calls the given function, beside one that works."""
    install("aaa-hostile", HOSTILE)
    install("zzz-good", GOOD)
    Plugins().load()

    def plugins(act: Act) -> Plugins:
        sys.modules["aaa_hostile_plugin"].act = act  # type: ignore[attr-defined]
        return Plugins()

    return plugins


@pytest.mark.long
@ANY
@given(act=ACTS, hook=st.sampled_from(sorted(kind for kind in KINDS)))
def test_every_answer_of_a_register_hook_is_contained(act: Act, hook: str, hostile: Callable[[Act], Plugins]) -> None:
    registry = Registry(hostile(act))
    registry.offers(hook)
    assert "good" in {spec.id for spec in registry.specs("reward")}
    (plugin,) = [one for one in registry.plugins.all() if one.name == "aaa-hostile"]
    assert plugin.state in (State.OK, State.BROKEN)
    assert bool(plugin.problem) == (plugin.state is State.BROKEN)
    assert {one.state for one in registry.plugins.all() if one.name == "zzz-good"} == {State.OK}


@contextmanager
def contained(kind: type[Exception], text: str) -> Iterator[Callable[[], bool]]:
    """The block may fail, but only with an error of this kind with this text."""
    failures: list[str] = []
    try:
        yield lambda: bool(failures)
    except kind as error:
        failures.append(str(error))
    assert all(text in failure for failure in failures)


@pytest.mark.parametrize("value", [5, None, "", ["x"]])
def test_spec_with_a_wrong_id_names_plugin_and_field(value: Any, hostile: Callable[[Act], Plugins]) -> None:
    plugins = hostile(lambda: [RewardSpec(id=value, target="a:b")])
    plugins.offers("rlcore_rewards")
    (plugin,) = [one for one in plugins.all() if one.name == "aaa-hostile"]
    assert plugin.state is State.BROKEN
    assert "RewardSpec whose id is" in plugin.problem


@pytest.mark.parametrize("make", ERRORS)
def test_any_exception_at_import_breaks_only_its_plugin(make: Callable[[], BaseException], install: Install) -> None:
    install("aaa-hostile", f"from hostile_answers import ERRORS\nraise ERRORS[{ERRORS.index(make)}]()\n")
    install("zzz-good", GOOD)
    registry = Registry()
    assert "good" in {spec.id for spec in registry.specs("reward")}
    (plugin,) = [one for one in registry.plugins.all() if one.name == "aaa-hostile"]
    assert plugin.state is State.BROKEN
    assert "aaa_hostile_plugin.py:2" in plugin.problem


@pytest.mark.parametrize("make", ERRORS)
def test_any_exception_of_a_target_names_the_component(make: Callable[[], BaseException], tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"from hostile_answers import ERRORS\nraise ERRORS[{ERRORS.index(make)}]()\n", encoding="utf-8")
    with pytest.raises(PluginError) as caught:
        Registry().load("reward", f"{file}:score")
    assert "reward" in caught.value.message
    assert caught.value.where == f"{file}:2"


def test_observers_get_their_own_metrics_and_failures_are_contained(
    hostile: Callable[[Act], Plugins], caplog: pytest.LogCaptureFixture
) -> None:
    seen = sys.modules["zzz_good_plugin"].seen  # type: ignore[attr-defined]
    for number, make in enumerate(ERRORS):
        plugins = hostile(lambda: None)
        plugins.load()
        hostile(raises(make))
        with caplog.at_level(logging.ERROR):
            observers = Observers(Registry(plugins), ["aaa-hostile", "zzz-good"])
            observers.tell("rlcore_step_finished", run=None, step=number, metrics={"loss": 1.0})
        assert seen[-1] == (number, {"loss": 1.0})
        assert "aaa-hostile (aaa-hostile 1.2)" in caplog.records[-1].getMessage()


def test_async_hook_is_reported(hostile: Callable[[Act], Plugins], caplog: pytest.LogCaptureFixture) -> None:
    async def observe() -> None: ...

    plugins = hostile(lambda: None)
    plugins.load()
    hostile(lambda: observe())
    with caplog.at_level(logging.ERROR):
        observers = Observers(Registry(plugins), ["aaa-hostile"])
        observers.tell("rlcore_step_finished", run=None, step=1, metrics={})
    assert "async" in caplog.text


def test_ctrl_c_in_a_plugin_is_not_contained(hostile: Callable[[Act], Plugins]) -> None:
    with pytest.raises(Interrupt):
        hostile(raises(Interrupt)).offers("rlcore_rewards")


CHECKS = """
from rlcore import CheckSpec, hookimpl
act = lambda: None
@hookimpl
def rlcore_checks(): yield CheckSpec(id="hostile", target="aaa_checks_plugin:check")
def check(): return act()
"""


@pytest.mark.long
@ANY
@given(act=ACTS)
@example(act=lambda: [Finding(status="great", text="x")])  # type: ignore[arg-type]
@example(act=lambda: [Finding(status="ok", text=None)])  # type: ignore[arg-type]
def test_every_answer_of_a_check_becomes_a_finding(act: Act, request: pytest.FixtureRequest) -> None:
    if "aaa_checks_plugin" not in sys.modules:
        install = request.getfixturevalue("install")
        install("aaa-checks", CHECKS)
        install("zzz-good", GOOD)
        request.getfixturevalue("monkeypatch").setenv("RLCORE_DISABLE_PLUGINS", "rlcore-core")  # its checks are slow
        Plugins().load()
    sys.modules["aaa_checks_plugin"].act = act  # type: ignore[attr-defined]
    findings = list(examine())
    for id, finding in findings:
        assert finding.status in ("ok", "warn", "fail")
        assert isinstance(finding.text, str)
        if id == "hostile":
            assert "aaa-checks (aaa-checks 1.2)" in finding.text
    assert "fine" in {finding.text for id, finding in findings if id == "good"}


METHODS = {
    "tasks": ("train",),
    "conversations": ("train",),
    "skipped": ("train",),
    "texts": (),
}


@ANY
@given(act=ACTS, name=st.sampled_from([*METHODS, "demonstrations"]))
@example(act=lambda: [Task(id=3, messages=())], name="tasks")  # type: ignore[arg-type]
@example(act=lambda: [Task(id="a", messages=None)], name="tasks")  # type: ignore[arg-type]
@example(act=lambda: [Task(id="a", messages=(Message(role="user", content=None),))], name="tasks")  # type: ignore[arg-type]
@example(act=lambda: [Demonstration(messages=["hi"])], name="demonstrations")  # type: ignore[list-item]
def test_every_answer_of_a_dataset_is_valid_or_names_the_plugin(act: Act, name: str) -> None:
    made = type("Dataset", (), {name: lambda self, *arguments, **keywords: act()})()
    dataset = checked_dataset(made, WHAT)
    wanted: Any = {"tasks": Task, "texts": str}.get(name, Demonstration)
    with contained(PluginError, WHAT) as failed:
        if name == "demonstrations":
            answer: Any = [row for row, _ in zip(dataset.demonstrations(5, seed=0), range(5))]  # type: ignore[attr-defined] # noqa: B905
        else:
            answer = getattr(dataset, name)(*METHODS[name])
            answer = answer if name in ("tasks", "conversations", "skipped") else [*zip(answer, range(5))]  # noqa: B905
    if failed():
        return
    if name == "skipped":
        assert isinstance(answer, int)
    elif name != "texts":
        assert all(isinstance(row, wanted) for row in answer)


def score(*functions: Any, scope: Any = "trajectory", count: int = 2) -> Sequence[Any]:
    async def run() -> Sequence[Any]:
        rewards = [
            SelectedReward(id=f"r{n}", weight=1, scope=scope, function=one, minimum=0, maximum=1, origin="acme-rl 1.2")
            for n, one in enumerate(functions)
        ]
        scorer = Scorer(rewards, timeout_s=5.0)
        scored = [await scorer.score(make_trajectory(str(n)), TASK) for n in range(count)]
        return (await scorer.settle(Group(task=TASK, trajectories=tuple(scored)))).trajectories

    return asyncio.run(run())


def check_scored(trajectories: Sequence[Any]) -> None:
    for one in trajectories:
        for result in one.rewards.values():
            assert result.value is None or 0 <= result.value <= 1
            assert all(type(value) is float for value in result.components.values())
        assert (one.reward is None) == (one.failure is not None)
        if one.failure is not None:
            assert "reward r0 (acme-rl 1.2): " in one.failure.message


RESULTS = st.builds(
    lambda value, components, error: lambda: RewardResult(value=value(), components=components(), error=error()),
    *[st.sampled_from(VALUES)] * 3,
)


@ANY
@given(act=st.one_of(ACTS, RESULTS), is_async=st.booleans())
@example(act=lambda: RewardResult(value=1.0, components={"x": Nasty()}), is_async=False)
@example(act=lambda: RewardResult(value=1.0, components={1: 1.0}), is_async=False)  # type: ignore[dict-item]
def test_every_answer_of_a_reward_is_a_score_or_not_scored(act: Act, is_async: bool) -> None:
    async def judge(trajectory: Any, task: Any) -> Any:
        return act()

    check_scored(score(judge if is_async else lambda trajectory, task: act()))


@ANY
@given(act=st.one_of(ACTS, RESULTS.map(lambda act: lambda: [act(), act()])), is_async=st.booleans())
def test_every_answer_of_a_group_reward_is_scores_or_not_scored(act: Act, is_async: bool) -> None:
    async def judge(group: Any) -> Any:
        return act()

    check_scored(score(judge if is_async else lambda group: act(), scope="group"))


TOOL_RESULTS = st.builds(
    lambda text, images, status, reward, info: (
        lambda: ToolResult(text(), images=images(), status=status(), reward=reward(), info=info())
    ),
    *[st.sampled_from((*VALUES, lambda: ()))] * 5,
)


@ANY
@given(act=st.one_of(ACTS, TOOL_RESULTS), is_async=st.booleans())
def test_every_answer_of_a_tool_is_a_result_or_a_failure(act: Act, is_async: bool) -> None:
    async def wait(x: int) -> Any:
        """Wait."""
        return act()

    def look(x: int) -> Any:
        """Look."""
        return act()

    made = tool(wait if is_async else look)
    with contained(ToolFailure, f"tool '{made.name}' (test_plugin_calls.py:") as failed:
        result = asyncio.run(made.call({"x": 1}))
    if failed():
        return
    assert isinstance(result, ToolResult)
    assert isinstance(result.text, str)
    assert all(isinstance(image, bytes) for image in result.images)


@settings(ANY, max_examples=40)
@given(act=ACTS, closes=ACTS)
def test_every_answer_of_a_tracker_disables_only_itself(
    act: Act, closes: Act, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    class Tracker:
        def log(self, step: int, metrics: Any) -> None:
            metrics.clear()
            act()

        def close(self) -> None:
            closes()

    logged: list[Any] = []
    good = SimpleNamespace(log=lambda step, metrics: logged.append(dict(metrics)), close=lambda: None)
    request.getfixturevalue("toy")
    run = RunSession.create(
        {"model": {"path": "builtin:tiny"}, "environment": {"id": "toy"}, "reward": [{"id": "exact"}]}
    )
    run.trackers += [("console", Tracker()), ("jsonl", good)]
    run.log(1, {"loss": 1.0})
    run.finished()
    assert logged == [{"loss": 1.0}]


@pytest.mark.parametrize("value", [Nasty(), [Nasty()], NastyDict(a=1), "x" * 1000])
def test_any_value_can_be_shown(value: Any) -> None:
    assert 0 < len(value_text(value)) <= 80


@pytest.mark.parametrize("make", ERRORS)
def test_any_exception_can_be_told(make: Callable[[], BaseException]) -> None:
    error = make()
    assert error_text(error).startswith(type(error).__name__)
    with pytest.raises(Exception) as caught, plugin_code("x"):  # noqa: PT011
        raise error
    assert isinstance(caught.value, Ended) or caught.value is error


SLOW = """
import time
from rlcore import hookimpl
time.sleep({import_s})
@hookimpl
def rlcore_rewards():
    time.sleep({hook_s})
    return []
"""
LIST = """
import sys
import rlcore.plugin_calls
rlcore.plugin_calls.SLOW_S = 0.3
from rlcore.cli import main
sys.argv = ["rlcore", "plugins", "list", "--check", "--json"]
main()
"""


@pytest.mark.parametrize(
    ("seconds", "line"),
    [
        ({"import_s": 0.6, "hook_s": 0}, "the import of the plugin acme-rl (acme-rl 1.2) takes longer than 0.3 s"),
        ({"import_s": 0, "hook_s": 0.6}, "rlcore_rewards of the plugin acme-rl (acme-rl 1.2) takes longer than 0.3 s"),
    ],
)
def test_slow_import_or_hook_is_named_in_a_line(
    seconds: dict[str, float], line: str, install: Install, tmp_path: Path
) -> None:
    install("acme-rl", SLOW.format(**seconds))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", LIST], env=environment, capture_output=True, text=True, check=False)
    assert line in done.stderr.splitlines()
