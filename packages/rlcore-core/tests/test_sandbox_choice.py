"""The table ``[sandbox]``, and the choice of a backend."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from plain_sandbox import PlainSandbox
from rlcore.cli.layering import gather
from rlcore.config.layers import Layer
from rlcore.config.resolve import resolve
from rlcore.config.resolved import Resolved
from rlcore.errors import ConfigError, PluginError, UserError
from rlcore.hookspecs import hookimpl
from rlcore.plugins.registry import Registry
from rlcore.session.checks import check_run
from rlcore.session.plan import RunPlan
from rlcore.session.sandboxes import examine, importable
from rlcore.session.session import RunSession
from rlcore.types import SandboxLimits

CODER = ("environment.id=toy_rl:Coder", "data.id=toy")


def resolved(*overrides: str) -> Resolved:
    registry = Registry()
    layered = gather(registry, plugin="toy", overrides=overrides)
    return resolve(layered.layers, registry, recipe=layered.recipe)


def session(*overrides: str) -> RunSession:
    return RunSession(RunPlan(resolved=resolved(*overrides)))


def unusable(**reasons: str) -> None:
    """State why sandboxes of the plugin cannot be used. The plugin is imported before."""
    Registry().specs("sandbox")
    known: Any = sys.modules["toy_rl"]
    known.UNUSABLE.update(reasons)


def test_limits_are_keys_of_the_table_beside_those_of_the_backend(toy: Any) -> None:
    run = session("sandbox.id=remote", "sandbox.address=here", "sandbox.cell_s=2", "sandbox.memory_mb=64")
    assert run.config.sandbox.limits == SandboxLimits(cell_s=2.0, memory_mb=64)
    box: Any = run.sandbox()
    assert (box.config.address, box.limits) == ("here", run.config.sandbox.limits)
    assert resolved().config.sandbox.limits == SandboxLimits()


@pytest.mark.parametrize("overrides", [(), ("sandbox.id=remote", "sandbox.address=a", "sandbox.files=9")])
def test_the_resolved_table_resolves_to_itself(toy: Any, overrides: tuple[str, ...]) -> None:
    found = resolved(*overrides)
    tree: Mapping[str, Any] = found.tree()
    again = resolve([Layer(tree=tree, origins={})], Registry())
    assert again.tree()["sandbox"] == tree["sandbox"]
    assert again.options.get("sandbox") == found.options.get("sandbox")


@pytest.mark.parametrize(
    ("overrides", "place"),
    [
        (("sandbox.adress=a",), "sandbox.adress"),
        (("sandbox.address=a",), "sandbox.address"),
        (("sandbox.id=strong", "sandbox.address=a"), "sandbox.address"),
        (("sandbox.id=remote",), "sandbox.address"),
        (("sandbox.id=stong",), "sandbox.id = 'stong'"),
        (("sandbox.cell_s=0",), "sandbox.cell_s"),
        (("sandbox.memory_mb=true",), "sandbox.memory_mb"),
        (("sandbox=strong", "sandbox.cel_s=1"), "sandbox.cell_s"),
    ],
)
def test_mistakes_in_the_table_are_reported_with_their_keys(toy: Any, overrides: tuple[str, ...], place: str) -> None:
    with pytest.raises(ConfigError) as raised:
        resolved(*overrides)
    assert place in str(raised.value)


def test_the_strongest_available_sandbox_is_chosen(toy: Any) -> None:
    assert session().sandbox_choice.line() == "strong: no network; no files"
    unusable(strong="no namespaces")
    assert session().sandbox_choice.line() == "weak: no network. Not guaranteed: files can be read"


def test_a_named_sandbox_is_refused_and_never_replaced(toy: Any) -> None:
    assert session("sandbox=weak").sandbox_choice.spec.id == "weak"
    unusable(strong="no namespaces")
    with pytest.raises(UserError, match="strong") as raised:
        check_run(session("sandbox.id=strong"))
    assert raised.value.found == "no namespaces"
    assert raised.value.where == "command line: sandbox.id=strong"
    assert "install namespaces" in str(raised.value.fix)
    assert "sandbox.id=weak" in str(raised.value.fix)


def test_a_check_sees_the_options_of_the_run(toy: Any) -> None:
    with pytest.raises(UserError) as raised:
        check_run(session("sandbox.id=remote", "sandbox.address=gone"))
    assert raised.value.found == "gone"
    check_run(session("sandbox.id=remote", "sandbox.address=here"))
    assert examine(Registry(), "remote").support.reason == "no address"


def test_without_a_sandbox_only_a_run_that_executes_code_is_refused(toy: Any) -> None:
    unusable(strong="no namespaces", weak="no landlock")
    check_run(session())
    with pytest.raises(UserError, match="no sandbox") as raised:
        check_run(session(*CODER))
    check_run(session(*CODER, "environment.code=false"))
    assert raised.value.found == "strong: no namespaces; weak: no landlock"
    assert "strong: install namespaces" in str(raised.value.fix)


def test_a_run_that_executes_code_names_the_package_of_the_sandboxes(toy: Any) -> None:
    unusable()
    sys.modules["toy_rl"].rlcore_sandboxes = hookimpl(lambda: ())  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="no sandbox is installed") as raised:
        check_run(session(*CODER))
    assert "rlcore-sandbox" in str(raised.value.fix)


def test_modules_that_code_can_import_are_found_in_the_sandbox(toy: Any) -> None:
    unusable()
    sys.modules["toy_rl"].Box = PlainSandbox  # type: ignore[attr-defined]
    assert importable(session(), ["math", "no_such_module", "json"]) == ("math", "json")
    unusable(strong="no namespaces", weak="no landlock")
    assert importable(session(), ["math"]) is None


def test_a_sandbox_that_fails_cannot_say_what_code_can_import(toy: Any) -> None:
    class Broken(PlainSandbox):
        async def open(self, images: Sequence[bytes]) -> Any:
            raise OSError("no machine")

    unusable()
    sys.modules["toy_rl"].Box = Broken  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="strong") as raised:
        importable(session(), ["math"])
    assert "no machine" in str(raised.value.found)


def test_tools_declare_that_they_run_code(toy: Any) -> None:
    source = "from rlcore import tool\n@tool(runs_code={})\ndef shell(code: str) -> str:\n    'Run.'\n    return code\n"
    for name, declared in (("runs", True), ("looks", False)):
        (toy.work / f"{name}.py").write_text(source.format(declared))
    assert session("environment.tools=runs.py:shell").runs_code
    assert not session("environment.tools=looks.py:shell").runs_code
    assert not session("environment.tools=adder").runs_code


def test_a_cell_must_end_before_its_step(toy: Any) -> None:
    with pytest.raises(UserError, match="30 s for a cell, 30 s for a step"):
        check_run(session(*CODER, "rollout.environment_timeout_s=30"))
    check_run(session(*CODER, "rollout.environment_timeout_s=30", "sandbox.cell_s=20"))
    check_run(session("rollout.environment_timeout_s=30"))


def test_a_check_that_returns_something_else_is_a_plugin_error(toy: Any) -> None:
    unusable()
    sys.modules["toy_rl"].strong_box = lambda config: "yes"  # type: ignore[attr-defined]
    with pytest.raises(PluginError, match="SandboxSupport"):
        session().sandbox_choice  # noqa: B018
