"""The plugin loader, with real distributions on ``sys.path``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

import pytest
from rlcore.errors import PluginError
from rlcore.plugins.discovery import Plugin, State, discover
from rlcore.plugins.installed import Plugins
from rlcore.plugins.observers import Observers
from rlcore.plugins.registry import Registry

GOOD = """
from rlcore import RewardSpec, hookimpl

@hookimpl
def rlcore_rewards():
    yield RewardSpec(id="{id}", target="somewhere:Reward")
"""

Install = Callable[..., None]


def by_name(plugins: list[Plugin], name: str) -> Plugin:
    (found,) = [plugin for plugin in plugins if plugin.name == name]
    return found


def reward_ids(plugins: Plugins) -> list[str]:
    return [offer.spec.id for offer in plugins.offers("rlcore_rewards")]


def test_plugin_is_found_from_metadata_and_loaded_on_demand(install: Install) -> None:
    install("acme-rl", GOOD.format(id="acme"))
    plugins = Plugins()
    assert by_name(plugins.all(), "acme-rl").state is State.FOUND
    assert "acme_rl_plugin" not in sys.modules
    loaded = by_name(plugins.load(), "acme-rl")
    assert (loaded.state, loaded.hooks, loaded.origin) == (State.OK, ("rlcore_rewards",), "acme-rl 1.2")
    (offer,) = [offer for offer in plugins.offers("rlcore_rewards") if offer.spec.id == "acme"]
    assert offer.plugin.distribution == "acme-rl"


@pytest.mark.parametrize("place", ["", "@hookimpl\ndef rlcore_rewards():\n    "])
@pytest.mark.parametrize("error", ["PluginError", "ConfigError"])
def test_an_error_of_rlcore_is_reported_with_its_parts(install: Install, place: str, error: str) -> None:
    raised = f"raise {error}('no table', found='a list', where='a.toml:3', fix='write a table')"
    install("acme-rl", f"from rlcore import hookimpl\nfrom rlcore.errors import {error}\n{place}{raised}\n")
    plugins = Plugins()
    plugins.offers("rlcore_rewards")
    plugin = by_name(plugins.all(), "acme-rl")
    assert plugin.state is State.BROKEN
    assert plugin.problem.endswith("no table: a list (a.toml:3)")
    assert plugin.fix == "write a table"


DECLARED = "from rlcore import RewardSpec, hookimpl\nfrom rlcore.specs import TrainerSpec\nrlcore_specs = [{}]\n"
REWARD = "RewardSpec(id='acme', target='somewhere:Reward')"


def test_declared_specs_are_registered_like_those_of_hooks(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("acme-rl", DECLARED.format(f"{REWARD}, TrainerSpec(id='train', target='somewhere:Trainer')"))
    monkeypatch.setenv("RLCORE_DISABLE_PLUGINS", "rlcore-trainer")
    for plugins in (Plugins(), Plugins()):  # the module is imported once
        assert "acme" in reward_ids(plugins)
        plugin = by_name(plugins.all(), "acme-rl")
        assert (plugin.state, plugin.hooks) == (State.OK, ("rlcore_rewards", "rlcore_trainers"))
        assert "rlcore_trainers is inactive" in plugin.notes[0]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (DECLARED.format("3"), "rlcore_specs has 3"),
        ("rlcore_specs = 3\n", "'int' object is not iterable"),
        (DECLARED.format(REWARD) + "@hookimpl\ndef rlcore_rewards(): yield 1\n", "hook rlcore_rewards"),
    ],
)
def test_wrong_declared_specs_break_their_plugin(install: Install, source: str, problem: str) -> None:
    install("acme-rl", source)
    plugin = by_name(Plugins().load(), "acme-rl")
    assert plugin.state is State.BROKEN
    assert problem in plugin.problem


def test_plugins_with_the_same_name_conflict_until_one_is_disabled(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributions = ("fork-acme", "real-acme")
    install("fork-acme", GOOD.format(id="fork"), plugin="Acme")
    install("real-acme", GOOD.format(id="real"), plugin="acme")
    plugins = Plugins()
    both = [plugin for plugin in plugins.load() if plugin.name.lower() == "acme"]
    assert [plugin.state for plugin in both] == [State.CONFLICT, State.CONFLICT]
    assert both[1].problem == "the name 'acme' is used by fork-acme 1.2 and real-acme 1.2; neither is loaded"
    assert [plugin.fix for plugin in both] == [
        f"remove one of them: pip uninstall {name}, or RLCORE_DISABLE_PLUGINS={name}" for name in distributions
    ]
    with pytest.raises(PluginError) as caught:
        Registry().plugin("acme")
    assert (caught.value.found, caught.value.where) == (both[0].problem, "fork-acme 1.2")
    assert not {"fork", "real"} & set(reward_ids(plugins))

    monkeypatch.setenv("RLCORE_DISABLE_PLUGINS", "fork_acme")
    plugins = Plugins()
    assert [p.state for p in plugins.load() if p.name.lower() == "acme"] == [State.DISABLED, State.OK]
    assert {"fork", "real"} & set(reward_ids(plugins)) == {"real"}


def test_incompatible_plugin_is_rejected_before_import(install: Install) -> None:
    install("acme-rl", GOOD.format(id="acme"), requires=("rlcore-core>=97,<99", "some-library"))
    install("good-rl", GOOD.format(id="good"), requires=("rlcore_core>=0.0.1", "rlcore-core>=99; extra == 'future'"))
    plugins = Plugins()
    plugin = by_name(plugins.load(), "acme-rl")
    assert plugin.state is State.INCOMPATIBLE
    assert plugin.problem.startswith("acme-rl 1.2 requires rlcore-core<99,>=97, found ")
    assert plugin.fix == "pip install --upgrade acme-rl 'rlcore-core<99,>=97'"
    assert "acme_rl_plugin" not in sys.modules
    assert "acme" not in reward_ids(plugins)
    assert by_name(plugins.all(), "good-rl").state is State.OK


def test_disabled_plugin_is_not_imported(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("acme-rl", GOOD.format(id="acme"), plugin="acme")
    monkeypatch.setenv("RLCORE_DISABLE_PLUGINS", "other, ACME")
    plugins = Plugins()
    plugin = by_name(plugins.load(), "acme")
    assert plugin.state is State.DISABLED
    assert "RLCORE_DISABLE_PLUGINS" in plugin.problem
    assert "acme" in plugin.fix
    assert "acme_rl_plugin" not in sys.modules
    assert "acme" not in reward_ids(plugins)


def test_plugins_are_sorted_by_distribution_and_name(install: Install) -> None:
    for name in ("mmm-rl", "aaa-rl", "zzz-rl"):
        install(name, GOOD.format(id=name))
    own = [id for id in reward_ids(Plugins()) if id in ("aaa-rl", "mmm-rl", "zzz-rl")]
    assert own == ["aaa-rl", "mmm-rl", "zzz-rl"]
    found = discover()
    assert found == sorted(found, key=lambda plugin: (plugin.distribution, plugin.name))


HOOK_OF_ITS_OWN = """
import sys
import pluggy
from rlcore import hookimpl, hookspec

@hookspec(firstresult=True)
def rlcore_colour(paint):
    "Claim a colour."

@hookimpl
def rlcore_addhooks(pluginmanager):
    pluginmanager.add_hookspecs(sys.modules[__name__])
"""


def test_claims_of_a_custom_hook_skip_plugins_that_raise(install: Install, caplog: pytest.LogCaptureFixture) -> None:
    claim = "from rlcore import hookimpl\n\n@hookimpl\ndef rlcore_colour(paint):\n    {}\n"
    install("aaa-hooks", HOOK_OF_ITS_OWN)
    install("bbb-answers", claim.format("return 'red' if paint else None"))
    install("ccc-raises", claim.format("raise RuntimeError('spilt')"))
    install("ddd-wrong", "from rlcore import hookimpl\n\n@hookimpl\ndef rlcore_colour(brush):\n    return 1\n")
    plugins = Plugins()
    states = {plugin.name: plugin.state for plugin in plugins.load()}
    assert (states["aaa-hooks"], states["ddd-wrong"]) == (State.OK, State.BROKEN)
    with caplog.at_level(logging.ERROR):
        assert plugins.claim("rlcore_colour", paint=True) == "red"
        assert plugins.claim("rlcore_colour", paint=False) is None
    assert ["ccc-raises" in record.getMessage() for record in caplog.records] == [True]


OBSERVER = """
from rlcore import hookimpl

events = []

@hookimpl
def rlcore_step_finished(step, metrics):
    events.append(step)
    {}

@hookimpl
def rlcore_run_finished(error):
    events.append("finished")
"""


def test_failing_observer_is_logged_once_and_disabled_for_the_run(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install("aaa-raises", OBSERVER.format("raise OSError('disk full')"))
    install("zzz-listens", OBSERVER.format("pass"))
    registry = Registry()
    observers = Observers(registry, ["aaa-raises", "zzz-listens"])
    with caplog.at_level(logging.ERROR):
        for step in (1, 2):
            observers.tell("rlcore_step_finished", run=None, step=step, metrics={})
        observers.tell("rlcore_run_finished", run=None, error=None)
    assert sys.modules["aaa_raises_plugin"].events == [1]
    assert sys.modules["zzz_listens_plugin"].events == [1, 2, "finished"]
    (record,) = caplog.records
    assert "aaa-raises" in record.getMessage()
    assert "disk full" in record.getMessage()
    Observers(registry, ["aaa-raises"]).tell("rlcore_step_finished", run=None, step=9, metrics={})
    assert sys.modules["aaa_raises_plugin"].events == [1, 9]


def test_trace_prints_hook_calls_and_results(
    install: Install, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install("acme-rl", GOOD.format(id="acme"))
    monkeypatch.setenv("RLCORE_TRACE_PLUGINS", "1")
    Plugins().offers("rlcore_rewards")
    assert "rlcore plugins: acme-rl rlcore_rewards() -> [acme]" in capsys.readouterr().err
